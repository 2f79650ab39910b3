// The keyboard: one key each for what is done often.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { go, goBack, to } from "./route";

export const isHelpOpen = signal(false);

interface ViewKey {
  name: string;
  title: string;
  key?: string;
}

const GO_MS = 1500;
let wentAt = 0;

export function listen(views: ViewKey[]): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.closest("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (press(event.key, views)) event.preventDefault();
  });
}

function press(key: string, views: ViewKey[]): boolean {
  if (Date.now() - wentAt < GO_MS) {
    wentAt = 0;
    const view = views.find((each) => each.key === key);
    if (view) go(to(view.name));
    return view !== undefined;
  }
  switch (key) {
    case "g": wentAt = Date.now(); return true;
    case "/": return focus("#search") || search();
    case "?": isHelpOpen.value = !isHelpOpen.value; return true;
    case "Escape":
      if (isHelpOpen.value) isHelpOpen.value = false;
      else goBack();
      return true;
    case "j": return step(1);
    case "k": return step(-1);
    case "w": return focus("#why");
    case "t": return press_button("#twin");
    case "c": return press_button("#command button");
    default: return false;
  }
}

/** Search in the queue, from a view that has nothing to search in. */
function search(): boolean {
  go(to("queue"));
  window.setTimeout(() => focus("#search"), 100); // behind the title, which a new view puts the focus on
  return true;
}

function focus(selector: string): boolean {
  const element = document.querySelector<HTMLElement>(selector);
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
  return element !== null;
}

function press_button(selector: string): boolean {
  const element = document.querySelector<HTMLElement>(selector);
  element?.click();
  return element !== null;
}

/** Go to the next row: to its first link, which Enter follows. */
function step(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("main tbody tr:not(.filler), main ol.plain > li")]
    .filter((row) => row.querySelector("a"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by];
  next?.querySelector<HTMLElement>("a")?.focus();
  return rows.length > 0;
}

export function Help(props: { views: ViewKey[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const keys: [string, string][] = [
    ...props.views.filter((view) => view.key).map((view): [string, string] => [`g ${view.key}`, view.title]),
    ["/", "search"], ["j, k", "next row, row before"], ["Enter", "open"], ["w", "why"],
    ["t", "map as a table"], ["c", "copy the command that says the same"], ["Esc", "back"], ["?", "this"],
  ];
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={() => { isHelpOpen.value = false; }}>
      <h2 id="keys">Keys</h2>
      <dl>{keys.map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  );
}
