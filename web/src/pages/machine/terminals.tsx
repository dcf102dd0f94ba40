// Terminals of a machine. Each is a command of the machine, so it goes on while no page shows it,
// and a page that attaches again gets the output that it missed.
import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "../../api";
import { dark } from "../../theme";
import type { Exec } from "../../types";
import { Act, Empty, Loading, Problem } from "../../ui/basics";
import { commandLine, shown } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Attached, type AttachedState } from "./attached";
import type { PartProps } from "./machine";
import type { Screen } from "./screen";

const SHELL = "exec $(command -v bash || command -v sh) -l";
const NAME = "console-"; // begins the names of terminals that a page started
const KEY = "carrel.terminals"; // what was picked in this tab, newest first
const PICKED_MAX = 50;

function pickedRead(): string[] {
  return (sessionStorage.getItem(KEY) ?? "").split(" ").filter(Boolean);
}

function pickedAdd(id: string): string[] {
  const next = [id, ...pickedRead().filter((other) => other !== id)].slice(0, PICKED_MAX);
  sessionStorage.setItem(KEY, next.join(" "));
  return next;
}

/** Takes the keyboard, but not from a user who goes along the tabs of the page with it. */
function focus(screen: Screen | undefined): void {
  if (!document.activeElement?.matches("[role=tab]:focus-visible")) screen?.terminal.focus();
}

function stateText(state: AttachedState): string {
  if (state === "connecting") return "Connecting…";
  if (state === "open") return "Shift+Escape takes the keyboard back from the terminal.";
  if ("lost" in state) return `Not connected: ${shown(state.lost)}. Trying again…`;
  return `The command has ended with status ${state.ended.status}.`;
}

function TerminalView({ path, exec, visible }: { path: string; exec: string; visible: boolean }) {
  const ref = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen>(undefined);
  const [state, setState] = useState<AttachedState>("connecting");
  const [error, setError] = useState<Error>();

  useEffect(() => {
    let attached: Attached | undefined;
    let gone = false;
    const resized = new ResizeObserver(() => ref.current?.offsetParent && screen.current?.fit());
    import("./screen")
      .then(({ screenOpen }) => {
        if (gone || !ref.current) return;
        screen.current = screenOpen(ref.current, dark.value);
        resized.observe(ref.current);
        attached = new Attached(path, exec, screen.current, setState);
        screen.current.leave(() => document.querySelector<HTMLElement>("[aria-label=Terminals] [aria-pressed=true]")?.focus());
        focus(screen.current);
      })
      .catch(setError);
    return () => {
      gone = true;
      resized.disconnect();
      attached?.stop();
      screen.current?.dispose();
    };
  }, [path, exec]);

  useEffect(() => screen.current?.paint(dark.value), [dark.value]);

  useEffect(() => {
    if (visible) focus(screen.current);
  }, [visible]);

  return (
    <div hidden={!visible}>
      <Problem error={error} />
      <div class="shell" ref={ref} />
      <p class="soft" role="status">{stateText(state)}</p>
    </div>
  );
}

export function Terminals({ machine, path }: PartProps) {
  const [mine, setMine] = useState<string[]>([]); // opened on this page, also if they have ended
  const [picked, setPicked] = useState(pickedRead);
  const pick = (id: string) => setPicked(pickedAdd(id));
  const [closed, setClosed] = useState(new Set<string>());
  const { data, error } = useLoad(
    (signal) => api.get<{ execs: Exec[] }>(`${path}/execs`, { state: "running", limit: 1000 }, signal),
    [machine.id],
    (e) => e.machine === machine.id,
    5000,
  );
  const running = (data?.execs ?? []).filter((x) => x.terminal);
  const names = new Map(running.map((x) => [x.id, x.name?.startsWith(NAME) ? "shell" : (x.name ?? commandLine(x.argv))]));
  const all = [...new Set([...running.map((x) => x.id).reverse(), ...mine])].filter((id) => !closed.has(id));
  const current = picked.find((id) => all.includes(id)) ?? all[0];

  const start = async () => {
    const made = await api.post<Exec>(`${path}/execs`, {
      command: SHELL,
      name: NAME + Date.now().toString(36),
      terminal: true,
      background: true,
      env: { TERM: "xterm-256color", COLORTERM: "truecolor" },
    });
    setMine([...mine, made.id]);
    pick(made.id);
  };
  const end = async (id: string) => {
    if (names.has(id)) await api.remove(`${path}/execs/${id}`);
    setClosed(new Set(closed).add(id));
  };

  return (
    <>
      <div class="bar" role="group" aria-label="Terminals">
        {all.map((id, i) => (
          <button key={id} type="button" aria-pressed={id === current} onClick={() => pick(id)}>
            {i + 1}:&nbsp;<span class="clip">{shown(names.get(id) ?? "ended")}</span>
          </button>
        ))}
        <Act class="primary" run={start}>New terminal</Act>
        <span class="space" />
        {current && <Act class="danger" run={() => end(current)}>Close terminal</Act>}
      </div>
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data && all.length === 0 && <Empty>No terminal is open. Terminals go on when you leave this page.</Empty>}
      {all.map((id) => <TerminalView key={id} path={path} exec={id} visible={id === current} />)}
    </>
  );
}
