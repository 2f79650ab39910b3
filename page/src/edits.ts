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

export const FORMS: EditForm[] = [
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
  return `${form?.title ?? edit.name}: ${edit.words.join(" ")}`;
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
