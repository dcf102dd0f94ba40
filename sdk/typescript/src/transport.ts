// How requests reach a daemon: over a unix socket or TCP. In Node by node:http, because its fetch cannot open unix
// sockets and gives up on a command that prints nothing for five minutes; elsewhere by fetch.

/** What we need of fetch. It must not follow redirects: they would carry the token and the body elsewhere. */
export type Fetch = (url: string, init: {
  method: string;
  headers: Record<string, string>;
  body?: string | Uint8Array;
  signal?: AbortSignal;
  redirect: "error";
}) => Promise<Response>;

/** The daemon refused or failed: `code` (such as not_found) says how, `remedy` what to do. */
export class CarrelError extends Error {
  constructor(readonly code: string, message: string, readonly remedy = "", readonly status = 0) {
    super(remedy ? `${message} (${remedy})` : message);
    this.name = "CarrelError";
  }
}

/** The daemon could not be reached, or the connection broke. */
export class ConnectionError extends Error {
  constructor(message: string, readonly cause?: unknown) {
    super(message);
    this.name = "ConnectionError";
  }
}

/** Where a daemon listens: the path of a unix socket, or the start of all URLs. */
export interface Address {
  socket?: string;
  base: string;
}

export const isNode = typeof process !== "undefined" && typeof process.geteuid === "function";

/** A variable of the environment; nothing in a browser. */
export function variable(name: string): string | undefined {
  return typeof process === "undefined" ? undefined : process.env[name] || undefined;
}

export function parseAddress(url: string): Address {
  const socket = /^unix:(?:\/\/)?(\/.*)$/.exec(url);
  if (socket) return { socket: socket[1], base: "http://carrel" };
  let at: URL | undefined;
  try {
    at = new URL(url);
  } catch {
    // refused below
  }
  if (!at || !/^https?:$/.test(at.protocol) || !at.hostname || at.search || at.username) {
    throw new TypeError(`'${url}' is not unix:PATH, http://HOST:PORT or https://HOST:PORT`);
  }
  return { base: at.origin + at.pathname.replace(/\/+$/, "") };
}

/** The socket of this user's daemon, or of root's daemon if only that one runs. */
async function ownSocket(): Promise<string> {
  const run = variable("CARREL_RUN");
  if (run) return `${run}/carrel.sock`;
  const root = "/run/carrel/carrel.sock";
  const uid = typeof process === "undefined" ? 0 : process.geteuid();
  if (uid === 0) return root;
  const base = variable("XDG_RUNTIME_DIR");
  const own = (base ? [`${base}/carrel`] : [`/run/user/${uid}/carrel`, `/tmp/carrel-${uid}`]).map((place) => `${place}/carrel.sock`);
  const { existsSync } = await import("node:fs");
  return [...own, root].find((path) => existsSync(path)) ?? own[0]!;
}

export async function defaultAddress(): Promise<Address> {
  const url = variable("CARREL_URL");
  if (url) return parseAddress(url);
  if (!isNode) throw new TypeError("give the URL of the daemon: there is no environment to find it in");
  return parseAddress(`unix:${await ownSocket()}`);
}

function headersOf(given: Record<string, string | string[] | undefined>): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined) headers.set(name, String(value));
  }
  return headers;
}

async function nodeFetch(socket: string | undefined): Promise<Fetch> {
  const [http, https, { Readable }] = await Promise.all([import("node:http"), import("node:https"), import("node:stream")]);
  return (url, { method, headers, body, signal }) => new Promise((resolve, reject) => {
    const at = new URL(url);
    const options = {
      method, headers, signal, agent: false, socketPath: socket,
      host: at.hostname.replace(/^\[|\]$/g, ""), port: at.port || undefined, path: at.pathname + at.search,
    };
    const request = (at.protocol === "https:" ? https : http).request(options, (answer) => {
      try {
        const init = { status: answer.statusCode, headers: headersOf(answer.headers) };
        const isEmpty = [204, 205, 304].includes(init.status);
        if (isEmpty) answer.resume();
        resolve(new Response(isEmpty ? null : Readable.toWeb(answer), init));
      } catch (e) {
        request.destroy();  // Response refuses a status that nobody has defined
        reject(e);
      }
    });
    request.on("error", reject);
    request.on("close", () => reject(new Error("the connection ended before the answer")));
    request.end(body);
  });
}

export async function fetchFor(address: Address): Promise<Fetch> {
  return isNode ? nodeFetch(address.socket) : (url, init) => fetch(url, init);
}

/** Node 18 has it only in a module. */
async function webCrypto(): Promise<Crypto> {
  return globalThis.crypto ?? (await import("node:crypto")).webcrypto;
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A new idempotency key. */
export async function newKey(): Promise<string> {
  return hex((await webCrypto()).getRandomValues(new Uint8Array(16)));
}

export async function sha256(data: Uint8Array): Promise<string> {
  return hex(new Uint8Array(await (await webCrypto()).subtle.digest("SHA-256", data)));
}

/** Runs a program of this host; its standard output. */
export async function runProgram(name: string, words: string[], env: Record<string, string | undefined>, signal: AbortSignal): Promise<string> {
  if (!isNode) throw new CarrelError("unsupported", "only a program in Node can run programs of its host");
  const { execFile } = await import("node:child_process");
  return new Promise((resolve, reject) => {
    execFile(name, words, { env, signal, maxBuffer: 64 << 20, encoding: "utf8" }, (error, stdout, stderr) => {
      if (!error) resolve(stdout);
      else if (error.code === "ENOENT") reject(new CarrelError("unsupported", `the program '${name}' is not installed on this host`));
      else reject(new CarrelError("failed", stderr.trim() || error.message));
    });
  });
}
