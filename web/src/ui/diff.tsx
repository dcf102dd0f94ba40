// Unified hunks of a text file, in one column or in two. Characters that could make a line look like
// another one are visible: what is reviewed is what is shipped.
import { shownLine } from "./format";

export interface DiffLine {
  kind: "hunk" | "same" | "added" | "deleted" | "note";
  text: string;
  before?: number;
  after?: number;
}

export function diffLines(hunks: string): DiffLine[] {
  let before = 0;
  let after = 0;
  const out: DiffLine[] = [];
  for (const line of hunks.replace(/\n$/, "").split("\n")) {
    const head = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    const text = shownLine(line.slice(1));
    if (head) {
      before = Number(head[1]);
      after = Number(head[2]);
      out.push({ kind: "hunk", text: shownLine(line) });
    } else if (line.startsWith("+")) out.push({ kind: "added", text, after: after++ });
    else if (line.startsWith("-")) out.push({ kind: "deleted", text, before: before++ });
    else if (line.startsWith("\\")) out.push({ kind: "note", text: shownLine(line) });
    else out.push({ kind: "same", text, before: before++, after: after++ });
  }
  return out;
}

type Pair = [DiffLine | undefined, DiffLine | undefined];

/** Pairs deleted lines with the added lines that replace them. */
export function diffPairs(lines: DiffLine[]): Pair[] {
  const out: Pair[] = [];
  let waiting: DiffLine[] = [];
  const flush = () => {
    for (const line of waiting) out.push([line, undefined]);
    waiting = [];
  };
  for (const line of lines) {
    if (line.kind === "deleted") waiting.push(line);
    else if (line.kind === "added") out.push([waiting.shift(), line]);
    else {
      flush();
      out.push([line, line]);
    }
  }
  flush();
  return out;
}

const LINES_MAX = 4000; // of one file; a browser cannot lay out any number of them

const sign = { hunk: "", note: "", same: " ", added: "+", deleted: "−" };

function Cell({ line, side }: { line: DiffLine | undefined; side: "before" | "after" }) {
  const kind = line ? line.kind : "none";
  return (
    <>
      <td class="number">{line?.[side]}</td>
      <td class={kind}>{line && <i>{sign[line.kind]}</i>}{line?.text}</td>
    </>
  );
}

export function DiffView({ hunks, sides }: { hunks: string; sides: boolean }) {
  const lines = diffLines(hunks);
  const cut = lines.length > LINES_MAX;
  const part = cut ? lines.slice(0, LINES_MAX) : lines;
  return (
    <>
      <table class={`diff ${sides ? "sides" : ""}`} aria-label="Difference">
        <tbody>
          {sides
            ? diffPairs(part).map(([a, b], i) => (
                <tr key={i}>
                  <Cell line={a} side="before" />
                  <Cell line={b} side="after" />
                </tr>
              ))
            : part.map((line, i) => (
                <tr key={i}>
                  <td class="number">{line.before}</td>
                  <td class="number">{line.after}</td>
                  <td class={line.kind}>
                    <i>{sign[line.kind]}</i>
                    {line.text}
                  </td>
                </tr>
              ))}
        </tbody>
      </table>
      {cut && <p class="empty">{lines.length - LINES_MAX} more lines are not shown.</p>}
    </>
  );
}
