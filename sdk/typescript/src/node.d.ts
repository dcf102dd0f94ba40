// The part of Node that we use, so that the package compiles without the types of Node. They are loaded only there.
declare const process: { env: Record<string, string | undefined>; geteuid(): number } | undefined;

declare module "node:http" {
  export interface Answer {
    statusCode: number;
    headers: Record<string, string | string[] | undefined>;
    resume(): void;
  }
  interface Request {
    on(event: "error" | "close", handler: (error: Error) => void): void;
    destroy(): void;
    end(body?: string | Uint8Array): void;
  }
  export function request(options: Record<string, unknown>, answered: (answer: Answer) => void): Request;
}

declare module "node:https" {
  export { request } from "node:http";
}

declare module "node:stream" {
  export const Readable: { toWeb(stream: unknown): ReadableStream<Uint8Array> };
}

declare module "node:crypto" {
  export const webcrypto: Crypto;
}

declare module "node:fs" {
  export function existsSync(path: string): boolean;
}

declare module "node:child_process" {
  type Ended = (error: (Error & { code?: unknown }) | null, stdout: string, stderr: string) => void;
  export function execFile(name: string, words: string[], options: Record<string, unknown>, ended: Ended): unknown;
}
