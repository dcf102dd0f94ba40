import { useEffect, useState } from "preact/hooks";
import { api, at } from "../api";
import { machines, machinesError, machinesWatch } from "../machines";
import { go } from "../router";
import type { Machine } from "../types";
import { Act, Badge, Empty, Loading, Problem } from "../ui/basics";
import { confirmDialog, openDialog } from "../ui/dialog";
import { ago, bytes, count, shown } from "../ui/format";
import { useKeys } from "../ui/keys";
import { type Column, Table } from "../ui/table";
import { toast, toastError } from "../ui/toast";
import { MachinePage } from "./machine/machine";
import { NewMachine } from "./new_machine";
import { NowCell } from "./sample";

const columns: Column<Machine>[] = [
  { title: "Name", width: "minmax(8rem, 2fr)", show: (m) => <strong>{m.name ? shown(m.name) : m.id}</strong> },
  { title: "State", width: "6.5rem", show: (m) => <Badge kind={m.state}>{m.state}</Badge> },
  { title: "Kind", width: "4rem", wide: true, show: (m) => m.kind },
  { title: "Image", width: "minmax(5rem, 1fr)", wide: true, show: (m) => shown(m.image) },
  { title: "Owner", width: "minmax(5rem, 1fr)", wide: true, show: (m) => shown(m.owner) },
  { title: "Now", width: "minmax(11rem, 3fr)", wide: true, show: (m) => <NowCell machine={m} /> },
  { title: "Steps", width: "4rem", wide: true, show: (m) => m.step_count ?? "" },
  { title: "Disk", width: "6rem", wide: true, show: (m) => bytes(m.disk_bytes) },
  { title: "Created", width: "6rem", wide: true, show: (m) => ago(m.created) },
];

function matches(m: Machine, text: string): boolean {
  const all = [m.id, m.name, m.kind, m.image, m.owner, m.state, ...Object.entries(m.metadata ?? {}).flat()];
  return text.toLowerCase().split(/\s+/).every((word) => all.some((t) => t?.toLowerCase().includes(word)));
}

/** Does something to many machines; one that fails does not stop the others. */
async function eachMachine(ids: string[], what: string, run: (id: string) => Promise<unknown>): Promise<void> {
  const ends = await Promise.allSettled(ids.map(run));
  const failed = ends.filter((e) => e.status === "rejected");
  const done = ids.length - failed.length;
  if (done) toast(`${what} ${count(done, "machine")}.`);
  for (const f of failed.slice(0, 3)) toastError(f.reason);
}

const NAMED = 10;

/** Names the machines: some may be out of view. */
function names(picked: Machine[]): string {
  const more = picked.length - NAMED;
  return picked.slice(0, NAMED).map((m) => m.name ?? m.id).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function Bulk({ picked, clear }: { picked: Machine[]; clear: () => void }) {
  const ids = picked.map((m) => m.id);
  const all = (verb: string, what: string) => () =>
    eachMachine(ids, what, (id) => api.post(`${at`/v1/machines/${id}`}/${verb}`)).then(clear);
  const remove = () =>
    confirmDialog(
      `Delete ${count(ids.length, "machine")}`,
      `${names(picked)}: their files, steps and processes are deleted. This cannot be undone.`,
      "Delete",
      () => eachMachine(ids, "Deleted", (id) => api.remove(at`/v1/machines/${id}`)).then(clear),
    );
  return (
    <>
      <span class="soft">{ids.length} selected</span>
      <Act run={all("pause", "Paused")}>Pause</Act>
      <Act run={all("resume", "Resumed")}>Resume</Act>
      <Act run={all("stop", "Stopped")}>Stop</Act>
      <Act class="danger" run={remove}>Delete</Act>
    </>
  );
}

function MachineList() {
  const [filter, setFilter] = useState("");
  const [selected, setSelected] = useState(new Set<string>());
  useEffect(machinesWatch, []);
  const create = () => openDialog((close) => <NewMachine close={close} />);
  useKeys([
    { keys: "n", what: "Create a machine", run: create },
    { keys: "/", what: "Filter the machines", run: () => document.getElementById("filter")?.focus() },
  ]);
  const all = machines.value;
  const rows = (all ?? []).filter((m) => matches(m, filter));
  const picked = rows.filter((m) => selected.has(m.id));
  return (
    <>
      <div class="bar">
        <h1>Machines</h1>
        <input
          id="filter"
          type="search"
          placeholder="Filter"
          aria-label="Filter the machines"
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
        <span class="space" />
        {picked.length > 0 && <Bulk picked={picked} clear={() => setSelected(new Set())} />}
        <button type="button" class="primary" onClick={create}>New machine</button>
      </div>
      <Problem error={machinesError.value ?? undefined} />
      {!all && !machinesError.value && <Loading />}
      {all && rows.length === 0 && <Empty>{all.length ? "No machine matches the filter." : "There are no machines yet."}</Empty>}
      {rows.length > 0 && (
        <Table
          label="Machines"
          rows={rows}
          columns={columns}
          id={(m) => m.id}
          name={(m) => shown(m.name || m.id)}
          open={(m) => go(["machines", m.id])}
          selected={selected}
          select={setSelected}
        />
      )}
    </>
  );
}

export function Machines({ parts }: { parts: string[] }) {
  return parts[0] ? <MachinePage key={parts[0]} id={parts[0]} /> : <MachineList />;
}
