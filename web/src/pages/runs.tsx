// All runs, and the form that starts one.
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { machineName, machines, machinesWatch } from "../machines";
import { go } from "../router";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { FormDialog, openDialog } from "../ui/dialog";
import { ago, duration, shown } from "../ui/format";
import { useKeys } from "../ui/keys";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";
import { MODELS_MS, type Provider, ProviderNeeds } from "./models";
import { RunPage } from "./run";
import { type Run, runTitle, stateKind } from "./run_types";
import "./runs.css";

// What each one is for; docs/reference/operator.md has the whole table.
const modes: Record<string, string> = {
  free: "The model calls any tool and reads every result.",
  "plan-then-execute": "The model fixes its calls before it reads anything, so no text that it reads can change them.",
  "action-selector": "The model picks from calls that you wrote, and reads no results: you see them.",
  map: "The model reads texts of others only as short records, which another model makes of them without tools.",
  handles: "The model reads no text of others: it asks about the text, and another model answers without tools.",
};

const columns: Column<Run>[] = [
  { title: "Task", width: "minmax(10rem, 4fr)", show: (r) => <strong title={shown(r.task)}>{runTitle(r)}</strong> },
  { title: "State", width: "7rem", show: (r) => <Badge kind={stateKind(r)}>{r.status ?? r.state}</Badge> },
  { title: "Model", width: "minmax(6rem, 1fr)", wide: true, show: (r) => shown(r.model) },
  { title: "Machine", width: "9.5rem", wide: true, show: (r) => machineName(r.machine) },
  { title: "Turns", width: "4rem", wide: true, show: (r) => r.turns },
  { title: "Tokens", width: "5rem", wide: true, show: (r) => r.tokens.toLocaleString("en") },
  { title: "Time", width: "4rem", wide: true, show: (r) => duration(r.wall_ms) },
  { title: "Started", width: "6rem", wide: true, show: (r) => ago(r.created) },
];

interface ModelNames {
  default: string;
  providers: Provider[];
  aliases: { name: string }[];
  models: { name: string }[];
}

interface Fields {
  task: string;
  machine: string;
  model: string;
  mode: string;
  menu: string;
  script: string;
  turns: string;
  tokens: string;
  money: string;
  timeout: string;
  tries: string;
  check: string;
}

const none: Fields = {
  task: "", machine: "", model: "", mode: "free", menu: "", script: "",
  turns: "", tokens: "", money: "", timeout: "", tries: "", check: "",
};

function body(f: Fields): object {
  const out: Record<string, unknown> = { task: f.task, mode: f.mode };
  for (const name of ["machine", "model", "script", "timeout", "check"] as const) if (f[name]) out[name] = f[name];
  for (const name of ["turns", "tokens", "tries"] as const) if (f[name]) out[name] = Number(f[name]);
  if (f.mode === "action-selector") out.menu = f.menu;
  if (f.money) out.money_micro = Math.round(Number(f.money) * 1e6);
  return out;
}

function Limits({ f, set }: { f: Fields; set: (name: keyof Fields) => (e: { currentTarget: { value: string } }) => void }) {
  return (
    <details>
      <summary>Limits and tries</summary>
      <Field label="Turns"><input type="number" min={1} value={f.turns} onInput={set("turns")} placeholder="200" /></Field>
      <Field label="Tokens"><input type="number" min={1} value={f.tokens} onInput={set("tokens")} placeholder="unlimited" /></Field>
      <Field label="Cost"><input type="number" min={0} step="any" value={f.money} onInput={set("money")} placeholder="unlimited" /></Field>
      <Field label="Time" hint="Such as 20m."><input value={f.timeout} onInput={set("timeout")} placeholder="unlimited" /></Field>
      <Field label="Tries side by side" hint="The successful try with the fewest changes is kept.">
        <input type="number" min={1} max={8} value={f.tries} onInput={set("tries")} placeholder="1" />
      </Field>
      <Field label="Check of each try" hint="A command that exits with 0 if the work is good.">
        <input class="mono" value={f.check} onInput={set("check")} />
      </Field>
    </details>
  );
}

function NewRun({ machine, close }: { machine: string; close: () => void }) {
  const [f, setF] = useState<Fields>({ ...none, machine });
  const { data, reload } = useLoad((signal) => api.get<ModelNames>("/v1/models", {}, signal), [], undefined, MODELS_MS);
  useEffect(machinesWatch, []);
  const set = (name: keyof Fields) => (e: { currentTarget: { value: string } }) =>
    setF({ ...f, [name]: e.currentTarget.value });
  const submit = async () => {
    const run = await api.post<Run>("/v1/runs", body(f));
    go(["runs", run.id]);
  };
  const wanted = f.model || data?.default || "";
  const provider = data?.providers.find((p) => p.name === wanted.split("/")[0] && !p.ready);
  const names = [...(data?.aliases ?? []), ...(data?.models ?? [])].map((m) => m.name);
  return (
    <FormDialog title="Start a run" action="Start" submit={submit} close={close}>
      <Field label="Task"><textarea required rows={5} value={f.task} onInput={set("task")} /></Field>
      <Field label="Machine">
        <select value={f.machine} onChange={set("machine")}>
          <option value="">a new machine without grants</option>
          {machines.value?.map((m) => <option key={m.id} value={m.id}>{shown(m.name || m.id)}</option>)}
        </select>
      </Field>
      <Field label="Model" hint={data?.default ? `Default: ${data.default}` : "PROVIDER/MODEL; carrel.conf names no default."}>
        <input list="models" required={!!data && !data.default} value={f.model} onInput={set("model")} />
      </Field>
      <datalist id="models">{names.map((n) => <option key={n} value={n} />)}</datalist>
      {provider && <ProviderNeeds provider={provider} stored={() => void reload()} />}
      {f.model.startsWith("rehearsal/") && (
        <Field label="Script" hint="Answers of the rehearsal, as JSON.">
          <textarea rows={3} value={f.script} onInput={set("script")} />
        </Field>
      )}
      <Field label="Mode" hint={modes[f.mode]!}>
        <select value={f.mode} onChange={set("mode")}>{Object.keys(modes).map((m) => <option key={m}>{m}</option>)}</select>
      </Field>
      {f.mode === "action-selector" && (
        <Field label="Menu" hint="The calls that the model may pick, as JSON, such as examples/menu.json.">
          <textarea required rows={4} value={f.menu} onInput={set("menu")} />
        </Field>
      )}
      <Limits f={f} set={set} />
    </FormDialog>
  );
}

function RunList() {
  const { data, error } = useLoad((signal) => api.get<{ runs: Run[] }>("/v1/runs", { limit: 200 }, signal), [],
    (e) => e.type.startsWith("run"));
  const [filter, setFilter] = useState("");
  useEffect(machinesWatch, []);
  const start = () => openDialog((close) => <NewRun machine="" close={close} />);
  useKeys([
    { keys: "n", what: "Start a run", run: start },
    { keys: "/", what: "Filter the runs", run: () => document.getElementById("filter")?.focus() },
  ]);
  const wanted = filter.toLowerCase();
  const rows = (data?.runs ?? []).filter((r) =>
    [r.id, r.task, r.model, r.machine, machineName(r.machine), r.state, r.status].some((t) => t?.toLowerCase().includes(wanted)));
  return (
    <>
      <div class="bar">
        <h1>Runs</h1>
        <input id="filter" type="search" placeholder="Filter" aria-label="Filter the runs" value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)} />
        <span class="space" />
        <Act class="primary" run={start}>Start a run</Act>
      </div>
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data && rows.length === 0 && <Empty>{data.runs.length ? "No run matches." : "No model has worked on a task yet."}</Empty>}
      {rows.length > 0 && <Table label="Runs" rows={rows} columns={columns} id={(r) => r.id} open={(r) => go(["runs", r.id])} />}
    </>
  );
}

export function Runs({ parts }: { parts: string[] }) {
  return parts[0] ? <RunPage key={parts[0]} id={parts[0]} /> : <RunList />;
}
