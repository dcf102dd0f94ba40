// Requests and questions of machines that wait for the owner, on every page of the console.
import { effect, signal } from "@preact/signals";
import { api, at } from "./api";
import { onEvent, onReturn } from "./events";
import type { HostEvent } from "./types";
import { shown } from "./ui/format";
import { TOGETHER_MS } from "./ui/load";

export interface PendingItem {
  id: string;
  machine: string;
  protocol: string; // of a request, or "question"
  question?: string;
  moves?: boolean; // the question asks that the machine becomes a vm
  host?: string;
  port?: number;
  method?: string;
  path?: string;
  query?: string;
  body?: number;
  body_sha256?: string;
  first?: string;
  always?: string;
  no_rule?: string;
  why?: string;
  since_ms: number;
  left_ms: number;
  waiting?: number;
  approved?: boolean;
}

const KEY = "carrel.notify";
const AGAIN_MS = 5000; // the end of a hold has no event

export const pending = signal<PendingItem[] | null>(null);
export const pendingAt = signal(0); // when `left_ms` was true
export const pendingError = signal<Error | null>(null);
export const notifies = signal(localStorage.getItem(KEY) === "1" && notifyAllowed());

function notifyAllowed(): boolean {
  return "Notification" in window && Notification.permission === "granted";
}

/** Why the browser shows no notifications, and what the user can do about it; empty: it does. */
function notifyProblem(): string {
  if (typeof Notification === "undefined")
    return window.isSecureContext
      ? "This browser has no notifications. On a phone, it may have them once the page is installed."
      : `A browser shows notifications only of pages of this computer or of https, and this one is ${location.origin}. `
        + "Open the console at http://localhost or http://127.0.0.1, for example through ssh -L.";
  if (Notification.permission === "denied")
    return `This browser forbids notifications of ${location.origin}. Allow them: press the sign before the address of `
      + "this page, open the settings of the site, set Notifications to Allow, and press Notify me again. "
      + "A private window never has them.";
  return notifyAllowed() ? "" : "The browser asked, and got no answer. Press Notify me again, and allow them.";
}

/** Asks the browser for the permission. Returns why it was not given, or nothing. */
export async function notifySet(on: boolean): Promise<string> {
  if (on && "Notification" in window) await Notification.requestPermission();
  notifies.value = on && notifyAllowed();
  localStorage.setItem(KEY, notifies.value ? "1" : "0");
  return on ? notifyProblem() : "";
}

/** What the machine wants, in one line. */
export function pendingText(item: PendingItem): string {
  if (item.moves) return `Become a vm: ${shown(item.question ?? "")}`;
  if (item.protocol === "question") return shown(item.question ?? "");
  const place = `${item.host}:${item.port}`;
  if (!item.method) return shown(`${item.protocol} ${place}`);
  return shown(`${item.method} ${item.protocol}://${place}${item.path ?? ""}${item.query ? `?${item.query}` : ""}`);
}

let told = new Set<string>();

function notify(items: PendingItem[]): void {
  for (const item of items) {
    if (told.has(item.id) || item.approved || !notifies.value || document.hasFocus()) continue;
    const note = new Notification("A machine waits for you", { body: pendingText(item), tag: item.id });
    note.onclick = () => {
      window.focus();
      location.hash = "#/approvals";
    };
  }
  told = new Set(items.map((item) => item.id));
}

export async function pendingLoad(): Promise<void> {
  try {
    const items = (await api.get<{ pending: PendingItem[] }>("/v1/pending")).pending;
    items.sort((a, b) => a.since_ms - b.since_ms || (a.id < b.id ? -1 : 1)); // a new one moves no other one
    notify(items);
    pendingAt.value = Date.now();
    pending.value = items;
    pendingError.value = null;
  } catch (e) {
    pendingError.value = e as Error;
  }
}

const ENDS_MAX = 500;
const ends = new Map<string, string>(); // by id: what was decided, here or elsewhere

function endSet(id: string, what: string): void {
  ends.delete(id);
  ends.set(id, what);
  for (const oldest of ends.keys()) if (ends.size > ENDS_MAX) ends.delete(oldest);
}

/** What became of a request that does not wait any more. */
export function pendingEnd(item: PendingItem): string {
  const late = item.left_ms <= Date.now() - pendingAt.value;
  return ends.get(item.id) ?? (late ? "nobody decided in time" : "no longer waits");
}

const ways: Record<string, string> = { // by type of the event that says so
  "net.approved": "approved", "net.refused": "refused", "machine.answered": "answered", "machine.refused": "refused",
};
const decided = { approve: "approved", deny: "refused", answer: "answered" };

export interface Decision {
  decision: "approve" | "deny" | "answer";
  text?: string;
  always?: boolean;
  ttl?: string;
}

export async function decide(id: string, how: Decision): Promise<string> {
  const answer = await api.post<{ added?: string }>(at`/v1/pending/${id}`, how);
  endSet(id, decided[how.decision]);
  await pendingLoad();
  return answer.added ?? "";
}

/** Keeps `pending` current until the returned function is called. */
export function pendingWatch(): () => void {
  const soon = () => void pendingLoad();
  const timer = window.setInterval(soon, AGAIN_MS);
  let later = 0;
  const together = () => {
    later ||= window.setTimeout(() => {
      later = 0;
      soon();
    }, TOGETHER_MS);
  };
  const take = (e: HostEvent) => {
    const what = ways[e.type];
    const id = e.detail?.id ?? e.detail?.question;
    if (what && typeof id === "string") endSet(id, what);
    if (e.type === "machine.moved")
      for (const item of pending.value ?? [])
        if (item.moves && item.machine === e.machine && !ends.has(item.id)) endSet(item.id, "the machine is a vm now");
    if (/^(net\.|machine\.(ask|answered|refused|ended|moved)|run\.ask)/.test(e.type)) together();
  };
  const stops = [onReturn(soon), onEvent(take)];
  const title = effect(() => {
    const waiting = (pending.value ?? []).filter((item) => !item.approved).length;
    document.title = `${waiting ? `(${waiting}) ` : ""}${document.title.replace(/^\(\d+\) /, "")}`;
  });
  soon();
  return () => {
    clearInterval(timer);
    clearTimeout(later);
    title();
    for (const stop of stops) stop();
    pending.value = null;
  };
}
