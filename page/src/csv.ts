// Tables as files for spreadsheets (RFC 4180), made in the browser of what is shown.

export type Cell = string | number | null;

const FORMULA = /^[=+\-@\t\r]/;
const QUOTED = /[",\r\n]/;

/** A name that a spreadsheet would take for a formula begins with an apostrophe, as in files of the command. */
function write(cell: Cell): string {
  if (cell === null) return "";
  // Beyond that a number of the browser may differ from what was sent.
  if (typeof cell === "number") return Number.isSafeInteger(cell) ? String(cell) : "";
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return QUOTED.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Have the browser keep a table as a file. */
export function download(name: string, rows: Cell[][]): void {
  const text = rows.map((row) => `${row.map(write).join(",")}\r\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
