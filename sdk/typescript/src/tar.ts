// A tar archive of a few files, in the format of POSIX (ustar).
import { bytesOf } from "./result.js";

const BLOCK = 512;

function header(name: string, size: number): Uint8Array {
  const path = bytesOf(name);
  if (path.length > 100) throw new RangeError(`the name '${name}' is longer than 100 bytes`);
  const block = new Uint8Array(BLOCK);
  block.set(path, 0);
  const put = (at: number, text: string) => block.set(bytesOf(text), at);
  put(100, "0000755\0");
  put(108, "0000000\0");
  put(116, "0000000\0");
  put(124, size.toString(8).padStart(11, "0") + "\0");
  put(136, "00000000000\0");
  put(148, "        ");
  put(156, "0");
  put(257, "ustar\x0000");
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, sum.toString(8).padStart(6, "0") + "\0 ");
  return block;
}

/** The same files give the same bytes. */
export function tar(files: Record<string, Uint8Array>): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const [name, data] of Object.entries(files).sort(([a], [b]) => (a < b ? -1 : 1))) {
    parts.push(header(name, data.length), data, new Uint8Array((BLOCK - (data.length % BLOCK)) % BLOCK));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
