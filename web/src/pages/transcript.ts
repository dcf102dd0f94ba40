// The transcript of a run as a conversation: what its events say, in an order for reading.

import { type PendingItem, pendingText } from "../approvals";

export interface Part {
  kind: "text" | "image" | "call" | "result" | "opaque";
  text?: string;
  name?: string;
}

export interface RunEvent {
  event: string;
  time: number;
  task?: string;
  model?: string;
  mode?: string;
  machine?: string;
  run?: string;
  turns?: number;
  tokens?: number;
  money?: number;
  timeout_ms?: number;
  tries?: number;
  check?: string;
  in?: number;
  out?: number;
  cache_read?: number;
  cost?: number;
  purpose?: string;
  parts?: Part[];
  index?: number;
  text?: string;
  failed?: boolean;
  took_ms?: number;
  fallback?: string;
  name?: string;
  step?: string;
  before?: number;
  attempt?: number;
  wait_ms?: number;
  status?: string;
  good?: boolean;
  changes?: number;
  calls?: number;
  changeset?: string;
  report?: Report;
}

export interface Report {
  summary?: string;
  evidence?: string[];
  outputs?: string[];
  open_issues?: string[];
}

export interface Call {
  tool: string;
  arguments: string;
  result?: string;
  failed?: boolean;
  took_ms?: number;
  fallback?: string;
}

export interface PlanItem {
  text: string;
  status: "todo" | "doing" | "done";
}

export type Entry =
  | { kind: "owner"; time: number; text: string }
  | { kind: "model"; time: number; text: string; note: string }
  | { kind: "call"; time: number; call: Call }
  | { kind: "point"; time: number; text: string; step: string }
  | { kind: "line"; time: number; text: string; bad?: boolean }
  | { kind: "end"; time: number; status: string; report: Report };

export interface Try {
  run: string;
  machine: string;
  good?: boolean;
  changes?: number;
  calls?: number;
  changeset?: string;
  text?: string;
}

export interface Conversation {
  start?: RunEvent;
  entries: Entry[];
  plan: PlanItem[];
  tries: Try[];
  calls: Call[]; // of the newest answer: results name them by their index
}

export function conversationNew(): Conversation {
  return { entries: [], plan: [], tries: [], calls: [] };
}

function planRead(text: string): PlanItem[] | undefined {
  try {
    const { items } = JSON.parse(text);
    return Array.isArray(items) ? items.map((i) => ({ text: String(i.text), status: i.status })) : undefined;
  } catch {
    return undefined;
  }
}

function answer(c: Conversation, e: RunEvent): void {
  const tokens = (e.in ?? 0) + (e.cache_read ?? 0);
  const note = `${tokens} tokens in, ${e.out ?? 0} out${e.cost ? `, cost ${(e.cost / 1e6).toFixed(4)}` : ""}`;
  c.calls = [];
  for (const part of e.parts ?? []) {
    if (part.kind === "text" && part.text) c.entries.push({ kind: "model", time: e.time, text: part.text, note });
    if (part.kind !== "call") continue;
    const call: Call = { tool: part.name ?? "", arguments: part.text ?? "" };
    c.calls.push(call);
    c.entries.push({ kind: "call", time: e.time, call });
    if (call.tool === "plan") c.plan = planRead(call.arguments) ?? c.plan;
  }
}

function result(c: Conversation, e: RunEvent): void {
  const call = c.calls[e.index ?? 0];
  if (!call) return;
  call.result = e.text ?? "";
  if (e.failed) call.failed = true;
  if (e.took_ms) call.took_ms = e.took_ms;
  if (e.fallback) call.fallback = e.fallback;
}

/** The first event of a try names its machine, the second one its run. */
function attempt(c: Conversation, e: RunEvent): Try {
  const row = (c.tries[e.index ?? 0] ??= { run: "", machine: "" });
  if (e.run) row.run = e.run;
  if (e.event === "try" && e.machine) row.machine = e.machine;
  return row;
}

function judged(c: Conversation, e: RunEvent): void {
  const row = attempt(c, e);
  row.good = e.good ?? false;
  if (e.changes !== undefined) row.changes = e.changes;
  if (e.calls !== undefined) row.calls = e.calls;
  if (e.changeset) row.changeset = e.changeset;
  if (e.text) row.text = e.text;
}

interface Held {
  question?: string;
  approval?: Partial<PendingItem>;
}

/** What a run waits for: a question, or an approval of a request or of a call. */
function heldText(text: string): string {
  try {
    const { question, approval } = JSON.parse(text) as Held;
    if (question) return question;
    if (!approval) return text;
    if (approval.protocol === "call") return `your approval of the call ${approval.host ?? ""} ${approval.path ?? ""}`;
    return `your approval of ${pendingText({ id: "", machine: "", protocol: "", since_ms: 0, left_ms: 0, ...approval })}`;
  } catch {
    return text;
  }
}

const lines: Record<string, (e: RunEvent) => string> = {
  resume: () => "The run was resumed.",
  note: (e) => `Note to the model: ${e.text ?? ""}`,
  held: (e) => `Waiting: ${heldText(e.text ?? "")}`,
  freed: () => "Going on.",
  retry: (e) => `Model call ${e.attempt ?? 1} failed and is repeated after ${e.wait_ms ?? 0} ms: ${e.text ?? ""}`,
  stopped: (e) => `Interrupted: ${e.text ?? ""}`,
  prune: () => "Older results are shown to the model as one line each.",
  word: (e) => `You ${e.good ? "approved" : "refused"} a call that is not in the plan.`,
  cancel: () => "The run was cancelled.",
};

/** Adds an event of the transcript, in its order. */
export function conversationAdd(c: Conversation, e: RunEvent): void {
  if (e.event === "start") {
    c.start = e;
    c.entries.push({ kind: "owner", time: e.time, text: e.task ?? "" });
  } else if (e.event === "answer") answer(c, e);
  else if (e.event === "result") result(c, e);
  else if (e.event === "return") c.entries.push({ kind: "owner", time: e.time, text: e.text ?? "" });
  else if (e.event === "try") attempt(c, e);
  else if (e.event === "judged") judged(c, e);
  else if (e.event === "end")
    c.entries.push({ kind: "end", time: e.time, status: e.status ?? "", report: e.report ?? {} });
  else if ((e.event === "point" || e.event === "back") && e.step) {
    const text = e.event === "point" ? "Checkpoint" : "Files rewound to the checkpoint";
    c.entries.push({ kind: "point", time: e.time, text, step: e.step });
  } else {
    const line = lines[e.event];
    if (line) c.entries.push({ kind: "line", time: e.time, text: line(e), bad: e.event === "stopped" });
  }
}
