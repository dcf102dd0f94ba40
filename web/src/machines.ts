// All machines of the session, kept current by events, and how much of memory and CPU they use.
import { signal } from "@preact/signals";
import { listAll } from "./api";
import { onEvent, onReturn } from "./events";
import type { Machine } from "./types";
import { shown } from "./ui/format";

const TOGETHER_MS = 150;

export const machines = signal<Machine[] | null>(null);
export const machinesError = signal<Error | null>(null);

let users = 0;
let timer = 0;
let stops: (() => void)[] = [];

async function load(): Promise<void> {
  timer = 0;
  try {
    machines.value = await listAll<Machine>("/v1/machines", "machines", { limit: 1000 });
    machinesError.value = null;
  } catch (e) {
    machinesError.value = e as Error;
  }
}

function soon(): void {
  timer ||= window.setTimeout(() => void load(), TOGETHER_MS);
}

/** Keeps `machines` current until the returned function is called. */
export function machinesWatch(): () => void {
  if (users++ === 0) {
    stops = [onReturn(soon), onEvent((e) => e.machine !== undefined && soon())];
    void load();
  }
  return () => {
    if (--users > 0) return;
    for (const stop of stops) stop();
    clearTimeout(timer);
    timer = 0;
  };
}

/** The name of a machine, or its id if it has none or is not known. Needs machinesWatch(). */
export function machineName(id: string): string {
  return shown(machines.value?.find((m) => m.id === id)?.name || id);
}
