// The session of this tab: a one-time link in the fragment becomes a token in sessionStorage.
// The token is sent in the header Authorization only; it is never part of a URL.
import { signal } from "@preact/signals";
import { portUrlsForget } from "./ports";

const KEY = "carrel.token";

export interface Who {
  owner: string;
  admin: boolean;
  ships: boolean; // `carrel console` of this owner runs and ships what is ordered here
  frames: string; // origins of exposed ports, as the policy of the page names them
  expires_ms: number;
}

export const who = signal<Who | null>(null);
export const ended = signal("");

let loaded = ""; // `frames` when the page was loaded

/** The origins that the policy of this page allows in frames. */
export function frames(): string {
  return loaded;
}

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

export function sessionEnd(reason: string): void {
  sessionStorage.removeItem(KEY);
  portUrlsForget();
  who.value = null;
  ended.value = reason;
}

async function consolePost(path: string, body: object): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  const key = token();
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
}

// The link leaves the address bar before anything else, so that no reload or bookmark repeats it.
function linkTake(): string | null {
  const found = /^#link=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", "/");
  return found[1]!;
}

export async function sessionStart(): Promise<void> {
  const link = linkTake();
  if (link) {
    sessionStorage.removeItem(KEY);
    const answer = await consolePost("/console/open", { link });
    if (!answer.ok) return sessionEnd("This link has expired or was already used.");
    const told = await answer.json();
    sessionStorage.setItem(KEY, told.token);
    who.value = told;
  } else if (token()) {
    await sessionRefresh();
  }
}

/** Once, when the page has been loaded. */
export async function sessionLoad(): Promise<void> {
  await sessionStart();
  loaded = who.value?.frames ?? "";
}

export async function sessionRefresh(): Promise<void> {
  const answer = await consolePost("/console/me", {});
  if (answer.status === 401) sessionEnd("Your session has ended.");
  else if (answer.ok) who.value = await answer.json();
}

export async function logOut(): Promise<void> {
  await consolePost("/console/close", {});
  sessionEnd("You are logged out.");
}

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#link=")) void sessionStart();
});
