// What a machine was given: granted objects, which can be revoked. Its ports are in ports.tsx.
import { useState } from "preact/hooks";
import { api, at } from "../../api";
import type { Grant } from "../../types";
import { Act, Badge, Empty, Field, Loading, Problem } from "../../ui/basics";
import { FormDialog, openDialog } from "../../ui/dialog";
import { shown, time } from "../../ui/format";
import { useLoad } from "../../ui/load";
import type { PartProps } from "./machine";
import { Ports } from "./ports";

function SecretForm({ path, done, close }: { path: string; done: () => void; close: () => void }) {
  const secrets = useLoad((signal) => api.get<{ secrets: { name: string }[] }>("/v1/secrets", {}, signal), []);
  const [what, setWhat] = useState("");
  const [host, setHost] = useState("");
  const names = (secrets.data?.secrets ?? []).map((s) => s.name);
  const submit = async () => {
    await api.post(`${path}/grants`, { kind: "secret", what: what || names[0], at: host });
    done();
  };
  return (
    <FormDialog title="Grant a secret" action="Grant" submit={submit} close={close}>
      <p>The machine sees a placeholder. Only requests to this host carry the value.</p>
      <Problem error={secrets.error} />
      {secrets.data && names.length === 0 && <Empty>There are no secrets: see carrel secret --help.</Empty>}
      <Field label="Secret">
        <select value={what || names[0]} onChange={(e) => setWhat(e.currentTarget.value)}>
          {names.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </Field>
      <Field label="Host" hint="such as api.github.com">
        <input value={host} onInput={(e) => setHost(e.currentTarget.value)} required />
      </Field>
    </FormDialog>
  );
}

const modes: Record<string, string> = {
  ro: "read-only",
  cow: "copy-on-write: changes stay in the machine",
  rw: "read and write",
};

export function Grants({ machine, path }: PartProps) {
  const { data, error, reload } = useLoad(
    (signal) => api.get<{ grants: Grant[]; warnings?: string }>(`${path}/grants`, {}, signal),
    [machine.id],
    (e) => e.machine === machine.id,
    10_000,
  );
  const revoke = (g: Grant) => api.remove(at`/v1/machines/${machine.id}/grants/${g.id}`).then(reload);
  return (
    <>
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data?.warnings && data.warnings !== machine.warnings && <div class="warning">{shown(data.warnings)}</div>}
      <section class="panel">
        <div class="bar">
          <h2>Grants</h2>
          <span class="space" />
          <button
            type="button"
            onClick={() => openDialog((close) => <SecretForm path={path} done={reload} close={close} />)}
          >
            Grant a secret
          </button>
        </div>
        {data?.grants.length === 0 && <Empty>Nothing is granted to this machine.</Empty>}
        <ul class="list" aria-label="Grants">
          {(data?.grants ?? []).map((g) => (
            <li key={g.id}>
              <Badge kind="">{g.kind}</Badge>
              <span class="mono clip">{shown(g.what)}{g.at && g.at !== g.what ? ` → ${shown(g.at)}` : ""}</span>
              <span class="soft">{[modes[g.mode ?? ""] ?? g.mode, g.expires_ms && `until ${time(g.expires_ms)}`].filter(Boolean).join(", ")}</span>
              <span class="space" />
              <Act class="quiet" title={`Revoke ${g.id}`} run={() => revoke(g)}>Revoke</Act>
            </li>
          ))}
        </ul>
        <p class="soft">
          Files, repositories and databases are granted on their host:
          {" "}<code>carrel grant add {machine.name ?? machine.id} --file FILE</code>
        </p>
      </section>
      <Ports machine={machine} path={path} />
    </>
  );
}
