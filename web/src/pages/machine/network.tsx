// What a machine may reach, what it reached, and what it was refused, with the rule that would allow it.
import { useState } from "preact/hooks";
import { api, jsonLines, withQuery } from "../../api";
import { pending, pendingText } from "../../approvals";
import { href } from "../../router";
import type { AuditRecord, NetRule, Network } from "../../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../../ui/basics";
import { confirmDialog, FormDialog, openDialog } from "../../ui/dialog";
import { ago, bytes, count, quoted, shown, time } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { toast } from "../../ui/toast";
import type { PartProps } from "./machine";

const SEEN_MS = 3000; // a connection that is allowed makes no event
const RECORDS = 500; // newest records of the journal that are looked at
const NOT_PUBLIC = /^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|localhost$)/;

interface Crossing {
  failed?: boolean; // a rule or the owner allowed it, and the server could not be reached
  host?: string;
  port?: number;
  protocol?: string;
  method?: string;
  path?: string;
}

interface Place {
  target: string;
  verb: string;
  times: number;
  last: number;
  reason: string;
  crossing: Crossing;
}

/** The narrowest rule for a whole host: its scheme, its name and a port that is not the usual one. */
function targetOf(c: Crossing): string {
  const host = c.host ?? "";
  if (c.protocol === "tls") return `https://${host}${c.port === 443 ? "" : `:${c.port}`}`;
  if (c.protocol === "http") return `http://${host}${c.port === 80 ? "" : `:${c.port}`}`;
  return `tcp://${host}:${c.port}`;
}

function placesOf(records: AuditRecord[]): Place[] {
  const all = new Map<string, Place>();
  for (const r of records) {
    const c = r.detail as Crossing | undefined;
    if (!c?.host || (r.verb !== "net.allow" && r.verb !== "net.deny")) continue;
    const key = `${r.verb} ${targetOf(c)} ${c.failed ?? false}`;
    const times = (all.get(key)?.times ?? 0) + 1;
    all.set(key, { target: targetOf(c), verb: r.verb, times, last: r.time, reason: r.reason ?? "", crossing: c });
  }
  return [...all.values()].sort((a, b) => b.last - a.last);
}

async function records(machine: string, signal: AbortSignal): Promise<AuditRecord[]> {
  const all: AuditRecord[] = [];
  const target = withQuery("/v1/audit", { machine, verb: "net", tail: RECORDS });
  for await (const r of jsonLines<AuditRecord>("GET", target, { signal })) all.push(r);
  return all;
}

interface RuleProps {
  path: string;
  name: string;
  target: string;
  done: () => Promise<void>;
  close: () => void;
}

function RuleForm({ path, name, target: given, done, close }: RuleProps) {
  const [action, setAction] = useState("allow");
  const [target, setTarget] = useState(given);
  const [methods, setMethods] = useState("");
  const [local, setLocal] = useState(NOT_PUBLIC.test(given.replace(/^\w+:\/\//, "")));
  const [ttl, setTtl] = useState("");
  const rule = {
    action,
    target,
    ...(methods && { methods }),
    ...(local && { local }),
    ...(ttl && { ttl }),
  };
  const words = ["carrel", "net", quoted(name), action];
  if (local) words.push("--local");
  if (methods) words.push("--method", quoted(methods));
  if (ttl) words.push("--for", quoted(ttl));
  words.push(quoted(target));
  const submit = async () => {
    await api.post(`${path}/net/rules`, rule);
    await done();
    toast("The rule is in force.");
  };
  return (
    <FormDialog title="Add a rule" action="Add this rule" submit={submit} close={close}>
      <Field label="Action">
        <select value={action} onChange={(e) => setAction(e.currentTarget.value)}>
          <option value="allow">allow</option>
          <option value="ask">ask each time</option>
          <option value="deny">deny</option>
        </select>
      </Field>
      <Field label="Target" hint="[http://|https://|tcp://]HOST[:PORT][/PATH], or apt, npm, pip, cargo, go">
        <input class="mono" value={target} onInput={(e) => setTarget(e.currentTarget.value)} required autofocus />
      </Field>
      <Field label="HTTP methods" hint="such as GET,HEAD; empty: all">
        <input value={methods} onInput={(e) => setMethods(e.currentTarget.value)} />
      </Field>
      <Field label="Delete after" hint="such as 30m; empty: never">
        <input value={ttl} onInput={(e) => setTtl(e.currentTarget.value)} />
      </Field>
      <label class="field line">
        <input type="checkbox" checked={local} onChange={() => setLocal(!local)} />
        Also private addresses and this host
      </label>
      <p class="soft">The exact rule, as a command:</p>
      <pre>{words.join(" ")}</pre>
    </FormDialog>
  );
}

function ruleText(r: NetRule): string {
  const parts = [
    r.methods,
    r.exact && "this path only",
    r.local && "also private addresses",
    r.trusted && "trusted",
    r.tainted && "also when tainted",
    r.bytes && `at most ${bytes(r.bytes)}`,
    r.rate && `${bytes(r.rate)} per second`,
    r.expires && `until ${time(r.expires)}`,
    r.preset && `preset ${r.preset}`,
  ];
  return parts.filter(Boolean).join(", ");
}

const colours: Record<string, string> = { allow: "good", deny: "bad", ask: "warn" };

function Rules({ path, rules, done }: { path: string; rules: NetRule[]; done: () => void }) {
  if (rules.length === 0) return <Empty>No rule: the machine reaches nothing.</Empty>;
  const remove = (r: NetRule) => api.remove(`${path}/net/rules/${r.id}`).then(done);
  return (
    <ul class="list" aria-label="Rules">
      {rules.map((r) => (
        <li key={r.id}>
          <Badge kind={colours[r.action] ?? ""}>{r.action}</Badge>
          <span class="mono clip">{shown(r.target)}{r.query ? `?${shown(r.query)}` : ""}</span>
          <span class="soft">{ruleText(r)}</span>
          <span class="space" />
          <Act class="quiet" title={`Delete rule ${r.id}`} run={() => remove(r)}>Delete</Act>
        </li>
      ))}
    </ul>
  );
}

/** Requests that the gate holds until somebody decides. */
function Held({ machine }: { machine: string }) {
  const held = (pending.value ?? []).filter((p) => p.machine === machine && !p.approved && p.protocol !== "question");
  if (held.length === 0) return null;
  return (
    <section class="panel">
      <h2>Held</h2>
      <ul class="list" aria-label="Held">
        {held.map((p) => (
          <li key={p.id}>
            <Badge kind="warn">held</Badge>
            <span class="mono clip">{pendingText(p)}</span>
            <span class="soft">{ago(p.since_ms)}</span>
            <span class="space" />
            <a href={href(["approvals"])}>Decide…</a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Outcome({ place: { verb, crossing } }: { place: Place }) {
  if (verb === "net.allow") return <Badge kind="good">reached</Badge>;
  if (!crossing.failed) return <Badge kind="bad">refused</Badge>;
  return <span title="It was allowed, but the server could not be reached."><Badge kind="warn">not reached</Badge></span>;
}

/** A guard closes the network once the machine has read untrusted data. */
function Guard({ net, name, path, done }: { net: Network; name: string; path: string; done: () => Promise<void> }) {
  if (net.guarded) return <span title="The network closes once the machine has read untrusted data."><Badge kind="good">guarded</Badge></span>;
  const text = `${net.tainted ? "It has read untrusted data, so its network closes now" : "Once it has read untrusted data, its network closes"}:
    only presets, rules for tainted machines and requests that you approve go on. This cannot be undone.`;
  const guard = () => confirmDialog(`Guard ${shown(name)}`, text, "Guard", async () => {
    await api.post(`${path}/net/guard`);
    await done();
  });
  return <Act title="Guard: close the network once the machine has read untrusted data" run={guard}>Guard…</Act>;
}

export function NetworkPart({ machine, path }: PartProps) {
  const mine = (e: { machine?: string }) => e.machine === machine.id;
  const net = useLoad<Network>((signal) => api.get(`${path}/net`, {}, signal), [machine.id], mine);
  const seen = useLoad((signal) => records(machine.id, signal).then(placesOf), [machine.id], mine, SEEN_MS);
  const name = machine.name ?? machine.id;
  const add = (target: string) =>
    openDialog((close) => <RuleForm path={path} name={name} target={target} done={net.reload} close={close} />);
  const data = net.data;
  return (
    <>
      <Problem error={net.error} />
      {!data && !net.error && <Loading />}
      {data?.warnings && data.warnings !== machine.warnings && <div class="warning">{shown(data.warnings)}</div>}
      {data?.tainted && <div class="warning">It has read untrusted data: {shown(data.tainted)}</div>}
      {data && (
        <section class="panel">
          <div class="bar">
            <h2>Rules</h2>
            <span class="soft">the newest one that matches decides; everything else is refused</span>
            <span class="space" />
            <button type="button" class="primary" onClick={() => add("")}>Add a rule</button>
            <Guard net={data} name={name} path={path} done={net.reload} />
          </div>
          <Rules path={path} rules={[...data.rules].reverse()} done={net.reload} />
        </section>
      )}
      <Held machine={machine.id} />
      <section class="panel">
        <h2>Reached and refused</h2>
        <Problem error={seen.error} />
        {seen.data?.length === 0 && <Empty>Nothing was reached or refused yet.</Empty>}
        <ul class="list" aria-label="Reached and refused">
          {(seen.data ?? []).map((p) => (
            <li key={`${p.verb} ${p.target} ${p.crossing.failed}`}>
              <Outcome place={p} />
              <span class="mono clip">{shown(p.target)}</span>
              <span class="soft">{count(p.times, "time")}, {ago(p.last)}{p.reason && `: ${shown(p.reason)}`}</span>
              <span class="space" />
              {p.verb === "net.deny" && !p.crossing.failed && <button type="button" onClick={() => add(p.target)}>Allow…</button>}
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}
