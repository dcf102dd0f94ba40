// Files of a machine: browse, view, edit, upload, download. Content is shown as text or as a picture,
// never as a page.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, ApiError, contentOf, download, listAll, request, withQuery } from "../../api";
import { go, route } from "../../router";
import type { Entry } from "../../types";
import { Act, Empty, Field, Loading, Problem } from "../../ui/basics";
import { confirmDialog, FormDialog, openDialog } from "../../ui/dialog";
import { ago, bytes, shown } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { type Column, Table } from "../../ui/table";
import { toast, toastError } from "../../ui/toast";
import type { PartProps } from "./machine";

const VIEW_MAX = 1 << 20;
const PICTURE_MAX = 8 << 20;
const pictures: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

function join(dir: string, name: string): string {
  return dir === "/" ? `/${name}` : `${dir}/${name}`;
}

function pictureType(path: string): string | undefined {
  return pictures[path.split(".").at(-1)!.toLowerCase()];
}

/** SHA-256 of what was read, so that a save does not overwrite the changes of somebody else. */
async function hashOf(content: ArrayBuffer): Promise<string> {
  if (!crypto.subtle) return ""; // only where the page is not from this host
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return [...hash].map((b) => b.toString(16).padStart(2, "0")).join("");
}

function Picture({ content, type }: { content: ArrayBuffer; type: string }) {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([content], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [content]);
  return url ? <img class="picture" src={url} alt="Content of the file" /> : null;
}

/** The text of UTF-8 bytes, or undefined if they are none or contain a zero byte. */
function textOf(content: ArrayBuffer): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

function FileText({ target, path, content, done }: { target: string; path: string; content: ArrayBuffer; done: () => void }) {
  const [text, setText] = useState(() => textOf(content));
  const [old] = useState(text);
  if (text === undefined) return <Empty>This file is not text. Download it to look at it.</Empty>;
  const save = async () => {
    const write = api.put<{ size: number }>(target, text, { path, if_hash: await hashOf(content) });
    const written = await write.catch((e) => {
      if (e instanceof ApiError && e.status === 412)
        throw new Error("The file has changed since it was opened, so it was not saved. Copy your text, and open the file again.");
      throw e;
    });
    toast(`Saved ${bytes(written.size)}.`);
    done();
  };
  return (
    <>
      <textarea
        class="editor"
        aria-label="Content of the file"
        spellcheck={false}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
      />
      <div class="bar">
        <span class="space" />
        <Act class="primary" off={text === old} run={save}>Save</Act>
      </div>
    </>
  );
}

function FileView({ target, path, close }: { target: string; path: string; close: () => void }) {
  const type = pictureType(path);
  const { data, error, reload } = useLoad(async (signal) => {
    const { size } = await api.get<Entry>(`${target}/stat`, { path, follow: true }, signal);
    const max = type ? PICTURE_MAX : VIEW_MAX;
    if (size > max) return { size };
    const answer = await request("GET", withQuery(target, { path }), { signal });
    return { size, content: await contentOf(answer, max), read: Date.now() };
  }, [path]);
  const name = path.split("/").at(-1)!;
  return (
    <section class="panel" aria-label="File">
      <div class="bar">
        <h2 class="mono">{shown(path)}</h2>
        <span class="soft">{data && bytes(data.size)}</span>
        <span class="space" />
        <Act run={() => download(withQuery(target, { path }), name)}>Download</Act>
        <button type="button" onClick={close}>Close</button>
      </div>
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data && !data.content && <Empty>This file is too large to show. Download it to look at it.</Empty>}
      {data?.content && type && <Picture content={data.content} type={type} />}
      {data?.content && !type && <FileText key={data.read} target={target} path={path} content={data.content} done={reload} />}
    </section>
  );
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
  const upload = async (files: FileList | null) => {
    for (const f of files ?? []) await api.put(target, f, { path: join(dir, f.name) });
    if (files?.length) toast("Uploaded.");
    reload();
  };
  const send = (files: FileList | null) => void upload(files).catch(toastError);
  const remove = (e: Entry) =>
    confirmDialog(`Delete ${shown(e.name)}`, "A step before it may still have it: see the timeline.", "Delete", () =>
      api.remove(target, { path: join(dir, e.name), recursive: e.type === "directory" }).then(reload),
    );
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
        send(e.dataTransfer?.files ?? null);
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
        <input ref={input} type="file" multiple hidden onChange={(e) => send(e.currentTarget.files)} />
      </div>
      {file && <FileView key={file} target={target} path={file} close={() => place({ dir })} />}
      <Problem error={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>This folder is empty.</Empty>}
      {data && data.length > 0 && (
        <Table label="Files" rows={[...data].sort(order)} columns={columns} id={(e) => e.name} open={(e) => void openEntry(e)} />
      )}
    </div>
  );
}
