// The time that a call may take, and who may end it.

/** A call, or a stream between two of its pieces, took longer than `timeout` says. */
export class TimeoutError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TimeoutError";
  }
}

export interface CallOptions {
  /** Seconds that a call may take, and that a stream may be silent; then TimeoutError is thrown. None by default. */
  timeout?: number;
  /** Ends calls and streams: they throw its reason. */
  signal?: AbortSignal;
}

const TIMEOUT_MAX = 2_147_483;  // timers cannot wait longer

export function checkTimeout({ timeout }: CallOptions): void {
  if (timeout !== undefined && !(timeout > 0 && timeout <= TIMEOUT_MAX)) {
    throw new RangeError(`timeout: ${timeout} is not a number of seconds between 0 and ${TIMEOUT_MAX}; leave it out for no limit`);
  }
}

/** The limits of one call. start() and stop() belong together, and end() is called at last. */
export class Limit {
  private readonly controller = new AbortController();
  private timer?: ReturnType<typeof setTimeout>;
  private readonly aborted = () => this.controller.abort(this.options.signal!.reason);

  constructor(private readonly options: CallOptions, private readonly what: string) {
    if (options.signal?.aborted) this.aborted();
    options.signal?.addEventListener("abort", this.aborted);
    this.start();
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** The whole time from now on. */
  start(): void {
    this.stop();
    const { timeout } = this.options;
    if (timeout === undefined) return;
    this.timer = setTimeout(() => this.controller.abort(new TimeoutError(`${this.what} within ${timeout} s`)), timeout * 1000);
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  end(): void {
    this.stop();
    this.options.signal?.removeEventListener("abort", this.aborted);
  }

  /** After the last piece: Node takes a connection that we have closed for the end of a body without a length. */
  check(): void {
    if (this.signal.aborted) throw this.signal.reason;
  }

  /** What to throw instead of the error of a connection that the limit has closed. */
  cause(error: unknown): unknown {
    return this.signal.aborted ? this.signal.reason : error;
  }
}
