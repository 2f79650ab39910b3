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

/** Return variables of the style sheet as colours that can be drawn with. */
export function resolve<Name extends string>(names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {} as Record<Name, string>;
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
