// Edits that are tried: as the address of the page has them, and as the server wants them.

/** One edit: its name, and its words. */
export interface Edit {
  name: string;
  words: string[];
}

export interface EditForm {
  name: string;
  title: string;
  /** What stands in the fields, in order. */
  fields: string[];
  /** Whether its one word is a text of several lines; the address has it encoded. */
  isText?: boolean;
  make: (words: string[]) => unknown;
}

const ofNodes = (name: string) => (words: string[]): unknown => ({ [name]: { nodes: words } });
const ofQuota = (part: string) => ([quota = "", resource = "", amount = ""]: string[]): unknown => ({
  patch: { ref: `quota/${quota}`, merge: { spec: { [part]: { [resource]: amount } } } },
});
const ofUnit = (field: string) => ([ref = "", value = ""]: string[]): unknown => ({
  patch: { ref, merge: { spec: { [field]: Number(value) } } },
});
const UNIT = "podgroup/NAMESPACE/NAME";

/** Bytes: the address of the page has the whole manifest in it. */
export const MOST_MANIFEST = 4000;

/** Encode a text as one word; null if it is too long for an address. */
export function pack(text: string): string | null {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > MOST_MANIFEST) return null;
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function unpack(word: string): string {
  try {
    const bytes = atob(word.replaceAll("-", "+").replaceAll("_", "/"));
    return new TextDecoder().decode(Uint8Array.from(bytes, (letter) => letter.charCodeAt(0)));
  } catch {
    return "";
  }
}

function tellManifest(text: string): string {
  const find = (name: string) => new RegExp(`(?:^|[\\s{,])"?${name}"?:\\s*"?([^"\\s,}]+)`).exec(text)?.[1] ?? "";
  return `${find("kind")} ${find("name")}`.trim() || "a manifest";
}

export const FORMS: EditForm[] = [
  { name: "submit", title: "Submit a job", fields: ["manifest (YAML)"], isText: true, make: ([word = ""]) => ({ submit: { manifest: unpack(word) } }) },
  { name: "addNodes", title: "Add nodes", fields: ["like node", "how many"], make: ([like, count]) => ({ addNodes: { like, count: Number(count) } }) },
  { name: "cordon", title: "Cordon a node", fields: ["node"], make: ofNodes("cordon") },
  { name: "uncordon", title: "Uncordon a node", fields: ["node"], make: ofNodes("uncordon") },
  { name: "drain", title: "Drain a node", fields: ["node"], make: ofNodes("drain") },
  { name: "removeNodes", title: "Remove a node", fields: ["node"], make: ofNodes("removeNodes") },
  { name: "max", title: "Set the max of a quota", fields: ["quota", "resource", "amount"], make: ofQuota("max") },
  { name: "min", title: "Set the min of a quota", fields: ["quota", "resource", "amount"], make: ofQuota("min") },
  { name: "minMember", title: "Set minMember", fields: [UNIT, "members"], make: ofUnit("minMember") },
  { name: "priority", title: "Set the priority", fields: [UNIT, "priority"], make: ofUnit("priority") },
  { name: "delete", title: "Delete a unit", fields: [UNIT], make: ([ref]) => ({ delete: { ref } }) },
];

/** Words have no blanks, edits no bars: names of Kubernetes have neither. */
export function readEdits(text: string): Edit[] {
  return text.split("|").map((part) => part.trim().split(/\s+/)).filter((words) => words[0])
    .map(([name = "", ...words]) => ({ name, words }));
}

export function writeEdits(edits: Edit[]): string {
  return edits.map((edit) => [edit.name, ...edit.words].join(" ")).join("|");
}

export function makeBody(edits: Edit[]): string {
  const made = edits.map((edit) => FORMS.find((form) => form.name === edit.name)?.make(edit.words) ?? { [edit.name]: {} });
  return JSON.stringify({ edits: made });
}

export function tellEdit(edit: Edit): string {
  const form = FORMS.find((each) => each.name === edit.name);
  const words = form?.isText ? tellManifest(unpack(edit.words[0] ?? "")) : edit.words.join(" ");
  return `${form?.title ?? edit.name}: ${words}`;
}

/** Return the edits that a remedy is; null if it is none that can be tried here. */
export function editsOf(kind: string, change: Record<string, unknown>, unit: string): Edit[] | null {
  const text = (name: string) => String(change[name]);
  switch (kind) {
    case "AddNodes": return [{ name: "addNodes", words: [text("like"), text("nodes")] }];
    case "Uncordon": return [{ name: "uncordon", words: (change["nodes"] as string[]).map(String) }];
    case "LowerMinMember": return [{ name: "minMember", words: [unit, text("to")] }];
    case "RaiseMax":
    case "RaiseMin":
      return [{
        name: kind === "RaiseMax" ? "max" : "min",
        words: [text("quota"), text("path").replace(/^\/spec\/(min|max)\//, ""), text("to")],
      }];
    default: return null;
  }
}
