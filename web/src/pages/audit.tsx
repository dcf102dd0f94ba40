// The journal: search it, follow it, verify it.
import { useEffect, useState } from "preact/hooks";
import { api, ApiError, jsonLines, withQuery } from "../api";
import { onEvent } from "../events";
import { machines, machinesWatch } from "../machines";
import { go, route } from "../router";
import { who } from "../session";
import type { AuditRecord } from "../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { Dialog, openDialog } from "../ui/dialog";
import { commandLine, count, shown, time } from "../ui/format";
import { useKeys } from "../ui/keys";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";

interface Verification {
  whole: boolean;
  records: number;
  segments: number;
  first: number;
  head?: string;
  signed?: number;
  problem?: string;
  segment?: string;
  line?: number;
  seq?: number;
}

interface Filters {
  machine: string;
  verb: string;
  text: string;
}

const TAIL = 1000;
const FOLLOW_MS = 500;
const TYPED_MS = 300;

/** A part of a record's detail in words: lists with commas, the parts of an object with their names. */
function words(value: unknown): string {
  if (Array.isArray(value)) return value.map(words).join(", ");
  if (value && typeof value === "object")
    return Object.entries(value).filter(([, v]) => v !== "" && v !== null).map(([name, v]) => `${name.replaceAll("_", " ")} ${words(v)}`).join(", ");
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

function subject(r: AuditRecord): string {
  if (r.argv?.length) return commandLine(r.argv);
  if (r.reason) return r.reason;
  return r.detail === undefined || r.detail === null ? "" : words(r.detail);
}

const columns: Column<AuditRecord>[] = [
  { title: "Record", width: "5rem", narrow: "3.5rem", show: (r) => r.seq },
  { title: "Time", width: "11rem", wide: true, show: (r) => time(r.time) },
  { title: "Action", width: "minmax(8rem, 1fr)", narrow: "minmax(8.5rem, 3fr)", show: (r) => shown(r.verb) },
  { title: "Kind", width: "4.5rem", wide: true, show: (r) => <Badge kind={r.kind === "intent" ? "warn" : ""}>{r.kind}</Badge> },
  { title: "Machine", width: "9.5rem", wide: true, show: (r) => shown(r.machine ?? "") },
  { title: "Owner", width: "6rem", wide: true, show: (r) => shown(r.owner ?? "") },
  { title: "Subject", width: "minmax(8rem, 3fr)", narrow: "minmax(0, 2fr)", show: (r) => shown(subject(r)) },
];

function show(r: AuditRecord): void {
  openDialog((close) => (
    <Dialog title={`Record ${r.seq}`} close={close} wide>
      <pre>{shown(JSON.stringify(r, null, 2)).replaceAll("\\u000a", "\n")}</pre>
    </Dialog>
  ));
}

/** The newest records that match; null: no machine has that name or id, perhaps because it is still being typed. */
async function records(filters: Filters): Promise<AuditRecord[] | null> {
  const rows: AuditRecord[] = [];
  const target = withQuery("/v1/audit", { tail: TAIL, ...filters });
  try {
    for await (const r of jsonLines<AuditRecord>("GET", target)) rows.push(r);
  } catch (e) {
    if (filters.machine && e instanceof ApiError && e.status === 404) return null;
    throw e;
  }
  return rows.reverse();
}

function Verify() {
  const [head, setHead] = useState("");
  const [told, setTold] = useState<Verification>();
  const run = async () => {
    setTold(undefined);
    setTold(await api.get<Verification>("/v1/audit/verify", { head: head.trim() }));
  };
  return (
    <details class="panel">
      <summary>Verify the journal</summary>
      <Field label="Head that you kept" hint="SEQ:HASH, from the system log or from an earlier check. Optional.">
        <input value={head} spellcheck={false} onInput={(e) => setHead(e.currentTarget.value)} />
      </Field>
      <Act class="primary" run={run}>Verify</Act>
      <div role="status">{told && (
        <dl class="facts verified">
          <dt>Result</dt>
          <dd>{told.whole ? <Badge kind="good">complete</Badge> : <Badge kind="bad">damaged</Badge>} {shown(told.problem ?? "")}</dd>
          <dt>Records</dt>
          <dd>{told.records} in {count(told.segments, "file")}, from number {told.first}{told.signed ? `; signed up to ${told.signed}` : ""}</dd>
          {told.head && <><dt>Head</dt><dd><code>{told.head}</code></dd></>}
          {told.segment && <><dt>Place</dt><dd>{told.segment}, line {told.line}, record {told.seq}</dd></>}
        </dl>
      )}</div>
    </details>
  );
}

/** A value that changes once nobody has typed for a moment. */
function useTyped<T>(value: T): T {
  const [typed, setTyped] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setTyped(value), TYPED_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return typed;
}

const same = (a: Filters, b: Filters) => a.machine === b.machine && a.verb === b.verb && a.text === b.text;

/** The filters of the address, which follow what is typed: a reload searches for the same. */
function useFilters(): { typed: Filters; wanted: Filters; type: (part: Partial<Filters>) => void } {
  const at = (name: string) => route.value.query.get(name) ?? "";
  const asked = { machine: at("machine"), verb: at("verb"), text: at("text") };
  const [typed, setTyped] = useState(asked);
  const late = useTyped(typed);
  const wanted = { machine: late.machine.trim(), verb: late.verb.trim(), text: late.text.trim() };
  useEffect(() => {
    if (!same(wanted, asked)) setTyped(asked); // a link led to other filters
  }, [route.value]);
  useEffect(() => {
    if (!same(wanted, asked)) go(["audit"], Object.fromEntries(Object.entries(wanted).filter(([, v]) => v)), true);
  }, [wanted.machine, wanted.verb, wanted.text]);
  return { typed, wanted, type: (part) => setTyped({ ...typed, ...part }) };
}

/** Numbers count all records of the journal, so those that are shown have gaps. */
function Gaps({ rows, filters }: { rows: AuditRecord[]; filters: Filters }) {
  const gap = rows.some((r, i) => i > 0 && rows[i - 1]!.seq !== r.seq + 1);
  if (!gap || Object.values(filters).some(Boolean)) return null;
  return (
    <p class="soft">
      Numbers that are not listed are signatures of the journal{who.value?.admin ? "" : ", or records of other owners"}: nothing is missing.
      Verify checks all of them.
    </p>
  );
}

export function Audit() {
  const { typed, wanted, type } = useFilters();
  const [follow, setFollow] = useState(true);
  const { data, error, reload } = useLoad(() => records(wanted), [wanted.machine, wanted.verb, wanted.text]);
  useEffect(() => {
    if (!follow) return;
    let timer = 0;
    const stop = onEvent(() => {
      timer ||= window.setTimeout(() => { timer = 0; reload(); }, FOLLOW_MS);
    });
    return () => { stop(); clearTimeout(timer); };
  }, [follow]);
  useEffect(machinesWatch, []);
  useKeys([{ keys: "/", what: "Search the journal", run: () => document.getElementById("search")?.focus() }]);
  const rows = data ?? [];
  return (
    <>
      <div class="bar">
        <h1>Audit</h1>
        <input id="search" type="search" placeholder="Search" aria-label="Search the journal" value={typed.text}
          onInput={(e) => type({ text: e.currentTarget.value })} />
        <input placeholder="Machine: name or id" aria-label="Machine" list="audit-machines" value={typed.machine} onInput={(e) => type({ machine: e.currentTarget.value })} />
        <input placeholder="Action, such as review" aria-label="Action" value={typed.verb} onInput={(e) => type({ verb: e.currentTarget.value })} />
        <datalist id="audit-machines">
          {(machines.value ?? []).flatMap((m) => (m.name ? <option key={m.id} value={m.name} /> : []))}
        </datalist>
        <label><input type="checkbox" checked={follow} onChange={() => setFollow(!follow)} /> Follow</label>
      </div>
      <Verify />
      <Problem error={error} />
      {data === undefined && !error && <Loading />}
      {data === null && <Empty>No machine has the name or id {shown(wanted.machine)}.</Empty>}
      {data?.length === 0 && <Empty>No record matches.{wanted.verb && " An action is a whole word, such as review or machine.create."}</Empty>}
      <Gaps rows={rows} filters={wanted} />
      {rows.length > 0 && <Table label="Records" rows={rows} columns={columns} id={(r) => String(r.seq)} open={show} />}
      {data?.length === TAIL && <Empty>These are the newest {TAIL} records. Search, or name a machine or an action, to see earlier ones.</Empty>}
    </>
  );
}
