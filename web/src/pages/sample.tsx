// What a machine does right now: samples of its CPU and memory, its newest command, its budget.
import { useEffect, useState } from "preact/hooks";
import { api, at } from "../api";
import type { Exec, Machine, Stats } from "../types";
import { bytes, commandLine, shown } from "../ui/format";

const EVERY_MS = 5000;
const KEPT = 24; // samples of a line

interface Sample {
  at: number;
  cpu_us: number;
  mem: number;
}

interface Now {
  samples: Sample[];
  stats?: Stats;
  command?: string;
}

/** Samples a machine while its row is in the document and the page is visible. */
function useNow(m: Machine): Now {
  const [now, setNow] = useState<Now>({ samples: [] });
  useEffect(() => {
    if (m.state !== "running") return;
    const stop = new AbortController();
    const path = at`/v1/machines/${m.id}`;
    const take = async () => {
      const stats = await api.get<Stats>(`${path}/stats`, {}, stop.signal);
      const { execs } = m.commands
        ? await api.get<{ execs: Exec[] }>(`${path}/execs`, { state: "running", limit: 1 }, stop.signal)
        : { execs: [] };
      const sample = { at: Date.now(), cpu_us: stats.cpu_us ?? 0, mem: stats.mem_bytes ?? 0 };
      const command = execs[0] && commandLine(execs[0].argv);
      setNow((old) => ({ samples: [...old.samples, sample].slice(-KEPT), stats, ...(command && { command }) }));
    };
    const tick = () => document.visibilityState === "visible" && void take().catch(() => {});
    // Rows that appear together do not ask together, and none asks before the list is drawn.
    const first = setTimeout(tick, 500 + Math.random() * 2000);
    const timer = setInterval(tick, EVERY_MS);
    return () => {
      stop.abort();
      clearTimeout(first);
      clearInterval(timer);
    };
  }, [m.id, m.state, m.commands]);
  return now;
}

/** CPUs in use between neighbouring samples. */
function cpuOf(samples: Sample[]): number[] {
  return samples.slice(1).map((s, i) => {
    const before = samples[i]!;
    return Math.max(0, (s.cpu_us - before.cpu_us) / 1000 / Math.max(1, s.at - before.at));
  });
}

function Line({ values, max, label }: { values: number[]; max: number; label: string }) {
  const points = values.map((v, i) => `${((i * 60) / (KEPT - 1)).toFixed(1)},${(19 - 18 * Math.min(1, v / max)).toFixed(1)}`);
  return (
    <svg class="spark" width="60" height="20" role="img" aria-label={label}>
      <polyline points={points.join(" ")} fill="none" stroke="currentColor" stroke-width="1.5" />
    </svg>
  );
}

function budgetOf({ models }: Stats): string {
  if (models?.money_left !== undefined) return `${models.money_left.toFixed(2)} left`;
  return models?.tokens_left !== undefined ? `${models.tokens_left.toLocaleString("en")} tokens left` : "";
}

export function NowCell({ machine }: { machine: Machine }) {
  const { samples, stats, command } = useNow(machine);
  if (!stats) return null;
  const cpu = cpuOf(samples);
  const last = cpu.at(-1) ?? 0;
  const budget = budgetOf(stats);
  const limit = machine.limits?.cpus || Math.max(1, ...cpu);
  return (
    <span class="now">
      <Line values={cpu} max={limit} label={`CPU: ${last.toFixed(2)} processors`} />
      <span class="soft" title="Memory in use">{stats.mem_bytes !== undefined && bytes(stats.mem_bytes)}</span>
      {budget && <span class="soft" title="Budget for models that is left">{budget}</span>}
      <span class="mono clip">{command && shown(command)}</span>
    </span>
  );
}
