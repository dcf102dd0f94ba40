// The steps of a machine: what caused each, how it ended, what it changed. A step that can be
// restored can be gone back to, and forked.
import { useRef, useState } from "preact/hooks";
import { api, at, listAll } from "../../api";
import { go } from "../../router";
import type { Change, Diff, Machine, Step } from "../../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../../ui/basics";
import { FormDialog, openDialog } from "../../ui/dialog";
import { DiffView } from "../../ui/diff";
import { ago, bytes, commandLine, count, shown, shownText, time } from "../../ui/format";
import { useKeys } from "../../ui/keys";
import { useLoad } from "../../ui/load";
import { sidesOf } from "../../ui/sides";
import { toast, toastError } from "../../ui/toast";
import { Family } from "./family";
import type { PartProps } from "./machine";

const causes: Record<Step["kind"], string> = {
  exec: "command",
  file: "file",
  snap: "taken by hand",
  kept: "kept before a change",
  rewind: "rewind",
  fork: "fork",
};

function what(step: Step): string {
  if (step.name) return step.name;
  return cause(step);
}

/** A long command is cut, so its words may have no end. */
function cause(step: Step): string {
  const text = step.what ?? "";
  if (step.kind === "rewind") return `${causes.rewind} ${text}`;
  if (step.kind !== "exec") return text || causes[step.kind];
  for (const end of ["", '"]', '…"]'])
    try {
      return commandLine(JSON.parse(text.replace(/\\[^"]?$/, "") + end));
    } catch {
      // with another end
    }
  return text;
}

function ChangeHead({ change: c }: { change: Change }) {
  const target = c.target_after ?? c.target_before;
  return (
    <>
      <Badge kind={c.change}>{c.change}</Badge> <span class="mono">/{shown(c.path)}</span>
      {target !== undefined && <span class="soft mono"> → {shown(target)}</span>}
      <span class="soft">
        {" "}
        {c.content === "text" && `+${c.lines_added ?? 0} −${c.lines_removed ?? 0}`}
        {c.content && c.content !== "text" && `${c.content}, ${bytes((c.after ?? c.before)?.size)}`}
        {c.before && c.after && c.before.mode !== c.after.mode && ` mode ${c.before.mode} → ${c.after.mode}`}
      </span>
    </>
  );
}

const OPEN_MAX = 8; // files whose diffs are shown without a click

function Changes({ diff, sides }: { diff: Diff; sides: boolean }) {
  const changes = diff.changes.filter((c) => !c.own);
  if (changes.length === 0)
    return <Empty>No file changed. Granted directories are not part of steps: see Review.</Empty>;
  return (
    <>
      {changes.map((c, i) =>
        c.diff ? (
          <details class="change" key={c.path} open={i < OPEN_MAX}>
            <summary><ChangeHead change={c} /></summary>
            <DiffView hunks={c.diff} sides={sides} />
          </details>
        ) : (
          <div class="change" key={c.path}><ChangeHead change={c} /></div>
        ),
      )}
      {diff.cut && <Empty>There are more changes than are shown ({diff.cut}).</Empty>}
    </>
  );
}

type Against = "before" | "now" | "start";

function StepChanges({ path, step, steps, sides }: { path: string; step: Step; steps: Step[]; sides: boolean }) {
  const [against, setAgainst] = useState<Against>("before");
  const older = steps.find((s) => s.number < step.number && s.restorable);
  const from = against === "start" ? "start" : against === "now" ? String(step.number) : String(older?.number ?? "start");
  const to = against === "now" ? "now" : String(step.number);
  const { data, error } = useLoad<Diff>(
    (signal) => api.get(`${path}/diff`, { from, to }, signal),
    [path, from, to],
    (e) => to === "now" && e.machine === step.machine, // what two steps differ in does not change
  );
  return (
    <>
      <div class="bar">
        <label>
          Compare{" "}
          <select value={against} onChange={(e) => setAgainst(e.currentTarget.value as Against)}>
            <option value="before">with the step before</option>
            <option value="start">with the start</option>
            <option value="now">now with this step</option>
          </select>
        </label>
        {data && <span class="soft">{data.added} added, {data.modified} modified, {data.deleted} deleted</span>}
      </div>
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data && <Changes diff={data} sides={sides} />}
    </>
  );
}

const NO_STEPS: Record<string, string> = {
  every: "There are no steps yet. A command that changes files makes one when it ends, and so does a file that you save or upload.",
  risky: "There are no steps yet. This machine takes one by itself only before a risky command. Press Take a step to keep its files as they are now.",
  manual: "There are no steps yet. This machine takes none by itself: press Take a step to keep its files as they are now.",
};

function Rewind({ path, step, close }: { path: string; step: Step; close: () => void }) {
  const submit = async () => {
    await api.post(`${path}/rewind`, { step: String(step.number) });
    toast(`Back at step ${step.number}.`);
  };
  return (
    <FormDialog title={`Rewind to step ${step.number}`} action="Rewind" danger submit={submit} close={close}>
      <p>The files become those of this step. The present files are kept as a step, so you can come back.</p>
      <p>All commands, terminals and other processes end: what they have only in memory is lost.</p>
      <p>Granted directories, volumes and databases outside of the machine do not go back. What it sent over the network stays sent.</p>
      <p class="soft">The same as a command: <code>carrel rewind {step.machine} {step.number}</code></p>
    </FormDialog>
  );
}

function Fork({ path, step, close }: { path: string; step: Step | undefined; close: () => void }) {
  const [number, setNumber] = useState("1");
  const [name, setName] = useState("");
  const submit = async () => {
    const body = { count: Number(number), ...(step && { step: String(step.number) }) };
    const { machines } = await api.post<{ machines: Machine[] }>(`${path}/fork`, body);
    toast(`Made ${count(machines.length, "machine")}.`);
    if (machines.length > 1) return go(["machines"]);
    const one = machines[0]!.id;
    if (name.trim()) await api.patch(at`/v1/machines/${one}`, { name: name.trim() }).catch(toastError); // it is there all the same
    go(["machines", one]);
  };
  return (
    <FormDialog title={step ? `Fork step ${step.number}` : "Fork the present state"} action="Fork" submit={submit} close={close}>
      <p>{number === "1" ? "A new machine starts" : "New machines start"} with a copy of these files, without processes and granted directories.</p>
      <Field label="Number of machines">
        <input type="number" min="1" max="1000" value={number} onInput={(e) => setNumber(e.currentTarget.value)} />
      </Field>
      {number === "1" && (
        <Field label="Name" hint="Optional: without one, its id is shown.">
          <input value={name} maxLength={63} onInput={(e) => setName(e.currentTarget.value)} />
        </Field>
      )}
    </FormDialog>
  );
}

function NameStep({ path, step, close }: { path: string; step: Step; close: () => void }) {
  const [name, setName] = useState(step.name ?? "");
  const submit = () => api.patch(`${path}/steps/${step.number}`, { name: name.trim() });
  return (
    <FormDialog title={`Name step ${step.number}`} action="Save" submit={submit} close={close}>
      <Field label="Name" hint="A step with a name is never deleted. Empty: it has no name.">
        <input value={name} maxLength={63} onInput={(e) => setName(e.currentTarget.value)} autofocus />
      </Field>
      <p class="soft">The same as a command: <code>carrel rename {step.machine}@{step.number} {name.trim() || "''"}</code></p>
    </FormDialog>
  );
}

function TakeStep({ path, close }: { path: string; close: () => void }) {
  const [name, setName] = useState("");
  const submit = () => api.post(`${path}/steps`, name ? { name } : {});
  return (
    <FormDialog title="Take a step" action="Take it" submit={submit} close={close}>
      <Field label="Name" hint="A step with a name is never deleted.">
        <input value={name} onInput={(e) => setName(e.currentTarget.value)} autofocus />
      </Field>
    </FormDialog>
  );
}

function StepRow({ step, picked, pick }: { step: Step; picked: boolean; pick: () => void }) {
  const failed = step.status !== undefined && step.status > 0;
  return (
    <li>
      <button type="button" class="step" aria-current={picked} onClick={pick} title={time(step.created)}>
        <b>{step.number}</b>
        <span class="clip mono">{shown(what(step))}</span>
        <span class="soft">
          {failed && <Badge kind="bad">exit {step.status}</Badge>}
          {step.name && <Badge kind="good">named</Badge>}
          {!step.restorable && <Badge kind="warn">not restorable</Badge>}{" "}
          {step.counted && `${count(step.files ?? 0, "file")} · `}
          {ago(step.created)}
        </span>
      </button>
    </li>
  );
}

export function Timeline({ machine, path }: PartProps) {
  const [picked, setPicked] = useState<number>();
  const [sides, turn] = sidesOf(false);
  const { data: steps, error } = useLoad(
    () => listAll<Step>(at`/v1/machines/${machine.id}/steps`, "steps", { limit: 1000 }),
    [machine.id],
    (e) => e.machine === machine.id,
  );
  const step = steps?.find((s) => s.number === picked) ?? steps?.[0];
  const place = steps && step ? steps.indexOf(step) : 0;
  const rewind = () => step && openDialog((close) => <Rewind path={path} step={step} close={close} />);
  const fork = () => step && openDialog((close) => <Fork path={path} step={step} close={close} />);
  const rename = () => step && openDialog((close) => <NameStep path={path} step={step} close={close} />);
  const take = () => openDialog((close) => <TakeStep path={path} close={close} />);
  const list = useRef<HTMLOListElement>(null);
  const move = (by: number) => {
    if (!steps?.[place + by]) return;
    setPicked(steps[place + by]!.number);
    list.current?.querySelectorAll("button")[place + by]?.focus(); // so that it is in view, and read aloud
  };
  useKeys([
    { keys: "j", what: "Next older step", run: () => move(1) },
    { keys: "k", what: "Next newer step", run: () => move(-1) },
    { keys: "r", what: "Rewind to the step", run: () => step?.restorable && rewind() },
    { keys: "f", what: "Fork the step", run: () => step?.restorable && fork() },
    { keys: "n", what: "Name the step", run: rename },
    { keys: "s", what: "Take a step", run: take },
    { keys: "d", what: "Diff in one or two columns", run: turn },
  ]);
  return (
    <>
      <div class="bar">
        <button type="button" onClick={take}>Take a step</button>
        <button type="button" onClick={() => openDialog((close) => <Fork path={path} step={undefined} close={close} />)}>
          Fork now
        </button>
        <span class="space" />
        <label><input type="checkbox" checked={sides} onChange={turn} /> Side by side</label>
      </div>
      <Problem error={error} />
      {steps?.length === 0 && <Empty>{NO_STEPS[machine.steps ?? "every"] ?? NO_STEPS.every}</Empty>}
      {steps && step && (
        <div class="timeline">
          <div>
            <ol ref={list} class="steps panel" aria-label="Steps, newest first" reversed>
              {steps.map((s) => (
                <StepRow key={s.id} step={s} picked={s === step} pick={() => setPicked(s.number)} />
              ))}
            </ol>
            <Family machine={machine} />
          </div>
          <section class="panel" aria-label="Changes of the step">
            <div class="bar">
              <h2>Step {step.number}</h2>
              <span class="soft">{causes[step.kind]} · {time(step.created)}</span>
              <span class="space" />
              <Act run={rename}>{step.name ? "Rename" : "Name"}</Act>
              <Act class="danger" off={!step.restorable} run={rewind}>Rewind</Act>
              <Act off={!step.restorable} run={fork}>Fork</Act>
            </div>
            {step.name && <p><Badge kind="good">{shown(step.name)}</Badge></p>}
            <pre>{shownText(cause(step))}</pre>
            {!step.restorable && <p class="warning">It cannot be restored: {step.reason}</p>}
            {step.restorable && <StepChanges key={step.id} path={path} step={step} steps={steps} sides={sides} />}
          </section>
        </div>
      )}
    </>
  );
}
