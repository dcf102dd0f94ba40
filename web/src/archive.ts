// Files of a change set, read from its archive (tar) in the page. Nothing of it is trusted: only
// regular files are taken, and only by the name that the review shows.

const BLOCK = 512;

function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
}

/** A size is octal digits, or a number in base 256 if its first bit is set. */
function number(bytes: Uint8Array): number {
  if (bytes[0]! & 0x80) return bytes.subarray(1).reduce((n, b) => n * 256 + b, 0);
  return parseInt(text(bytes).trim() || "0", 8);
}

/** The path in a pax header, whose records are "LENGTH NAME=VALUE\n". */
function paxPath(bytes: Uint8Array): string | undefined {
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(32, at);
    const length = Number(new TextDecoder().decode(bytes.subarray(at, space)));
    if (space < 0 || !(length > space - at) || at + length > bytes.length) return undefined;
    const record = new TextDecoder().decode(bytes.subarray(space + 1, at + length - 1));
    if (record.startsWith("path=")) return record.slice(5);
    at += length;
  }
  return undefined;
}

export function archiveFile(tar: Uint8Array<ArrayBuffer>, path: string): Uint8Array<ArrayBuffer> | undefined {
  let name: string | undefined;
  for (let at = 0; at + BLOCK <= tar.length && tar[at]; ) {
    const head = tar.subarray(at, at + BLOCK);
    const size = number(head.subarray(124, 136));
    const type = String.fromCharCode(head[156]!);
    const body = tar.subarray(at + BLOCK, at + BLOCK + size);
    if (!(size >= 0) || body.length !== size) return undefined;
    if (type === "x") name = paxPath(body);
    else {
      const prefix = text(head.subarray(345, 500));
      const own = name ?? (prefix ? `${prefix}/` : "") + text(head.subarray(0, 100));
      if ((type === "0" || type === "\0") && own.replace(/^\.\//, "") === path) return body;
      name = undefined;
    }
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
  return undefined;
}

const starts: [string, number[]][] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
];

/** The type of an image that is only pixels, by its first bytes. An SVG is not: it is a text. */
export function imageType(bytes: Uint8Array): string | undefined {
  const found = starts.find(([, start]) => start.every((b, i) => bytes[i] === b));
  const webp = text(bytes.slice(0, 4)) === "RIFF" && text(bytes.slice(8, 12)) === "WEBP";
  return found?.[0] ?? (webp ? "image/webp" : undefined);
}
