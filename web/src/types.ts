// The bodies of the API that the pages use; docs/reference/api.md describes every field.
export type MachineState = "creating" | "running" | "paused" | "stopped" | "ending" | "ended";

export interface Limits {
  mem?: number;
  cpus?: number;
  pids?: number;
  disk?: number;
}

export interface Machine {
  id: string;
  name?: string;
  owner: string;
  kind: string;
  image: string;
  home?: string;
  cwd?: string; // where commands start
  state: MachineState;
  state_by?: string;
  reason?: string;
  created: string;
  ended?: string;
  expires?: string;
  limits?: Limits;
  idle_ms?: number;
  idle_action?: string;
  steps?: string;
  metadata?: Record<string, string>;
  commands: number;
  disk_bytes?: number;
  step_count?: number;
  drifted?: boolean;
  warnings?: string;
  unreached?: string;
  undurable?: string;
}

export interface Stats {
  cpu_us?: number;
  mem_bytes?: number;
  models?: { money_left?: number; tokens_left?: number };
}

export interface Step {
  id: string;
  machine: string;
  number: number;
  kind: "exec" | "file" | "snap" | "kept" | "rewind" | "fork";
  name?: string;
  created: string;
  exec?: string;
  what?: string;
  status?: number;
  restorable: boolean;
  reason?: string;
  counted?: boolean;
  files?: number;
  bytes?: number;
}

export interface Side {
  type: string;
  mode: string;
  size?: number;
}

export interface Change {
  path: string;
  change: "added" | "modified" | "deleted";
  own?: boolean;
  before?: Side;
  after?: Side;
  target_before?: string;
  target_after?: string;
  content?: "text" | "binary" | "large" | "cut" | "unreadable";
  lines_added?: number;
  lines_removed?: number;
  diff?: string;
}

export interface Diff {
  added: number;
  modified: number;
  deleted: number;
  cut?: string;
  changes: Change[];
}

export interface Exec {
  id: string;
  machine: string;
  name?: string;
  argv: string[];
  cwd?: string;
  state: "starting" | "running" | "exited" | "failed" | "unknown";
  reason?: string;
  status: number;
  started: string;
  ended?: string;
  error?: string;
  terminal?: boolean;
}

export type ExecEvent =
  | { type: "start"; exec: string; warnings?: string }
  | { type: "stdout" | "stderr"; offset: number; data?: string; data_base64?: string }
  | { type: "gap"; stream: "stdout" | "stderr"; offset: number; bytes: number }
  | { type: "exit" | "now"; exec: Exec };

export interface Entry {
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  mode: string;
  size: number;
  modified: string;
}

export interface NetRule {
  id: number;
  action: string;
  target: string;
  methods?: string;
  exact?: boolean;
  query?: string;
  local?: boolean;
  bytes?: number;
  rate?: number;
  expires?: number;
  preset?: string;
  trusted?: boolean;
  tainted?: boolean;
}

export interface Network {
  default: string;
  guarded?: boolean;
  tainted?: string;
  warnings?: string;
  rules: NetRule[];
}

export interface Grant {
  id: string;
  kind: string;
  what: string;
  at?: string;
  mode?: string;
  expires_ms?: number;
}

export interface Port {
  port: number;
  url: string;
  public?: boolean;
}

export interface ChangeSet {
  id: string;
  machine: string;
  machine_name?: string;
  path: string;
  slice?: string; // path in the machine of the grant
  kind?: string;
  home?: string;
  ref?: string;
  sha256: string;
  created: string;
  tainted?: string; // untrusted source that the machine had read
  state?: "pending" | "returned" | "shipped" | "undone" | "superseded" | "dropped";
  instead?: string; // the change set that supersedes it
}

export interface AuditRecord {
  seq: number;
  time: number;
  kind: string;
  owner?: string;
  verb: string;
  machine?: string;
  argv?: string[];
  reason?: string;
  detail?: unknown;
}

export interface HostEvent {
  id: number;
  type: string;
  time_ms: number;
  machine?: string;
  owner?: string;
  detail?: Record<string, unknown>;
}
