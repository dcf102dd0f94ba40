// Tokens: who may use the API over TCP, and with which rights.
import { useRef, useState } from "preact/hooks";
import { api, at } from "../api";
import { who } from "../session";
import { Act, Badge, Copy, Empty, Field, Loading, Problem } from "../ui/basics";
import { confirmDialog, Dialog, FormDialog, openDialog } from "../ui/dialog";
import { ago, bytes, duration, shown } from "../ui/format";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";

interface Token {
  id: string;
  owner: string;
  note?: string;
  secret?: string;
  scopes: string;
  created: string;
  used?: string;
  revoked?: string;
  machines?: number;
  cpus?: number;
  mem?: number;
  disk?: number;
  max_ttl_ms?: number;
}

const scopes = [
  { name: "read", what: "see machines, files, runs and the journal" },
  { name: "run", what: "make and use machines" },
  { name: "admin", what: "decide: rules, grants, secrets, approvals, every owner" },
];

function Created({ token, close }: { token: Token; close: () => void }) {
  return (
    <Dialog title="Token created" close={close}>
      <div>
        <p>Copy it now: it is not shown again.</p>
        <pre>{token.secret}</pre>
        <footer>
          <Copy text={token.secret ?? ""} />
          <button type="button" class="primary" onClick={close}>Done</button>
        </footer>
      </div>
    </Dialog>
  );
}

function NewToken({ done, close }: { done: () => void; close: () => void }) {
  const [note, setNote] = useState("");
  const [owner, setOwner] = useState("");
  const [chosen, setChosen] = useState(["read", "run"]);
  const [machines, setMachines] = useState("");
  const [mem, setMem] = useState("");
  const made = useRef<Token>(undefined);
  const submit = async () => {
    const body: Record<string, unknown> = { scopes: chosen };
    if (note) body.note = note;
    if (owner) body.owner = owner;
    if (machines) body.machines = Number(machines);
    if (mem) body.mem = mem;
    made.current = await api.post<Token>("/v1/tokens", body);
    done();
  };
  const end = () => {
    const token = made.current;
    if (token) openDialog((shut) => <Created token={token} close={shut} />);
    else close();
  };
  const toggle = (name: string) =>
    setChosen(chosen.includes(name) ? chosen.filter((s) => s !== name) : [...chosen, name]);
  return (
    <FormDialog title="New token" action="Create" submit={submit} close={end}>
      <Field label="Note" hint="What the token is for.">
        <input value={note} maxLength={63} onInput={(e) => setNote(e.currentTarget.value)} />
      </Field>
      {who.value?.admin && (
        <Field label="Owner" hint={`Who owns what it makes. Default: ${who.value.owner}.`}>
          <input value={owner} maxLength={63} onInput={(e) => setOwner(e.currentTarget.value)} />
        </Field>
      )}
      {scopes.map((s) => (
        <label class="field line" key={s.name}>
          <input type="checkbox" checked={chosen.includes(s.name)} onChange={() => toggle(s.name)} />
          <b>{s.name}</b> {s.what}
        </label>
      ))}
      <Field label="Machines at most" hint="Empty: unlimited.">
        <input type="number" min={0} value={machines} onInput={(e) => setMachines(e.currentTarget.value)} />
      </Field>
      <Field label="Memory of all its machines" hint="Such as 8G. Empty: unlimited.">
        <input value={mem} onInput={(e) => setMem(e.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}

function quotas(t: Token): string {
  const all = [
    t.machines && `${t.machines} machines`,
    t.cpus && `${t.cpus} CPUs`,
    t.mem && `${bytes(t.mem)} of memory`,
    t.disk && `${bytes(t.disk)} of disk`,
    t.max_ttl_ms && `${duration(t.max_ttl_ms)} each`,
  ];
  return all.filter(Boolean).join(", ") || "unlimited";
}

function Owners({ tokens }: { tokens: Token[] }) {
  const names = [...new Set(tokens.map((t) => t.owner))].sort();
  return (
    <section class="panel">
      <h2>Owners</h2>
      <dl class="facts">
        {names.map((name) => {
          const own = tokens.filter((t) => t.owner === name);
          const live = own.filter((t) => !t.revoked).length;
          return (
            <div class="fact" key={name}>
              <dt>{shown(name)}</dt>
              <dd>{live} valid, {own.length - live} revoked</dd>
            </div>
          );
        })}
      </dl>
    </section>
  );
}

export function Tokens() {
  const { data, error, reload } = useLoad((signal) => api.get<{ tokens: Token[] }>("/v1/tokens", {}, signal), []);
  const revoke = (t: Token) =>
    confirmDialog(`Revoke ${shown(t.note || t.id)}`, "Clients that use it are refused at once.", "Revoke", async () => {
      await api.remove(at`/v1/tokens/${t.id}`);
      reload();
    });
  const create = () => openDialog((close) => <NewToken done={reload} close={close} />);
  const columns: Column<Token>[] = [
    { title: "Token", width: "9.5rem", show: (t) => t.id },
    { title: "Note", width: "minmax(6rem, 2fr)", show: (t) => shown(t.note ?? "") },
    { title: "Owner", width: "minmax(5rem, 1fr)", wide: true, show: (t) => shown(t.owner) },
    { title: "Scopes", width: "8rem", wide: true, show: (t) => t.scopes },
    { title: "Quota", width: "minmax(6rem, 2fr)", wide: true, show: quotas },
    { title: "Used", width: "6rem", wide: true, show: (t) => (t.used ? ago(t.used) : "never") },
    {
      title: "State",
      width: "6rem",
      show: (t) => (t.revoked
        ? <Badge kind="bad">revoked</Badge>
        : <Act class="quiet" run={() => revoke(t)}>Revoke</Act>),
    },
  ];
  const rows = data?.tokens;
  return (
    <>
      <div class="bar">
        <h1>Tokens and owners</h1>
        <span class="space" />
        <Act class="primary" run={create}>New token</Act>
      </div>
      <Problem error={error} />
      {!rows && !error && <Loading />}
      {rows?.length === 0 && <Empty>No tokens. On this host, the unix socket needs none.</Empty>}
      {rows && rows.length > 0 && (
        <>
          <Table label="Tokens" rows={rows} columns={columns} id={(t) => t.id} />
          <Owners tokens={rows} />
        </>
      )}
    </>
  );
}
