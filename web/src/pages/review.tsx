// Review: what machines want to hand over, and the decision about it.
import { useEffect, useRef, useState } from "preact/hooks";
import { jsonLines } from "../api";
import { machineName, machines, machinesWatch } from "../machines";
import { order, reviewsRead } from "../orders";
import { go, href } from "../router";
import { sessionRefresh, who } from "../session";
import type { AuditRecord, HostEvent } from "../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { FormDialog, openDialog } from "../ui/dialog";
import { ago, shown } from "../ui/format";
import { useKeys } from "../ui/keys";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";
import { toast } from "../ui/toast";
import { ChangeSetView } from "./review_set";
import "./review.css";

interface Detail {
  changeset?: string;
  sha256?: string;
  name?: string; // of the machine
  path?: string;
  slice?: string;
  kind?: string;
  home?: string;
  ref?: string;
}

interface Known extends Detail {
  changeset: string;
  machine: string;
  time: number;
  state: "pending" | "returned" | "shipped" | "undone";
  instead?: Known; // a newer freeze of the same, or one with the same content that was decided about
}

const REFRESH_MS = 3000;
const RECORDS_MAX = 1000; // of the journal that are read: some 500 freezes

const isOpen = (row: Known) => row.state === "pending" || row.state === "returned";

/** Nobody needs to decide about a change set that was frozen again, or whose content was shipped. */
function findObsolete(all: Iterable<Known>): void {
  const last = new Map<string, Known>(); // by machine and directory
  for (const row of all) {
    const key = `${row.machine} ${row.slice ?? row.path ?? row.sha256}`;
    const before = last.get(key);
    if (before && !isOpen(before) && isOpen(row) && before.sha256 === row.sha256) {
      row.instead = before;
      continue;
    }
    if (before && isOpen(before)) before.instead = row;
    last.set(key, row);
  }
}

interface Sets {
  rows: Known[];
  cut: boolean; // there may be older ones
}

/** The change sets, newest first, with what the journal says about them. */
async function known(): Promise<Sets> {
  const all = new Map<string, Known>();
  let records = 0;
  for await (const r of jsonLines<AuditRecord>("GET", `/v1/audit?verb=review&tail=${RECORDS_MAX}`)) {
    records++;
    const detail = (r.detail ?? {}) as Detail;
    if (r.verb === "review.return")
      for (const row of all.values()) if (row.machine === r.machine && row.state === "pending") row.state = "returned";
    if (!detail.changeset) continue;
    const row = all.get(detail.changeset);
    if (r.verb === "review.freeze")
      all.set(detail.changeset, { ...detail, changeset: detail.changeset, machine: r.machine ?? "", time: r.time, state: "pending" });
    else if (r.verb === "review.drop") all.delete(detail.changeset);
    else if (row && r.kind === "result") row.state = r.verb === "review.ship" ? "shipped" : "undone";
  }
  findObsolete(all.values());
  return { rows: [...all.values()].reverse(), cut: records >= RECORDS_MAX };
}

const isReview = (e: HostEvent) => e.type.startsWith("changeset.");

/** What a change set is of, in the machine and on the host. */
function subjectOf(k: Detail): string {
  const at = shown(k.slice ?? k.path ?? "");
  if (k.kind === "repo") return `repository ${shown(k.home ?? "")}${k.ref ? ` (${shown(k.ref)})` : ""}`;
  if (k.home) return `${at} of ${shown(k.home)}`;
  return at || "—";
}

/** Without the command nobody reads or writes the owner's files, so there is nothing to compare with. */
function NeedsCommand() {
  useEffect(() => {
    const timer = setInterval(() => void sessionRefresh().catch(() => {}), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  if (who.value?.ships) return null;
  return (
    <div class="warning" role="alert">
      Reviews are made by the command <code>carrel console</code>, which runs as you and may read and write your files.
      Run it in a terminal and leave it running.
    </div>
  );
}

const kinds = { pending: "warn", returned: "", shipped: "good", undone: "" };

const columns: Column<Known>[] = [
  { title: "Machine", width: "minmax(8rem, 2fr)", show: (k) => <strong>{k.name ? shown(k.name) : machineName(k.machine)}</strong> },
  { title: "Directory or repository", width: "minmax(8rem, 4fr)", show: (k) => <span title={subjectOf(k)}>{subjectOf(k)}</span> },
  { title: "Change set", width: "10rem", wide: true, show: (k) => k.changeset },
  { title: "State", width: "6rem", show: (k) => <Badge kind={kinds[k.state]}>{k.state}</Badge> },
  { title: "Frozen", width: "7rem", wide: true, show: (k) => ago(k.time) },
];

function Freeze() {
  const [machine, setMachine] = useState("");
  const live = (machines.value ?? []).filter((m) => m.state !== "ended" && m.kind !== "cell");
  const submit = (e: Event) => {
    e.preventDefault();
    if (machine) go(["review", machine]);
  };
  return (
    <form class="bar" onSubmit={submit}>
      <Field label="Machine">
        <select value={machine} onChange={(e) => setMachine(e.currentTarget.value)}>
          <option value="">choose</option>
          {live.map((m) => <option key={m.id} value={m.id}>{shown(m.name || m.id)}</option>)}
        </select>
      </Field>
      <button type="submit" class="primary" disabled={!machine}>Freeze and review</button>
    </form>
  );
}

function ReviewList() {
  useEffect(machinesWatch, []);
  const { data: all, error } = useLoad(known, [], isReview);
  const data = all?.rows.filter((k) => !k.instead);
  return (
    <>
      <div class="bar"><h1>Review</h1></div>
      <NeedsCommand />
      <Freeze />
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No change set was frozen yet.</Empty>}
      {data && data.length > 0 && (
        <Table label="Change sets" rows={data} columns={columns} id={(k) => k.changeset} open={(k) => go(["review", k.changeset])} />
      )}
      {all?.cut && (
        <p class="warning" role="status">
          Only the newest {RECORDS_MAX} records of reviews were read. For older change sets: <code>carrel audit --verb review</code>
        </p>
      )}
    </>
  );
}

function Comment({ machine, close }: { machine: string; close: () => void }) {
  const [comment, setComment] = useState("");
  const submit = async (closed: AbortSignal) => {
    const done = await order({ machine, comment }, closed);
    toast(done.output.trim() || "The comment was sent.");
  };
  return (
    <FormDialog title="Return to the model" action="Send" submit={submit} close={close}>
      <Field label="Comment" hint="Nothing is shipped. The newest run of the machine goes on with this as its next message.">
        <textarea required rows={5} value={comment} onInput={(e) => setComment(e.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}

/** Moves between files, so that a review needs no mouse. */
function step(by: number): void {
  const files = [...document.querySelectorAll<HTMLElement>(".file")];
  const at = files.findIndex((f) => f.contains(document.activeElement));
  const next = files[Math.max(0, Math.min(files.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function press(selector: string): void {
  document.activeElement?.closest(".file")?.querySelector<HTMLElement>(selector)?.click();
}

function Obsolete({ row }: { row: Known | undefined }) {
  if (!row?.instead) return null;
  const link = <a href={href(["review", row.instead.changeset])}>{row.instead.changeset}</a>;
  return (
    <p class="warning" role="status">
      {isOpen(row.instead) || row.instead.sha256 !== row.sha256
        ? <>This directory was frozen again: {link} is newer.</>
        : <>The same content was {row.instead.state} as {link}.</>}
    </p>
  );
}

function ReviewOne({ subject }: { subject: string }) {
  const [sides, setSides] = useState(window.innerWidth > 1200);
  const ready = !!who.value?.ships;
  const began = useRef(false); // what was frozen stays, with what is picked of it, if the command or the daemon is away
  began.current ||= ready;
  const { data, error, reload } = useLoad(
    async (signal) => (began.current ? reviewsRead((await order({ machine: subject }, signal)).output) : undefined),
    [subject, began.current], undefined, 0, true);
  const sets = useLoad(known, [], isReview);
  const knownOf = (id: string) => sets.data?.rows.find((k) => k.changeset === id);
  const machine = data?.[0]?.machine ?? (subject.startsWith("m-") ? subject : "");
  const comment = () => openDialog((close) => <Comment machine={machine} close={close} />);
  useEffect(machinesWatch, []);
  useKeys([
    { keys: "j", what: "Next file", repeats: true, run: () => step(1) },
    { keys: "k", what: "Previous file", repeats: true, run: () => step(-1) },
    { keys: "x", what: "Pick or leave the file", run: () => press(".bar > input") },
    { keys: "o", what: "Open or close the file", run: () => press(".fold") },
    { keys: "u", what: "One column or two", run: () => setSides(!sides) },
    { keys: "c", what: "Return to the model with a comment", run: comment },
  ]);
  return (
    <>
      <div class="bar">
        <h1><a href={href(["review"])}>Review</a> of {machine ? machineName(machine) : shown(subject)}</h1>
        <span class="space" />
        <Act class="quiet" run={() => setSides(!sides)}>{sides ? "One column" : "Two columns"}</Act>
        {subject.startsWith("m-") && <Act run={reload}>Freeze again</Act>}
        <Act off={!machine || !ready} run={comment}>Return to the model</Act>
      </div>
      <NeedsCommand />
      <Problem error={error} />
      {began.current && !data && !error && <Loading />}
      {data?.length === 0 && <Empty>This machine has nothing to ship.</Empty>}
      {data?.map((r, i) => (
        <div key={r.changeset}>
          <Obsolete row={knownOf(r.changeset)} />
          <ChangeSetView review={r} state={knownOf(r.changeset)?.state} sides={sides} first={i === 0} />
        </div>
      ))}
    </>
  );
}

export function ReviewPage({ parts }: { parts: string[] }) {
  return parts[0] ? <ReviewOne key={parts[0]} subject={parts[0]} /> : <ReviewList />;
}
