// Routes are in the fragment: #/machines/m-1?tab=files. The daemon serves one page only.
// Every way to another route asks before it drops what is not saved.
import { signal } from "@preact/signals";
import { isUnsaved, leave } from "./ui/unsaved";

export interface Route {
  parts: string[]; // decoded, without empty ones
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal(read());

/** What the page shows one of, such as a machine's name: for the title of the window. */
export const subject = signal("");

/** The href of a route: href(["machines", id], { tab: "files" }). */
export function href(parts: string[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

let place = location.hash; // of the route that is shown

function arrive(): void {
  place = location.hash;
  route.value = read();
}

export function go(parts: string[], query: Record<string, string> = {}, replace = false): void {
  const to = href(parts, query);
  leave(() => {
    if (!replace) {
      location.hash = to;
      return;
    }
    history.replaceState(null, "", to);
    arrive();
  });
}

document.addEventListener("click", (e) => {
  const link = e.target instanceof Element ? e.target.closest<HTMLAnchorElement>('a[href^="#/"]') : null;
  if (!link || !isUnsaved() || e.ctrlKey || e.metaKey || e.shiftKey) return;
  e.preventDefault();
  leave(() => void (location.hash = link.hash));
});

window.addEventListener("hashchange", () => {
  const to = location.hash;
  if (to.startsWith("#link=") || to === place) return;
  if (!isUnsaved()) return arrive();
  history.pushState(null, "", place); // the browser has gone back already
  leave(() => void (location.hash = to));
});
