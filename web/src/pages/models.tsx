// What the models cost, and which there are.
import { useState } from "preact/hooks";
import { api } from "../api";
import { href } from "../router";
import { who } from "../session";
import { Act, Badge, Copy, Empty, Field, Loading, Problem } from "../ui/basics";
import { shown } from "../ui/format";
import { useLoad } from "../ui/load";
import { Plot } from "../ui/plot";
import { type Column, Table } from "../ui/table";
import { secretAsk } from "./secrets";

export const MODELS_MS = 5000; // a key that is stored has no event

interface Usage {
  day?: string;
  model?: string;
  machine?: string;
  owner?: string;
  name?: string; // of the machine, if it has one
  calls: number;
  tokens: number;
  in: number;
  cache_read: number;
  out: number;
  money: number;
}

interface UsageList {
  currency: string;
  usage: Usage[];
}

export interface Provider {
  name: string;
  key_env?: string; // variable of the daemon's environment that holds the key
  key_secret?: string; // or the secret
  format: string;
  ready: boolean;
  url?: string;
  missing?: string;
}

/** What a provider still needs, and how a user of this page gives it. */
export function ProviderNeeds({ provider: p, stored }: { provider: Provider; stored: () => void }) {
  if (p.ready) return null;
  const store = (name: string) => <Act class="quiet" run={() => secretAsk(name, stored)}>Store the key</Act>;
  const line = `provider = ${p.name} format=${p.format} url=${p.url} key_secret=${p.key_env}`;
  if (p.key_secret)
    return (
      <div class="advice">
        The key of {shown(p.name)} is missing. {store(p.key_secret)} as the secret <code>{shown(p.key_secret)}</code>: it counts
        at once.
      </div>
    );
  if (!p.key_env) return <div class="advice">{shown(p.missing ?? "")}</div>;
  return (
    <div class="advice">
      The key of {shown(p.name)} is missing. The daemon looks for the variable <code>{shown(p.key_env)}</code> in its own
      environment, which is not that of your shell: start the daemon again with it.
      {p.url && (
        <>
          {" "}Or add this line to section <code>[models]</code> of carrel.conf, start the daemon again, and
          {" "}{store(p.key_env)} as the secret <code>{shown(p.key_env)}</code>:
          <div class="bar"><code>{shown(line)}</code><Copy text={line} what="the line" /></div>
        </>
      )}
    </div>
  );
}

function ProviderKey({ provider: p }: { provider: Provider }) {
  const key = p.key_secret ?? p.key_env;
  if (!key) return p.ready ? <span class="soft">no key needed</span> : null;
  return (
    <span class="soft">
      key: {p.ready ? "set" : "not set"}, from the {p.key_secret ? "secret" : "daemon’s variable"} <code>{shown(key)}</code>
    </span>
  );
}

interface ModelList {
  default: string;
  currency: string;
  providers: Provider[];
  aliases: { name: string; models: string[] }[];
  models: { name: string; window?: number; in?: number; out?: number }[];
}

const number = (n: number) => n.toLocaleString("en", { maximumFractionDigits: 0, notation: n >= 1e6 ? "compact" : "standard" });
const money = (n: number) => n.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const day = (text: string) => Date.parse(`${text}T00:00:00Z`) / 1000;

/** Days without calls are in the plot too. */
function allDays(rows: Usage[], days: number): { times: number[]; find: (time: number) => Usage | undefined } {
  const today = Math.floor(Date.now() / 86_400_000) * 86_400;
  const times = Array.from({ length: days }, (_, i) => today - (days - 1 - i) * 86_400);
  const known = new Map(rows.map((r) => [day(r.day ?? ""), r]));
  return { times, find: (time) => known.get(time) };
}

function Days({ list, days }: { list: UsageList; days: number }) {
  const { times, find } = allDays(list.usage, days);
  const values = (of: (u: Usage) => number) => times.map((t) => { const u = find(t); return u ? of(u) : 0; });
  return (
    <div class="plots">
      <Plot title={`Cost per day in ${list.currency}`} times={times} bars format={money}
        series={[{ title: "cost", values: values((u) => u.money) }]} />
      <Plot title="Tokens per day" times={times} bars format={number}
        series={[{ title: "tokens", values: values((u) => u.tokens) }]} />
    </div>
  );
}

type Grouped = "model" | "machine" | "owner";

function UsageKey({ by, row }: { by: Grouped; row: Usage }) {
  const key = row[by] ?? "";
  if (by !== "machine") return <>{shown(key)}</>;
  if (!key) return <span class="soft">no machine</span>;
  return <a href={href(["machines", key])}>{shown(row.name ?? key)}</a>;
}

function By({ by, title, list }: { by: Grouped; title: string; list: UsageList }) {
  const columns: Column<Usage>[] = [
    { title, width: "minmax(8rem, 2fr)", show: (u) => <UsageKey by={by} row={u} /> },
    { title: "Calls", width: "5rem", wide: true, show: (u) => number(u.calls) },
    { title: "Tokens", width: "6rem", show: (u) => number(u.tokens) },
    { title: "Input", width: "6rem", wide: true, show: (u) => number(u.in) },
    { title: "Cached", width: "6rem", wide: true, show: (u) => number(u.cache_read) },
    { title: "Output", width: "6rem", wide: true, show: (u) => number(u.out) },
    { title: list.currency, width: "6rem", show: (u) => money(u.money) },
  ];
  return <Table label={`Usage by ${by}`} rows={list.usage} columns={columns} id={(u) => u[by] ?? ""} />;
}

function Known({ list, stored }: { list: ModelList; stored: () => void }) {
  return (
    <section class="panel">
      <h2>Providers</h2>
      <dl class="facts stack">
        {list.providers.map((p) => (
          <div class="fact" key={p.name}>
            <dt>{shown(p.name)} {p.format !== p.name && <span class="soft">({p.format})</span>}</dt>
            <dd>
              {p.ready ? <Badge kind="good">ready</Badge> : <Badge kind="warn">not ready</Badge>} <ProviderKey provider={p} />
              {p.url && <span class="soft">{" "}· {shown(p.url)}</span>}
              {!p.ready && <details><summary>What is missing</summary><ProviderNeeds provider={p} stored={stored} /></details>}
            </dd>
          </div>
        ))}
        {list.aliases.map((a) => (
          <div class="fact" key={a.name}><dt>{shown(a.name)}</dt><dd>{a.models.map(shown).join(", then ")}</dd></div>
        ))}
        {list.models.map((m) => (
          <div class="fact" key={m.name}>
            <dt>{shown(m.name)}</dt>
            <dd>input {m.in ?? "–"}, output {m.out ?? "–"} {list.currency} per million tokens; window {m.window ?? "–"}</dd>
          </div>
        ))}
      </dl>
      <p class="soft">{list.default ? `Runs that name no model use ${shown(list.default)}.` : "There is no default model: each run names one."}</p>
    </section>
  );
}

export function Models() {
  const [days, setDays] = useState(30);
  const usage = (by: string) => (signal: AbortSignal) => api.get<UsageList>("/v1/models/usage", { by, days }, signal);
  const ends = (e: { type: string }) => e.type === "run.end";
  const models = useLoad((signal) => api.get<ModelList>("/v1/models", {}, signal), [], undefined, MODELS_MS);
  const perDay = useLoad(usage("day"), [days], ends);
  const perModel = useLoad(usage("model"), [days], ends);
  const perMachine = useLoad(usage("machine"), [days], ends);
  const perOwner = useLoad(usage("owner"), [days], ends);
  const error = perOwner.error ?? models.error ?? perDay.error ?? perModel.error ?? perMachine.error;
  const none = perModel.data?.usage.length === 0;
  return (
    <>
      <div class="bar">
        <h1>Models</h1>
        <span class="space" />
        <Field label="Days">
          <select value={days} onChange={(e) => setDays(Number(e.currentTarget.value))}>
            {[7, 30, 90].map((n) => <option key={n} value={n}>{n}</option>)}
          </select>
        </Field>
      </div>
      <Problem error={error} />
      {!perDay.data && !error && <Loading />}
      {none && <Empty>No model was called in these days.</Empty>}
      {!none && perDay.data && <Days list={perDay.data} days={days} />}
      {!none && perModel.data && <By by="model" title="Model" list={perModel.data} />}
      {!none && perMachine.data && <By by="machine" title="Machine" list={perMachine.data} />}
      {(perOwner.data?.usage.length ?? 0) > 0 && who.value?.admin && <By by="owner" title="Owner" list={perOwner.data!} />}
      {models.data && <Known list={models.data} stored={() => void models.reload()} />}
    </>
  );
}
