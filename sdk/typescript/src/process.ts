// A command that was started in the background.
import type { Client } from "./client.js";
import type { CallOptions } from "./limit.js";
import { bytesOf, member } from "./result.js";
import { ConnectionError } from "./transport.js";
import type { Exec, ExecEvent } from "./types.js";

const RETRY_MS = 200;

export class Process {
  readonly id: string;
  readonly machine: string;

  constructor(readonly client: Client, public view: Exec) {
    this.id = member(view, "id", "string");
    this.machine = member(view, "machine", "string");
  }

  /** The same process, whose calls have other limits. */
  withOptions(options: CallOptions): Process {
    return new Process(this.client.withOptions(options), this.view);
  }

  private get words(): { machine: string; exec: string } {
    return { machine: this.machine, exec: this.id };
  }

  async refresh(): Promise<Exec> {
    return (this.view = await this.client.call("exec_show", this.words));
  }

  /** Output from these offsets on, and then the end of the command. */
  events(stdout = 0, stderr = 0): AsyncGenerator<ExecEvent> {
    return this.client.events("exec_events", { stdout, stderr, ...this.words });
  }

  /** The command once it has ended, also across a restart of the daemon. */
  async wait(): Promise<Exec> {
    while (["starting", "running"].includes((await this.refresh()).state)) {
      try {
        for await (const _ of this.client.events("exec_events", { output: false, ...this.words })) void _;
      } catch (e) {
        if (!(e instanceof ConnectionError)) throw e;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    return this.view;
  }

  /** All output that the daemon kept. */
  output(stream: "stdout" | "stderr" = "stdout", offset = 0, limit?: number): Promise<Uint8Array> {
    return this.client.call("exec_output", { stream, offset, limit, ...this.words });
  }

  /** Writes to standard input; the command must have been started with stdin_open. */
  async write(data: string | Uint8Array, eof = false): Promise<void> {
    await this.client.call("exec_stdin", { eof, ...this.words }, bytesOf(data));
  }

  async signal(signal: string): Promise<void> {
    await this.client.call("exec_signal", this.words, { signal });
  }

  async kill(): Promise<void> {
    await this.client.call("exec_kill", this.words);
  }
}
