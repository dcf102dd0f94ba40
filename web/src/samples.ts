// What the machines in view use and run: one request for all of them. The figures are taken again
// every few seconds, and at once after a command of one of them began or ended.
import { signal } from "@preact/signals";
import { api } from "./api";
import { onEvent, onReturn } from "./events";
import type { Stats } from "./types";

const EVERY_MS = 5000;
const TOGETHER_MS = 100; // rows and events that come together make one request
const KEPT = 24; // samples of a line
const ASKED_MAX = 200; // machines of one request

export interface Sample {
  at: number;
  cpu_us: number;
}

export interface Now {
  samples: Sample[];
  stats: Stats;
  argv?: string[];
}

interface Row {
  machine: string;
  stats: Stats;
  argv?: string[];
}

export const now = signal<Map<string, Now>>(new Map());

const inView = new Map<string, number>(); // id -> number of elements that show it
let asking = false;
let again = false; // something changed while the answer was on its way
let soonTimer = 0;
let timer = 0;
let stops: (() => void)[] = [];

/** A line has a point for each period, not for each event. */
function longer(old: Now | undefined, stats: Stats): Sample[] {
  const samples = old?.samples ?? [];
  const last = samples.at(-1);
  const next = { at: Date.now(), cpu_us: stats.cpu_us ?? 0 };
  if (last && next.at - last.at < EVERY_MS / 2) return samples;
  return [...samples, next].slice(-KEPT);
}

async function ask(): Promise<void> {
  const ids = [...inView.keys()].slice(0, ASKED_MAX);
  if (!ids.length || document.visibilityState !== "visible") return;
  const { machines } = await api.get<{ machines: Row[] }>("/v1/stats", { machines: ids.join(",") });
  const rows = machines.map((m): [string, Now] => [
    m.machine,
    { samples: longer(now.value.get(m.machine), m.stats), stats: m.stats, ...(m.argv && { argv: m.argv }) },
  ]);
  now.value = new Map(rows);
}

async function take(): Promise<void> {
  soonTimer = 0;
  again = asking;
  if (asking) return;
  asking = true;
  await ask().catch(() => {}); // the next one comes in a few seconds
  asking = false;
  if (again) soon();
}

function soon(): void {
  soonTimer ||= window.setTimeout(() => void take(), TOGETHER_MS);
}

function start(): void {
  timer = window.setInterval(soon, EVERY_MS);
  document.addEventListener("visibilitychange", soon);
  stops = [
    onReturn(soon),
    onEvent((e) => e.type.startsWith("exec.") && inView.has(e.machine ?? "") && soon()),
    () => document.removeEventListener("visibilitychange", soon),
    () => clearInterval(timer),
    () => clearTimeout(soonTimer),
  ];
}

/** Keeps the figures of a machine current until the returned function is called. */
export function sampleWatch(id: string): () => void {
  if (inView.size === 0) start();
  inView.set(id, (inView.get(id) ?? 0) + 1);
  soon();
  return () => {
    const left = inView.get(id)! - 1;
    if (left) inView.set(id, left);
    else inView.delete(id);
    if (inView.size) return;
    for (const stop of stops) stop();
    soonTimer = 0;
    now.value = new Map();
  };
}
