// Results of commands.
import { CarrelError } from "./transport.js";
import type { Exec, ExecOutput, ExecRequest, Exposure, Result as ResultView } from "./types.js";

/** A text is a line for the shell of the machine, a list is a program and its arguments. */
export type Command = string | string[];

/** What can be said of a command, besides the command itself. */
export type ExecFields = Omit<ExecRequest, "argv" | "command" | "background" | "stdin"> & { stdin?: string | Uint8Array };

export function commandFields(command: Command, fields: ExecFields): ExecRequest {
  if ("background" in fields) throw new TypeError("start() starts a command in the background");
  const { stdin, ...rest } = fields;
  const what = typeof command === "string" ? { command } : { argv: command };
  if (!(stdin instanceof Uint8Array)) return { ...what, ...rest, stdin };
  return { ...what, ...rest, stdin_base64: btoa(Array.from(stdin, (byte) => String.fromCharCode(byte)).join("")) };
}

type Kinds = { string: string; number: number; array: unknown[]; object: object };

/** A member of an answer that we cannot do without. */
export function member<K extends keyof Kinds>(view: unknown, name: string, kind: K): Kinds[K] {
  const value = typeof view === "object" && view !== null ? (view as Record<string, unknown>)[name] : undefined;
  if ((Array.isArray(value) ? "array" : value === null ? "null" : typeof value) === kind) return value as Kinds[K];
  throw new CarrelError("unknown", `the daemon's answer has no usable '${name}': is this a Carrel daemon of this version?`);
}

export function bytesOf(data: string | Uint8Array): Uint8Array {
  return typeof data === "string" ? new TextEncoder().encode(data) : data;
}

function decoded(text: string | undefined, base64: string | undefined): Uint8Array {
  if (base64 === undefined) return bytesOf(text ?? "");
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch (e) {
    throw new CarrelError("unknown", `the daemon's answer has output that is not base64: ${(e as Error).message}`);
  }
}

/** The output in an event of the type stdout or stderr. */
export function eventBytes(event: ExecOutput): Uint8Array {
  return decoded(event.data, event.data_base64);
}

/** Sends a request of a program to a port that expose() gave. */
export function fetchPort(exposure: Exposure, path = "", init: RequestInit = {}): Promise<Response> {
  if (!exposure.direct_url) throw new CarrelError("unsupported", "this daemon exposes ports with TLS, which needs host names: open `url`");
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(exposure.headers ?? {})) headers.set(name, value);
  return fetch(exposure.direct_url + path.replace(/^\/+/, ""), { ...init, headers });
}

/** What a command that has ended left. */
export class Result {
  readonly exec: Exec;
  readonly status: number;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;

  constructor(readonly view: ResultView) {
    this.exec = member(view, "exec", "object") as Exec;
    this.status = member(this.exec, "status", "number");
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
