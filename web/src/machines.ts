// All machines of the session, kept current by events: one that changed is read alone.
import { signal } from "@preact/signals";
import { ApiError, api, at, listAll } from "./api";
import { onEvent, onReturn } from "./events";
import { who } from "./session";
import type { HostEvent, Machine } from "./types";
import { shown } from "./ui/format";

const TOGETHER_MS = 150;
const ROWS_MAX = 20; // if more machines changed, the whole list is one request

export const machines = signal<Machine[] | null>(null);
export const machinesError = signal<Error | null>(null);

let users = 0;
let timer = 0;
let stops: (() => void)[] = [];
let busy = false;
let whole = false; // the whole list is to be read, not only the machines of `changed`
const changed = new Set<string>();

/** The machine now; undefined: it has ended, so the list leaves it out. */
async function machineRow(id: string): Promise<Machine | undefined> {
  try {
    const machine = await api.get<Machine>(at`/v1/machines/${id}`);
    return machine.state === "ended" ? undefined : machine;
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return undefined;
    throw e;
  }
}

/** The list with these machines as they are now; new ones come first, as in the daemon's list. */
async function withRows(old: Machine[], ids: string[]): Promise<Machine[]> {
  const rows = await Promise.all(ids.map(machineRow));
  const found = new Map(ids.map((id, i) => [id, rows[i]]));
  const known = new Set(old.map((m) => m.id));
  const added = rows.filter((m): m is Machine => !!m && !known.has(m.id));
  added.sort((a, b) => b.created.localeCompare(a.created));
  return [...added, ...old.flatMap((m) => (found.has(m.id) ? (found.get(m.id) ?? []) : m))];
}

async function load(): Promise<void> {
  timer = 0;
  if (busy) return soon(); // an older answer must not replace a newer one
  busy = true;
  const ids = [...changed];
  const old = whole || ids.length > ROWS_MAX ? null : machines.value;
  changed.clear();
  whole = false;
  try {
    machines.value = old ? await withRows(old, ids) : await listAll<Machine>("/v1/machines", "machines", { limit: 1000 });
    machinesError.value = null;
  } catch (e) {
    whole = true;
    machinesError.value = e as Error;
  }
  busy = false;
}

function soon(): void {
  timer ||= window.setTimeout(() => void load(), TOGETHER_MS);
}

function reload(): void {
  whole = true;
  soon();
}

/** An admin hears of the machines of all owners, but the list has only the admin's own. */
function take(e: HostEvent): void {
  if (e.machine === undefined || (e.owner && e.owner !== who.value?.owner)) return;
  changed.add(e.machine);
  soon();
}

/** Keeps `machines` current until the returned function is called. */
export function machinesWatch(): () => void {
  if (users++ === 0) {
    stops = [onReturn(reload), onEvent(take)];
    whole = true;
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
