import { shown } from "../ui/format";
import type { Report } from "./transcript";

export interface Run {
  id: string;
  owner: string;
  machine: string;
  model: string;
  task: string;
  mode: string;
  state: "running" | "waiting" | "interrupted" | "ended";
  status?: string;
  reason?: string;
  question?: { id?: string; question?: string; options?: string[] };
  created: string;
  turns: number;
  calls: number;
  tokens: number;
  cost_micro: number;
  wall_ms: number;
  report?: Report;
}

/** The kind of badge that its state has. */
export function stateKind(run: Run): string {
  if (run.state === "ended") return run.status === "done" ? "good" : "bad";
  return run.state === "running" ? "running" : "warn";
}

const TITLE_MAX = 90;

/** The first line of the task: what a run is called. */
export function runTitle(run: Run): string {
  const line = run.task.split("\n").find((l) => l.trim())?.trim() ?? run.id;
  return shown(line.length > TITLE_MAX ? `${line.slice(0, TITLE_MAX)}…` : line);
}
