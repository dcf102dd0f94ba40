// Names of secrets and logins. Their values can be replaced, and never be read.
import { useState } from "preact/hooks";
import { api, at } from "../api";
import { href } from "../router";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { confirmDialog, FormDialog, openDialog, openOver } from "../ui/dialog";
import { ago, shown } from "../ui/format";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";

interface Secret {
  name: string;
  created_ms: number;
  changed_ms: number;
  used_ms?: number;
}

interface Login extends Secret {
  expires_ms?: number;
  problem?: string;
}

interface PutProps {
  kind: "secrets" | "logins";
  name?: string;
  title?: string;
  done: () => void;
  close: () => void;
}

function Put({ kind, name: old, title, done, close }: PutProps) {
  const [name, setName] = useState(old ?? (kind === "logins" ? "claude" : ""));
  const [value, setValue] = useState("");
  const submit = async () => {
    await api.put(kind === "secrets" ? at`/v1/secrets/${name}` : at`/v1/logins/${name}`, { value });
    done();
  };
  const what = kind === "secrets" ? "secret" : "login";
  return (
    <FormDialog title={title ?? (old ? `Replace ${what} ${shown(old)}` : `New ${what}`)} action="Store" submit={submit} close={close}>
      <Field label="Name">
        {kind === "logins"
          ? (
            <select value={name} disabled={!!old} onChange={(e) => setName(e.currentTarget.value)}>
              <option>claude</option>
              <option>codex</option>
            </select>
          )
          : <input required value={name} disabled={!!old} placeholder="API_KEY" onInput={(e) => setName(e.currentTarget.value)} />}
      </Field>
      <Field label="Value" hint={`${kind === "secrets" ? "At least 8 characters. " : ""}Stored encrypted. It is not shown again, not even to you.`}>
        {kind === "logins"
          ? <textarea required rows={4} autocomplete="off" value={value} onInput={(e) => setValue(e.currentTarget.value)} />
          : <input required type="password" autocomplete="off" minLength={8} value={value}
              onInput={(e) => setValue(e.currentTarget.value)} />}
      </Field>
    </FormDialog>
  );
}

/** Asks for the value of a secret that something needs, also over a dialog. */
export function secretAsk(name: string, done: () => void): void {
  openOver((close) => <Put kind="secrets" name={name} title={`Store secret ${shown(name)}`} done={done} close={close} />);
}

function when(ms: number | undefined): string {
  return ms ? ago(ms) : "never";
}

interface ListProps<T extends Secret> {
  kind: "secrets" | "logins";
  title: string;
  empty: string;
  more: Column<T>[];
}

function List<T extends Secret>({ kind, title, empty, more }: ListProps<T>) {
  const { data, error, reload } = useLoad((signal) => api.get<Record<string, T[]>>(`/v1/${kind}`, {}, signal), []);
  const put = (name?: string) =>
    openDialog((close) => <Put kind={kind} {...(name ? { name } : {})} done={reload} close={close} />);
  const remove = (name: string) =>
    confirmDialog(`Delete ${shown(name)}`, "Machines that use it can no longer do so.", "Delete", async () => {
      await api.remove(kind === "secrets" ? at`/v1/secrets/${name}` : at`/v1/logins/${name}`);
      reload();
    });
  const columns: Column<T>[] = [
    { title: "Name", width: "minmax(8rem, 2fr)", show: (s) => <strong>{shown(s.name)}</strong> },
    { title: "Changed", width: "7rem", wide: true, show: (s) => when(s.changed_ms) },
    { title: "Used", width: "7rem", wide: true, show: (s) => when(s.used_ms) },
    ...more,
    {
      title: "Actions",
      width: "15rem",
      show: (s) => (
        <>
          <a class="button quiet" href={href(["audit"], { text: s.name })}>Audit</a>
          <Act class="quiet" run={() => put(s.name)}>Replace</Act>
          <Act class="quiet" run={() => remove(s.name)}>Delete</Act>
        </>
      ),
    },
  ];
  const rows = data?.[kind];
  return (
    <section>
      <div class="bar">
        <h2>{title}</h2>
        <span class="space" />
        <Act run={() => put()}>New {kind === "secrets" ? "secret" : "login"}</Act>
      </div>
      <Problem error={error} />
      {!rows && !error && <Loading />}
      {rows?.length === 0 && <Empty>{empty}</Empty>}
      {rows && rows.length > 0 && <Table label={title} rows={rows} columns={columns} id={(s) => s.name} />}
    </section>
  );
}

export function Secrets() {
  const problem: Column<Login> = {
    title: "State",
    width: "minmax(6rem, 2fr)",
    show: (l) => (l.problem ? <Badge kind="bad">{shown(l.problem)}</Badge> : <Badge kind="good">ready</Badge>),
  };
  return (
    <>
      <div class="bar"><h1>Secrets</h1></div>
      <List<Secret> kind="secrets" title="Secrets" more={[]}
        empty="No secrets are stored. A machine gets a placeholder, and the gate puts the value into requests to one host." />
      <List<Login> kind="logins" title="Logins of agents" more={[problem]} empty="No logins are stored." />
    </>
  );
}
