// The connection of an element to the desktop of a machine, in a chunk of its own with noVNC. The
// daemon lets only the handshake, raw pixels, keys and the pointer pass, and no clipboard.
import RFB from "@novnc/novnc";
import { openSocket } from "../../api";

const AGAIN_MS = 2000;

export type WatchedState = "connecting" | "open" | { lost: string };

export interface WatchedLook {
  label: string; // for screen readers
  fit: boolean; // scale the screen to the page
  viewOnly: boolean;
}

/** The first message; throws what the daemon says when it closes before. noVNC would log an error. */
function firstMessage(socket: WebSocket): Promise<ArrayBuffer> {
  return new Promise((done, failed) => {
    socket.addEventListener("message", (e) => done(e.data), { once: true });
    socket.addEventListener("close", (e) => failed(new Error(e.reason)), { once: true });
  });
}

/** Shows the desktop and sends input. Connects again until it is stopped. */
export class Watched {
  private socket: WebSocket | undefined;
  private rfb: RFB | undefined;
  private over = false;
  private timer = 0;

  constructor(
    private readonly path: string,
    private readonly parent: HTMLElement,
    private look: WatchedLook,
    private readonly tell: (state: WatchedState) => void,
  ) {
    void this.connect();
  }

  change(look: WatchedLook): void {
    this.look = look;
    if (!this.rfb) return;
    this.rfb.scaleViewport = look.fit;
    this.rfb.viewOnly = look.viewOnly;
    const canvas = this.parent.querySelector("canvas");
    canvas?.setAttribute("aria-label", look.label);
  }

  blur(): void {
    this.rfb?.blur();
  }

  stop(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.rfb?.disconnect();
    this.socket?.close(); // noVNC does not have it before the desktop speaks
  }

  private async connect(): Promise<void> {
    this.tell("connecting");
    try {
      const socket = await openSocket(`${this.path}/desktop/watch`);
      this.socket = socket;
      if (this.over) return socket.close();
      const first = await firstMessage(socket);
      if (this.over) return socket.close();
      this.show(socket);
      socket.dispatchEvent(new MessageEvent("message", { data: first }));
    } catch (e) {
      this.lost((e as Error).message);
    }
  }

  private show(socket: WebSocket): void {
    let why = "";
    socket.addEventListener("close", (e) => (why = e.reason)); // before noVNC hears of it
    const rfb = new RFB(this.parent, socket);
    this.rfb = rfb;
    rfb.background = "transparent";
    rfb.addEventListener("connect", () => this.tell("open"));
    rfb.addEventListener("disconnect", () => this.lost(why));
    const canvas = this.parent.querySelector("canvas")!;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    this.change(this.look);
  }

  private lost(why: string): void {
    this.rfb = undefined;
    if (this.over) return;
    this.tell({ lost: why.replace(/\.$/, "") || "connection lost" });
    this.timer = window.setTimeout(() => void this.connect(), AGAIN_MS);
  }
}
