// A computer for an agent.
import { Client, type Answer, type Body, type Params } from "./client.js";
import { Files } from "./files.js";
import type { CallOptions } from "./limit.js";
import { Process } from "./process.js";
import { commandFields, member, Result, type Command, type ExecFields } from "./result.js";
import { tar } from "./tar.js";
import { CarrelError, newKey, sha256 } from "./transport.js";
import type {
  ChangeSet, Diff, ExecEvent, Exposure, ForkRequest, Grant, GrantRequest, Machine as MachineView,
  MachineRequest, NetRule, PendingItem, RewindRequest, Rule, Stats, Step, UpdateRequest,
} from "./types.js";

/** The number, id or name of a step, or a step. */
export type StepRef = string | number | Step;

/** One fork of a tournament. Without a score its command printed no number, or failed. */
export interface Contender {
  machine: Machine;
  status: number;
  score: number | undefined;
}

function stepName(step: StepRef): string {
  return typeof step === "object" ? step.id : String(step);
}

/** The last number in a text. */
function lastNumber(text: string): number | undefined {
  const found = text.match(/[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g);
  return found ? Number(found[found.length - 1]) : undefined;
}

export class Machine {
  readonly id: string;
  readonly files: Files;

  /** `view` is what the daemon said of the machine last; refresh() asks again. */
  constructor(readonly client: Client, public view: MachineView) {
    this.id = member(view, "id", "string");
    this.files = new Files(client, this.id);
  }

  /** A new machine: name, image, limits, ttl, net, env, ... */
  static async create(fields: MachineRequest = {}, client = new Client()): Promise<Machine> {
    return new Machine(client, await client.call("machine_create", {}, { key: await newKey(), ...fields }));
  }

  /** The machine with this id, name or unique prefix of the id. */
  static async get(ref: string, client = new Client()): Promise<Machine> {
    return new Machine(client, await client.call("machine_show", { machine: ref }));
  }

  /** Runs one command in a new machine, which is destroyed afterwards. */
  static async run(command: Command, fields: ExecFields & { machine?: MachineRequest } = {}, client = new Client()): Promise<Result> {
    const { machine = {}, ...exec } = fields;
    return new Result((await client.call("run", {}, { exec: { ...commandFields(command, exec) }, machine })) as Result["view"]);
  }

  /** A machine of the kind cell with these WebAssembly programs (binary or text) in /bin, by name. */
  static async cell(programs: Record<string, Uint8Array>, fields: MachineRequest = {}, client = new Client()): Promise<Machine> {
    const archive = tar(Object.fromEntries(Object.entries(programs).map(([name, program]) => [`bin/${name}.wasm`, program])));
    const name = "cell-" + (await sha256(archive)).slice(0, 16);
    await client.call("image_import", { name }, archive);
    return Machine.create({ kind: "cell", image: name, ...fields }, client);
  }

  /** The same machine, whose calls have other limits. A command that a call waited for goes on. */
  withOptions(options: CallOptions): Machine {
    return new Machine(this.client.withOptions(options), this.view);
  }

  private get words(): { machine: string } {
    return { machine: this.id };
  }

  async refresh(): Promise<MachineView> {
    return (this.view = await this.client.call("machine_show", this.words));
  }

  /** Changes limits, ttl, idle, idle_action, name or metadata. */
  async update(fields: UpdateRequest): Promise<MachineView> {
    return (this.view = await this.client.call("machine_update", this.words, fields));
  }

  /** Deletes the machine. It is no error if it has ended. */
  async destroy(): Promise<void> {
    try {
      this.view = await this.client.call("machine_destroy", this.words);
    } catch (e) {
      if (!(e instanceof CarrelError) || !["not_found", "gone"].includes(e.code)) throw e;
    }
  }

  async pause(): Promise<void> {
    this.view = await this.client.call("machine_pause", this.words);
  }

  async resume(): Promise<void> {
    this.view = await this.client.call("machine_resume", this.words);
  }

  async stop(): Promise<void> {
    this.view = await this.client.call("machine_stop", this.words);
  }

  stats(): Promise<Stats> {
    return this.client.call("machine_stats", this.words);
  }

  // ---- commands ----

  /** Runs a command and waits for its end. */
  async exec(command: Command, fields: ExecFields = {}): Promise<Result> {
    const body = { key: await newKey(), ...commandFields(command, fields) };
    return new Result((await this.client.call("exec", this.words, body)) as Result["view"]);
  }

  /** Runs a command; the events start, stdout, stderr, gap and exit as they come. */
  stream(command: Command, fields: ExecFields = {}): AsyncGenerator<ExecEvent> {
    return this.client.events("exec", this.words, { ...commandFields(command, fields) });
  }

  /** Starts a command in the background. */
  async start(command: Command, fields: ExecFields = {}): Promise<Process> {
    const body = { key: await newKey(), ...commandFields(command, fields), background: true };
    return new Process(this.client, (await this.client.call("exec", this.words, body)) as unknown as Process["view"]);
  }

  // ---- steps ----

  /** Takes a step: rewind() returns to it, fork() starts there. */
  snapshot(name?: string): Promise<Step> {
    return this.client.call("snap", this.words, { name });
  }

  /** The steps, newest first. */
  steps(): Promise<Step[]> {
    return this.client.pages("step_list", "steps", this.words);
  }

  /** Returns to a step, or to `last`. The present state is kept as a step. */
  rewind(step: StepRef, fields: Omit<RewindRequest, "step"> = {}): Promise<Step> {
    return this.client.call("rewind", this.words, { step: stepName(step), ...fields });
  }

  /** New machines from a step, or from the present state: all of them, or none if one fails. */
  async fork(count = 1, step?: StepRef, fields: Omit<ForkRequest, "step" | "count"> = {}): Promise<Machine[]> {
    const body = { key: await newKey(), count, step: step === undefined ? undefined : stepName(step), ...fields };
    const views = member(await this.client.call("fork", this.words, body), "machines", "array") as MachineView[];
    return views.map((view) => new Machine(this.client, view));
  }

  /**
   * Runs a command in each of `count` forks at the same time, then `score` in each; the best one first. The score is
   * the last number that `score` prints. With keepBest the other forks are destroyed, if one has a score.
   */
  async tournament(command: Command, score: Command, options: { count?: number; step?: StepRef; keepBest?: boolean } = {}): Promise<Contender[]> {
    const forks = await this.fork(options.count ?? 2, options.step);
    const rows = await Promise.all(forks.map(async (machine) => {
      const { status } = await (await machine.start(command)).wait();
      const told = await machine.exec(score);
      return { machine, status, score: told.status === 0 ? lastNumber(told.stdout) : undefined };
    })).catch(async (e) => {
      await Promise.allSettled(forks.map((machine) => machine.destroy()));
      throw e;
    });
    rows.sort((a, b) => (a.score === b.score ? 0 : (b.score ?? -Infinity) > (a.score ?? -Infinity) ? 1 : -1));
    if (options.keepBest !== false && rows[0]?.score !== undefined) {
      await Promise.all(rows.slice(1).map((row) => row.machine.destroy()));
    }
    return rows;
  }

  // ---- review ----

  /** Changes of files between two steps (default: from the start of the machine until now). */
  diff(from?: StepRef, to?: StepRef, params: Omit<Params<"diff">, "machine" | "from" | "to"> = {}): Promise<Diff> {
    const ends = { from: from === undefined ? undefined : stepName(from), to: to === undefined ? undefined : stepName(to) };
    return this.client.call("diff", { ...params, ...ends, ...this.words });
  }

  /** Freezes a directory (default: /outbox) as a change set, which no longer follows the machine. */
  freeze(path?: string): Promise<ChangeSet> {
    return this.client.call("freeze", this.words, { path });
  }

  /**
   * Copies a directory of the machine to a directory of this host, as `carrel ship -y` does; what it printed. The
   * program `carrel` writes the files, with your rights: it refuses links that lead out and keeps a receipt, so that
   * `carrel ship --undo` can take it back.
   */
  async ship(path: string, target: string): Promise<unknown> {
    return JSON.parse(await this.client.program("ship", "-y", "--json", `${this.id}:${path}`, target));
  }

  /** Requests and questions of this machine that wait for a decision. */
  async pending(): Promise<PendingItem[]> {
    return (await this.client.pending()).filter((item) => item.machine === this.id);
  }

  /** Approves a pending request; always: also adds the rule that the item shows. */
  approve(item: string | PendingItem, options: { always?: boolean; ttl?: number | string } = {}): Promise<Answer<"pending_decide">> {
    return this.decide(item, { decision: "approve", always: options.always || undefined, ttl: options.ttl });
  }

  deny(item: string | PendingItem): Promise<Answer<"pending_decide">> {
    return this.decide(item, { decision: "deny" });
  }

  /** Answers a question that a program of the machine asks. */
  answer(item: string | PendingItem, text: string): Promise<Answer<"pending_decide">> {
    return this.decide(item, { decision: "answer", text });
  }

  private decide(item: string | PendingItem, body: Body<"pending_decide">): Promise<Answer<"pending_decide">> {
    return this.client.call("pending_decide", { item: typeof item === "string" ? item : item.id }, body);
  }

  // ---- the world outside ----

  /** Adds a network rule; the rules of the machine. action: allow, deny or ask. */
  async allow(target: string, fields: Omit<NetRule, "target"> = {}): Promise<Rule[]> {
    return (await this.client.call("net_add", this.words, { target, action: "allow", ...fields })).rules;
  }

  /** Adds a grant, such as a secret; the grants of the machine. */
  async grant(kind: GrantRequest["kind"], what: string, fields: Omit<GrantRequest, "kind" | "what"> = {}): Promise<Grant[]> {
    return (await this.client.call("grant_add", this.words, { kind, what, ...fields })).grants;
  }

  /** Exposes a port of the machine; `url` opens it in a browser, and fetchPort() is for programs. */
  expose(port: number): Promise<Exposure> {
    return this.client.call("expose", this.words, { port });
  }

  async unexpose(port: number): Promise<void> {
    await this.client.call("expose_remove", { ...this.words, port: String(port) });
  }
}
