// Review: what machines want to hand over, and the decision about it.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, at, listAll } from "../api";
import { machineName, machines, machinesWatch } from "../machines";
import { order, type Review, reviewsRead } from "../orders";
import { go, href } from "../router";
import { sessionRefresh, who } from "../session";
import type { ChangeSet, HostEvent, Step } from "../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { FormDialog, openDialog } from "../ui/dialog";
import { ago, shown } from "../ui/format";
import { useKeys } from "../ui/keys";
import { useLoad } from "../ui/load";
import { sidesOf } from "../ui/sides";
import { type Column, Table } from "../ui/table";
import { toast } from "../ui/toast";
import { ChangeSetView } from "./review_set";
import "./review.css";

const REFRESH_MS = 3000;
const WAIT_MAX = 10_000; // change sets in the list, as many rows as a table takes at ease
const DECIDED_MAX = 200; // newest ones that need no decision any more

interface Sets {
  rows: ChangeSet[];
  cut: boolean; // older ones were decided about
}

/** The change sets that wait for a decision, and the newest of those that do not, newest first. */
async function known(): Promise<Sets> {
  const [waiting, decided] = await Promise.all([
    listAll<ChangeSet>("/v1/changesets", "changesets", { limit: 1000 }, WAIT_MAX),
    api.get<{ changesets: ChangeSet[]; next?: string }>("/v1/changesets", { state: "shipped,undone", limit: DECIDED_MAX }),
  ]);
  const rows = [...waiting, ...decided.changesets].sort((x, y) => y.created.localeCompare(x.created));
  return { rows, cut: !!decided.next || waiting.length >= WAIT_MAX };
}

const isReview = (e: HostEvent) => e.type.startsWith("changeset.");

/** What a change set is of, in the machine and on the host. */
function subjectOf(k: ChangeSet): string {
  const path = shown(k.slice || k.path);
  if (k.kind === "repo") return `repository ${shown(k.home ?? "")}${k.ref ? ` (${shown(k.ref)})` : ""}`;
  return k.home ? `${path} of ${shown(k.home)}` : path;
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

const kinds: Record<string, string> = { pending: "warn", shipped: "good" };

const columns: Column<ChangeSet>[] = [
  { title: "Machine", width: "minmax(8rem, 2fr)", show: (k) => <strong>{k.machine_name ? shown(k.machine_name) : machineName(k.machine)}</strong> },
  { title: "Directory or repository", width: "minmax(8rem, 4fr)", show: (k) => <span title={subjectOf(k)}>{subjectOf(k)}</span> },
  { title: "Change set", width: "10rem", wide: true, show: (k) => k.id },
  { title: "State", width: "6rem", show: (k) => <Badge kind={kinds[k.state ?? ""] ?? ""}>{k.state}</Badge> },
  { title: "Frozen", width: "7rem", wide: true, show: (k) => ago(k.created) },
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
  const { data, error } = useLoad(known, [], isReview);
  return (
    <>
      <div class="bar"><h1>Review</h1></div>
      <NeedsCommand />
      <Freeze />
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data?.rows.length === 0 && <Empty>No change set was frozen yet.</Empty>}
      {data && data.rows.length > 0 && (
        <Table label="Change sets" rows={data.rows} columns={columns} id={(k) => k.id} open={(k) => go(["review", k.id])} />
      )}
      {data?.cut && (
        <p class="soft" role="status">
          There are older change sets that were shipped or undone: <code>carrel ship --ls --all</code>
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

/** The change set, and the one that supersedes it. */
interface Found {
  row: ChangeSet;
  instead?: ChangeSet | undefined;
}

async function found(id: string): Promise<Found> {
  const row = await api.get<ChangeSet>(at`/v1/changesets/${id}`);
  if (!row.instead) return { row };
  const instead = await api.get<ChangeSet>(at`/v1/changesets/${row.instead}`).catch(() => undefined); // it may be deleted
  return { row, instead };
}

function Obsolete({ row, instead }: Found) {
  if (!instead) return null;
  const link = <a href={href(["review", instead.id])}>{instead.id}</a>;
  const decided = instead.state === "shipped" || instead.state === "undone";
  return (
    <p class="warning" role="status">
      {decided && instead.sha256 === row.sha256
        ? <>The same content was {instead.state} as {link}.</>
        : <>This directory was frozen again: {link} is newer.</>}
    </p>
  );
}

/** The names of steps of a machine, which may be deleted. */
async function stepNames(machine: string, signal: AbortSignal): Promise<Map<number, string>> {
  if (!machine) return new Map();
  const told = await api.get<{ steps: Step[] }>(at`/v1/machines/${machine}/steps`, { limit: 500 }, signal).catch(() => ({ steps: [] as Step[] }));
  return new Map(told.steps.flatMap((s) => (s.name ? [[s.number, s.name] as [number, string]] : [])));
}

interface OneProps {
  review: Review;
  to: string | undefined;
  names: Map<number, string>;
  sides: boolean;
  first: boolean;
}

function OneSet({ review, to, names, sides, first }: OneProps) {
  const { data } = useLoad(() => found(review.changeset), [review.changeset], isReview);
  return (
    <div>
      {data && <Obsolete {...data} />}
      <ChangeSetView review={review} to={to} row={data?.row} names={names} sides={sides} first={first} />
    </div>
  );
}

interface Place {
  path?: string; // in the machine
  to?: string; // directory of this host
}

const OUTBOX = "/outbox";

/** Ships a directory of the machine that came from nowhere, such as /outbox, into one of this host. */
function Elsewhere({ isMachine, opened, place, pick }: { isMachine: boolean; opened: boolean; place: Place; pick: (place: Place) => void }) {
  const [path, setPath] = useState(place.path ?? OUTBOX);
  const [to, setTo] = useState(place.to ?? "");
  const submit = (e: Event) => {
    e.preventDefault();
    pick({ ...(isMachine && { path }), to });
  };
  return (
    <details class="panel" open={opened}>
      <summary>Ship another directory, such as <code>{OUTBOX}</code></summary>
      <form class="bar elsewhere" onSubmit={submit}>
        {isMachine && (
          <Field label="Directory in the machine">
            <input class="mono" required pattern="/.*" value={path} onInput={(e) => setPath(e.currentTarget.value)} />
          </Field>
        )}
        <Field label="To the directory of this host">
          <input class="mono" required pattern="/.*" title="an absolute path" placeholder="/home/ann/results" value={to}
            onInput={(e) => setTo(e.currentTarget.value)} />
        </Field>
        <button type="submit">Freeze and review</button>
        {place.to && <button type="button" class="quiet" onClick={() => pick({})}>Back to what was handed over</button>}
      </form>
      <p class="soft">The command <code>carrel console</code> writes there, with your rights, once you have looked at it and pressed Ship.</p>
    </details>
  );
}

const RUNS = 200; // newest runs that are looked at

/** Whether a run worked in the machine, so that it can be given back to. */
function useHasRun(machine: string): boolean {
  const { data } = useLoad((signal) => api.get<{ runs: { machine: string }[] }>("/v1/runs", { limit: RUNS }, signal), [machine],
    (e) => e.type.startsWith("run."));
  const runs = data?.runs ?? [];
  return runs.length === RUNS || runs.some((r) => r.machine === machine); // an older one may be of this machine
}

function machineOf(data: Review[] | undefined, subject: string): string {
  return data?.[0]?.machine ?? (subject.startsWith("m-") ? subject : "");
}

function ReviewOne({ subject }: { subject: string }) {
  const [sides, turn] = sidesOf(window.innerWidth > 1200);
  const ready = !!who.value?.ships;
  const [place, setPlace] = useState<Place>({}); // that ships elsewhere than where it came from
  const began = useRef(false); // what was frozen stays, with what is picked of it, if the command or the daemon is away
  began.current ||= ready;
  const { data, error, reload } = useLoad(
    async (signal) => (began.current ? reviewsRead((await order({ machine: subject, ...place }, signal)).output) : undefined),
    [subject, began.current, place], undefined, 0, true);
  const machine = machineOf(data, subject);
  const hasRun = useHasRun(machine);
  const { data: names } = useLoad((signal) => stepNames(machine, signal), [machine], (e) => e.machine === machine);
  const comment = () => openDialog((close) => <Comment machine={machine} close={close} />);
  useEffect(machinesWatch, []);
  useKeys([
    { keys: "j", what: "Next file", repeats: true, run: () => step(1) },
    { keys: "k", what: "Previous file", repeats: true, run: () => step(-1) },
    { keys: "x", what: "Pick or leave the file", run: () => press(".bar > input") },
    { keys: "o", what: "Open or close the file", run: () => press(".fold") },
    { keys: "u", what: "One column or two", run: turn },
    { keys: "c", what: "Return to the model with a comment", run: () => hasRun && comment() },
  ]);
  return (
    <>
      <div class="bar">
        <h1><a href={href(["review"])}>Review</a> of {machine ? machineName(machine) : shown(subject)}</h1>
        <span class="space" />
        <Act class="quiet" run={turn}>{sides ? "One column" : "Two columns"}</Act>
        {subject.startsWith("m-") && <Act run={reload}>Freeze again</Act>}
        {hasRun && <Act off={!machine || !ready} run={comment}>Return to the model</Act>}
      </div>
      <NeedsCommand />
      <Problem error={error} />
      {began.current && !data && !error && <Loading />}
      {data?.length === 0 && <Empty>Nothing of what was handed to this machine has changed.</Empty>}
      {began.current && (
        <Elsewhere key={`${!!data?.length}`} isMachine={subject.startsWith("m-")} opened={!!error || data?.length === 0 || !!place.to}
          place={place} pick={setPlace} />
      )}
      {data?.map((r, i) => <OneSet key={r.changeset} review={r} to={place.to} names={names ?? new Map()} sides={sides} first={i === 0} />)}
    </>
  );
}

export function ReviewPage({ parts }: { parts: string[] }) {
  return parts[0] ? <ReviewOne key={parts[0]} subject={parts[0]} /> : <ReviewList />;
}
