// Files of a machine: browse, upload, download, delete. file_view.tsx shows one.
import { useRef, useState } from "preact/hooks";
import { api, download, listAll, withQuery } from "../../api";
import { go, route } from "../../router";
import type { Entry, Grant } from "../../types";
import { Act, Empty, Field, Loading, Problem } from "../../ui/basics";
import { confirmDialog, FormDialog, openDialog } from "../../ui/dialog";
import { ago, bytes, count, shown } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { type Column, Table } from "../../ui/table";
import { toast, toastError } from "../../ui/toast";
import { entryOf, FileView } from "./file_view";
import type { PartProps } from "./machine";

function join(dir: string, name: string): string {
  return dir === "/" ? `/${name}` : `${dir}/${name}`;
}

function NewFolder({ target, dir, done, close }: { target: string; dir: string; done: () => void; close: () => void }) {
  const [name, setName] = useState("");
  const submit = () => api.post(`${target}/mkdir`, { path: join(dir, name) }).then(done);
  return (
    <FormDialog title="New folder" action="Create" submit={submit} close={close}>
      <Field label="Name"><input value={name} onInput={(e) => setName(e.currentTarget.value)} required autofocus /></Field>
    </FormDialog>
  );
}

interface Upload {
  file: File;
  path: string;
  there: Entry | null; // what the machine has in its place
}

async function uploadsOf(target: string, dir: string, files: File[]): Promise<Upload[]> {
  const uploads: Upload[] = [];
  for (const file of files) {
    const path = join(dir, file.name);
    const there = await entryOf(target, path);
    if (there?.type === "directory") throw new Error(`${file.name} was not uploaded: the machine has a folder of this name.`);
    uploads.push({ file, path, there });
  }
  return uploads;
}

/** A name that was free is taken only if it still is. */
async function send(target: string, uploads: Upload[]): Promise<void> {
  for (const { file, path, there } of uploads) await api.put(target, file, { path, if_hash: there ? "" : "absent" });
  toast(`Uploaded ${count(uploads.length, "file")}.`);
}

function Overwrite({ uploads, submit, close }: { uploads: Upload[]; submit: () => Promise<void>; close: () => void }) {
  const taken = uploads.filter((u) => u.there);
  return (
    <FormDialog title={`Overwrite ${count(taken.length, "file")}?`} action="Overwrite" danger submit={submit} close={close}>
      <p>The machine has {taken.length === 1 ? "a file of this name" : "files of these names"} already. If you cancel, nothing is uploaded.</p>
      <dl class="facts sizes">
        {taken.slice(0, NAMES_MAX).map(({ file, path, there }) => [
          <dt key={path}><code>{shown(file.name)}</code></dt>,
          <dd>{bytes(there!.size)} in the machine, changed {ago(there!.modified)}; yours has {bytes(file.size)}</dd>,
        ])}
      </dl>
      {taken.length > NAMES_MAX && <p>And {taken.length - NAMES_MAX} more.</p>}
    </FormDialog>
  );
}

/** What a deletion means depends on where the file is: steps contain only what belongs to the machine. */
function deletionOf(path: string, grants: Grant[]): string {
  const above = grants
    .filter((g) => (g.kind === "dir" || g.kind === "volume") && g.at && (path === g.at || path.startsWith(`${g.at}/`)))
    .sort((a, b) => b.at!.length - a.at!.length)[0];
  if (!above) return "A step that was taken before may still have it: see the timeline.";
  if (above.kind === "volume") return "It is on a volume, which steps do not contain: no rewind brings it back.";
  if (above.mode === "ro") return "It is in a directory that the machine may only read, so it cannot be deleted here.";
  if (above.mode === "cow")
    return "It is in a granted directory, which steps do not contain: no rewind brings it back. Your own file stays until you ship the deletion.";
  return "It is in a directory of the host that this machine may write: your own file is deleted, and no rewind brings it back.";
}

function Crumbs({ dir, open }: { dir: string; open: (path: string) => void }) {
  const parts = dir.split("/").filter(Boolean);
  return (
    <span class="crumbs mono">
      <button type="button" class="quiet" aria-label="Root folder" onClick={() => open("/")}>/</button>
      {parts.map((part, i) => (
        <button key={i} type="button" class="quiet" onClick={() => open(`/${parts.slice(0, i + 1).join("/")}`)}>
          {shown(part)}/
        </button>
      ))}
    </span>
  );
}

const NAMES_MAX = 20; // in a dialog

const order = (a: Entry, b: Entry) =>
  Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name);

/** The folder of the address, or the one in which commands start. */
export function Files(props: PartProps) {
  const home = props.machine.home ?? "/";
  const dir = route.value.query.get("dir") ?? props.machine.cwd ?? home;
  return <Folder {...props} dir={dir} home={home} />;
}

function Folder({ machine, path: of, dir, home }: PartProps & { dir: string; home: string }) {
  const file = route.value.query.get("file");
  const target = `${of}/files`;
  const input = useRef<HTMLInputElement>(null);
  const { data, error, reload } = useLoad(
    () => listAll<Entry>(`${target}/list`, "entries", { path: dir, limit: 10_000 }, 50_000),
    [machine.id, dir],
    (e) => e.machine === machine.id,
  );
  const place = (query: Record<string, string>) => go(["machines", machine.id], { tab: "files", ...query });
  const openEntry = async (e: Entry) => {
    const path = join(dir, e.name);
    const lists = () => api.get(`${target}/list`, { path, limit: 1 }).then(() => true, () => false);
    const folder = e.type === "directory" || (e.type === "symlink" && (await lists()));
    place(folder ? { dir: path } : { dir, file: path });
  };
  const upload = async (files: File[]) => {
    if (!files.length) return;
    const uploads = await uploadsOf(target, dir, files);
    const submit = () => send(target, uploads).finally(reload);
    if (uploads.every((u) => !u.there)) return submit();
    openDialog((close) => <Overwrite uploads={uploads} submit={submit} close={close} />);
  };
  const take = (files: FileList | null | undefined) => void upload([...(files ?? [])]).catch(toastError);
  const remove = async (e: Entry) => {
    const path = join(dir, e.name);
    const { grants } = await api.get<{ grants: Grant[] }>(`${of}/grants`);
    confirmDialog(`Delete ${shown(e.name)}`, deletionOf(path, grants), "Delete", async () => {
      await api.remove(target, { path, recursive: e.type === "directory" });
      if (file === path) place({ dir });
      reload();
    });
  };
  const columns: Column<Entry>[] = [
    {
      title: "Name",
      width: "minmax(9rem, 3fr)",
      show: (e) => (
        <span class="mono">
          {shown(e.name)}
          {e.type === "directory" && "/"}
          {e.type === "symlink" && <span class="soft"> (link)</span>}
        </span>
      ),
    },
    { title: "Size", width: "6rem", show: (e) => (e.type === "file" ? bytes(e.size) : "") },
    { title: "Mode", width: "4rem", wide: true, show: (e) => e.mode },
    { title: "Changed", width: "7rem", wide: true, show: (e) => ago(e.modified) },
    {
      title: "Actions",
      width: "5rem",
      show: (e) => (
        <span onClick={(event) => event.stopPropagation()}>
          <Act class="quiet" title={`Delete ${shown(e.name)}`} run={() => remove(e)}>Delete</Act>
        </span>
      ),
    },
  ];
  return (
    <div
      onDragOver={(e) => e.preventDefault()}
      onDrop={(e) => {
        e.preventDefault();
        take(e.dataTransfer?.files);
      }}
    >
      <div class="bar">
        <Crumbs dir={dir} open={(to) => place({ dir: to })} />
        {dir !== home && <button type="button" class="quiet" onClick={() => place({ dir: home })}>Home</button>}
        <span class="space" />
        <button type="button" onClick={() => openDialog((close) => <NewFolder target={target} dir={dir} done={reload} close={close} />)}>
          New folder
        </button>
        <button type="button" onClick={() => input.current?.click()}>Upload</button>
        <Act run={() => download(withQuery(`${target}/tar`, { path: dir }), `${dir.split("/").at(-1) || "root"}.tar`)}>
          Download folder
        </Act>
        <input ref={input} type="file" multiple hidden onChange={(e) => {
          take(e.currentTarget.files);
          e.currentTarget.value = ""; // so that the same file can be picked again
        }} />
      </div>
      {file && <FileView key={file} machine={machine.id} target={target} path={file} close={() => place({ dir })} />}
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>This folder is empty.</Empty>}
      {data && data.length > 0 && (
        <Table label="Files" rows={[...data].sort(order)} columns={columns} id={(e) => e.name} open={(e) => void openEntry(e)} />
      )}
    </div>
  );
}
