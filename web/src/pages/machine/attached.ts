// The connection of a screen to a command with a terminal.
import { openSocket, withQuery } from "../../api";
import type { Exec } from "../../types";
import type { Screen } from "./screen";

const AGAIN_MS = 1000;
const WAITING_MAX = 1 << 20; // bytes that the screen has not drawn; then the connection is cut
const WAITING_LOW = 1 << 16; // bytes at which it is made again

export type AttachedState = "connecting" | "open" | { lost: string } | { ended: Exec };

/**
 * Sends keys and sizes, and shows output. After a lost connection it attaches again at the first byte
 * that it has not seen. A browser cannot slow down a WebSocket, so it also cuts the connection while
 * the screen draws much slower than the command prints; the daemon keeps the newest output.
 */
export class Attached {
  private socket: WebSocket | undefined;
  private offset = 0;
  private waiting = 0; // bytes that the screen has not drawn
  private held = false; // cut until the screen has caught up
  private over = false;
  private timer = 0;

  constructor(
    private readonly path: string,
    private readonly exec: string,
    private readonly screen: Screen,
    private readonly tell: (state: AttachedState) => void,
  ) {
    const { terminal } = screen;
    terminal.onData((text) => this.send(new TextEncoder().encode(text)));
    terminal.onBinary((text) => this.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    terminal.onResize(() => this.sendSize());
    void this.attach();
  }

  stop(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.socket?.close();
  }

  private send(data: Uint8Array<ArrayBuffer> | string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  private sendSize(): void {
    const { rows, cols } = this.screen.terminal;
    this.send(JSON.stringify({ resize: { rows, cols } }));
  }

  private async attach(): Promise<void> {
    try {
      const target = withQuery(`${this.path}/pty`, { exec: this.exec, offset: this.offset });
      const socket = await openSocket(target);
      if (this.over) return socket.close();
      this.socket = socket;
      socket.onopen = () => {
        this.tell("open");
        this.sendSize();
      };
      socket.onmessage = ({ data }) => {
        if (socket !== this.socket) return;
        if (typeof data === "string") this.control(JSON.parse(data));
        else this.output(new Uint8Array(data));
      };
      socket.onclose = ({ reason }) => {
        if (socket === this.socket) this.again(reason);
      };
    } catch (e) {
      this.again((e as Error).message);
    }
  }

  private again(why: string): void {
    this.socket = undefined;
    if (this.over || this.held) return;
    this.tell({ lost: why.replace(/\.$/, "") || "connection lost" });
    this.timer = window.setTimeout(() => void this.attach(), AGAIN_MS);
  }

  private output(bytes: Uint8Array): void {
    this.offset += bytes.length;
    this.waiting += bytes.length;
    this.screen.terminal.write(bytes, () => this.drawn(bytes.length));
    if (this.waiting <= WAITING_MAX || this.held) return;
    this.held = true;
    this.socket?.close();
    this.socket = undefined;
  }

  private drawn(n: number): void {
    this.waiting -= n;
    if (!this.held || this.waiting > WAITING_LOW) return;
    this.held = false;
    if (!this.over) void this.attach();
  }

  private control(message: { type: string; bytes?: number; exec?: Exec }): void {
    if (message.type === "gap") this.offset += message.bytes ?? 0;
    if (message.type !== "exit") return;
    this.over = true;
    this.tell({ ended: message.exec! });
  }
}
