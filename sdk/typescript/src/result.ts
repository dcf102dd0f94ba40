// Results of commands.
import { CarrelError } from "./transport.js";
import type { Exec, ExecOutput, ExecRequest, Result as ResultView } from "./types.js";

/** A text is a line for the shell of the machine, a list is a program and its arguments. */
export type Command = string | string[];

export function commandFields(command: Command): ExecRequest {
  return typeof command === "string" ? { command } : { argv: command };
}

export function bytesOf(data: string | Uint8Array): Uint8Array {
  return typeof data === "string" ? new TextEncoder().encode(data) : data;
}

function decoded(text: string | undefined, base64: string | undefined): Uint8Array {
  if (base64 === undefined) return bytesOf(text ?? "");
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/** The output in an event of the type stdout or stderr. */
export function eventBytes(event: ExecOutput): Uint8Array {
  return decoded(event.data, event.data_base64);
}

/** What a command that has ended left. */
export class Result {
  readonly exec: Exec;
  readonly status: number;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;

  constructor(readonly view: ResultView) {
    this.exec = view.exec;
    this.status = view.exec.status;
    this.stdoutBytes = decoded(view.stdout, view.stdout_base64);
    this.stderrBytes = decoded(view.stderr, view.stderr_base64);
  }

  get stdout(): string {
    return new TextDecoder().decode(this.stdoutBytes);
  }

  get stderr(): string {
    return new TextDecoder().decode(this.stderrBytes);
  }

  /** Throws a CarrelError unless the command exited with 0. */
  check(): this {
    if (this.status !== 0) {
      const why = this.exec.error || this.stderr.trim().slice(-500) || this.exec.reason || "";
      throw new CarrelError("failed", `the command exited with ${this.status}: ${why}`);
    }
    return this;
  }
}
