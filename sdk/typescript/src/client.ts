// A connection to one daemon, and every operation of its API.
import { Machine } from "./machine.js";
import { operations, type Operations, type PendingItem, type Status } from "./types.js";
import {
  CarrelError, ConnectionError, defaultAddress, fetchFor, parseAddress, runProgram, variable, type Address, type Fetch,
} from "./transport.js";

export type Operation = keyof Operations;
export type Params<K extends Operation> = Operations[K]["params"];
export type Body<K extends Operation> = Operations[K]["body"];
export type Answer<K extends Operation> = Operations[K]["answer"];
export type Event<K extends Operation> = Operations[K]["event"];

export interface ClientOptions {
  /** unix:PATH, http://HOST:PORT or https://HOST:PORT. Without it, CARREL_URL, or the socket of this user's daemon. */
  url?: string;
  /** The secret of a token, for a daemon on TCP. Without it, CARREL_TOKEN. */
  token?: string;
  /** Seconds to look for a daemon that went away, for calls that can be repeated. */
  wait?: number;
  /** Replaces what sends requests. */
  fetch?: Fetch;
}

const LINE_MAX = 32 << 20;
const RETRY_MS = 200;
const NDJSON = "application/x-ndjson";
const ONLY_NDJSON: Operation[] = ["exec", "run", "exec_events", "build_log"];

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Method and path with the query. */
function target(operation: Operation, params: Record<string, unknown>): [string, string] {
  const [method, pattern] = operations[operation];
  const left = new Map(Object.entries(params).filter(([, value]) => value !== undefined));
  const path = pattern.replace(/\{(\w+)\}/g, (_match: string, name: string) => {
    const value = left.get(name);
    if (value === undefined || value === "") throw new TypeError(`${operation}: '${name}' is empty`);
    left.delete(name);
    return encodeURIComponent(String(value));
  });
  const query = new URLSearchParams();
  for (const [name, value] of left) query.set(name, typeof value === "boolean" ? String(Number(value)) : String(value));
  return [method, path + (String(query) && `?${query}`)];
}

async function refusal(answer: Response): Promise<CarrelError> {
  try {
    const { code, message, remedy } = JSON.parse(await answer.text()).error;
    if (typeof code === "string") return new CarrelError(code, String(message), String(remedy ?? ""), answer.status);
  } catch {
    // not ours: a proxy, or half an answer
  }
  return new CarrelError("unknown", `the daemon answered ${answer.status}`, "", answer.status);
}

/** The objects of a stream: one per line, or one per `data` of a server-sent event. */
async function* objects(answer: Response): AsyncGenerator<unknown> {
  const isEvents = (answer.headers.get("content-type") ?? "").startsWith("text/event-stream");
  const reader = answer.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += decoder.decode(value, { stream: !done });
      const lines = rest.split("\n");
      rest = done ? "" : lines.pop()!;
      if (rest.length > LINE_MAX) throw new CarrelError("limit", "a line of the stream is too long");
      for (const line of lines) {
        const text = !isEvents ? line : line.startsWith("data:") ? line.slice(5) : "";
        if (text.trim()) yield JSON.parse(text);
      }
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** A connection to one daemon. It keeps nothing but the address and the token. */
export class Client {
  private readonly options: ClientOptions;
  private place?: Promise<{ address: Address; fetch: Fetch }>;

  constructor(options: ClientOptions = {}) {
    this.options = { token: options.url ? undefined : variable("CARREL_TOKEN"), ...options };
    if (options.url) parseAddress(options.url);
  }

  private find(): Promise<{ address: Address; fetch: Fetch }> {
    this.place ??= (async () => {
      const address = this.options.url ? parseAddress(this.options.url) : await defaultAddress();
      return { address, fetch: this.options.fetch ?? (await fetchFor(address)) };
    })();
    return this.place;
  }

  /** An answer whose body has not been read. */
  private async open(operation: Operation, params: object, body: unknown, accept: string): Promise<Response> {
    const [method, path] = target(operation, params as Record<string, unknown>);
    const { address, fetch } = await this.find();
    const headers: Record<string, string> = { Accept: accept };
    if (this.options.token) headers["Authorization"] = `Bearer ${this.options.token}`;
    let data: string | Uint8Array | undefined;
    if (body instanceof Uint8Array) {
      data = body;
    } else if (body !== undefined) {
      data = JSON.stringify(body);
      headers["Content-Type"] = "application/json";
    }
    let answer: Response;
    try {
      answer = await fetch(address.base + path, { method, headers, body: data });
    } catch (e) {
      throw new ConnectionError(`cannot reach the daemon at ${address.socket ?? address.base}: ${(e as Error).message}`, e);
    }
    if (answer.status >= 300) throw await refusal(answer);
    return answer;
  }

  private async once(operation: Operation, params: object, body: unknown): Promise<unknown> {
    const answer = await this.open(operation, params, body, "*/*");
    let content: Uint8Array;
    try {
      content = new Uint8Array(await answer.arrayBuffer());
    } catch (e) {
      throw new ConnectionError("the connection ended before the answer", e);
    }
    const isJson = (answer.headers.get("content-type") ?? "").startsWith("application/json");
    return isJson && content.length ? JSON.parse(new TextDecoder().decode(content)) : content;
  }

  /**
   * Any operation of the API by its name: `call("machine_show", { machine: "work" })`. Reads, and requests with an
   * idempotency key, are repeated while the daemon is restarted.
   */
  async call<K extends Operation>(operation: K, params: Params<K>, body?: Body<K>): Promise<Answer<K>> {
    const hasKey = typeof body === "object" && body !== null && "key" in body;
    const repeats = operations[operation][0] === "GET" || hasKey;
    let left = repeats ? (this.options.wait ?? 30) * 1000 : 0;
    for (;;) {
      try {
        return (await this.once(operation, params, body)) as Answer<K>;
      } catch (e) {
        if (!(e instanceof ConnectionError) || left <= 0) throw e;
      }
      await sleep(RETRY_MS);
      left -= RETRY_MS;
    }
  }

  /** The objects of an operation that streams, as they come. Leaving the loop closes the connection. */
  async *events<K extends Operation>(operation: K, params: Params<K>, body?: Body<K>): AsyncGenerator<Event<K>> {
    const accept = ONLY_NDJSON.includes(operation) ? NDJSON : `${NDJSON}, text/event-stream;q=0.9`;
    const answer = await this.open(operation, params, body, accept);
    try {
      yield* objects(answer) as AsyncGenerator<Event<K>>;
    } catch (e) {
      throw e instanceof CarrelError || e instanceof SyntaxError ? e : new ConnectionError("the stream broke", e);
    }
  }

  /** The status of the daemon and its host. */
  status(): Promise<Status> {
    return this.call("status", {});
  }

  /** All machines that fit: state, kind, name, meta, all. Pages are read one after the other. */
  async machines(filters: Params<"machine_list"> = {}): Promise<Machine[]> {
    const found: Machine[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.call("machine_list", { ...filters, cursor });
      found.push(...page.machines.map((view) => new Machine(this, view)));
      cursor = page.next;
    } while (cursor);
    return found;
  }

  /** Requests and questions of machines that wait for a decision. */
  async pending(): Promise<PendingItem[]> {
    return (await this.call("pending_list", {})).pending;
  }

  /** Runs the program `carrel` on this host with this daemon; its standard output. */
  async program(...words: string[]): Promise<string> {
    const env: Record<string, string | undefined> = typeof process === "undefined" ? {} : { ...process.env };
    if (this.options.url) {
      const { address } = await this.find();
      if (address.socket) {
        delete env["CARREL_URL"];
        env["CARREL_RUN"] = address.socket.replace(/\/[^/]*$/, "");
      } else {
        env["CARREL_URL"] = address.base;
      }
    }
    if (this.options.token) env["CARREL_TOKEN"] = this.options.token;
    return runProgram(variable("CARREL_PROGRAM") ?? "carrel", words, env);
  }
}
