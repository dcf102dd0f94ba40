// Commands of a machine: run one, follow its output, read that of earlier ones.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, jsonLines, withQuery } from "../../api";
import type { Exec, ExecEvent } from "../../types";
import { Act, Badge, Empty, Loading, Problem } from "../../ui/basics";
import { ago, commandLine, duration, shown, shownOutput, shownText, time } from "../../ui/format";
import { useLoad } from "../../ui/load";
import type { PartProps } from "./machine";

const SHOWN_MAX = 400_000; // characters of output that the page keeps
const DRAW_MS = 100;

interface Piece {
  stream: "stdout" | "stderr" | "note";
  text: string;
}

function pieceOf(e: ExecEvent): Piece | undefined {
  if (e.type === "gap") return { stream: "note", text: `\n[${e.bytes} bytes of ${e.stream} were not kept]\n` };
  if (e.type !== "stdout" && e.type !== "stderr") return undefined;
  const raw = e.data_base64 && Uint8Array.from(atob(e.data_base64), (c) => c.charCodeAt(0));
  return { stream: e.type, text: e.data ?? new TextDecoder().decode(raw || undefined) };
}

/** Adds a piece, joins it with the last one of its stream, and forgets the oldest text over the limit. */
function pieceAdd(pieces: Piece[], piece: Piece): void {
  const last = pieces.at(-1);
  if (last?.stream === piece.stream && last.text.length < 20_000) last.text += piece.text;
  else pieces.push({ ...piece });
  let size = pieces.reduce((sum, p) => sum + p.text.length, 0);
  while (size > SHOWN_MAX && pieces.length > 1) size -= pieces.shift()!.text.length;
}

function Output({ path, exec }: { path: string; exec: Exec }) {
  const [pieces, setPieces] = useState<Piece[]>([]);
  const [error, setError] = useState<Error>();
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    const all: Piece[] = [];
    let timer = 0;
    const draw = () => {
      timer = 0;
      setPieces(all.map((p) => ({ ...p })));
    };
    const follow = async () => {
      const target = withQuery(`${path}/execs/${exec.id}/events`, { stdout: 0, stderr: 0 });
      for await (const event of jsonLines<ExecEvent>("GET", target, { signal: stop.signal })) {
        const piece = pieceOf(event);
        if (piece) pieceAdd(all, piece);
        timer ||= window.setTimeout(draw, DRAW_MS);
      }
    };
    follow().catch((e) => stop.signal.aborted || setError(e));
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, exec.id]);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [pieces]);
  return (
    <>
      <Problem error={error} />
      <pre class="output" ref={box} tabIndex={0} role="region" aria-label="Output">
        {pieces.map((p, i) => <span key={i} class={p.stream}>{shownOutput(p.text)}</span>)}
        {pieces.length === 0 && !error && <span class="soft">No output.</span>}
      </pre>
    </>
  );
}

function ExecState({ exec }: { exec: Exec }) {
  if (exec.state === "running" || exec.state === "starting") return <Badge kind="running">{exec.state}</Badge>;
  if (exec.state === "failed") return <Badge kind="bad">did not start</Badge>;
  const good = exec.status === 0;
  return <Badge kind={good ? "good" : "bad"}>{exec.reason && exec.reason !== "exit" ? exec.reason : `exit ${exec.status}`}</Badge>;
}

function Run({ path, ran }: { path: string; ran: (exec: string) => void }) {
  const [command, setCommand] = useState("");
  const [error, setError] = useState<Error>();
  const run = async (e: Event) => {
    e.preventDefault();
    setError(undefined);
    try {
      const made = await api.post<Exec>(`${path}/execs`, { command, background: true });
      setCommand("");
      ran(made.id);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <form onSubmit={run}>
      <div class="bar run">
        <input
          class="mono"
          aria-label="Command"
          placeholder="Command"
          spellcheck={false}
          value={command}
          onInput={(e) => setCommand(e.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={!command.trim()}>Run</button>
      </div>
      <Problem error={error} />
    </form>
  );
}

export function Commands({ machine, path }: PartProps) {
  const [picked, setPicked] = useState<string>();
  const { data, error, reload } = useLoad(
    (signal) => api.get<{ execs: Exec[] }>(`${path}/execs`, { limit: 200 }, signal),
    [machine.id],
    (e) => e.machine === machine.id,
    5000,
  );
  const execs = data?.execs;
  const exec = execs?.find((x) => x.id === picked) ?? execs?.[0];
  const running = exec?.state === "running";
  const ran = (id: string) => {
    setPicked(id);
    reload();
  };
  return (
    <>
      <Run path={path} ran={ran} />
      <Problem error={error} />
      {!execs && !error && <Loading />}
      {execs?.length === 0 && <Empty>No command has run yet.</Empty>}
      {execs && exec && (
        <div class="timeline">
          <ol class="steps panel" aria-label="Commands, newest first">
            {execs.map((x) => (
              <li key={x.id}>
                <button type="button" class="command" aria-current={x === exec} onClick={() => setPicked(x.id)}>
                  <span class="clip mono">{shown(commandLine(x.argv))}</span>
                  <span class="soft"><ExecState exec={x} /> {ago(x.started)}</span>
                </button>
              </li>
            ))}
          </ol>
          <section class="panel" aria-label="The command">
            <div class="bar">
              <ExecState exec={exec} />
              <span class="soft">
                {time(exec.started)}
                {exec.ended && `, ${duration(Date.parse(exec.ended) - Date.parse(exec.started))}`}
              </span>
              <span class="space" />
              {running && <Act run={() => api.post(`${path}/execs/${exec.id}/signal`, { signal: "INT" })}>Interrupt</Act>}
              {running && <Act class="danger" run={() => api.remove(`${path}/execs/${exec.id}`)}>Kill</Act>}
            </div>
            <pre>{shownText(commandLine(exec.argv))}</pre>
            <Problem error={exec.error ? new Error(exec.error) : undefined} />
            {exec.terminal ? (
              <Empty>This command has a terminal: see the tab Terminals while it runs.</Empty>
            ) : (
              <Output key={exec.id} path={path} exec={exec} />
            )}
          </section>
        </div>
      )}
    </>
  );
}
