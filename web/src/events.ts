// One event stream for all pages. It resumes after the last event that was seen, so a page that
// lost its connection, or whose daemon restarted, catches up by itself.
import { signal } from "@preact/signals";
import { serverEvents } from "./api";
import type { HostEvent } from "./types";
import { token } from "./session";

const SILENCE_MS = 40_000; // two heartbeats and some patience
const RETRY_MS = 1000;

export const connected = signal(true);

type Listener = (event: HostEvent) => void;
const listeners = new Set<Listener>();
const returned = new Set<() => void>();
let last = 0;

/** Calls `take` for each event until the returned function is called. */
export function onEvent(take: Listener): () => void {
  listeners.add(take);
  return () => void listeners.delete(take);
}

/** Calls `take` each time that a lost connection is back: what has no events is loaded again. */
export function onReturn(take: () => void): () => void {
  returned.add(take);
  return () => void returned.delete(take);
}

async function follow(): Promise<void> {
  const stop = new AbortController();
  let timer = 0;
  const watch = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => stop.abort(), SILENCE_MS);
  };
  const alive = () => {
    watch();
    if (connected.value) return;
    connected.value = true;
    for (const take of returned) take();
  };
  watch();
  try {
    const target = last ? `/v1/events?after=${last}` : "/v1/events";
    for await (const event of serverEvents<HostEvent>(target, stop.signal, alive)) {
      last = event.id;
      for (const take of listeners) take(event);
    }
  } finally {
    clearTimeout(timer);
  }
}

export async function eventsRun(): Promise<void> {
  while (token()) {
    await follow().catch(() => {});
    connected.value = false;
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
  connected.value = true;
}
