// Light or dark: as the system has it, or as the reader chose, which only this browser remembers.
import { effect, signal } from "@preact/signals";

export const THEMES = ["system", "light", "dark"];

export const theme = signal(window.localStorage.getItem("theme") ?? "system");
/** Changes whenever colours do: for what is drawn, and not styled. */
export const colours = signal(0);

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  window.localStorage.setItem("theme", theme.value);
  colours.value = colours.peek() + 1;
});

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours.value += 1;
});

/** Variables of the style sheet as colours, and of which state of `colours` they are: to ask for them is slow. */
const resolved = new Map<string, Record<string, string>>();
let resolvedOf = -1;

/** Return variables of the style sheet as colours that can be drawn with. */
export function resolve<Name extends string>(names: readonly Name[]): Record<Name, string> {
  if (resolvedOf !== colours.peek()) resolved.clear();
  resolvedOf = colours.peek();
  const key = names.join();
  const found = resolved.get(key) ?? ask(names);
  resolved.set(key, found);
  return found as Record<Name, string>;
}

function ask(names: readonly string[]): Record<string, string> {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found: Record<string, string> = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
