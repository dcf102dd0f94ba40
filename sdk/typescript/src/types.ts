// Types and operations of the API. Written by sdk/generate from the OpenAPI document. Do not edit.

export interface Freeze {
  /** absolute path of a directory in the machine, or of a granted database (default /outbox) */
  path?: string;
  /** path in the machine of the grant that the work started from (default: the same path) */
  slice?: string;
  /** of a granted directory (dir, cow), freeze only what the machine changed; the answer says whether this was possible */
  changes_only?: boolean;
}

export interface ChangeSet {
  id: string;
  owner: string;
  machine: string;
  path: string;
  /** name of the machine when the change set was made */
  machine_name?: string;
  /** path in the machine of the grant that the work started from */
  slice: string;
  /** id of the grant that the work started from */
  grant?: string;
  /** kind of the grant */
  kind?: "dir" | "repo" | "sqlite" | "postgres";
  /** path or name of the granted object on the owner's side */
  home?: string;
  /** repo: branch or tag that was cloned */
  ref?: string;
  /** sqlite: SHA-256 of the granted copy of the database */
  base_sha256?: string;
  /** the grant was revoked later: shipping needs an explicit target */
  revoked: boolean;
  /** the archive has only what the machine changed, and the baseline only these paths and what was deleted */
  changes_only: boolean;
  /** SHA-256 of the archive of the change set */
  sha256: string;
  /** first untrusted source that the machine had read from */
  tainted?: string;
  /** without a grant: paths of files that are unchanged since the image */
  image_files?: string[];
  /** size of the archive of the change set */
  bytes: number;
  created: string;
  /** when the machine was created, in milliseconds since 1970 */
  machine_ms: number;
  /** what became of it; absent in the answer to a freeze. returned: to the model, with a comment; dropped: its files were deleted because it was old */
  state?: "pending" | "returned" | "shipped" | "undone" | "superseded" | "dropped";
  /** superseded: the change set that was frozen later of the same, or with the same content and shipped or undone before */
  instead?: string;
}

export interface ChangeSets {
  /** without `image_files` */
  changesets: ChangeSet[];
  /** cursor of the next page; absent on the last page */
  next?: string;
}

export interface Ship {
  action: "ship" | "shipped" | "undo" | "undone";
  /** directory, branch or file to ship to, as text for the journal */
  target: string;
  /** SHA-256 of the list of changes (hashes and paths) */
  sha256: string;
  files: number;
  /** shipped, undone: `record` from the answer to ship or undo */
  intent?: number;
  /** shipped, undone: present state of these files, in the format of GET /v1/changesets/{changeset}/base */
  now?: string;
}

export interface Shipped {
  changeset: string;
  sha256: string;
  /** number of the journal record */
  record: number;
}

export interface RunStart {
  /** the task, as text */
  task: string;
  /** id or name of the machine (default: a new machine without grants) */
  machine?: string;
  /** PROVIDER/MODEL (default: from carrel.conf); for a provider of carrel.conf a token needs the scope admin */
  model?: string;
  /** script of model answers for `rehearsal`, a provider for tests */
  script?: string;
  /** free (default), plan-then-execute, action-selector, map or handles */
  mode?: string;
  /** action-selector: allowed tool calls, as JSON */
  menu?: string;
  /** set `guard` of the machine; see MachineRequest */
  guard?: boolean;
  /** environment variables of the provider, kept in memory for this run only; a token needs the scope admin to set its base URL */
  keys?: { [name: string]: string };
  /** limit of model turns (default 200) */
  turns?: number;
  /** limit of tokens of all kinds (default: unlimited) */
  tokens?: number;
  /** limit of cost, in millionths of the price unit (default: unlimited) */
  money_micro?: number;
  /** limit of wall-clock time, without waiting for approvals (default: unlimited) */
  timeout?: number | string;
  /** plan-then-execute: ask the owner about a tool call that is not in the plan, instead of refusing it */
  ask_deviations?: boolean;
  /** number of parallel attempts, on forks of the machine or on new machines; only the best machine is kept, and all attempts share the limits of tokens and cost */
  tries?: number;
  /** tries: command that exits with 0 if the work is good */
  check?: string;
  /** tries: files for the check by absolute path, which replace those in the machine; at most 1 MiB in total */
  check_files?: { [name: string]: string };
  /** tries: use these machines, one per attempt; all but the best are removed, and all if the run is cancelled */
  machines?: string[];
}

export interface RunResume {
  /** same as in the request that started the run */
  keys?: { [name: string]: string };
  /** for a run that has ended: continue its work with this message */
  comment?: string;
  /** idempotency key of `comment`: a repeated request does not add it twice */
  key?: string;
}

export interface RunAnswer {
  /** id of the question, from `question` of the run */
  question: string;
  /** decision of the user about the question (default: accept) */
  action?: "accept" | "decline" | "cancel";
  /** text of the answer, for accept */
  answer?: string;
}

export interface Run {
  id: string;
  owner: string;
  machine: string;
  model: string;
  task: string;
  mode: "free" | "plan-then-execute" | "action-selector" | "map" | "handles";
  state: "running" | "waiting" | "interrupted" | "ended";
  /** how the run ended */
  status?: "done" | "partial" | "blocked" | "budget" | "stuck" | "format_error" | "refused" | "failed" | "cancelled";
  /** why the run was interrupted */
  reason?: string;
  /** question whose answer the run waits for, with its id */
  question?: { [name: string]: unknown };
  created: string;
  /** number of model turns */
  turns: number;
  /** number of tool calls */
  calls: number;
  /** tokens used */
  tokens: number;
  /** cost in millionths of the price unit */
  cost_micro: number;
  /** wall-clock time used */
  wall_ms: number;
  /** number of lines of the transcript */
  lines: number;
  /** work done, evidence, work left */
  report?: { [name: string]: unknown };
}

export interface Runs {
  runs: Run[];
}

export interface TokenRequest {
  /** owner of machines made with the token (default: the caller) */
  owner?: string;
  /** free text that says what the token is for */
  note?: string;
  /** rights of the token: one or more of read, run, admin */
  scopes?: string[];
  /** quota: number of machines */
  machines?: number;
  /** quota: processors of all machines */
  cpus?: number | string;
  /** quota: memory of all machines */
  mem?: number | string;
  /** quota: disk of all machines */
  disk?: number | string;
  /** quota: longest ttl (time to live) of a machine */
  max_ttl?: number | string;
}

export interface Token {
  id: string;
  owner: string;
  note?: string;
  /** the secret text of the token; only in the response that creates it */
  secret?: string;
  scopes: string;
  created: string;
  /** time of the last use, accurate to one minute */
  used?: string;
  revoked?: string;
  /** quota of machines; 0: unlimited */
  machines: number;
  /** quota of processors; 0: unlimited */
  cpus: number;
  /** quota of memory; 0: unlimited */
  mem: number;
  /** quota of disk space; 0: unlimited */
  disk: number;
  /** quota: longest ttl (time to live) of a machine; 0: unlimited */
  max_ttl_ms: number;
}

export interface Tokens {
  tokens: Token[];
}

export interface Verification {
  whole: boolean;
  records: number;
  segments: number;
  /** number of the first record; greater than 1 if older records were deleted */
  first: number;
  /** number and hash of the last record, as SEQ:HASH */
  head: string;
  /** number of the last record that a signature covers */
  signed: number;
  problem?: string;
  /** journal file with the first broken record */
  segment?: string;
  line?: number;
  seq?: number;
}

export interface Status {
  version: string;
  pid: number;
  /** commands that run now; without the scope admin only your own */
  commands: number;
  /** number of machines in each state; without the scope admin only your own */
  machines: { [name: string]: number };
  store: Room;
  /** calls of each tool since the daemon started, as in Stats; requires the scope admin */
  tools?: ToolCount[];
  /** kernel of vms that carrel.conf names; absent: one of /boot */
  vm_kernel?: string;
  /** status of the spawner (process that makes boxes); counters require the scope admin */
  box?: { [name: string]: unknown };
  box_error?: string;
}

export interface Agents {
  /** token budget of a machine of an agent; 0: no limit */
  tokens: number;
  /** money budget of a machine of an agent; 0: no limit */
  money: string;
  currency: string;
  /** model formats (anthropic, chat, responses, gemini) whose provider has its key */
  formats: string[];
  /** agents of carrel.conf, each with name, image, start, once, resume and env */
  agents: ({ [name: string]: unknown })[];
}

export interface Models {
  /** model of runs that name none; empty: none */
  default: string;
  currency: string;
  /** each with name, format, ready (a run of the caller can call it without a key of its own), key_env or key_secret (only for the user of the daemon: name of the variable of the daemon's environment, or of the secret, that holds the API key), url (requires the scope admin), and if it is not ready what is missing */
  providers: ({ [name: string]: unknown })[];
  /** each with name and models, in the order in which they are tried */
  aliases: ({ [name: string]: unknown })[];
  /** models of carrel.conf, each with name, window, max_tokens and prices of a million tokens: in, out, cache_read, cache_write, cache_write_long */
  models: ({ [name: string]: unknown })[];
}

export interface ModelUsage {
  /** day, model, machine or owner */
  by: string;
  currency: string;
  /** newest day, or dearest model, machine or owner first: each with that member, calls, tokens, in (not from a cache), cache_read, cache_write, out and money. Calls whose usage is not known count as estimated, in tokens and money only */
  usage: ({ [name: string]: unknown })[];
}

export interface MkdirRequest {
  path: string;
  /** mode as a decimal number (default 493, which is 0755) */
  mode?: number;
  /** fail if the parent directory is missing or the directory exists */
  exact?: boolean;
  /** act as user, root, or a numeric uid (default: the image's user) */
  user?: string;
}

export interface MoveRequest {
  from: string;
  to: string;
  /** fail if `to` exists */
  no_replace?: boolean;
  /** act as user, root, or a numeric uid (default: the image's user) */
  user?: string;
}

export interface ChmodRequest {
  path: string;
  /** mode in octal, such as 644 */
  mode: string;
  /** act as user, root, or a numeric uid (default: the image's user) */
  user?: string;
}

export interface ChownRequest {
  path: string;
  /** numeric id of the new owner (uid) */
  owner?: number;
  /** numeric id of the new group (gid) */
  group?: number;
  /** act as user, root, or a numeric uid (default: the image's user) */
  user?: string;
}

export interface SymlinkRequest {
  /** target of the link */
  target: string;
  /** path of the link */
  path: string;
  /** act as user, root, or a numeric uid (default: the image's user) */
  user?: string;
}

export interface Entry {
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  /** permission bits in octal */
  mode: string;
  size: number;
  uid: number;
  gid: number;
  modified?: string;
  /** target of a symlink */
  target?: string;
}

export interface Entries {
  entries: Entry[];
  /** cursor of the next page; absent on the last page */
  next?: string;
}

export interface Written {
  /** SHA-256 of the file after the write */
  sha256?: string;
  size?: number;
  /** entries of the archive that were skipped, with a reason; one line per entry */
  left_out?: string;
}

export interface MachineRequest {
  /** kind of machine (default: box) */
  kind?: "box" | "cell" | "vm";
  /** image to start from (default: host) */
  image?: string;
  hostname?: string;
  /** name of the machine, unique among the owner's machines that have not ended */
  name?: string;
  limits?: LimitsRequest;
  /** apply `on_ttl` to the machine after this time from now; 0: never */
  ttl?: number | string;
  /** at the end of the ttl: destroy the machine (default), or pause it, without a ttl from then on; a machine that cannot be paused is stopped */
  on_ttl?: "destroy" | "pause";
  /** apply `idle_action` after this time without use; 0: never */
  idle?: number | string;
  /** action when idle; release: delete the machine if it is unchanged, else stop it */
  idle_action?: "pause" | "stop" | "destroy" | "release";
  /** when to take a step (restore point): after every change, before a risky command, or on request */
  steps?: "every" | "risky" | "manual";
  /** cell: capabilities of its programs, such as `log,args`; a token needs the scope admin */
  allow?: string;
  /** names and values for the caller's own use */
  metadata?: { [name: string]: string };
  /** environment variables of every command in the machine */
  env?: { [name: string]: string };
  /** directories to grant */
  dirs?: DirRequest[];
  /** volumes to attach; a token needs the scope admin */
  volumes?: VolumeUse[];
  /** network rules (default: nothing is reachable) */
  net?: NetRule[];
  /** secrets to grant, each for one host; the machine sees placeholders */
  secrets?: SecretGrant[];
  /** other grants; descriptors of files follow those of directories */
  grants?: GrantRequest[];
  /** revoke all grants after this time */
  expires?: number | string;
  models?: ModelsRequest;
  /** required for mode rw: writes go to the host without review */
  unreviewed?: boolean;
  /** once the machine has read untrusted data, only rules with `tainted` stay in force */
  guard?: boolean;
  /** idempotency key: a repeated request creates no second machine */
  key?: string;
  /** start as a copy of a machine or of MACHINE@STEP, as a fork does, or from an image; limits, variables, rules and grants of this request come on top */
  from?: string;
}

export interface UpdateRequest {
  /** name of the machine, unique among the owner's machines that have not ended */
  name?: string;
  limits?: LimitsRequest;
  /** apply `on_ttl` to the machine after this time from now; 0: never */
  ttl?: number | string;
  /** at the end of the ttl: destroy the machine (default), or pause it, without a ttl from then on; a machine that cannot be paused is stopped */
  on_ttl?: "destroy" | "pause";
  /** apply `idle_action` after this time without use; 0: never */
  idle?: number | string;
  /** action when idle; release: delete the machine if it is unchanged, else stop it */
  idle_action?: "pause" | "stop" | "destroy" | "release";
  /** when to take a step (restore point): after every change, before a risky command, or on request */
  steps?: "every" | "risky" | "manual";
  /** cell: capabilities of its programs, such as `log,args`; a token needs the scope admin */
  allow?: string;
  /** names and values for the caller's own use */
  metadata?: { [name: string]: string };
  models?: ModelsRequest;
}

export interface LimitsRequest {
  /** limit of memory */
  mem?: number | string;
  /** limit of processors, at least 0.01 */
  cpus?: number | string;
  /** limit of processes and threads */
  pids?: number;
  /** limit of bytes on the machine's disk */
  disk?: number | string;
  /** cell: limit of fuel (instructions) of each command */
  fuel?: number;
  /** cell: limit of fuel per second of each command; 0: none */
  fuel_rate?: number;
}

export interface NetRule {
  /** action of the rule (default: allow) */
  action?: "allow" | "deny" | "ask";
  /** [http://|https://|tcp://]HOST[:PORT][/PATH]; HOST is a name, *.suffix, an address, a range of IPv4 addresses, or *; or a preset: apt, npm, pip, cargo, go */
  target: string;
  /** HTTP methods, such as GET,HEAD; requires http:// or https:// in `target` */
  methods?: string;
  /** also allow private, loopback and other non-public addresses */
  local?: boolean;
  /** responses are trusted: they do not taint the machine (mark it as having read untrusted data) */
  trusted?: boolean;
  /** keep this rule after a guarded machine has read untrusted data (is tainted) */
  tainted?: boolean;
  /** limit of the bytes sent plus received under this rule; then the connection is cut */
  bytes?: number | string;
  /** limit of bytes per second, for all connections under this rule together */
  rate?: number | string;
  /** ask: how long a request waits for approval (default 2m, at most 290 s) */
  hold?: number | string;
  /** delete the rule after this time */
  ttl?: number | string;
}

export interface Network {
  machine: string;
  /** whether the gate accepts connections of this machine */
  listening: boolean;
  /** action if no rule matches: deny */
  default: string;
  /** whether the network closes once the machine has read untrusted data */
  guarded: boolean;
  /** first untrusted source that the machine read from */
  tainted?: string;
  /** when the machine was tainted, in milliseconds since 1970 */
  tainted_ms?: number;
  /** warning that the machine has private data, untrusted content and network access at once, or that a mirror of a preset has a private address */
  warnings?: string;
  /** network rules, oldest first */
  rules: Rule[];
}

export interface ModelsRequest {
  /** allow models at http://models.carrel; a limit implies this */
  allow?: boolean;
  /** limit of tokens; 0: unlimited */
  tokens?: number;
  /** limit of cost, in the unit of the prices in carrel.conf; 0: unlimited */
  money?: number | string;
}

export interface SecretRequest {
  /** value of the secret: one line of 8 to 8192 bytes */
  value: string;
}

export interface LoginRequest {
  /** claude: token of `claude setup-token`; codex: text of the file auth.json of a ChatGPT login */
  value: string;
}

export interface Logins {
  /** logins, each with name, created_ms, changed_ms, used_ms, expires_ms and problem */
  logins: Login[];
}

export interface GrantRequest {
  kind: "file" | "env" | "secret" | "repo" | "sqlite" | "postgres" | "identity" | "login";
  /** granted object: path on the host, sent with a descriptor or below a root of carrel.conf; or a name; postgres: name of the secret that holds the server URL; login: claude or codex */
  what: string;
  /** path in the machine; secret: host that receives it; identity: e-mail address */
  at?: string;
  /** secret: header (default), basic or query; repo: branch or tag (granted as a bundle) */
  mode?: string;
  /** env: value of the variable; repo: default author of commits, NAME <MAIL> (default: agent <agent@agents.invalid>); postgres: server URL instead of a secret, postgres://USER:PASSWORD@HOST:PORT/TEMPLATE */
  value?: string;
  /** revoke the grant after this time */
  expires?: number | string;
  /** the content is untrusted: it taints the machine (marks it as having read untrusted data) */
  untrusted?: boolean;
}

export interface SecretGrant {
  /** name of the secret and of the environment variable */
  name: string;
  /** the only host that receives the value of the secret, inside TLS */
  host: string;
  /** where a request may carry the secret: header (default), password (basic) or query */
  as?: "header" | "basic" | "query";
}

export interface ExposeRequest {
  /** port inside the machine */
  port: number;
  /** whoever reaches the address may use the port, without a token */
  public?: boolean;
}

export interface Exposure {
  machine: string;
  port: number;
  /** URL of the port for a browser, with the token */
  url: string;
  /** the same port for programs, without a host name: send `headers`; absent with TLS */
  direct_url?: string;
  /** headers for direct_url: Carrel-Port, and Carrel-Token where the answer has a token */
  headers?: { [name: string]: string };
  /** the port is public, and has no token */
  public?: boolean;
  /** token of a private port, only in this response; send it in the header Carrel-Token */
  token?: string;
  /** the port was exposed before, and its earlier token is now invalid */
  replaced?: boolean;
}

export interface Exposures {
  machine: string;
  /** exposed ports, each with port, url, direct_url and headers */
  exposures: Port[];
}

export interface Secrets {
  /** secrets, each with name, created_ms, changed_ms and used_ms */
  secrets: Secret[];
}

export interface Grants {
  machine: string;
  /** warning that the machine has private data, untrusted content and network access at once */
  warnings?: string;
  /** grants, each with id, kind, what, at, mode, created_ms, expires_ms, detail */
  grants: Grant[];
}

export interface GrantDiff {
  machine: string;
  grant: string;
  /** kind of database */
  kind: "sqlite" | "postgres";
  /** path or name of the database on the owner's side */
  what: string;
  /** path in the machine */
  at: string;
  /** true if the database is the same as when it was granted */
  same?: boolean;
  /** lines that begin with - (when granted) or + (now); sqlite: schema and rows; postgres: relations, routines, and for each table its row count and a checksum */
  diff?: string;
  /** the diff is incomplete: it reached its size limit */
  cut?: boolean;
  /** postgres: name of the database on the server; it is dropped when the grant ends */
  database?: string;
  /** postgres: why the state of the database is unknown */
  error?: string;
}

export interface Approval {
  decision: "approve" | "deny" | "answer";
  /** answer: what the machine is told */
  text?: string;
  /** also add the network rule that the pending item shows as `always` */
  always?: boolean;
  /** also add the network rule `always` of the pending item, for this time */
  ttl?: number | string;
}

export interface Pending {
  /** pending items, each with id, machine, host, port, protocol, method, path, query, body, body_sha256, rule, always or no_rule, left_ms ... */
  pending: PendingItem[];
}

export interface Decided {
  /** number of the added network rule */
  rule?: number;
  /** text of the added network rule */
  added?: string;
}

export interface DirRequest {
  /** directory on the host, sent with a descriptor or below a root of carrel.conf */
  path: string;
  /** path in the machine (default: the same path) */
  at?: string;
  /** ro: read-only; cow (default): a copy; rw: writable */
  mode?: "ro" | "cow" | "rw";
  /** the content is untrusted: it taints the machine (marks it as having read untrusted data) */
  untrusted?: boolean;
}

export interface VolumeUse {
  /** name of the volume, or NAME@SNAPSHOT */
  name: string;
  /** path in the machine */
  at: string;
  /** ro: read-only; cow: changes stay in the machine; rw (default): writable, for one machine at a time. A snapshot is ro by default and never rw */
  mode?: "ro" | "cow" | "rw";
}

export interface TimerRequest {
  /** the command and its arguments */
  argv?: string[];
  /** a task of upkeep, instead of argv: install security updates, delete old files, or restart failed units of systemd */
  task?: "updates" | "cleanup" | "units";
  /** run as this user (default: that of the image) */
  user?: string;
  /** run again and again, at least a minute apart */
  every?: number | string;
  /** time until the first run */
  in?: number | string;
  /** time of the first run, in milliseconds since 1970; without it and `in`: after `every` */
  at_ms?: number;
}

export interface VolumeRequest {
  /** name of the volume, unique among those of the owner */
  name: string;
  /** limit of bytes in the volume (default: 1G) */
  size?: number | string;
  /** volume or snapshot to copy, which no machine may have; the copy has its size */
  from?: string;
}

export interface VolumeSnapRequest {
  /** name of the snapshot (default: the time) */
  name?: string;
}

export interface DesktopRequest {
  /** width in pixels of a desktop that does not run yet (default 1280) */
  width?: number;
  /** height in pixels of a desktop that does not run yet (default 800) */
  height?: number;
}

export interface DesktopInput {
  action: "click" | "move" | "scroll" | "type" | "key";
  /** click, move, scroll: pixels from the left edge of the screenshot */
  x?: number;
  /** click, move, scroll: pixels from its upper edge */
  y?: number;
  /** click: drag to this point */
  to_x?: number;
  /** click: drag to this point */
  to_y?: number;
  /** click (default left) */
  button?: "left" | "middle" | "right";
  /** click: 2 is a double click */
  count?: number;
  /** scroll (default down) */
  direction?: "up" | "down" | "left" | "right";
  /** scroll: steps of the wheel (default 3) */
  amount?: number;
  /** type: the text; key: keys such as ctrl+s or Return, several separated by spaces */
  text?: string;
  /** click, scroll: keys that are held down meanwhile, such as shift */
  hold?: string;
}

export interface Desktop {
  /** width in pixels */
  width: number;
  /** height in pixels */
  height: number;
  /** DISPLAY of the programs that use the desktop */
  display: string;
}

export interface Volume {
  /** name of the volume, or NAME@SNAPSHOT */
  name: string;
  id: string;
  /** limit of bytes in the volume */
  size: number;
  /** bytes on the disk of the store */
  used_bytes: number;
  /** when it was made, in milliseconds since 1970 */
  created_ms: number;
  /** name of the volume or snapshot that it was copied from */
  from?: string;
  /** machines that have it, each with machine, at and mode */
  machines: VolumePlace[];
}

export interface Volumes {
  volumes: Volume[];
}

export interface Timer {
  id: string;
  machine: string;
  /** the command and its arguments */
  argv: string[];
  /** task of upkeep; argv is empty */
  task?: string;
  user?: string;
  /** time between two runs; left out: it runs once */
  every_ms?: number;
  /** time of the next run, in milliseconds since 1970; 0: none */
  next_ms: number;
  created_ms: number;
  /** how often its command was started */
  runs: number;
  /** runs left out because no daemon ran at their time */
  missed: number;
  /** time of the last run */
  last_ms?: number;
  /** id of the command of the last run */
  last_exec?: string;
  /** exit status of the last run; -1: none; left out: it has not ended */
  last_status?: number;
  /** why the last run did not start */
  error?: string;
}

export interface Timers {
  timers: Timer[];
}

export interface BackupPruneRequest {
  /** number of backups to keep, the newest ones */
  keep: number;
}

export interface BackupRestoreRequest {
  /** name of the new machine (default: none) */
  as?: string;
}

export interface Backup {
  id: string;
  /** id of the machine */
  machine: string;
  /** name of the machine when the backup was made */
  name?: string;
  /** when it was complete, in milliseconds since 1970 */
  created_ms: number;
  /** files, directories and links in it */
  files: number;
  /** bytes of its files */
  bytes: number;
  /** bytes that it added to the store: the rest is in earlier backups */
  written_bytes: number;
}

export interface Backups {
  backups: Backup[];
}

export interface BackupVerified {
  id: string;
  /** files that were read */
  packs: number;
  /** bytes that were read */
  bytes: number;
}

export interface BackupForgotten {
  /** number of backups that were deleted */
  forgotten: number;
}

export interface ExecRequest {
  /** program and arguments; exclusive with `command` */
  argv?: string[];
  /** command line for bash, or for /bin/sh if the machine has no /bin/bash; exclusive with `argv` */
  command?: string;
  /** variables added to those of the machine */
  env?: { [name: string]: string };
  /** working directory (default: the first directory or repository that the machine was created with, or home) */
  cwd?: string;
  /** run the command as this user of the machine: a name or a uid (default user) */
  user?: string;
  /** complete standard input, as text */
  stdin?: string;
  /** complete standard input, as base64 */
  stdin_base64?: string;
  /** keep standard input open for requests to /stdin (default: close it) */
  stdin_open?: boolean;
  /** kill the command and its descendants after this time */
  timeout?: number | string;
  /** run the command in a terminal */
  terminal?: boolean;
  size?: Size;
  /** unix socket only: null or fd (a pipe) for each stream; the fds come with the request. Output is also kept (unless kill_left), and the pipes end with the command */
  stdio?: string[];
  /** kill the remaining descendants of the command when it ends */
  kill_left?: boolean;
  /** name of the command; no other running command of the machine may have it */
  name?: string;
  /** respond when the command has started, not when it has ended */
  background?: boolean;
  /** the command is part of another action, such as a review: take no step for it, and leave it out of lists and events; the next step has its changes, if it leaves any */
  no_step?: boolean;
  /** maximum bytes of each stream in the response (default 1 MiB) */
  output_max?: number | string;
  /** idempotency key: the command runs at most once */
  key?: string;
}

export interface RunRequest {
  machine?: MachineRequest;
  exec: ExecRequest;
}

export interface SignalRequest {
  /** signal to send, such as TERM, SIGTERM or 15 */
  signal: string;
  /** signal only the first process, not its process group */
  main_only?: boolean;
}

export interface Size {
  /** rows of the terminal (default 24) */
  rows?: number;
  /** columns of the terminal (default 80) */
  cols?: number;
}

export interface SnapRequest {
  /** name of the step; a step with a name is never deleted */
  name?: string;
  /** vm: save its memory too, so that a rewind to the step resumes its processes */
  memory?: boolean;
}

export interface StepName {
  /** new name of the step; empty: it has none, and may be deleted when it is old */
  name: string;
}

export interface RewindRequest {
  /** number, id or name of the step, `last`, or `start`: the machine as created */
  step: string;
  /** proceed even if the host's packages have changed */
  drifted?: boolean;
  /** if the step has no restore point, return to the newest one before it; a rewind ends all processes of the machine */
  stop_processes?: boolean;
}

export interface ReinstallRequest {
  /** keep the files in /home and /root */
  keep_home?: boolean;
}

export interface HibernateRequest {
  /** take a step and end every process; memory is lost */
  files_only?: boolean;
}

export interface KindRequest {
  /** the new kind */
  kind: "vm";
  /** memory of the vm (default: the limit that was set for the box, or 512M) */
  mem?: number | string;
}

export interface ForkRequest {
  /** number of new machines (default 1) */
  count?: number;
  /** step to fork (default: the present state); `start`: the machine as created */
  step?: string;
  /** proceed even if the host's packages have changed */
  drifted?: boolean;
  /** vm: copy its memory too, so that its processes go on in each new machine */
  memory?: boolean;
  /** idempotency key: a repeated request returns the same machines */
  key?: string;
}

export interface Step {
  id: string;
  machine: string;
  /** number of the step in its machine: 1, 2, ... */
  number: number;
  /** cause of the step; kept: state before a rewind or a risky command */
  kind: "exec" | "file" | "snap" | "kept" | "rewind" | "fork";
  name?: string;
  created: string;
  /** command that caused the step */
  exec?: string;
  /** argv of the command as JSON, a path, or a remark */
  what?: string;
  /** exit status of the command; -1: no command */
  status: number;
  /** rewind and fork can use this step */
  restorable: boolean;
  /** the step has the memory of the vm */
  memory: boolean;
  /** why the step is not restorable */
  reason?: string;
  /** how the step was taken: switch (of the root); while commands ran: btrfs (snapshot), reflink or copy; same (nothing was written since the last step) */
  how?: string;
  /** number of filesystem layers of the step, without those of the image */
  layers: number;
  /** `files` and `bytes` are known */
  counted: boolean;
  /** files changed since the previous step */
  files: number;
  /** disk space of these files */
  bytes: number;
  /** the step survives a restart of the host */
  durable: boolean;
}

export interface ImageRequest {
  /** name of the image */
  name: string;
  /** step of the machine (default: its present state) */
  step?: string;
  /** environment variables of commands; they override those of the base image */
  env?: { [name: string]: string };
  /** default user of commands */
  user?: string;
  /** default working directory of commands */
  workdir?: string;
  /** default command, kept for other runtimes */
  command?: string[];
  /** program in front of the default command; if this or `command` is given, both are replaced */
  entrypoint?: string[];
}

export interface ImageName {
  /** new name of the image; another image with this name loses it */
  name: string;
}

export interface LayersRequest {
  /** digests of all layers of the image, lowest first, as sha256:HEX */
  digests: string[];
}

export interface Image {
  /** id of the image, made from its content */
  id: string;
  name: string;
  owner: string;
  /** `import`, or the machine that the image was made from */
  origin: string;
  created: string;
  /** bytes in the files of the image */
  bytes: number;
  /** files, directories and links */
  entries: number;
  /** machines of the image's owner that use it */
  machines: number;
  /** layers of the image, with those of images below it */
  layers: number;
  /** topmost layer: `erofs` (a mounted file) or `directory` */
  stored: string;
  /** arch, env, user, workdir, command ... */
  config: { [name: string]: unknown };
}

export interface Images {
  images: Image[];
}

export interface Pruned {
  /** number of deleted image names */
  removed: number;
  /** bytes in the files of layers that became free */
  bytes: number;
}

export interface Layers {
  /** number of the lowest layers that an import need not send */
  stored: number;
}

export interface BuildRequest {
  /** image to start from, or `host` */
  base: string;
  /** name of the new image; another image with this name loses it */
  name?: string;
  /** run all steps, also those whose image exists */
  no_cache?: boolean;
  /** hosts, or presets such as npm, that machines may reach at private addresses if a step allows them */
  local?: string[];
  /** steps, in order */
  steps?: BuildStep[];
}

export interface BuildStep {
  /** the text of the step, for logs */
  what: string;
  /** where the step comes from, for errors, such as `line 3 of the recipe` */
  place?: string;
  /** of a step that is only shown: `using` or `setting` */
  how?: string;
  /** run the step and keep an image; without it the step is only shown in the log */
  make?: boolean;
  /** run the step in a new machine of the image before it */
  fresh?: boolean;
  /** hosts, URLs and presets that the machine may reach */
  net?: string[];
  /** directories to create first */
  dirs?: string[];
  /** a shell command */
  command?: string;
  /** a command, instead of `command` */
  argv?: string[];
  /** environment variables of the command */
  env?: { [name: string]: string };
  /** user of the command */
  user?: string;
  /** working directory of the command */
  cwd?: string;
  /** number of the archive whose files are copied, from 0 in the order of the steps */
  archive?: number;
  /** destination of the copy */
  to?: string;
  /** the destination is a directory, also if it does not exist */
  into?: boolean;
  /** the destination is the path of the one file in the archive */
  as_file?: boolean;
  /** owner of the copies: USER[:GROUP] */
  chown?: string;
  /** hash of the files of the archive: steps with equal keys share their cached image */
  key?: string;
  config?: BuildConfig;
}

export interface BuildConfig {
  /** environment variables of commands; they override those of the base image */
  env?: { [name: string]: string };
  /** default user of commands */
  user?: string;
  /** default working directory of commands */
  workdir?: string;
  /** default command */
  command?: string[];
  /** program that the command is passed to */
  entrypoint?: string[];
}

export interface Build {
  id: string;
  owner: string;
  /** name of the new image */
  name?: string;
  /** a build is `uploading` until the files of its steps have come */
  state: "uploading" | "running" | "done" | "failed" | "cancelled";
  /** number of the present step, from 1 */
  step: number;
  /** number of steps */
  steps: number;
  /** text of the present step */
  what?: string;
  /** steps that were run */
  made: number;
  /** steps whose image existed */
  cached: number;
  started: string;
  ended?: string;
  /** id of the new image */
  image?: string;
  /** of a failed build: code of the error */
  code?: string;
  /** of a failed build: the error */
  error?: string;
  /** of a failed build: what to do */
  remedy?: string;
}

export interface Builds {
  builds: Build[];
}

export interface Package {
  /** URL that the package came from, with its port */
  url: string;
  /** verified digest, as sha256:HEX or sha512:HEX */
  digest: string;
  /** size of the package */
  bytes: number;
  /** when it was last stored or delivered, ms since 1970 */
  used_ms: number;
}

export interface Packages {
  /** disk space of the package cache */
  bytes: number;
  /** limit of the disk space */
  max_bytes: number;
  /** packages, the last used first */
  packages: Package[];
}

export interface Cleared {
  /** number of deleted packages */
  removed: number;
  /** disk space that became free */
  bytes: number;
}

export interface Steps {
  steps: Step[];
  /** cursor of the next page; absent on the last page */
  next?: string;
}

export interface Diff {
  machine: string;
  from: DiffEnd;
  to: DiffEnd;
  /** number of all added entries, listed or not */
  added: number;
  modified: number;
  deleted: number;
  /** file names that were looked at; depends on what changed, not on the number of files */
  looked: number;
  /** why the list is incomplete; entries: over 5,000 differ; looked: over two million file names; time: over 25 s; absent if complete */
  cut?: "entries" | "looked" | "time" | "depth";
  changes: Change[];
}

export interface StoreCheck {
  /** true if there are no problems */
  whole: boolean;
  /** machines that were checked */
  machines: number;
  /** machines that could not be checked */
  unchecked: number;
  /** stacks (ordered lists of layers) of steps and root filesystems */
  stacks: number;
  /** number of layers that the stacks refer to */
  layers: number;
  /** unused layers, which are deleted together with the next old steps */
  leftovers: number;
  problems: StoreProblem[];
}

export interface Boxes {
  /** id of this store */
  store: string;
  boxes: Box[];
}

export interface Box {
  /** id of the box */
  id: string;
  /** store that owns the box; absent if unknown */
  store?: string;
  /** why the daemon leaves the box alone */
  reason: string;
  /** true if adopt can make the box a machine of the caller */
  adoptable: boolean;
}

export interface StoreProblem {
  /** machine that needs the layer (directory of changed files) */
  machine: string;
  layer?: string;
  what: string;
  remedy: string;
}

export interface DiffEnd {
  /** id of the compared step, or `start` or `now`; or the id of the command that cloned a repository, if its step is gone */
  name: string;
  /** number of the step */
  number?: number;
}

export interface Change {
  /** path of the file from the root, without a leading '/' */
  path: string;
  /** the path as base64, if it is not UTF-8 */
  path_base64?: string;
  change: "added" | "modified" | "deleted";
  /** true if Carrel itself wrote the file for the network, and nobody changed it since */
  own?: boolean;
  before?: ChangeSide;
  after?: ChangeSide;
  /** target of a symbolic link before the change */
  target_before?: string;
  target_before_base64?: string;
  target_after?: string;
  target_after_base64?: string;
  /** present if the content differs; large: over 1 MiB, without a line diff; cut: the diff reached its size limit */
  content?: "text" | "binary" | "large" | "cut" | "unreadable";
  lines_added?: number;
  lines_removed?: number;
  /** unified hunks of a text file, without file headers */
  diff?: string;
}

export interface ChangeSide {
  /** kind of file */
  type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
  /** permission bits in octal */
  mode: string;
  /** numeric id of the owner (uid) in the machine */
  owner: number;
  group: number;
  /** size in bytes */
  size: number;
}

export interface Machine {
  id: string;
  name?: string;
  owner: string;
  kind: "box" | "cell" | "vm";
  /** name of the image */
  image: string;
  /** id of the image, made from its content; absent for the image `host` */
  image_id?: string;
  /** home directory of the user that commands run as; absent if the machine has ended */
  home?: string;
  /** directory in which commands start: the first granted one of its creation, or the working directory of the image; absent if the machine has ended */
  cwd?: string;
  state: "creating" | "running" | "paused" | "stopped" | "ending" | "ended";
  /** where a paused machine has what runs in it; on disk it outlives a restart of the host */
  paused_in?: "memory" | "disk";
  /** why that is not on disk, if this daemon paused it */
  paused_why?: string;
  /** who paused or stopped the machine, if known; idle: the idle timeout */
  state_by?: "idle" | "owner" | "admin";
  /** why the machine ended, or was stopped by a restart of the host */
  reason?: string;
  created: string;
  ended?: string;
  /** end of the machine's ttl, when `on_ttl` applies */
  expires?: string;
  on_ttl?: "destroy" | "pause";
  limits: Limits;
  /** time without use before `idle_action`; 0: never */
  idle_ms: number;
  idle_action?: "pause" | "stop" | "destroy" | "release";
  /** when steps are taken */
  steps: "every" | "risky" | "manual";
  /** cell: capabilities of its programs, such as `log,args`; absent: none */
  allow?: string;
  metadata?: { [name: string]: string };
  /** volumes of the machine, each with name, at and mode; only if one machine is shown */
  volumes?: VolumePlace[];
  /** commands that run now */
  commands: number;
  /** bytes on disk of the machine's files and steps at the last measurement, without files that it shares with its image or the machines it was forked from */
  disk_bytes: number;
  step_count: number;
  /** the host's packages changed since the machine was created */
  drifted: boolean;
  warnings?: string;
  /** vm: how it started, if this daemon did it: `boot`, as a `clone` of a template, or with saved `memory` */
  start?: "boot" | "clone" | "memory";
  /** vm: what runs its code, if this daemon started it: the processor (`kvm`), or QEMU, which translates it (`tcg`) */
  accel?: "kvm" | "tcg";
  /** why the machine is unreachable; the daemon retries */
  unreached?: string;
  /** why the newest step is not on disk yet; the daemon retries */
  undurable?: string;
}

export interface Machines {
  machines: Machine[];
  /** cursor of the next page; absent on the last page */
  next?: string;
  /** for administrators: number of boxes on this host that do not belong to this store */
  left_alone?: number;
  store?: Room;
}

export interface Limits {
  /** limit of memory, in bytes */
  mem: number;
  /** limit of processors; 0: all processors of the host */
  cpus: number;
  pids: number;
  /** limit of disk space, in bytes */
  disk: number;
  /** cell: limit of fuel of each command */
  fuel?: number;
  /** cell: limit of fuel per second, if there is one */
  fuel_rate?: number;
}

export interface Stats {
  /** absent if this host does not count it */
  cpu_us?: number;
  /** absent if this host does not count it */
  mem_bytes?: number;
  /** absent if this host does not count it */
  mem_peak_bytes?: number;
  /** absent if this host does not count it */
  mem_limit_bytes?: number;
  /** absent if this host does not count it */
  pids?: number;
  /** absent if this host does not count it */
  io_bytes?: number;
  disk_bytes: number;
  /** absent if this host does not count it */
  oom_kills?: number;
  /** absent if this host does not count it */
  pids_refused?: number;
  /** DNS lookups that were refused */
  lookups_refused: number;
  frozen: boolean;
  /** calls, tokens and cost of models, and the rest of each limit */
  models?: { [name: string]: unknown };
  /** calls of each tool since the daemon started: a list of tool, calls, failed, fallbacks and wall_ms */
  tools?: ToolCount[];
}

export interface MachineStats {
  /** id of the machine */
  machine: string;
  stats: Stats;
  /** words of the newest running command, or `…` if they are longer than 4 KiB; absent: none runs */
  argv?: string[];
}

export interface StatsList {
  /** without machines that have ended, or have no processes */
  machines: MachineStats[];
}

export interface Health {
  machine: string;
  /** the worst state of the checks */
  state: "unknown" | "good" | "bad";
  /** guest: it answers; disk and files: space is left; memory: no process was killed since the last check; units: none of systemd has failed; upkeep: the last runs of its tasks; backup: age of the newest */
  checks: HealthCheck[];
}

export interface HealthCheck {
  name: "guest" | "disk" | "files" | "memory" | "units" | "upkeep" | "backup";
  state: "unknown" | "good" | "bad";
  /** what was found, for people */
  text: string;
}

export interface Exec {
  id: string;
  machine: string;
  /** name of the command, if it has one */
  name?: string;
  argv: string[];
  cwd?: string;
  user?: string;
  /** failed: the command did not start; unknown: its end was not seen */
  state: "starting" | "running" | "exited" | "failed" | "unknown";
  /** how the command ended (exit, signal, timeout, memory, killed), or why it did not start */
  reason?: string;
  /** exit status as a shell shows it; -1: not known yet */
  status: number;
  /** signal that ended the command, or 0 */
  signal: number;
  /** process id in the machine; 0: not known, as of commands in the foreground */
  pid: number;
  started?: string;
  ended?: string;
  stdout_bytes: number;
  stderr_bytes: number;
  usage: Usage;
  /** why the command did not start */
  error?: string;
  terminal: boolean;
  /** the first command since the last restore point that ended beside other processes: its step may not be restorable */
  check_step: boolean;
}

export interface Execs {
  execs: Exec[];
  /** cursor of the next page; absent on the last page */
  next?: string;
}

export interface Usage {
  user_us: number;
  system_us: number;
  max_rss_kb: number;
  wall_us: number;
  /** fuel that the command used; only in a cell */
  fuel?: number;
}

export interface Result {
  exec: Exec;
  /** standard output, if it is UTF-8 text */
  stdout?: string;
  /** standard output as base64, if it is not UTF-8 text */
  stdout_base64?: string;
  /** number of bytes of standard output that are left out */
  stdout_left_out?: number;
  stderr?: string;
  stderr_base64?: string;
  stderr_left_out?: number;
}

export interface Error {
  error: ErrorBody;
}

export interface ErrorBody {
  code: "internal" | "invalid" | "not_found" | "exists" | "denied" | "limit" | "busy" | "unsupported" | "gone" | "unknown" | "timeout";
  message: string;
  cause?: string;
  remedy?: string;
  approval_url?: string;
}

export interface Done {
  warnings?: string;
}

export interface Room {
  /** the directory CARREL_HOME; requires the scope admin */
  home?: string;
  free_bytes: number;
  total_bytes: number;
  used_percent: number;
  /** nothing new is stored until there is room */
  full: boolean;
  /** what to do */
  remedy?: string;
}

export interface ToolCount {
  tool: string;
  calls: number;
  failed: number;
  fallbacks: number;
  wall_ms: number;
}

export interface Rule {
  /** number of the rule, for its deletion */
  id: number;
  /** allow, deny or ask */
  action: string;
  target: string;
  /** HTTP methods; absent: all */
  methods?: string;
  /** the path must be the same, not only begin so */
  exact?: boolean;
  query?: string;
  local?: boolean;
  /** limit of bytes sent plus received */
  bytes?: number;
  /** limit of bytes per second */
  rate?: number;
  /** ask: how long a request waits for approval */
  hold_ms?: number;
  /** when the rule is deleted, in milliseconds since 1970 */
  expires?: number;
  preset?: string;
  /** who gave the rule: client (of E2B) or conf (carrel.conf); absent: the owner */
  from?: string;
  trusted?: boolean;
  tainted?: boolean;
}

export interface Secret {
  name: string;
  created_ms: number;
  changed_ms: number;
  used_ms?: number;
}

export interface Login {
  name: string;
  created_ms: number;
  changed_ms: number;
  used_ms?: number;
  expires_ms?: number;
  /** why the login cannot be used */
  problem?: string;
}

export interface Grant {
  id: string;
  kind: string;
  /** granted object */
  what: string;
  /** path in the machine, or host that receives a secret */
  at?: string;
  mode?: string;
  created_ms: number;
  expires_ms?: number;
  detail?: { [name: string]: unknown };
}

export interface Port {
  port: number;
  /** URL of the port, without the token */
  url: string;
  /** the same port for programs, without a host name: send `headers`; absent with TLS */
  direct_url?: string;
  /** headers for direct_url: Carrel-Port, and Carrel-Token where the answer has a token */
  headers?: { [name: string]: string };
  /** the port is public, and has no token */
  public?: boolean;
}

export interface PendingItem {
  id: string;
  machine: string;
  /** of a request; or `question`, which a program of the machine asks */
  protocol: string;
  question?: string;
  /** the question asks that the box becomes a vm; `approve` does that */
  moves?: boolean;
  host?: string;
  port?: number;
  method?: string;
  path?: string;
  query?: string;
  /** bytes of the body */
  body?: number;
  body_sha256?: string;
  /** first bytes of a connection that is not HTTP */
  first?: string;
  /** rule that an approval with `always` adds */
  always?: string;
  /** why an approval cannot add a rule */
  no_rule?: string;
  /** number of the rule that requires the approval */
  rule?: number;
  /** text of that rule */
  why?: string;
  since_ms: number;
  /** time until the item is refused */
  left_ms: number;
  /** connections that wait for the decision */
  waiting?: number;
  approved: boolean;
}

export interface VolumePlace {
  /** id of the machine, in a list of machines */
  machine?: string;
  /** name of the volume, in a list of volumes */
  name?: string;
  /** path in the machine */
  at: string;
  /** ro, cow or rw */
  mode: string;
}

export interface ExecStart {
  type: "start";
  machine: string;
  /** id of the command */
  exec: string;
  /** output also goes to the descriptors of the request */
  copied?: boolean;
  warnings?: string;
}

export interface ExecOutput {
  type: "stdout" | "stderr";
  /** offset of the first byte in its stream */
  offset: number;
  /** the output, if it is UTF-8 text */
  data?: string;
  /** the output as base64, if it is not UTF-8 text */
  data_base64?: string;
}

export interface ExecGap {
  type: "gap";
  stream: "stdout" | "stderr";
  /** offset of the first byte that was not kept */
  offset: number;
  bytes: number;
}

export interface ExecExit {
  /** now: the stream was not followed to the end of the command */
  type: "exit" | "now";
  exec: Exec;
}

export interface BuildLogStep {
  type: "step";
  step: number;
  steps: number;
  how: string;
  what: string;
}

export interface BuildLogOutput {
  type: "output";
  data?: string;
  data_base64?: string;
}

export interface BuildLogEnd {
  type: "end";
  build: Build;
}

export interface FileEvent {
  change: "created" | "modified" | "written" | "removed" | "moved_from" | "moved_to" | "attributes" | "gone" | "overflow" | "other";
  /** name of the entry in the watched directory */
  name?: string;
  /** the entry is a directory */
  directory: boolean;
  /** the same for the two events of one move */
  cookie?: number;
}

export interface Event {
  id: number;
  /** such as machine.created */
  type: string;
  time_ms: number;
  machine?: string;
  owner: string;
  detail?: { [name: string]: unknown };
}

export interface Record {
  /** number of the record */
  seq: number;
  /** in milliseconds since 1970 */
  time: number;
  kind: "intent" | "result" | "note" | "segment" | "head";
  owner?: string;
  token?: string;
  client?: string;
  /** what was done, such as machine.create */
  verb?: string;
  machine?: string;
  exec?: string;
  argv?: string[];
  argv_bytes?: number;
  argv_hash?: string;
  exit?: unknown;
  bytes?: number;
  /** result: number of the record of its intent */
  intent?: number;
  reason?: string;
  segment?: number;
  journal?: string;
  /** hash of the record before */
  prev?: string;
  sig?: string;
  detail?: unknown;
  hash: string;
}

export interface RunEvent {
  /** such as start, answer, call, result or end */
  event: string;
  /** in milliseconds since 1970 */
  time: number;
  note?: string;
  run?: string;
  owner?: string;
  machine?: string;
  own_machine?: boolean;
  model?: string;
  task?: string;
  card?: string;
  window?: number;
  prompt_bytes?: number;
  turns?: number;
  tokens?: number;
  money?: number;
  timeout_ms?: number;
  script?: string;
  mode?: string;
  menu?: string;
  parent?: string;
  tries?: number;
  check?: string;
  check_files?: string;
  guard?: boolean;
  asks?: boolean;
  good?: boolean;
  changes?: number;
  calls?: number;
  changeset?: string;
  in?: number;
  cache_read?: number;
  cache_write?: number;
  cache_write_long?: number;
  out?: number;
  reasoning?: number;
  has_usage?: boolean;
  cost?: number;
  request_bytes?: number;
  index?: number;
  tool?: string;
  /** arguments of the tool, as JSON text */
  arguments?: string;
  hash?: string;
  failed?: boolean;
  bytes?: number;
  took_ms?: number;
  fallback?: string;
  text?: string;
  media?: string;
  image?: string;
  name?: string;
  step?: string;
  before?: number;
  attempt?: number;
  wait_ms?: number;
  /** end: how the run ended */
  status?: string;
  /** answer: what the model was asked for */
  purpose?: string;
  stop?: number;
  /** answer: parts, each with kind and text */
  parts?: ({ [name: string]: unknown })[];
  /** end: work done, evidence, work left */
  report?: { [name: string]: unknown };
}

export type ExecEvent = ExecStart | ExecOutput | ExecGap | ExecExit;

export type BuildLogLine = BuildLogStep | BuildLogOutput | BuildLogEnd;

/** Every operation: its parameters, body, answer, and the events that it can stream. */
export interface Operations {
  /** Create a machine */
  machine_create: { params: { hold?: boolean }; body: MachineRequest; answer: Machine; event: never };
  /** List machines, newest first */
  machine_list: { params: { state?: string; kind?: string; name?: string; meta?: string; all?: boolean; limit?: number; cursor?: string }; body: undefined; answer: Machines; event: never };
  /** Show a machine, by id, name or prefix */
  machine_show: { params: { machine: string }; body: undefined; answer: Machine; event: never };
  /** Change limits, ttl, idle action, name or metadata */
  machine_update: { params: { machine: string }; body: UpdateRequest; answer: Machine; event: never };
  /** Destroy a machine; the response comes when it is gone */
  machine_destroy: { params: { machine: string }; body: undefined; answer: Machine; event: never };
  /** Pause every process of a machine; memory is kept */
  machine_pause: { params: { machine: string }; body: undefined; answer: Machine; event: never };
  /** Resume a machine after pause or stop */
  machine_resume: { params: { machine: string }; body: undefined; answer: Machine; event: never };
  /** End every process of a machine; files are kept */
  machine_stop: { params: { machine: string }; body: undefined; answer: Machine; event: never };
  /** Save the processes to disk: `unsupported` with the reason if the host cannot. With `files_only`, save the files and end the processes */
  machine_hibernate: { params: { machine: string }; body: HibernateRequest; answer: Machine; event: never };
  /** Make a box a vm, with the same id, files, grants and rules; its processes end */
  machine_move: { params: { machine: string }; body: KindRequest; answer: Machine; event: never };
  /** Show the resources that a machine uses */
  machine_stats: { params: { machine: string }; body: undefined; answer: Stats; event: never };
  /** Show the resources and the current command of up to 200 machines */
  stats_list: { params: { machines: string }; body: undefined; answer: StatsList; event: never };
  /** Check a machine. If it turned bad or good again, it gets an event */
  machine_health: { params: { machine: string }; body: undefined; answer: Health; event: never };
  /** Get descriptors of the changes in directories granted as copies (cow); unix socket only */
  machine_changes: { params: { machine: string }; body: undefined; answer: Done; event: never };
  /** List network rules; the newest rule that matches decides */
  net_show: { params: { machine: string }; body: undefined; answer: Network; event: never };
  /** Add a network rule, effective at once; a token needs the scope admin */
  net_add: { params: { machine: string }; body: NetRule; answer: Network; event: never };
  /** Delete a network rule and close the connections that it allowed */
  net_remove: { params: { machine: string; rule: string }; body: undefined; answer: Network; event: never };
  /** Close the network once the machine reads untrusted data; for good */
  net_guard: { params: { machine: string }; body: undefined; answer: Network; event: never };
  /** List exposed ports */
  expose_list: { params: { machine: string }; body: undefined; answer: Exposures; event: never };
  /** Expose a port under a host name; a token needs the scope admin */
  expose: { params: { machine: string }; body: ExposeRequest; answer: Exposure; event: never };
  /** Stop exposing a port and close its connections */
  expose_remove: { params: { machine: string; port: string }; body: undefined; answer: Exposures; event: never };
  /** Connect to a TCP port of a machine over a WebSocket: binary messages are bytes, the text message {"type":"end"} ends those of its sender */
  forward: { params: { machine: string; port: string }; body: undefined; answer: Uint8Array; event: never };
  /** Connect to the serial console of a vm over a WebSocket, as for forward; the first line is the offset of the bytes that follow */
  serial: { params: { machine: string; offset?: number }; body: undefined; answer: Uint8Array; event: never };
  /** Start the desktop of a machine, unless it runs */
  desktop_start: { params: { machine: string }; body: DesktopRequest; answer: Desktop; event: never };
  /** Take a screenshot of the desktop; it is started if it does not run */
  desktop_screenshot: { params: { machine: string }; body: undefined; answer: Uint8Array; event: never };
  /** Click, move, scroll, type text or press keys; answers when the X server has read the input */
  desktop_input: { params: { machine: string }; body: DesktopInput; answer: Desktop; event: never };
  /** Open a desktop that runs as a WebSocket, for noVNC: binary messages are bytes of RFB 3.8 without a password; pixels are raw, and the clipboard is dropped */
  desktop_watch: { params: { machine: string }; body: undefined; answer: Uint8Array; event: never };
  /** List grants: directories, files, variables, secrets, repositories and databases */
  grant_list: { params: { machine: string }; body: undefined; answer: Grants; event: never };
  /** Add a grant; a token needs the scope admin */
  grant_add: { params: { machine: string }; body: GrantRequest; answer: Grants; event: never };
  /** Show changes in a granted database: schema and rows */
  grant_diff: { params: { machine: string; grant: string }; body: undefined; answer: GrantDiff; event: never };
  /** Revoke a grant at once; processes with the directory open are killed */
  grant_revoke: { params: { machine: string; grant: string }; body: undefined; answer: Grants; event: never };
  /** Take a step (a restore point), with an optional name */
  snap: { params: { machine: string }; body: SnapRequest; answer: Step; event: never };
  /** List the steps of a machine, newest first */
  step_list: { params: { machine: string; limit?: number; cursor?: string }; body: undefined; answer: Steps; event: never };
  /** Show one step, by number, id or name */
  step_show: { params: { machine: string; step: string }; body: undefined; answer: Step; event: never };
  /** Name a step, or change or remove its name. A step with a name is never deleted */
  step_name: { params: { machine: string; step: string }; body: StepName; answer: Step; event: never };
  /** Show file changes between two steps, or a step and now */
  diff: { params: { machine: string; from?: string; to?: string; path?: string; context?: number; brief?: boolean; skip_repos?: boolean; volume?: string }; body: undefined; answer: Diff; event: never };
  /** Return to a step. Running commands are killed, and the present state is kept as a step */
  rewind: { params: { machine: string }; body: RewindRequest; answer: Step; event: never };
  /** Return to the image. Running commands are killed, and the present state is kept as a step */
  machine_reinstall: { params: { machine: string }; body: ReinstallRequest; answer: Machine; event: never };
  /** Create new machines from a step of this machine: all of them, or none if one fails */
  fork: { params: { machine: string }; body: ForkRequest; answer: Machines; event: never };
  /** List names of secrets; values are never shown */
  secret_list: { params: {}; body: undefined; answer: Secrets; event: never };
  /** Store a secret, encrypted, or replace its value; a token needs the scope admin */
  secret_set: { params: { secret: string }; body: SecretRequest; answer: Done; event: never };
  /** Delete a secret; nothing can use it from now on */
  secret_remove: { params: { secret: string }; body: undefined; answer: Done; event: never };
  /** List subscription logins; tokens are never shown */
  login_list: { params: {}; body: undefined; answer: Logins; event: never };
  /** Store the login claude or codex, encrypted, or replace it; a token needs the scope admin */
  login_set: { params: { login: string }; body: LoginRequest; answer: Done; event: never };
  /** Delete a login; no machine can use it from now on */
  login_remove: { params: { login: string }; body: undefined; answer: Done; event: never };
  /** List the timers of a machine */
  timer_list: { params: { machine: string }; body: undefined; answer: Timers; event: never };
  /** Run a command at a set time, or again and again; the machine is woken for it */
  timer_add: { params: { machine: string }; body: TimerRequest; answer: Timer; event: never };
  /** Remove a timer */
  timer_remove: { params: { machine: string; timer: string }; body: undefined; answer: Timer; event: never };
  /** List volumes and their snapshots */
  volume_list: { params: {}; body: undefined; answer: Volumes; event: never };
  /** Make a volume, empty or a copy of another one; a token needs the scope admin */
  volume_create: { params: {}; body: VolumeRequest; answer: Volume; event: never };
  /** Show a volume and the machines that have it */
  volume_show: { params: { volume: string }; body: undefined; answer: Volume; event: never };
  /** Delete a volume or a snapshot that no machine has; a token needs the scope admin */
  volume_remove: { params: { volume: string }; body: undefined; answer: Done; event: never };
  /** Make a snapshot of a volume that no machine has; a token needs the scope admin */
  volume_snap: { params: { volume: string }; body: VolumeSnapRequest; answer: Volume; event: never };
  /** Back up the files of a machine; only what changed since the last backup is stored */
  backup_take: { params: { machine: string }; body: undefined; answer: Backup; event: never };
  /** Delete all but the newest backups of a machine */
  backup_prune: { params: { machine: string }; body: BackupPruneRequest; answer: BackupForgotten; event: never };
  /** List backups, newest first */
  backup_list: { params: { machine?: string }; body: undefined; answer: Backups; event: never };
  /** Store a backup that another daemon sent: a tar of GET /v1/backups/{}/archive */
  backup_import: { params: {}; body: Uint8Array; answer: Backup; event: never };
  /** Send a backup: its packs, its manifest and a description, as a tar */
  backup_export: { params: { backup: string; packs?: string }; body: undefined; answer: Uint8Array; event: never };
  /** Read a whole backup and compare it with its hashes */
  backup_verify: { params: { backup: string }; body: undefined; answer: BackupVerified; event: never };
  /** Create a machine with the files of a backup */
  backup_restore: { params: { backup: string }; body: BackupRestoreRequest; answer: Machine; event: never };
  /** Delete a backup, and files that no other backup needs */
  backup_forget: { params: { backup: string }; body: undefined; answer: BackupForgotten; event: never };
  /** Create an image from the machine or one of its steps */
  image_snap: { params: { machine: string }; body: ImageRequest; answer: Image; event: never };
  /** List images by name */
  image_list: { params: { all?: boolean }; body: undefined; answer: Images; event: never };
  /** Import an archive: a root filesystem, a Docker archive or an OCI layout in a tar, plain or packed with gzip, xz or zstd */
  image_import: { params: { name?: string; form?: string }; body: Uint8Array; answer: Image; event: never };
  /** Delete intermediate images of builds that no machine uses */
  image_prune: { params: {}; body: undefined; answer: Pruned; event: never };
  /** Count the layers of an image that are stored already */
  image_layers: { params: {}; body: LayersRequest; answer: Layers; event: never };
  /** Start the build of an image */
  build_start: { params: {}; body: BuildRequest; answer: Build; event: never };
  /** List builds, newest first */
  build_list: { params: { all?: boolean }; body: undefined; answer: Builds; event: never };
  /** Show a build */
  build_show: { params: { build: string }; body: undefined; answer: Build; event: never };
  /** Cancel a build */
  build_cancel: { params: { build: string }; body: undefined; answer: Build; event: never };
  /** Send a tar of files that a step copies; the last one starts the build */
  build_files: { params: { build: string; archive: string }; body: Uint8Array; answer: Build; event: never };
  /** Read the log of a build, as NDJSON or server-sent events */
  build_log: { params: { build: string; offset?: number; follow?: boolean }; body: undefined; answer: Uint8Array; event: BuildLogLine };
  /** List the packages in the package cache of the caller */
  package_list: { params: {}; body: undefined; answer: Packages; event: never };
  /** Delete all packages in the package cache of the caller */
  package_clear: { params: {}; body: undefined; answer: Cleared; event: never };
  /** Show one image, by name, id or unique prefix */
  image_show: { params: { image: string }; body: undefined; answer: Image; event: never };
  /** Delete a name of an image; the files stay while machines use them */
  image_remove: { params: { image: string }; body: undefined; answer: Image; event: never };
  /** Add a name to an image */
  image_tag: { params: { image: string }; body: ImageName; answer: Image; event: never };
  /** Export an image as an archive; the bytes are reproducible */
  image_export: { params: { image: string; form?: string }; body: undefined; answer: Uint8Array; event: never };
  /** Verify that every layer your machines and steps refer to exists */
  store_check: { params: {}; body: undefined; answer: StoreCheck; event: never };
  /** List boxes on this host that belong to another store or are unknown to this one */
  store_boxes: { params: {}; body: undefined; answer: Boxes; event: never };
  /** Adopt a box from GET /v1/store/boxes as your machine; the machine is tainted, guarded and has no network access */
  store_adopt: { params: { box: string }; body: undefined; answer: Machine; event: never };
  /** List requests that wait for approval */
  pending_list: { params: {}; body: undefined; answer: Pending; event: never };
  /** Approve or refuse a pending request; a token needs the scope admin */
  pending_decide: { params: { item: string }; body: Approval; answer: Decided; event: never };
  /** Create a machine, run one command, destroy the machine */
  run: { params: { hold?: boolean; keep?: boolean; output?: boolean }; body: RunRequest; answer: Result; event: ExecEvent };
  /** Run a command. The response is one JSON result; with Accept: application/x-ndjson or text/event-stream it is a stream of the events start, stdout, stderr, gap and exit */
  exec: { params: { machine: string; output?: boolean }; body: ExecRequest; answer: Result; event: ExecEvent };
  /** List the commands of a machine, newest first */
  exec_list: { params: { machine: string; state?: string; all?: boolean; limit?: number; cursor?: string }; body: undefined; answer: Execs; event: never };
  /** Show one command */
  exec_show: { params: { machine: string; exec: string }; body: undefined; answer: Exec; event: never };
  /** Kill a command and everything it started */
  exec_kill: { params: { machine: string; exec: string }; body: undefined; answer: Done; event: never };
  /** Read output as bytes from any offset, during or after the command. The response ends before bytes that were not kept. Ask again from there: Carrel-Left-Out is their number, Carrel-Offset the next offset. Carrel-Left-Open is 1 if the command has ended, but processes that it left behind still have its output open. If no output is kept the error is 'gone' */
  exec_output: { params: { machine: string; exec: string; stream?: "stdout" | "stderr"; offset?: number; limit?: number; follow?: boolean }; body: undefined; answer: Uint8Array; event: never };
  /** Stream the events of a command again, from any offset */
  exec_events: { params: { machine: string; exec: string; stdout?: number; stderr?: number; follow?: boolean; output?: boolean }; body: undefined; answer: Uint8Array; event: ExecEvent };
  /** Write to the standard input of a command */
  exec_stdin: { params: { machine: string; exec: string; offset?: number; eof?: boolean }; body: Uint8Array; answer: Done; event: never };
  /** Send a signal to a command */
  exec_signal: { params: { machine: string; exec: string }; body: SignalRequest; answer: Done; event: never };
  /** Resize the terminal of a command */
  exec_resize: { params: { machine: string; exec: string }; body: Size; answer: Done; event: never };
  /** Open a terminal as a WebSocket: binary messages are input and output, text messages are control */
  terminal: { params: { machine: string; exec?: string; offset?: number; wait?: boolean; command?: string; cwd?: string; user?: string; term?: string; rows?: number; cols?: number }; body: undefined; answer: Uint8Array; event: never };
  /** Read a file, whole or by Range */
  file_read: { params: { machine: string; path: string; user?: string }; body: undefined; answer: Uint8Array; event: never };
  /** Write a file of any size atomically */
  file_write: { params: { machine: string; path: string; user?: string; mode?: string; if_hash?: string; sync?: boolean; offset?: number }; body: Uint8Array; answer: Written; event: never };
  /** Delete a file or directory */
  file_remove: { params: { machine: string; path: string; user?: string; recursive?: boolean }; body: undefined; answer: Done; event: never };
  /** Show type, size, mode and owner of a path */
  file_stat: { params: { machine: string; path: string; user?: string; follow?: boolean }; body: undefined; answer: Entry; event: never };
  /** List a directory */
  file_list: { params: { machine: string; path: string; user?: string; limit?: number; cursor?: string }; body: undefined; answer: Entries; event: never };
  /** Create a directory and missing parents */
  file_mkdir: { params: { machine: string }; body: MkdirRequest; answer: Done; event: never };
  /** Move or rename a file */
  file_move: { params: { machine: string }; body: MoveRequest; answer: Done; event: never };
  /** Change the mode of a file */
  file_chmod: { params: { machine: string }; body: ChmodRequest; answer: Done; event: never };
  /** Change owner and group of a file */
  file_chown: { params: { machine: string }; body: ChownRequest; answer: Done; event: never };
  /** Create a symbolic link */
  file_symlink: { params: { machine: string }; body: SymlinkRequest; answer: Done; event: never };
  /** Read a directory as a tar archive */
  tar_read: { params: { machine: string; path: string; user?: string; compress?: string }; body: undefined; answer: Uint8Array; event: never };
  /** Unpack a tar archive into a directory */
  tar_write: { params: { machine: string; path: string; user?: string; compress?: string }; body: Uint8Array; answer: Written; event: never };
  /** Stream changes of a file or directory */
  file_watch: { params: { machine: string; path: string; user?: string }; body: undefined; answer: Uint8Array; event: FileEvent };
  /** Freeze a directory or a granted database as a change set, for review */
  freeze: { params: { machine: string }; body: Freeze; answer: ChangeSet; event: never };
  /** List change sets, newest first; also those of machines that were deleted */
  changeset_list: { params: { state?: string; machine?: string; all?: boolean; limit?: number; cursor?: string }; body: undefined; answer: ChangeSets; event: never };
  /** Show one change set */
  changeset_show: { params: { changeset: string }; body: undefined; answer: ChangeSet; event: never };
  /** Read the frozen files as a tar archive */
  changeset_archive: { params: { changeset: string }; body: undefined; answer: Uint8Array; event: never };
  /** List files of the granted directory on the owner's side, a line per file; empty: unknown */
  changeset_base: { params: { changeset: string }; body: undefined; answer: Uint8Array; event: never };
  /** Show the diff of a frozen database */
  changeset_database: { params: { changeset: string }; body: undefined; answer: GrantDiff; event: never };
  /** Record in the journal that files will be shipped, or were; only for the owner on this host or the scope admin */
  changeset_ship: { params: { changeset: string }; body: Ship; answer: Shipped; event: never };
  /** Start a run: a model works on a task on a machine */
  run_start: { params: {}; body: RunStart; answer: Run; event: never };
  /** List runs, newest first */
  run_list: { params: { limit?: number }; body: undefined; answer: Runs; event: never };
  /** Show one run, with its report once it has ended */
  run_show: { params: { run: string }; body: undefined; answer: Run; event: never };
  /** Stream the transcript of a run; a client can resume after the id of an event */
  run_events: { params: { run: string; after?: number; follow?: boolean }; body: undefined; answer: Uint8Array; event: RunEvent };
  /** Read the transcript of a run */
  run_transcript: { params: { run: string; after?: number; follow?: boolean }; body: undefined; answer: Uint8Array; event: RunEvent };
  /** Export a run as an agent trajectory (ATIF v1.4) */
  run_export: { params: { run: string }; body: undefined; answer: unknown; event: never };
  /** Answer the question of a run */
  run_answer: { params: { run: string }; body: RunAnswer; answer: Run; event: never };
  /** Resume an interrupted run; no effect is repeated */
  run_resume: { params: { run: string }; body: RunResume; answer: Run; event: never };
  /** Cancel a run and the commands that it waits for */
  run_cancel: { params: { run: string }; body: undefined; answer: Run; event: never };
  /** Stream events of all machines (server-sent events); a client can resume after the id of an event */
  events: { params: { after?: number; machine?: string; type?: string; follow?: boolean }; body: undefined; answer: Uint8Array; event: Event };
  /** List journal records, oldest first */
  audit: { params: { since?: number; tail?: number; machine?: string; verb?: string; owner?: string; text?: string; heads?: boolean }; body: undefined; answer: Uint8Array; event: Record };
  /** Verify the hash chain and signatures of the journal */
  audit_verify: { params: { head?: string }; body: undefined; answer: Verification; event: never };
  /** Create a token */
  token_new: { params: {}; body: TokenRequest; answer: Token; event: never };
  /** List tokens, without their secrets */
  token_list: { params: {}; body: undefined; answer: Tokens; event: never };
  /** Revoke a token */
  token_revoke: { params: { token: string }; body: undefined; answer: Done; event: never };
  /** List model providers, aliases and prices */
  model_list: { params: {}; body: undefined; answer: Models; event: never };
  /** Show what your model calls cost, by day, model or machine; by owner, those of all owners if you are an admin */
  model_usage: { params: { by?: "day" | "model" | "machine" | "owner"; days?: number }; body: undefined; answer: ModelUsage; event: never };
  /** List the agents of carrel.conf, their budget, and which model formats have a provider */
  agent_list: { params: {}; body: undefined; answer: Agents; event: never };
  /** Show the status of the daemon and its host */
  status: { params: {}; body: undefined; answer: Status; event: never };
  /** Read metrics for Prometheus */
  metrics: { params: {}; body: undefined; answer: Uint8Array; event: never };
  /** Download the file of a ticket, whole or by Range; the ticket replaces the token */
  transfer_download: { params: { ticket: string }; body: undefined; answer: Uint8Array; event: never };
  /** Upload the file of a ticket, all or nothing; the ticket replaces the token */
  transfer_upload: { params: { ticket: string }; body: Uint8Array; answer: Written; event: never };
  /** Read this API as an OpenAPI 3.1 document */
  openapi: { params: {}; body: undefined; answer: unknown; event: never };
  /** Answer `ok` if the daemon is running */
  healthz: { params: {}; body: undefined; answer: Uint8Array; event: never };
}

/** Method and path of each operation. */
export const operations: { [name in keyof Operations]: [string, string] } = {
  machine_create: ["POST", "/v1/machines"],
  machine_list: ["GET", "/v1/machines"],
  machine_show: ["GET", "/v1/machines/{machine}"],
  machine_update: ["PATCH", "/v1/machines/{machine}"],
  machine_destroy: ["DELETE", "/v1/machines/{machine}"],
  machine_pause: ["POST", "/v1/machines/{machine}/pause"],
  machine_resume: ["POST", "/v1/machines/{machine}/resume"],
  machine_stop: ["POST", "/v1/machines/{machine}/stop"],
  machine_hibernate: ["POST", "/v1/machines/{machine}/hibernate"],
  machine_move: ["POST", "/v1/machines/{machine}/move"],
  machine_stats: ["GET", "/v1/machines/{machine}/stats"],
  stats_list: ["GET", "/v1/stats"],
  machine_health: ["GET", "/v1/machines/{machine}/health"],
  machine_changes: ["GET", "/v1/machines/{machine}/changes"],
  net_show: ["GET", "/v1/machines/{machine}/net"],
  net_add: ["POST", "/v1/machines/{machine}/net/rules"],
  net_remove: ["DELETE", "/v1/machines/{machine}/net/rules/{rule}"],
  net_guard: ["POST", "/v1/machines/{machine}/net/guard"],
  expose_list: ["GET", "/v1/machines/{machine}/exposures"],
  expose: ["POST", "/v1/machines/{machine}/exposures"],
  expose_remove: ["DELETE", "/v1/machines/{machine}/exposures/{port}"],
  forward: ["GET", "/v1/machines/{machine}/forward/{port}"],
  serial: ["GET", "/v1/machines/{machine}/serial"],
  desktop_start: ["POST", "/v1/machines/{machine}/desktop"],
  desktop_screenshot: ["GET", "/v1/machines/{machine}/desktop/screenshot"],
  desktop_input: ["POST", "/v1/machines/{machine}/desktop/input"],
  desktop_watch: ["GET", "/v1/machines/{machine}/desktop/watch"],
  grant_list: ["GET", "/v1/machines/{machine}/grants"],
  grant_add: ["POST", "/v1/machines/{machine}/grants"],
  grant_diff: ["GET", "/v1/machines/{machine}/grants/{grant}/diff"],
  grant_revoke: ["DELETE", "/v1/machines/{machine}/grants/{grant}"],
  snap: ["POST", "/v1/machines/{machine}/steps"],
  step_list: ["GET", "/v1/machines/{machine}/steps"],
  step_show: ["GET", "/v1/machines/{machine}/steps/{step}"],
  step_name: ["PATCH", "/v1/machines/{machine}/steps/{step}"],
  diff: ["GET", "/v1/machines/{machine}/diff"],
  rewind: ["POST", "/v1/machines/{machine}/rewind"],
  machine_reinstall: ["POST", "/v1/machines/{machine}/reinstall"],
  fork: ["POST", "/v1/machines/{machine}/fork"],
  secret_list: ["GET", "/v1/secrets"],
  secret_set: ["PUT", "/v1/secrets/{secret}"],
  secret_remove: ["DELETE", "/v1/secrets/{secret}"],
  login_list: ["GET", "/v1/logins"],
  login_set: ["PUT", "/v1/logins/{login}"],
  login_remove: ["DELETE", "/v1/logins/{login}"],
  timer_list: ["GET", "/v1/machines/{machine}/timers"],
  timer_add: ["POST", "/v1/machines/{machine}/timers"],
  timer_remove: ["DELETE", "/v1/machines/{machine}/timers/{timer}"],
  volume_list: ["GET", "/v1/volumes"],
  volume_create: ["POST", "/v1/volumes"],
  volume_show: ["GET", "/v1/volumes/{volume}"],
  volume_remove: ["DELETE", "/v1/volumes/{volume}"],
  volume_snap: ["POST", "/v1/volumes/{volume}/snapshots"],
  backup_take: ["POST", "/v1/machines/{machine}/backups"],
  backup_prune: ["POST", "/v1/machines/{machine}/backups/prune"],
  backup_list: ["GET", "/v1/backups"],
  backup_import: ["POST", "/v1/backups"],
  backup_export: ["GET", "/v1/backups/{backup}/archive"],
  backup_verify: ["POST", "/v1/backups/{backup}/verify"],
  backup_restore: ["POST", "/v1/backups/{backup}/restore"],
  backup_forget: ["DELETE", "/v1/backups/{backup}"],
  image_snap: ["POST", "/v1/machines/{machine}/image"],
  image_list: ["GET", "/v1/images"],
  image_import: ["POST", "/v1/images"],
  image_prune: ["POST", "/v1/images/prune"],
  image_layers: ["POST", "/v1/layers"],
  build_start: ["POST", "/v1/images/builds"],
  build_list: ["GET", "/v1/images/builds"],
  build_show: ["GET", "/v1/images/builds/{build}"],
  build_cancel: ["DELETE", "/v1/images/builds/{build}"],
  build_files: ["PUT", "/v1/images/builds/{build}/files/{archive}"],
  build_log: ["GET", "/v1/images/builds/{build}/log"],
  package_list: ["GET", "/v1/packages"],
  package_clear: ["DELETE", "/v1/packages"],
  image_show: ["GET", "/v1/images/{image}"],
  image_remove: ["DELETE", "/v1/images/{image}"],
  image_tag: ["POST", "/v1/images/{image}/names"],
  image_export: ["GET", "/v1/images/{image}/archive"],
  store_check: ["GET", "/v1/store/check"],
  store_boxes: ["GET", "/v1/store/boxes"],
  store_adopt: ["POST", "/v1/store/boxes/{box}/adopt"],
  pending_list: ["GET", "/v1/pending"],
  pending_decide: ["POST", "/v1/pending/{item}"],
  run: ["POST", "/v1/run"],
  exec: ["POST", "/v1/machines/{machine}/execs"],
  exec_list: ["GET", "/v1/machines/{machine}/execs"],
  exec_show: ["GET", "/v1/machines/{machine}/execs/{exec}"],
  exec_kill: ["DELETE", "/v1/machines/{machine}/execs/{exec}"],
  exec_output: ["GET", "/v1/machines/{machine}/execs/{exec}/output"],
  exec_events: ["GET", "/v1/machines/{machine}/execs/{exec}/events"],
  exec_stdin: ["POST", "/v1/machines/{machine}/execs/{exec}/stdin"],
  exec_signal: ["POST", "/v1/machines/{machine}/execs/{exec}/signal"],
  exec_resize: ["POST", "/v1/machines/{machine}/execs/{exec}/resize"],
  terminal: ["GET", "/v1/machines/{machine}/pty"],
  file_read: ["GET", "/v1/machines/{machine}/files"],
  file_write: ["PUT", "/v1/machines/{machine}/files"],
  file_remove: ["DELETE", "/v1/machines/{machine}/files"],
  file_stat: ["GET", "/v1/machines/{machine}/files/stat"],
  file_list: ["GET", "/v1/machines/{machine}/files/list"],
  file_mkdir: ["POST", "/v1/machines/{machine}/files/mkdir"],
  file_move: ["POST", "/v1/machines/{machine}/files/move"],
  file_chmod: ["POST", "/v1/machines/{machine}/files/chmod"],
  file_chown: ["POST", "/v1/machines/{machine}/files/chown"],
  file_symlink: ["POST", "/v1/machines/{machine}/files/symlink"],
  tar_read: ["GET", "/v1/machines/{machine}/files/tar"],
  tar_write: ["PUT", "/v1/machines/{machine}/files/tar"],
  file_watch: ["GET", "/v1/machines/{machine}/files/watch"],
  freeze: ["POST", "/v1/machines/{machine}/changesets"],
  changeset_list: ["GET", "/v1/changesets"],
  changeset_show: ["GET", "/v1/changesets/{changeset}"],
  changeset_archive: ["GET", "/v1/changesets/{changeset}/archive"],
  changeset_base: ["GET", "/v1/changesets/{changeset}/base"],
  changeset_database: ["GET", "/v1/changesets/{changeset}/database"],
  changeset_ship: ["POST", "/v1/changesets/{changeset}/ship"],
  run_start: ["POST", "/v1/runs"],
  run_list: ["GET", "/v1/runs"],
  run_show: ["GET", "/v1/runs/{run}"],
  run_events: ["GET", "/v1/runs/{run}/events"],
  run_transcript: ["GET", "/v1/runs/{run}/transcript"],
  run_export: ["GET", "/v1/runs/{run}/export"],
  run_answer: ["POST", "/v1/runs/{run}/answer"],
  run_resume: ["POST", "/v1/runs/{run}/resume"],
  run_cancel: ["POST", "/v1/runs/{run}/cancel"],
  events: ["GET", "/v1/events"],
  audit: ["GET", "/v1/audit"],
  audit_verify: ["GET", "/v1/audit/verify"],
  token_new: ["POST", "/v1/tokens"],
  token_list: ["GET", "/v1/tokens"],
  token_revoke: ["DELETE", "/v1/tokens/{token}"],
  model_list: ["GET", "/v1/models"],
  model_usage: ["GET", "/v1/models/usage"],
  agent_list: ["GET", "/v1/agents"],
  status: ["GET", "/v1/status"],
  metrics: ["GET", "/metrics"],
  transfer_download: ["GET", "/v1/transfers/{ticket}"],
  transfer_upload: ["PUT", "/v1/transfers/{ticket}"],
  openapi: ["GET", "/v1/openapi.json"],
  healthz: ["GET", "/healthz"],
};
