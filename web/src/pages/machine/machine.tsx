import "./machine.css";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { api, at } from "../../api";
import { go, href, route, subject } from "../../router";
import type { Machine } from "../../types";
import { Act, Loading, Problem, State, Tabs } from "../../ui/basics";
import { confirmDialog } from "../../ui/dialog";
import { bytes, shown, time } from "../../ui/format";
import { useLoad } from "../../ui/load";
import { Commands } from "./commands";
import { Desktop } from "./desktop";
import { Files } from "./files";
import { Grants } from "./grants";
import { NetworkPart } from "./network";
import { Terminals } from "./terminals";
import { Timeline } from "./timeline";

export interface PartProps {
  machine: Machine;
  path: string; // of the machine in the API
}

const tabs: { name: string; title: string; show: FunctionComponent<PartProps> }[] = [
  { name: "timeline", title: "Timeline", show: Timeline },
  { name: "terminals", title: "Terminals", show: Terminals },
  { name: "commands", title: "Commands", show: Commands },
  { name: "desktop", title: "Desktop", show: Desktop },
  { name: "files", title: "Files", show: Files },
  { name: "network", title: "Network", show: NetworkPart },
  { name: "grants", title: "Grants and ports", show: Grants },
];

function Actions({ machine, path }: PartProps) {
  const verb = (name: string) => () => api.post(`${path}/${name}`);
  const remove = () =>
    confirmDialog(
      `Delete ${machine.name ?? machine.id}`,
      "Its files, steps and processes are deleted. This cannot be undone.",
      "Delete",
      () => api.remove(path).then(() => go(["machines"])),
    );
  const running = machine.state === "running";
  const asleep = machine.state === "paused" || machine.state === "stopped";
  return (
    <>
      {machine.kind !== "cell" && machine.state !== "ended" && <a class="button quiet" href={href(["review", machine.id])}>Review</a>}
      <a class="button quiet" href={href(["audit"], { machine: machine.id })}>Audit</a>
      {running && <Act run={verb("pause")}>Pause</Act>}
      {asleep && <Act class="primary" run={verb("resume")}>Resume</Act>}
      {(running || machine.state === "paused") && <Act run={verb("stop")}>Stop</Act>}
      {machine.state !== "ended" && <Act class="danger" run={remove}>Delete</Act>}
    </>
  );
}

function Facts({ machine: m }: { machine: Machine }) {
  const rows: [string, string | number | undefined][] = [
    ["Id", m.id],
    ["Owner", shown(m.owner)],
    ["Kind", m.kind],
    ["Image", shown(m.image)],
    ["Created", time(m.created)],
    ["Deleted", m.expires && time(m.expires)],
    ["Memory", m.limits?.mem && bytes(m.limits.mem)],
    ["Disk", `${bytes(m.disk_bytes)}${m.limits?.disk ? ` of ${bytes(m.limits.disk)}` : ""}`],
    ["Ended", m.ended && `${time(m.ended)}${m.reason ? `: ${shown(m.reason)}` : ""}`],
  ];
  return (
    <details class="panel">
      <summary>Details</summary>
      <dl class="facts">
        {rows.filter(([, value]) => value).map(([name, value]) => [<dt key={name}>{name}</dt>, <dd>{value}</dd>])}
        {Object.entries(m.metadata ?? {}).map(([name, value]) => [<dt key={name}>{shown(name)}</dt>, <dd>{shown(value)}</dd>])}
      </dl>
    </details>
  );
}

export function MachinePage({ id }: { id: string }) {
  const path = at`/v1/machines/${id}`;
  const { data: machine, error } = useLoad<Machine>(
    (signal) => api.get(path, {}, signal),
    [id],
    (e) => e.machine === id,
  );
  const name = shown(machine?.name ?? machine?.id ?? "");
  useEffect(() => {
    subject.value = name;
    return () => void (subject.value = "");
  }, [name]);
  if (!machine) return error ? <Problem error={error} /> : <Loading />;
  const tab = tabs.find((t) => t.name === route.value.query.get("tab")) ?? tabs[0]!;
  const warnings = [machine.warnings, machine.unreached, machine.undurable].filter(Boolean);
  return (
    <>
      <div class="bar">
        <h1>{name}</h1>
        <State kind={machine.state}>{machine.state}</State>
        <span class="space" />
        <div class="acts"><Actions machine={machine} path={path} /></div>
      </div>
      <Problem error={error} />
      {warnings.map((text) => <div class="warning" key={text}>{shown(text!)}</div>)}
      <Facts machine={machine} />
      <Tabs label="Parts of the machine" tabs={tabs} at={tab.name} pick={(name) => go(["machines", id], { tab: name }, true)} />
      <div role="tabpanel" aria-labelledby={`tab-${tab.name}`}>
        <tab.show machine={machine} path={path} />
      </div>
    </>
  );
}
