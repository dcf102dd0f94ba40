// The session of this tab: a one-time link in the fragment becomes a token in sessionStorage.
// The token is sent in the header Authorization only; it is never part of a URL.
import { signal } from "@preact/signals";
import { portUrlsForget } from "./ports";
import { toast } from "./ui/toast";

const KEY = "carrel.token";

export interface Who {
  owner: string;
  admin: boolean;
  ships: boolean; // `carrel console` of this owner runs and ships what is ordered here
  frames: string; // origins of exposed ports, as the policy of the page names them
  expires_ms: number;
}

interface Opened extends Who {
  token: string;
}

export const who = signal<Who | null>(null);
/** The session of another owner that a link has opened, until the user decides. */
export const offered = signal<Opened | null>(null);
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

async function consolePost(path: string, body: object, key = token()): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
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

function sessionTake(opened: Opened): void {
  sessionStorage.setItem(KEY, opened.token);
  who.value = opened;
}

async function linkOpen(link: string): Promise<void> {
  const answer = await consolePost("/console/open", { link }, null);
  const told = await answer.json();
  if (!answer.ok) {
    const text = `The link was not opened: ${told.error.message}.`;
    if (who.value) toast(text, "bad");
    else ended.value = text;
  } else if (who.value && who.value.owner !== told.owner) {
    offered.value = told;
  } else {
    sessionTake(told);
  }
}

export async function sessionStart(): Promise<void> {
  const link = linkTake();
  if (token() && !who.value) await sessionRefresh();
  if (link) await linkOpen(link);
}

/** The page starts anew: what it shows belongs to the owner of the session before. */
export async function offerTake(): Promise<void> {
  const opened = offered.value!;
  offered.value = null;
  portUrlsForget();
  sessionTake(opened);
  location.reload();
}

export async function offerLeave(): Promise<void> {
  const left = offered.value;
  offered.value = null;
  if (left) await consolePost("/console/close", {}, left.token);
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
