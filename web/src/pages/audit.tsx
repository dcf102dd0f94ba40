// The journal: search it, follow it, verify it.
import { useEffect, useState } from "preact/hooks";
import { api, jsonLines, withQuery } from "../api";
import { onEvent } from "../events";
import { go, route } from "../router";
import type { AuditRecord } from "../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { Dialog, openDialog } from "../ui/dialog";
import { commandLine, shown, time } from "../ui/format";
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

const TAIL = 1000;
const FOLLOW_MS = 500;
const TYPED_MS = 300;

function subject(r: AuditRecord): string {
  if (r.argv?.length) return commandLine(r.argv);
  if (r.reason) return r.reason;
  return r.detail === undefined ? "" : JSON.stringify(r.detail);
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

async function records(query: Record<string, string>): Promise<AuditRecord[]> {
  const rows: AuditRecord[] = [];
  const target = withQuery("/v1/audit", { tail: TAIL, ...query });
  for await (const r of jsonLines<AuditRecord>("GET", target)) rows.push(r);
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
          <dd>{told.records} in {told.segments} files, from number {told.first}; signed up to {told.signed}</dd>
          {told.head && <><dt>Head</dt><dd><code>{told.head}</code></dd></>}
          {told.segment && <><dt>Place</dt><dd>{told.segment}, line {told.line}, record {told.seq}</dd></>}
        </dl>
      )}</div>
    </details>
  );
}

/** A value that changes once nobody has typed for a moment. */
function useTyped(value: string): string {
  const [typed, setTyped] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setTyped(value), TYPED_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return typed;
}

export function Audit() {
  const query = route.value.query;
  const machine = query.get("machine") ?? "";
  const verb = query.get("verb") ?? "";
  const [text, setText] = useState(query.get("text") ?? "");
  const [follow, setFollow] = useState(true);
  const wanted = useTyped(text).trim();
  const { data, error, reload } = useLoad(() => records({ machine, verb, text: wanted }), [machine, verb, wanted]);
  useEffect(() => {
    if (!follow) return;
    let timer = 0;
    const stop = onEvent(() => {
      timer ||= window.setTimeout(() => { timer = 0; reload(); }, FOLLOW_MS);
    });
    return () => { stop(); clearTimeout(timer); };
  }, [follow]);
  useKeys([{ keys: "/", what: "Search the journal", run: () => document.getElementById("search")?.focus() }]);
  const set = (name: string, value: string) => {
    const next: Record<string, string> = { machine, verb, text: wanted, [name]: value.trim() };
    go(["audit"], Object.fromEntries(Object.entries(next).filter(([, v]) => v)), true);
  };
  useEffect(() => {
    if (wanted !== (query.get("text") ?? "")) set("text", wanted); // a reload searches for it again
  }, [wanted]);
  const rows = data ?? [];
  return (
    <>
      <div class="bar">
        <h1>Audit</h1>
        <input id="search" type="search" placeholder="Search" aria-label="Search the journal" value={text}
          onInput={(e) => setText(e.currentTarget.value)} />
        <input placeholder="Machine" aria-label="Machine" value={machine} onChange={(e) => set("machine", e.currentTarget.value)} />
        <input placeholder="Action, such as review" aria-label="Action" value={verb}
          onChange={(e) => set("verb", e.currentTarget.value)} />
        <label><input type="checkbox" checked={follow} onChange={() => setFollow(!follow)} /> Follow</label>
      </div>
      <Verify />
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data && rows.length === 0 && <Empty>No record matches.</Empty>}
      {rows.length > 0 && <Table label="Records" rows={rows} columns={columns} id={(r) => String(r.seq)} open={show} />}
      {data?.length === TAIL && <Empty>These are the newest {TAIL} records. Search, or name a machine or an action, to see earlier ones.</Empty>}
    </>
  );
}
