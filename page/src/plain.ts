// Texts of answers as people can read them: what is not printable is shown by its code, as commands
// of the terminal do, so that no mark of direction lets a name look like another one.

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\n", "\t"]);

function codeOf(character: string): string {
  if (KEPT.has(character)) return character;
  const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at));
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

function show(text: string): string {
  return text.replace(HIDDEN, codeOf);
}

function showAll(_: string, value: unknown): unknown {
  if (typeof value === "string") return show(value);
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const isPlain = Object.keys(value).every((key) => show(key) === key);
  return isPlain ? value : Object.fromEntries(Object.entries(value).map(([key, each]) => [show(key), each]));
}

/** What may stand for something that is not printable: itself, or an escape that is no quote and no line break. */
const SUSPECT = /[^ -~]|\\[ubfr]/;

/** Read JSON of the server; may throw, as JSON.parse does. Nearly all of it is plain, and looking at each text is slow. */
export function readAnswer<T>(text: string): T {
  return (SUSPECT.test(text) ? JSON.parse(text, showAll) : JSON.parse(text)) as T;
}
