// The part of noVNC that the console uses; the package has no types.
declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, channel: WebSocket);
    background: string;
    scaleViewport: boolean;
    viewOnly: boolean;
    focus(): void;
    blur(): void;
    disconnect(): void;
  }
}
