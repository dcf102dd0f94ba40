// What a machine does now, as a cell of the list: CPU, memory, budget left and its newest command.
import { useEffect } from "preact/hooks";
import { now, type Sample, sampleWatch } from "../samples";
import type { Machine, Stats } from "../types";
import { bytes, commandLine, shown } from "../ui/format";

const POINTS = 23;

/** CPUs in use between neighbouring samples. */
function cpuOf(samples: Sample[]): number[] {
  return samples.slice(1).map((s, i) => {
    const before = samples[i]!;
    return Math.max(0, (s.cpu_us - before.cpu_us) / 1000 / Math.max(1, s.at - before.at));
  });
}

function Line({ values, max, label }: { values: number[]; max: number; label: string }) {
  const points = values.map((v, i) => `${((i * 60) / POINTS).toFixed(1)},${(19 - 18 * Math.min(1, v / max)).toFixed(1)}`);
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
  const runs = machine.state === "running";
  useEffect(() => (runs ? sampleWatch(machine.id) : undefined), [machine.id, runs]);
  const is = now.value.get(machine.id);
  if (!is || !runs) return null;
  const cpu = cpuOf(is.samples);
  const last = cpu.at(-1) ?? 0;
  const budget = budgetOf(is.stats);
  const limit = machine.limits?.cpus || Math.max(1, ...cpu);
  const command = is.argv && shown(commandLine(is.argv));
  return (
    <span class="now">
      <Line values={cpu} max={limit} label={`CPU: ${last.toFixed(2)} processors`} />
      <span class="soft" title="Memory in use">{is.stats.mem_bytes !== undefined && bytes(is.stats.mem_bytes)}</span>
      {budget && <span class="soft" title="Budget for models that is left">{budget}</span>}
      <span class="mono clip" title={command}>{command}</span>
    </span>
  );
}
