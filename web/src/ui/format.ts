// How values are shown. Text of machines and models goes through shown() where it is on one line.

const codeOf = (c: string) => c.codePointAt(0)!.toString(16);

/** Makes control, direction and invisible characters visible, so that a name cannot disguise itself. */
export function shown(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu,
    (c) => (c.length > 1 ? `\\u{${codeOf(c)}}` : `\\u${codeOf(c).padStart(4, "0")}`),
  );
}

/** The same for a line of a file, whose tabs stay. */
export function shownLine(text: string): string {
  return text.split("\t").map(shown).join("\t");
}

/** The same for a text of several lines. */
export function shownText(text: string): string {
  return text.split("\n").map(shownLine).join("\n");
}

/** The same for what a program printed, perhaps with the line ends of a terminal. */
export function shownOutput(text: string): string {
  return shownText(text.replaceAll("\r\n", "\n"));
}

export function bytes(n: number | undefined): string {
  if (n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${n >= 100 || unit === 0 ? Math.round(n) : n.toFixed(1).replace(/\.0$/, "")} ${units[unit]}`;
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function time(t: string | number): string {
  return new Date(t).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

export function ago(t: string | number, now = Date.now()): string {
  return `${duration(now - new Date(t).getTime())} ago`;
}

/** An argument vector as a shell line. */
export function commandLine(argv: string[]): string {
  const shell = /^(\/usr)?\/bin\/(ba)?sh$/.test(argv[0] ?? "");
  if (shell && argv.length === 3 && /^-l?c$/.test(argv[1]!)) return argv[2]!;
  return argv.map(quoted).join(" ");
}

export function quoted(word: string): string {
  return /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
