// Reviews and shipments. The daemon never writes to the owner's files: the command `carrel console`
// of the owner carries out these orders, by running `carrel ship`.
import { api, ApiError } from "./api";

export interface Order {
  machine?: string; // a machine or a change set
  path?: string;
  to?: string;
  target?: string; // of the review: refused if the directory is another one by now
  undo?: string; // a change set
  yes?: boolean;
  comment?: string;
  only?: string[];
  hunks?: string[]; // PATH:1,3-5
  uncommitted?: boolean;
}

export interface Done {
  status: number; // exit status of carrel ship: 1 if something was refused
  output: string;
}

const POLL_MS = 250;
const AGAIN_MS = 1000;
const BUSY_MAX = 20; // times that an order is sent again until the command has found the daemon after a restart
const FAILED = 125;

export const ORDER_LIST_MAX = 60; // elements of `only`, and of `hunks`

const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));

function orderId(): number {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high! >>> 11) * 2 ** 32 + low! || 1;
}

/** Whether the connection was lost, or the daemon restarted and knows nothing of the order any more. */
function isLost(e: unknown): boolean {
  return e instanceof ApiError && (e.code === "unreachable" || e.code === "not_found");
}

/** Orders, and waits for the result. After a lost connection or a restart of the daemon the order is sent again, with
 * the same id, so nothing is done twice. Throws if `carrel ship` failed. */
export async function order(what: Order, signal?: AbortSignal): Promise<Done> {
  const done = await orderCarriedOut(what, signal);
  if (done.status >= FAILED) throw orderError(done.output);
  return done;
}

/** Throws only what requests to the daemon threw: `carrel ship` says `not_found` of a directory that does not exist. */
async function orderCarriedOut(what: Order, signal?: AbortSignal): Promise<Done> {
  const id = orderId();
  for (let busy = 0, lost = false; ; ) {
    try {
      await api.post("/console/order", { ...what, id });
      return await orderResult(id, signal);
    } catch (e) {
      lost ||= isLost(e);
      const soon = lost && e instanceof ApiError && e.code === "busy" && busy++ < BUSY_MAX;
      if (!soon && !isLost(e)) throw e;
    }
    await wait(AGAIN_MS);
    signal?.throwIfAborted();
  }
}

/** What `carrel ship` printed when it failed: a line for people, and with --json an object on a line too. */
function orderError(output: string): Error {
  const line = output.split("\n").find((l) => l.startsWith('{"error":'));
  if (!line) return new Error(output.trim().replace(/^carrel: /, "") || "carrel ship failed.");
  const { code, message, remedy } = (JSON.parse(line) as { error: Record<string, string> }).error;
  return new ApiError(0, code!, message!, remedy);
}

async function orderResult(id: number, signal?: AbortSignal): Promise<Done> {
  for (;;) {
    const told = await api.post<{ state: string; status: number; output?: string }>("/console/result", { id });
    if (told.state === "done") return { status: told.status, output: told.output ?? "" };
    signal?.throwIfAborted();
    await wait(POLL_MS);
  }
}

export interface ReviewFile {
  path: string;
  change?: string; // A, M, D; C: only in an earlier commit
  sha256?: string;
  size: number;
  flags: string;
  why?: string;
  target?: string; // of a symbolic link
  directory?: boolean;
  step?: number;
  refused?: string;
  was?: string;
  now?: string;
  wanted?: boolean;
  diff?: string;
  diff_left_out?: boolean;
}

export interface Review {
  changeset: string;
  machine: string;
  slice?: string;
  target?: string;
  files: ReviewFile[];
  branch?: string; // of a repository
  commits?: number;
  log?: string;
  diff?: string;
  diff_left_out?: boolean;
  uncommitted?: ReviewFile[];
  database?: { diff?: string; same?: boolean; cut?: boolean; error?: string; kind?: string };
}

/** The change sets in what `carrel ship --json` printed: an object per line. */
export function reviewsRead(output: string): Review[] {
  const out: Review[] = [];
  for (const line of output.split("\n")) {
    if (!line.startsWith("{")) continue;
    const told = JSON.parse(line) as Partial<Review>;
    if (told.changeset) out.push({ machine: "", ...told, changeset: told.changeset, files: told.files ?? [] });
  }
  return out;
}

/** A path as git quotes it: "b/\\303\\251", with bytes in octal. */
function unquoted(path: string): string {
  if (!path.startsWith('"')) return path.replace(/\t$/, "");
  const bytes: number[] = [];
  const letters: Record<string, string> = { n: "\n", t: "\t", r: "\r", a: "\x07", b: "\b", f: "\f", v: "\v" };
  for (const [, octal, letter, plain] of path.slice(1, -1).matchAll(/\\([0-7]{3})|\\(.)|([^\\]+)/gsu)) {
    if (octal) bytes.push(parseInt(octal, 8));
    else bytes.push(...new TextEncoder().encode(letter ? (letters[letter] ?? letter) : plain));
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

/** Cuts the difference of a repository into those of its files. */
export function repositoryDiffs(text: string): Map<string, string> {
  const all = new Map<string, string>();
  let path = "";
  let hunks: string[] = [];
  let inHunk = false;
  const end = () => {
    if (path) all.set(path, hunks.join("\n"));
    path = "";
    hunks = [];
    inHunk = false;
  };
  for (const line of text.split("\n")) {
    if (line.startsWith("diff --git ")) end();
    else if (line.startsWith("@@ ")) inHunk = true;
    else if (!inHunk && /^(---|\+\+\+) "?[ab]\//.test(line)) path = unquoted(line.slice(4)).slice(2);
    if (inHunk) hunks.push(line);
  }
  end();
  return all;
}
