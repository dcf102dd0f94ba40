// Routes are in the fragment: #/machines/m-1?tab=files. The daemon serves one page only.
import { signal } from "@preact/signals";

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

export function go(parts: string[], query: Record<string, string> = {}, replace = false): void {
  const to = href(parts, query);
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(null, "", to);
  route.value = read();
}

window.addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#link=")) route.value = read();
});
