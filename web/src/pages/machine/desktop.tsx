// The desktop of a machine: its screen, which takes keys and the pointer.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, download } from "../../api";
import type { Exec } from "../../types";
import { Act, Empty, Loading, Problem } from "../../ui/basics";
import { shown } from "../../ui/format";
import { useLoad } from "../../ui/load";
import type { PartProps } from "./machine";
import type { Watched, WatchedState } from "./watched";

const COMMAND = "desktop"; // name of the command that runs the X server

function stateText(state: WatchedState): string {
  if (state === "connecting") return "Connecting…";
  if (state === "open") return "The clipboard is not shared. Shift+Escape takes the keyboard back from the desktop.";
  return `Not connected: ${shown(state.lost)}. Trying again…`;
}

function Typed({ path }: { path: string }) {
  const [text, setText] = useState("");
  const send = async () => {
    await api.post(`${path}/desktop/input`, { action: "type", text });
    setText("");
  };
  return (
    <>
      <input
        aria-label="Text to type in the desktop"
        placeholder="Text to type"
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
      />
      <Act run={send} off={!text}>Type</Act>
    </>
  );
}

function Screen({ machine, path }: PartProps) {
  const ref = useRef<HTMLDivElement>(null);
  const fitRef = useRef<HTMLInputElement>(null);
  const watched = useRef<Watched>(undefined);
  const [state, setState] = useState<WatchedState>("connecting");
  const [error, setError] = useState<Error>();
  const [fit, setFit] = useState(true);
  const [viewOnly, setViewOnly] = useState(false);
  const name = shown(machine.name ?? machine.id);
  const label = viewOnly
    ? `Desktop of machine ${name}, view only`
    : `Desktop of machine ${name}. Keys go to it; Shift+Escape leaves it.`;

  useEffect(() => {
    let gone = false;
    import("./watched")
      .then(({ Watched }) => {
        if (!gone && ref.current) watched.current = new Watched(path, ref.current, { label, fit, viewOnly }, setState);
      })
      .catch(setError);
    return () => {
      gone = true;
      watched.current?.stop();
    };
  }, [path]);

  useEffect(() => watched.current?.change({ label, fit, viewOnly }), [label, fit, viewOnly]);

  // noVNC takes every key, so this comes before it.
  const leave = (e: KeyboardEvent) => {
    if (e.key !== "Escape" || !e.shiftKey) return;
    e.preventDefault();
    e.stopPropagation();
    watched.current?.blur();
    fitRef.current?.focus();
  };

  return (
    <>
      <div class="bar" role="group" aria-label="Desktop">
        <label><input ref={fitRef} type="checkbox" checked={fit} onChange={() => setFit(!fit)} /> Fit to the page</label>
        <label><input type="checkbox" checked={viewOnly} onChange={() => setViewOnly(!viewOnly)} /> View only</label>
        <span class="space" />
        {!viewOnly && <Typed path={path} />}
        <Act run={() => download(`${path}/desktop/screenshot`, "screen.png")}>Screenshot</Act>
      </div>
      <Problem error={error} />
      <div class="desktop" ref={ref} onKeyDownCapture={leave} />
      <p class="soft" role="status">{stateText(state)}</p>
    </>
  );
}

export function Desktop({ machine, path }: PartProps) {
  const { data, error, reload } = useLoad(
    (signal) => api.get<{ execs: Exec[] }>(`${path}/execs`, { state: "running", limit: 1000 }, signal),
    [machine.id],
    (e) => e.machine === machine.id,
    5000,
  );
  const start = async () => {
    await api.post(`${path}/desktop`);
    reload();
  };
  if (!data) return error ? <Problem error={error} /> : <Loading />;
  if (data.execs.some((x) => x.name === COMMAND)) return <Screen machine={machine} path={path} />;
  return (
    <>
      <Problem error={error} />
      <Empty>No desktop runs. It needs Xtigervnc and openbox in the machine.</Empty>
      {machine.state !== "ended" && <Act class="primary" run={start}>Start desktop</Act>}
    </>
  );
}
