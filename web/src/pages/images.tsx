// Images and their builds.
import { useState } from "preact/hooks";
import { api, at, download, jsonLines } from "../api";
import { Act, Badge, Empty, Field, Loading, Problem } from "../ui/basics";
import { confirmDialog, Dialog, FormDialog, openDialog } from "../ui/dialog";
import { ago, bytes, count, shown, shownOutput } from "../ui/format";
import { useLoad } from "../ui/load";
import { type Column, Table } from "../ui/table";
import { toast } from "../ui/toast";

interface Image {
  id: string;
  name: string;
  owner: string;
  origin?: string;
  created: string;
  bytes: number;
  machines: number;
  layers: number;
}

interface Build {
  id: string;
  name?: string;
  state: "uploading" | "running" | "done" | "failed" | "cancelled";
  step: number;
  steps: number;
  what?: string;
  started?: string;
  error?: string;
  remedy?: string;
}

interface LogLine {
  type: "step" | "output" | "end";
  step?: number;
  what?: string;
  data?: string;
  data_base64?: string;
}

const kinds = { done: "good", failed: "bad", cancelled: "bad", running: "warn", uploading: "warn" };

function NewName({ image, done, close }: { image: Image; done: () => void; close: () => void }) {
  const [name, setName] = useState("");
  const submit = async () => {
    await api.post(at`/v1/images/${image.id}/names`, { name });
    done();
  };
  return (
    <FormDialog title={`Another name for ${shown(image.name)}`} action="Add" submit={submit} close={close}>
      <Field label="Name" hint="If another image has this name, it loses it.">
        <input required maxLength={63} value={name} onInput={(e) => setName(e.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}

function logText(lines: LogLine[]): string {
  return lines
    .map((l) => (l.type === "step" ? `── step ${l.step}: ${l.what}\n` : l.data ?? (l.data_base64 ? atob(l.data_base64) : "")))
    .join("");
}

function Log({ build, close }: { build: Build; close: () => void }) {
  const { data, error } = useLoad(async () => {
    const lines: LogLine[] = [];
    for await (const line of jsonLines<LogLine>("GET", at`/v1/images/builds/${build.id}/log`)) lines.push(line);
    return lines;
  }, [build.id], (e) => e.type.startsWith("image"));
  return (
    <Dialog title={`Build of ${shown(build.name ?? build.id)}`} close={close} wide>
      <div>
        <Problem error={error} />
        {build.error && <p class="problem">{shown(build.error)} {shown(build.remedy ?? "")}</p>}
        <pre>{data ? shownOutput(logText(data)) : ""}</pre>
      </div>
    </Dialog>
  );
}

const builds: Column<Build>[] = [
  { title: "Build", width: "9.5rem", show: (b) => b.id },
  { title: "Image", width: "minmax(6rem, 1fr)", show: (b) => shown(b.name ?? "") },
  { title: "State", width: "6rem", show: (b) => <Badge kind={kinds[b.state]}>{b.state}</Badge> },
  { title: "Step", width: "5rem", wide: true, show: (b) => `${b.step}/${b.steps}` },
  { title: "What", width: "minmax(6rem, 3fr)", wide: true, show: (b) => shown(b.error ?? b.what ?? "") },
];

function Builds() {
  const { data, error } = useLoad(
    (signal) => api.get<{ builds: Build[] }>("/v1/images/builds", {}, signal), [], (e) => e.type.startsWith("image"));
  const rows = data?.builds ?? [];
  if (error) return <Problem error={error} />;
  if (rows.length === 0) return null;
  return (
    <section>
      <div class="bar"><h2>Builds</h2></div>
      <Table label="Builds" rows={rows} columns={builds} id={(b) => b.id}
        open={(b) => openDialog((close) => <Log build={b} close={close} />)} />
    </section>
  );
}

export function Images() {
  const { data, error, reload } = useLoad(
    (signal) => api.get<{ images: Image[] }>("/v1/images", {}, signal), [], (e) => e.type.startsWith("image"));
  const remove = (i: Image) =>
    confirmDialog(`Delete ${shown(i.name)}`, "Its files stay while machines use them.", "Delete", async () => {
      await api.remove(at`/v1/images/${i.name}`);
      reload();
    });
  const prune = async () => {
    const freed = await api.post<{ removed: number; bytes: number }>("/v1/images/prune");
    toast(`Deleted ${count(freed.removed, "name")}, ${bytes(freed.bytes)}.`);
    reload();
  };
  const columns: Column<Image>[] = [
    { title: "Name", width: "minmax(8rem, 2fr)", show: (i) => <strong>{shown(i.name)}</strong> },
    { title: "Id", width: "9rem", wide: true, show: (i) => <code>{i.id}</code> },
    { title: "Size", width: "6rem", wide: true, show: (i) => bytes(i.bytes) },
    { title: "Layers", width: "4rem", wide: true, show: (i) => i.layers },
    { title: "Machines", width: "5rem", wide: true, show: (i) => i.machines || "" },
    { title: "From", width: "minmax(5rem, 1fr)", wide: true, show: (i) => shown(i.origin ?? "") },
    { title: "Created", width: "6rem", wide: true, show: (i) => ago(i.created) },
    {
      title: "Actions",
      width: "15rem",
      show: (i) => (
        <>
          <Act class="quiet" run={() => openDialog((close) => <NewName image={i} done={reload} close={close} />)}>Name</Act>
          <Act class="quiet" run={() => download(at`/v1/images/${i.id}/archive`, `${i.name}.tar`)}>Download</Act>
          <Act class="quiet" run={() => remove(i)}>Delete</Act>
        </>
      ),
    },
  ];
  const rows = data?.images;
  return (
    <>
      <div class="bar">
        <h1>Images</h1>
        <span class="space" />
        <Act run={prune} title="Delete intermediate images of builds that no machine uses">Prune</Act>
      </div>
      <Problem error={error} />
      {!rows && !error && <Loading />}
      {rows?.length === 0 && (
        <Empty>
          No images. Without one, machines start from this host's own programs. On the host, <code>carrel image pull debian:12</code> gets
          one from a registry, and <code>carrel image build DIR</code> makes one from a Dockerfile.
        </Empty>
      )}
      {rows && rows.length > 0 && <Table label="Images" rows={rows} columns={columns} id={(i) => i.name} />}
      <Builds />
    </>
  );
}
