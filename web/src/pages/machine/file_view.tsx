// One file of a machine: view, edit, save. The agent works on the same files, so a save overwrites nothing that the
// user has not seen, without a question. Content is shown as text or as a picture, never as a page.
import { useEffect, useMemo, useState } from "preact/hooks";
import { api, ApiError, contentOf, download, request, withQuery } from "../../api";
import type { Entry } from "../../types";
import { Act, Empty, Loading, Problem } from "../../ui/basics";
import { FormDialog, openDialog } from "../../ui/dialog";
import { ago, bytes, shown, time } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { toast } from "../../ui/toast";
import { leave, unsavedSet } from "../../ui/unsaved";

const VIEW_MAX = 1 << 20;
const PICTURE_MAX = 8 << 20;
const pictures: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

function pictureType(path: string): string | undefined {
  return pictures[path.split(".").at(-1)!.toLowerCase()];
}

/** SHA-256 of what was read, so that a save does not overwrite the changes of somebody else. */
async function hashOf(content: BufferSource): Promise<string> {
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
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

interface Version {
  size: number;
  modified: string;
}

interface Opened extends Version {
  content?: ArrayBuffer; // undefined: too large to show
}

type Shown = Opened & { content: ArrayBuffer };

/** A browser edits lines that end with \n only. Those of Windows are written back as they were. */
function linesOf(content: ArrayBuffer): { text: string | undefined; end: string; mixed: boolean } {
  const text = textOf(content);
  const lines = text?.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
  const windows = !!text?.includes("\r\n");
  return { text: lines, end: windows ? "\r\n" : "\n", mixed: text !== (windows ? lines?.replaceAll("\n", "\r\n") : lines) };
}

/** The entry of a path, or null if there is none. */
export async function entryOf(target: string, path: string, signal?: AbortSignal): Promise<Entry | null> {
  return api.get<Entry>(`${target}/stat`, { path, follow: true }, signal).catch((e) => {
    if (e instanceof ApiError && e.status === 404) return null;
    throw e;
  });
}

async function fileOpen(target: string, path: string, max: number, signal?: AbortSignal): Promise<Opened> {
  const { size, modified } = await api.get<Entry>(`${target}/stat`, { path, follow: true }, signal);
  if (size > max) return { size, modified };
  const answer = await request("GET", withQuery(target, { path }), { signal });
  return { size, modified, content: await contentOf(answer, max) };
}

const isOther = (a: Version, b: Version) => a.modified !== b.modified || a.size !== b.size;

interface Save {
  target: string;
  path: string;
  text: string;
  saved: () => Promise<void>;
}

const isUnmet = (e: unknown) => e instanceof ApiError && e.status === 412;

/** What is in the machine now, and the condition of a save that overwrites it and nothing else. */
async function present(target: string, path: string): Promise<{ there: Entry | null; if_hash: string }> {
  const there = await entryOf(target, path);
  if (!there) return { there, if_hash: "absent" };
  const { content } = await fileOpen(target, path, VIEW_MAX);
  return { there, if_hash: content ? await hashOf(content) : "" };
}

/** The machine has another version than the one that was opened: which one is to stay? */
async function askOverwrite({ target, path, text, saved }: Save): Promise<void> {
  const { there, if_hash } = await present(target, path);
  const submit = async () => {
    await api.put(target, text, { path, if_hash }).catch((e) => {
      throw isUnmet(e) ? new Error("The file has changed once more. Cancel, and press Save again to compare with the newest version.") : e;
    });
    await saved();
  };
  const size = bytes(new Blob([text]).size);
  openDialog((close) => (
    <FormDialog title={there ? "Overwrite the machine's version?" : "Make the file again?"} action={there ? "Overwrite" : "Make it"}
      danger={!!there} submit={submit} close={close}>
      <p><code>{shown(path)}</code> has {there ? "changed" : "been deleted"} in the machine since you opened it.</p>
      <dl class="facts">
        <dt>In the machine</dt>
        <dd>{there ? <>{bytes(there.size)}, changed <span title={time(there.modified)}>{ago(there.modified)}</span></> : "no file"}</dd>
        <dt>Your text</dt>
        <dd>{size}</dd>
      </dl>
    </FormDialog>
  ));
}

interface TextProps {
  target: string;
  path: string;
  opened: Shown;
  now: Entry | null | undefined; // null: the machine has deleted the file; undefined: not known
  reload: () => void;
}

function FileText({ target, path, opened, now, reload }: TextProps) {
  const [base, setBase] = useState(opened);
  const { text: old, end, mixed } = useMemo(() => linesOf(base.content), [base]);
  const [text, setText] = useState(old);
  const [taken, setTaken] = useState(opened);
  const changed = text !== old;
  const take = () => {
    setTaken(opened);
    setBase(opened);
    setText(linesOf(opened.content).text);
  };
  useEffect(() => {
    if (opened !== taken && !changed) take(); // what the machine has written since
  }, [opened, changed]);
  useEffect(() => {
    unsavedSet(changed ? path : "");
    return () => unsavedSet("");
  }, [changed]);
  if (text === undefined) return <Empty>This file is not text. Download it to look at it.</Empty>;
  const other = now === null || (now !== undefined && isOther(now, base));
  const bytesOf = text.replaceAll("\n", end);
  const saved = async () => {
    const content = new TextEncoder().encode(bytesOf);
    const { modified } = await api.get<Entry>(`${target}/stat`, { path, follow: true });
    setTaken(opened);
    setBase({ content: content.buffer, size: content.length, modified });
    toast(`Saved ${bytes(content.length)}.`);
    reload();
  };
  const save = async () => {
    try {
      await api.put(target, bytesOf, { path, if_hash: await hashOf(base.content) });
    } catch (e) {
      if (!isUnmet(e)) throw e;
      return askOverwrite({ target, path, text: bytesOf, saved });
    }
    await saved();
  };
  const discard = () => {
    setText(old);
    reload();
  };
  return (
    <>
      {other && changed && (
        <div class="warning bar" role="status">
          <span>
            {now ? `This file has changed in the machine since you opened it: it had ${bytes(base.size)} and has ${bytes(now.size)} now.`
              : "This file was deleted in the machine since you opened it."} Your text is not saved.
          </span>
          {now && <button type="button" onClick={() => leave(discard)}>Show the machine's version</button>}
        </div>
      )}
      {mixed && <div class="warning">The ends of its lines differ: a save makes all of them {end === "\n" ? "\\n" : "\\r\\n"}.</div>}
      {now === null && !changed && <div class="warning" role="status">This file was deleted in the machine since you opened it.</div>}
      <textarea
        class="editor"
        aria-label="Content of the file"
        spellcheck={false}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
      />
      <div class="bar">
        <span class="soft" role="status">{changed && "Not saved yet"}</span>
        <span class="space" />
        <Act class="primary" off={!changed && now !== null} run={save}>Save</Act>
      </div>
    </>
  );
}

interface ViewProps {
  machine: string;
  target: string;
  path: string;
  close: () => void;
}

export function FileView({ machine, target, path, close }: ViewProps) {
  const type = pictureType(path);
  const { data, error, reload } = useLoad((signal) => fileOpen(target, path, type ? PICTURE_MAX : VIEW_MAX, signal), [path], undefined, 0, true);
  const { data: told, reload: look } = useLoad(async (signal) => ({ now: await entryOf(target, path, signal) }), [path], (e) => e.machine === machine);
  const now = told?.now;
  useEffect(() => {
    if (data && now && isOther(now, data)) reload();
  }, [now]);
  useEffect(() => {
    window.addEventListener("focus", look);
    return () => window.removeEventListener("focus", look);
  }, []);
  const again = () => {
    reload();
    look();
  };
  const name = path.split("/").at(-1)!;
  return (
    <section class="panel" aria-label="File">
      <div class="bar">
        <h2 class="mono">{shown(path)}</h2>
        <span class="soft">{data && bytes((now ?? data).size)}</span>
        <span class="space" />
        <Act run={() => download(withQuery(target, { path }), name)}>Download</Act>
        <button type="button" onClick={close}>Close</button>
      </div>
      <Problem error={now === null && data ? undefined : error} />
      {!data && !error && <Loading />}
      {data && !data.content && <Empty>This file is too large to show. Download it to look at it.</Empty>}
      {data?.content && type && <Picture content={data.content} type={type} />}
      {data?.content && !type && (
        <FileText target={target} path={path} opened={data as Shown} now={now} reload={again} />
      )}
    </section>
  );
}
