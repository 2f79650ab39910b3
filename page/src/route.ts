// Where the reader is: the path below /page and its parameters. All state of views is here, so that
// reloading, sharing and going back work.
import { signal } from "@preact/signals";

export const ROOT = "/page";

export interface Place {
  path: string;
  params: URLSearchParams;
  hash: string;
}

function read(): Place {
  const { pathname, search, hash } = window.location;
  return {
    path: pathname.slice(ROOT.length) || "/",
    params: new URLSearchParams(search),
    hash: hash.slice(1),
  };
}

/** Return the parts of a path; one that cannot be decoded is as it is. */
export function split(path: string): string[] {
  return path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

/** How many views of this page lie behind the present one. */
let depth = 0;

/** Whether the reader has gone nowhere yet. */
export function isFirst(): boolean {
  return depth === 0;
}

export function goBack(): void {
  if (depth > 0) window.history.back();
}

export const place = signal<Place>(read());

window.addEventListener("popstate", (event) => {
  // An entry without a state is a part of the present view.
  depth = (event.state as { depth?: number } | null)?.depth ?? depth;
  place.value = read();
});

/** Go to a view; with `isSame` the reader stays where she is, and going back skips it. */
export function go(href: string, isSame = false): void {
  if (!isSame) depth += 1;
  if (isSame) window.history.replaceState({ depth }, "", href);
  else window.history.pushState({ depth }, "", href);
  place.value = read();
  if (!isSame) {
    window.scrollTo(0, 0);
    document.getElementById("title")?.focus();
  }
}

/** Set parameters of the present view; an empty one is taken away. */
export function setParams(changes: Record<string, string>): void {
  const params = new URLSearchParams(place.value.params);
  for (const [name, value] of Object.entries(changes)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  const text = params.toString();
  go(`${ROOT}${place.value.path}${text ? `?${text}` : ""}`, true);
}

/** Return the address of a view from parts of its path. */
export function to(...parts: string[]): string {
  return `${ROOT}/${parts.map(encodeURIComponent).join("/")}`;
}

export function toUnit(kind: string, key: string): string {
  const at = key.indexOf("/");
  return to("unit", key.slice(0, at), kind.toLowerCase(), key.slice(at + 1));
}

export function toList(view: string, params: Record<string, string>): string {
  const text = new URLSearchParams(params).toString();
  return `${to(view)}${text ? `?${text}` : ""}`;
}
