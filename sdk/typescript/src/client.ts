// A connection to one daemon, and every operation of its API.
import { checkTimeout, Limit, type CallOptions } from "./limit.js";
import { Machine } from "./machine.js";
import { member } from "./result.js";
import { operations, type Operations, type PendingItem, type Status } from "./types.js";
import {
  CarrelError, ConnectionError, defaultAddress, fetchFor, parseAddress, runProgram, variable, type Address, type Fetch,
} from "./transport.js";

export type Operation = keyof Operations;
export type Params<K extends Operation> = Operations[K]["params"];
export type Body<K extends Operation> = Operations[K]["body"];
export type Answer<K extends Operation> = Operations[K]["answer"];
export type Event<K extends Operation> = Operations[K]["event"];

export interface ClientOptions extends CallOptions {
  /** unix:PATH, http://HOST:PORT or https://HOST:PORT. Without it, CARREL_URL, or the socket of this user's daemon. */
  url?: string;
  /** The secret of a token, for a daemon on TCP. Without it, CARREL_TOKEN. */
  token?: string;
  /** Seconds to look for a daemon that has answered before and went away, for calls that can be repeated. */
  wait?: number;
  /** Replaces what sends requests. It must not follow redirects, and it must obey `signal`. */
  fetch?: Fetch;
}

const LINE_MAX = 32 << 20;
const BODY_MAX = 512 << 20;
const PAGES_MAX = 10_000;
const RETRY_MS = 200;
const NDJSON = "application/x-ndjson";
const ONLY_NDJSON: Operation[] = ["exec", "run", "exec_events", "build_log"];

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function find(operation: Operation): [string, string] {
  if (!Object.hasOwn(operations, operation)) throw new TypeError(`the API has no operation '${operation}'`);
  return operations[operation];
}

function placeName(address: Address): string {
  return address.socket ?? address.base;
}

/** Method and path with the query. */
function target(operation: Operation, params: Record<string, unknown>): [string, string] {
  const [method, pattern] = find(operation);
  const left = new Map(Object.entries(params).filter(([, value]) => value !== undefined));
  const path = pattern.replace(/\{(\w+)\}/g, (_match: string, name: string) => {
    const value = left.get(name);
    if (value === undefined || value === "") throw new TypeError(`${operation}: '${name}' is empty`);
    if (value === "." || value === "..") throw new TypeError(`${operation}: '${name}' may not be '${value}'`);  // a URL would lose it
    left.delete(name);
    return encodeURIComponent(String(value));
  });
  const query = new URLSearchParams();
  for (const [name, value] of left) query.set(name, typeof value === "boolean" ? String(Number(value)) : String(value));
  return [method, path + (String(query) && `?${query}`)];
}

/** The whole body, which is at most this long. */
async function bodyOf(answer: Response, limit: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  if (answer.body) {
    const reader = answer.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch((e) => { throw new ConnectionError("the connection ended before the answer", e); });
      if (done) break;
      pieces.push(value);
      size += value.length;
      if (size <= limit) continue;
      await reader.cancel().catch(() => undefined);
      throw new CarrelError("limit", `the answer is longer than ${limit} bytes`);
    }
  }
  if (pieces.length === 1) return pieces[0]!;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** An object, which is what every JSON answer and every event is. */
function parseObject(text: string): object {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch (e) {
    throw new CarrelError("unknown", `the daemon's answer is not JSON: ${(e as Error).message}`);
  }
  if (typeof found === "object" && found !== null && !Array.isArray(found)) return found;
  throw new CarrelError("unknown", "the daemon's answer is not a JSON object");
}

async function refusal(answer: Response): Promise<CarrelError> {
  try {
    const { code, message, remedy } = JSON.parse(new TextDecoder().decode(await bodyOf(answer, 1 << 20))).error;
    if (typeof code === "string") return new CarrelError(code, String(message), String(remedy ?? ""), answer.status);
  } catch {
    // not ours: a proxy, or half an answer
  }
  return new CarrelError("unknown", `the daemon answered ${answer.status}`, "", answer.status);
}

/** The objects of a stream: one per line, or one per `data` of a server-sent event. */
async function* objects(answer: Response, limit: Limit): AsyncGenerator<unknown> {
  const isEvents = (answer.headers.get("content-type") ?? "").startsWith("text/event-stream");
  const reader = answer.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      limit.start();
      const { done, value } = await reader.read();
      limit.stop();
      const more = decoder.decode(value, { stream: !done });
      rest += more;
      const lines = done || more.includes("\n") ? rest.split("\n") : [rest];
      rest = done ? "" : lines.pop()!;
      if (rest.length > LINE_MAX) throw new CarrelError("limit", "a line of the stream is too long");
      for (const line of lines) {
        const text = !isEvents ? line : line.startsWith("data:") ? line.slice(5) : "";
        if (text.trim()) yield parseObject(text);
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
  private wasReached = false;

  constructor(options: ClientOptions = {}) {
    this.options = { token: options.url ? undefined : variable("CARREL_TOKEN"), ...options };
    if (options.url) parseAddress(options.url);
    checkTimeout(options);
  }

  /** The same client with other limits of its calls: `client.withOptions({ timeout: 5, signal }).status()`. */
  withOptions(options: CallOptions): Client {
    const other = new Client({ ...this.options, ...options });
    other.place = this.place;
    other.wasReached = this.wasReached;
    return other;
  }

  private find(): Promise<{ address: Address; fetch: Fetch }> {
    this.place ??= (async () => {
      const address = this.options.url ? parseAddress(this.options.url) : await defaultAddress();
      return { address, fetch: this.options.fetch ?? (await fetchFor(address)) };
    })();
    return this.place;
  }

  /** An answer whose body has not been read. */
  private async open(operation: Operation, params: object, body: unknown, accept: string, limit: Limit): Promise<Response> {
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
      answer = await fetch(address.base + path, { method, headers, body: data, redirect: "error", signal: limit.signal });
    } catch (e) {
      const start = this.wasReached ? "" : " (`carrel serve` starts one on this host)";
      throw new ConnectionError(`cannot reach the daemon at ${placeName(address)}: ${(e as Error).message}${start}`, e);
    }
    this.wasReached = true;
    if (answer.status >= 300) throw await refusal(answer);
    return answer;
  }

  private async limit(what: (daemon: string) => string): Promise<Limit> {
    const { address } = await this.find();
    return new Limit(this.options, what(`the daemon at ${placeName(address)}`));
  }

  private async once(operation: Operation, params: object, body: unknown, limit: Limit): Promise<unknown> {
    const answer = await this.open(operation, params, body, "*/*", limit);
    const content = await bodyOf(answer, BODY_MAX);
    limit.check();
    const isJson = (answer.headers.get("content-type") ?? "").startsWith("application/json");
    return isJson && content.length ? parseObject(new TextDecoder().decode(content)) : content;
  }

  /**
   * Any operation of the API by its name: `call("machine_show", { machine: "work" })`. Reads, and requests with an
   * idempotency key, are repeated while the daemon is restarted.
   */
  async call<K extends Operation>(operation: K, params: Params<K>, body?: Body<K>): Promise<Answer<K>> {
    const hasKey = typeof body === "object" && body !== null && "key" in body;
    const repeats = find(operation)[0] === "GET" || hasKey;
    const end = Date.now() + (this.options.wait ?? 30) * 1000;
    const limit = await this.limit((daemon) => `${operation}: ${daemon} did not complete its answer`);
    try {
      for (;;) {
        try {
          return (await this.once(operation, params, body, limit)) as Answer<K>;
        } catch (e) {
          const isBroken = e instanceof ConnectionError && !limit.signal.aborted;
          if (!isBroken || !repeats || !this.wasReached || Date.now() >= end) throw limit.cause(e);
        }
        await sleep(RETRY_MS);
      }
    } finally {
      limit.end();
    }
  }

  /** All rows of a list, whose pages are read one after the other: `pages("step_list", "steps", { machine })`. */
  async pages<K extends Operation, N extends keyof Answer<K> & string>(
    operation: K, rows: N, params: Omit<Params<K>, "cursor">,
  ): Promise<Answer<K>[N]> {
    const found: unknown[] = [];
    let cursor: unknown;
    for (let i = 0; i < PAGES_MAX; i++) {
      const page = (await this.call(operation, { ...params, cursor } as unknown as Params<K>)) as { next?: unknown };
      for (const row of member(page, rows, "array")) found.push(row);
      cursor = page.next;
      if (!cursor) return found as Answer<K>[N];
    }
    throw new CarrelError("limit", `${operation}: the answer has more than ${PAGES_MAX} pages`);
  }

  /** The objects of an operation that streams, as they come. Leaving the loop closes the connection. */
  async *events<K extends Operation>(operation: K, params: Params<K>, body?: Body<K>): AsyncGenerator<Event<K>> {
    const accept = ONLY_NDJSON.includes(operation) ? NDJSON : `${NDJSON}, text/event-stream;q=0.9`;
    const limit = await this.limit((daemon) => `${operation}: nothing came from ${daemon}`);
    try {
      const answer = await this.open(operation, params, body, accept, limit);
      yield* objects(answer, limit) as AsyncGenerator<Event<K>>;
      limit.check();
    } catch (e) {
      throw limit.cause(e instanceof CarrelError || e instanceof ConnectionError ? e : new ConnectionError("the stream broke", e));
    } finally {
      limit.end();
    }
  }

  /** The status of the daemon and its host. */
  status(): Promise<Status> {
    return this.call("status", {});
  }

  /** All machines that fit: state, kind, name, meta, all. Pages are read one after the other. */
  async machines(filters: Params<"machine_list"> = {}): Promise<Machine[]> {
    return (await this.pages("machine_list", "machines", filters)).map((view) => new Machine(this, view));
  }

  /** Requests and questions of machines that wait for a decision. */
  async pending(): Promise<PendingItem[]> {
    return member(await this.call("pending_list", {}), "pending", "array") as PendingItem[];
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
    const limit = new Limit(this.options, `carrel ${words[0] ?? ""} did not end`);
    try {
      return await runProgram(variable("CARREL_PROGRAM") ?? "carrel", words, env, limit.signal);
    } catch (e) {
      throw limit.cause(e);
    } finally {
      limit.end();
    }
  }
}
