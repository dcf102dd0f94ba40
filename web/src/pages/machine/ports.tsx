// Ports of a machine that can be reached, each at an origin of its own, and a preview of one in a frame.
import { useState } from "preact/hooks";
import { api } from "../../api";
import { portUrl, portUrlForget, portUrlKeep } from "../../ports";
import { go, route } from "../../router";
import { frames } from "../../session";
import type { Port } from "../../types";
import { Act, Badge, Copy, Empty, Field, Problem } from "../../ui/basics";
import { FormDialog, openDialog } from "../../ui/dialog";
import { useLoad } from "../../ui/load";
import type { PartProps } from "./machine";

interface FormProps {
  machine: string;
  path: string;
  done: (port: number) => void;
  close: () => void;
}

function PortForm({ machine, path, done, close }: FormProps) {
  const [port, setPort] = useState("");
  const submit = async () => {
    const made = await api.post<Port>(`${path}/exposures`, { port: Number(port) });
    portUrlKeep(machine, made.port, made.url);
    done(made.port);
  };
  return (
    <FormDialog title="Expose a port" action="Expose" submit={submit} close={close}>
      <p>The port gets an address of its own, another origin than this page. Its URL holds a token.</p>
      <Field label="Port in the machine">
        <input type="number" min="1" max="65535" value={port} onInput={(e) => setPort(e.currentTarget.value)} required autofocus />
      </Field>
    </FormDialog>
  );
}

/** Why this page cannot show the port in a frame; empty: it can. */
function noPreview(url: URL, isPublic: boolean): string {
  if (url.protocol === "http:" && !url.hostname.endsWith(".localhost") && !isPublic)
    return "Browsers keep the token of a preview only over TLS: set certificate and certificate_key in [gate] of carrel.conf.";
  return "";
}

/** The policy of the page was made when it was loaded, and allows only the origins that were there then. */
function isAllowed(url: URL): boolean {
  return frames() === `${url.protocol}//*${url.host.slice(url.host.indexOf("."))}`;
}

/**
 * The machine's page in a frame. It has its own origin, so it cannot read or change this page; the
 * sandbox keeps it from leaving the frame, opening windows and dialogs, and downloading.
 */
function Preview({ url, port, close }: { url: string; port: number; close: () => void }) {
  const [loads, setLoads] = useState(0);
  return (
    <section class="panel" aria-label={`Preview of port ${port}`}>
      <div class="bar">
        <h2>Preview of port {port}</h2>
        <span class="space" />
        <button type="button" onClick={() => setLoads(loads + 1)}>Reload</button>
        <button type="button" onClick={close}>Close</button>
      </div>
      <iframe
        key={loads}
        class="preview"
        title={`Port ${port} of the machine`}
        src={url}
        sandbox="allow-forms allow-same-origin allow-scripts"
        referrerpolicy="no-referrer"
      />
    </section>
  );
}

function PortRow({ machine, port, preview, remove }: { machine: string; port: Port; preview: () => void; remove: () => Promise<void> }) {
  const url = port.public ? port.url : portUrl(machine, port.port);
  const why = noPreview(new URL(port.url), port.public ?? false);
  return (
    <li>
      <b>{port.port}</b>
      {port.public && <Badge kind="warn">public</Badge>}
      <span class="mono clip">{port.url}</span>
      <span class="space" />
      {url && <button type="button" disabled={why !== ""} title={why} onClick={preview}>Preview</button>}
      {url && <a class="button" href={url} target="_blank" rel="noopener noreferrer">Open</a>}
      {url && <Copy text={url} />}
      <Act class="quiet" title={`Close port ${port.port}`} run={remove}>Close</Act>
      {url && why && <p class="soft">{why}</p>}
    </li>
  );
}

export function Ports({ machine, path }: PartProps) {
  const { data, error, reload } = useLoad(
    (signal) => api.get<{ exposures: Port[] }>(`${path}/exposures`, {}, signal),
    [machine.id],
    (e) => e.machine === machine.id,
  );
  const ports = data?.exposures ?? [];
  const urlOf = (p: Port) => (p.public ? p.url : portUrl(machine.id, p.port));
  const show = (port?: number) => go(["machines", machine.id], { tab: "grants", ...(port && { preview: String(port) }) }, true);
  const preview = (p: Port) => {
    show(p.port);
    if (!isAllowed(new URL(p.url))) location.reload();
  };
  const remove = async (p: Port) => {
    await api.remove(`${path}/exposures/${p.port}`);
    portUrlForget(machine.id, p.port);
    reload();
  };
  const shown = ports.find((p) => String(p.port) === route.value.query.get("preview"));
  const url = shown && isAllowed(new URL(shown.url)) ? urlOf(shown) : undefined;
  const local = ports.some((p) => new URL(p.url).hostname.endsWith(".localhost"));
  return (
    <>
      <section class="panel">
        <div class="bar">
          <h2>Ports</h2>
          <span class="space" />
          <button
            type="button"
            onClick={() => openDialog((close) => <PortForm machine={machine.id} path={path} done={reload} close={close} />)}
          >
            Expose a port
          </button>
        </div>
        <Problem error={error} />
        {data && ports.length === 0 && <Empty>No port can be reached from outside.</Empty>}
        <ul class="list" aria-label="Ports">
          {ports.map((p) => (
            <PortRow key={p.port} machine={machine.id} port={p} preview={() => preview(p)} remove={() => remove(p)} />
          ))}
        </ul>
        {ports.some((p) => !urlOf(p)) && (
          <p class="soft">The token of a port is known only to the tab that exposed it. Expose the port again for another one.</p>
        )}
        {local && (
          <p class="soft">
            Addresses below .localhost work in browsers on the host of the daemon. For others, set domain in [gate] of carrel.conf.
          </p>
        )}
      </section>
      {shown && url && <Preview key={shown.port} url={url} port={shown.port} close={() => show()} />}
    </>
  );
}
