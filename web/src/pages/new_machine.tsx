import { useState } from "preact/hooks";
import { api } from "../api";
import { go } from "../router";
import type { Machine } from "../types";
import { Copy, Field, Problem } from "../ui/basics";
import { FormDialog } from "../ui/dialog";
import { quoted, shown } from "../ui/format";
import { useLoad } from "../ui/load";

const ROOTS_MS = 3000; // the user may be writing carrel.conf beside this form

interface Wish {
  name: string;
  kind: string;
  image: string;
  mem: string;
  cpus: string;
  ttl: string;
  dir: string;
  net: string;
}

const nothing: Wish = { name: "", kind: "box", image: "host", mem: "", cpus: "", ttl: "", dir: "", net: "" };

function targets(net: string): string[] {
  return net.split(/[\s,]+/).filter(Boolean);
}

function body(w: Wish): object {
  const limits = { ...(w.mem && { mem: w.mem }), ...(w.cpus && { cpus: Number(w.cpus) }) };
  return {
    kind: w.kind,
    image: w.image,
    ...(w.name && { name: w.name }),
    ...(Object.keys(limits).length && { limits }),
    ...(w.ttl && { ttl: w.ttl }),
    ...(w.dir && { dirs: [{ path: w.dir, mode: "cow" }] }),
    ...(w.net && { net: targets(w.net).map((target) => ({ target })) }),
  };
}

/** The command that creates the same machine. */
function command(w: Wish): string {
  const words = ["carrel", "new"];
  const option = (name: string, value: string) => value && words.push(name, quoted(value));
  option("--name", w.name);
  option("--kind", w.kind === nothing.kind ? "" : w.kind);
  option("--image", w.image === nothing.image ? "" : w.image);
  option("--mem", w.mem);
  option("--cpus", w.cpus);
  option("--ttl", w.ttl);
  option("--dir", w.dir);
  for (const target of targets(w.net)) option("--net", target);
  return words.join(" ");
}

interface Roots {
  roots: string[];
  conf: string; // path of carrel.conf, if the user of this page can write it
  of: string; // owner that a line of it names; empty: none
}

/** A page may hand over only directories below `roots`: says so while the path is typed, with the line that allows it. */
function RootsNote({ dir, told }: { dir: string; told: Roots }) {
  const path = dir.replace(/\/+$/, "");
  const isBelow = told.roots.some((r) => path === r.replace(/\/+$/, "") || path.startsWith(`${r.replace(/\/+$/, "")}/`));
  if (isBelow || (!path && told.roots.length)) return null;
  const line = `roots = ${told.of && `${told.of}:`}${path || "/srv/projects"}`;
  return (
    <div class="advice" role="status">
      {path ? "A page may not hand over this directory yet. " : "A page may hand over no directory of this host yet. "}
      {told.conf
        ? <>To allow it, add this line to section <code>[daemon]</code> of <code>{shown(told.conf)}</code>. It counts without a restart.</>
        : <>Who runs the daemon allows it with this line in section <code>[daemon]</code> of carrel.conf.</>}
      <div class="bar"><code class="command">{shown(line)}</code><Copy text={line} what="the line" /></div>
    </div>
  );
}

export function NewMachine({ close }: { close: () => void }) {
  const [wish, setWish] = useState(nothing);
  const images = useLoad((signal) => api.get<{ images: { name?: string }[] }>("/v1/images", {}, signal), []);
  const roots = useLoad(() => api.post<Roots>("/console/roots"), [], undefined, ROOTS_MS);
  const names = ["host", ...(images.data?.images ?? []).flatMap((i) => i.name ?? [])];
  const set = (name: keyof Wish) => (e: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    setWish({ ...wish, [name]: e.currentTarget.value });
  const below = (roots.data?.roots ?? []).map(shown).join(" or ");
  const submit = async () => {
    const made = await api.post<Machine>("/v1/machines", body(wish));
    go(["machines", made.id]);
  };
  return (
    <FormDialog title="New machine" action="Create" submit={submit} close={close}>
      <Field label="Name" hint="letters, digits, hyphens, dots and underscores; empty: it is known by its id">
        <input value={wish.name} onInput={set("name")} autofocus />
      </Field>
      <Field label="Kind">
        <select value={wish.kind} onChange={set("kind")}>
          <option value="box">box: Linux programs</option>
          <option value="cell">cell: WebAssembly programs</option>
        </select>
      </Field>
      <Field label="Image">
        <select value={wish.image} onChange={set("image")}>
          {[...new Set(names)].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </Field>
      <Field label="Memory" hint="at most, such as 512M or 4G; empty: 2G, or the default of carrel.conf"><input value={wish.mem} onInput={set("mem")} /></Field>
      <Field label="Processors" hint="at most, such as 0.5 or 2; empty: no limit"><input type="number" min="0" step="any" value={wish.cpus} onInput={set("cpus")} /></Field>
      <Field label="Delete after" hint="such as 30m or 8h; empty: never"><input value={wish.ttl} onInput={set("ttl")} /></Field>
      <Field label="Directory" hint={`of this host, granted as a copy${below && `; below ${below}`}`}>
        <input value={wish.dir} onInput={set("dir")} placeholder="/srv/projects/shop" list="roots" />
      </Field>
      <datalist id="roots">{roots.data?.roots.map((r) => <option key={r} value={r} />)}</datalist>
      {roots.data && <RootsNote dir={wish.dir} told={roots.data} />}
      <Problem error={roots.error} />
      <Field label="Network" hint="hosts and presets that it may reach, such as pip, api.github.com">
        <input value={wish.net} onInput={set("net")} />
      </Field>
      <p class="soft">The same as a command:</p>
      <div class="bar"><code class="command">{command(wish)}</code><Copy text={command(wish)} /></div>
    </FormDialog>
  );
}
