// Requests to the daemon. Every failure is an ApiError whose message can be shown to the user.
import { sessionEnd, token } from "./session";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly remedy = "",
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | boolean | undefined>;

export function withQuery(path: string, query: Query = {}): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    all.set(name, value === true ? "1" : value === false ? "0" : String(value));
  }
  const text = all.toString();
  return text ? `${path}?${text}` : path;
}

/** A path with each part encoded: at`/v1/machines/${id}/steps`. */
export function at(parts: TemplateStringsArray, ...names: (string | number)[]): string {
  return parts.reduce((path, part, i) => path + encodeURIComponent(String(names[i - 1])) + part);
}

async function failure(answer: Response): Promise<ApiError> {
  const text = await answer.text().catch(() => "");
  try {
    const { code, message, remedy } = JSON.parse(text).error;
    return new ApiError(answer.status, code, message, remedy);
  } catch {
    return new ApiError(answer.status, "unknown", text || `The daemon answered ${answer.status}.`);
  }
}

interface Options {
  body?: BodyInit | object;
  accept?: string;
  signal?: AbortSignal | undefined;
}

/** The answer of a request, checked: throws an ApiError for every status but 2xx. */
export async function request(method: string, target: string, o: Options = {}): Promise<Response> {
  const raw = o.body instanceof Blob || o.body instanceof ArrayBuffer || typeof o.body === "string";
  const headers: Record<string, string> = { Authorization: `Bearer ${token()}` };
  if (o.accept) headers.Accept = o.accept;
  if (o.body !== undefined) headers["Content-Type"] = raw ? "application/octet-stream" : "application/json";
  const body = raw ? (o.body as BodyInit) : o.body && JSON.stringify(o.body);
  let answer: Response;
  try {
    answer = await fetch(target, { method, headers, body: body ?? null, signal: o.signal ?? null });
  } catch (e) {
    if (o.signal?.aborted) throw e;
    throw new ApiError(0, "unreachable", "The daemon cannot be reached.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) sessionEnd("Your session has ended.");
  throw await failure(answer);
}

/** The bytes of an answer. Throws once there are more than `max`, whatever their size was said to be. */
export async function contentOf(answer: Response, max: number): Promise<ArrayBuffer> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for (const reader = answer.body!.getReader(); ; ) {
    const { value, done } = await reader.read();
    if (done) return new Blob(parts).arrayBuffer();
    parts.push(value);
    size += value.length;
    if (size <= max) continue;
    await reader.cancel();
    throw new ApiError(0, "limit", "The content is too large to show. Download it to look at it.");
  }
}

async function json<T>(method: string, target: string, o: Options = {}): Promise<T> {
  return (await request(method, target, o)).json() as Promise<T>;
}

export const api = {
  get: <T>(path: string, query?: Query, signal?: AbortSignal) =>
    json<T>("GET", withQuery(path, query), { signal }),
  post: <T>(path: string, body: object = {}, query?: Query) =>
    json<T>("POST", withQuery(path, query), { body }),
  put: <T>(path: string, body: BodyInit | object, query?: Query) =>
    json<T>("PUT", withQuery(path, query), { body }),
  patch: <T>(path: string, body: object) => json<T>("PATCH", path, { body }),
  remove: <T>(path: string, query?: Query) => json<T>("DELETE", withQuery(path, query)),
};

/** All rows of a list that has pages, or the first `max` of them. */
export async function listAll<T>(path: string, field: string, query: Query = {}, max = 5000): Promise<T[]> {
  const rows: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await api.get<Record<string, unknown>>(path, { ...query, cursor });
    rows.push(...(page[field] as T[]));
    cursor = page.next as string | undefined;
  } while (cursor && rows.length < max);
  return rows;
}

/** The pieces of a text answer as they come; `done` when it ends. */
async function* lines(answer: Response): AsyncGenerator<string> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
  if (rest) yield rest;
}

/** The objects of a stream of JSON lines. */
export async function* jsonLines<T>(method: string, target: string, o: Options = {}): AsyncGenerator<T> {
  for await (const line of lines(await request(method, target, { accept: "application/x-ndjson", ...o })))
    if (line) yield JSON.parse(line) as T;
}

/** The events of a text/event-stream. `alive` is called for each line, also for heartbeats. */
export async function* serverEvents<T>(target: string, signal: AbortSignal, alive: () => void): AsyncGenerator<T> {
  const answer = await request("GET", target, { accept: "text/event-stream", signal });
  alive();
  for await (const line of lines(answer)) {
    alive();
    if (line.startsWith("data:")) yield JSON.parse(line.slice(5)) as T;
  }
}

/** The target with a single-use ticket in place of a token, for a WebSocket or a download. */
export async function withTicket(target: string): Promise<string> {
  const { ticket } = await api.post<{ ticket: string }>("/console/ticket", { target });
  return `${target}${target.includes("?") ? "&" : "?"}ticket=${ticket}`;
}

export async function openSocket(target: string): Promise<WebSocket> {
  const url = new URL(await withTicket(target), location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  return socket;
}

/** Downloads through a ticket: the browser saves the answer, which is never shown as a page. */
export async function download(target: string, name: string): Promise<void> {
  const link = document.createElement("a");
  link.href = await withTicket(target);
  link.download = name;
  link.click();
}
