// The host: what it can enforce, its disk, and its metrics as plots.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, request } from "../api";
import { onReturn } from "../events";
import { Act, Badge, Loading, Problem } from "../ui/basics";
import { bytes, count, shown, shownText } from "../ui/format";
import { useLoad } from "../ui/load";
import { BINARY, Plot, type Series, WHOLE } from "../ui/plot";

interface Status {
  version: string;
  pid: number;
  commands: number;
  machines: Record<string, number>;
  store: { home?: string; free_bytes: number; total_bytes: number; used_percent: number; full: boolean; remedy?: string };
  box?: {
    version?: string;
    rootless?: boolean;
    cgroup?: string;
    layers?: string;
    disk?: string;
    images?: string;
    network?: string;
    unenforced?: string[];
    fallbacks?: Record<string, number>;
    pool?: { ready: number; ready_wanted: number; refusal?: string; remedy?: string };
  };
  box_error?: string;
}

interface StoreCheck {
  whole: boolean;
  machines: number;
  layers: number;
  leftovers: number;
  problems: unknown[];
}

type Metrics = Map<string, number>;

interface Sample {
  time: number;
  metrics: Metrics;
}

const EVERY_MS = 2000;
const KEPT = 300;

/** The sums of a metric over its labels, or over those that contain `label`. */
function sum(m: Metrics, name: string, label = ""): number {
  let all = 0;
  for (const [key, value] of m) if ((key === name || key.startsWith(`${name}{`)) && key.includes(label)) all += value;
  return all;
}

export function metricsRead(text: string): Metrics {
  const all: Metrics = new Map();
  for (const line of text.split("\n")) {
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (!line.startsWith("#") && space > 0 && Number.isFinite(value)) all.set(line.slice(0, space), value);
  }
  return all;
}

function useSamples(): { samples: Sample[]; error: Error | undefined } {
  const [samples, setSamples] = useState<Sample[]>([]);
  const [error, setError] = useState<Error>();
  useEffect(() => {
    const look = async () => {
      try {
        const metrics = metricsRead(await (await request("GET", "/metrics")).text());
        setSamples((old) => [...old.slice(1 - KEPT), { time: Date.now() / 1000, metrics }]);
        setError(undefined);
      } catch (e) {
        setError(e as Error);
      }
    };
    void look();
    const timer = setInterval(() => void look(), EVERY_MS);
    const stop = onReturn(() => void look());
    return () => {
      clearInterval(timer);
      stop();
    };
  }, []);
  return { samples, error };
}

/** Growth per second between samples; null after a restart of the daemon. */
function rates(samples: Sample[], value: (m: Metrics) => number): (number | null)[] {
  return samples.map((s, i) => {
    const before = samples[i - 1];
    if (!before) return null;
    const grown = value(s.metrics) - value(before.metrics);
    return grown < 0 ? null : grown / (s.time - before.time);
  });
}

const plain = (n: number) => n.toLocaleString("en", { maximumFractionDigits: 1 });

function Plots({ samples }: { samples: Sample[] }) {
  const times = samples.map((s) => s.time);
  const level = (title: string, name: string, label = ""): Series => ({
    title,
    values: samples.map((s) => sum(s.metrics, name, label)),
  });
  const rate = (title: string, name: string, label = ""): Series => ({
    title,
    values: rates(samples, (m) => sum(m, name, label)),
  });
  const perSecond = (n: number) => `${bytes(n)}/s`;
  return (
    <div class="plots">
      <Plot title="Machines" times={times} format={plain} steps={WHOLE} series={[
        level("running", "carrel_machines", '"running"'), level("paused", "carrel_machines", '"paused"'),
        level("stopped", "carrel_machines", '"stopped"')]} />
      <Plot title="Commands" times={times} format={plain} steps={WHOLE} series={[level("commands", "carrel_commands")]} />
      <Plot title="Disk of machines" times={times} format={bytes} steps={BINARY} series={[level("disk", "carrel_machine_disk_bytes")]} />
      <Plot title="Network connections" times={times} format={plain} steps={WHOLE}
        series={[level("connections", "carrel_gate_connections")]} />
      <Plot title="Network bytes" times={times} format={perSecond} steps={BINARY} series={[
        rate("sent", "carrel_gate_bytes_total", '"sent"'), rate("received", "carrel_gate_bytes_total", '"received"')]} />
      <Plot title="Network requests per second" times={times} format={plain} series={[
        rate("allowed", "carrel_gate_crossings_total", '"allowed"'),
        rate("denied", "carrel_gate_crossings_total", '"denied"')]} />
    </div>
  );
}

/** What the host uses for each feature, in words; `carrel doctor` says more, and what to do. */
const ways: Record<string, string> = {
  "disk quota": "a project quota of the file system",
  "disk btrfs": "a btrfs image for each machine",
  "disk image": "a disk image for each machine",
  "disk tmpfs": "memory only, without root",
  "disk none": "none: changes go to a directory without a limit",
  "images erofs": "images are read-only file systems (erofs)",
  "images directory": "images are directories",
  "network steered": "every connection of a machine goes through its network gate",
  "network proxy": "only programs that use the proxy at 127.0.0.1:3128 have network: see carrel doctor",
};

const way = (part: string, value = "") => ways[`${part} ${value}`] ?? shown(value);

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function Doctor({ status }: { status: Status }) {
  const { box, store } = status;
  const missing = box?.unenforced ?? [];
  return (
    <section class="panel">
      <h2>State</h2>
      <dl class="facts">
        <Fact name="Daemon">version {status.version}, process {status.pid}</Fact>
        <Fact name="Machines">
          {Object.entries(status.machines).filter(([, n]) => n).map(([state, n]) => `${n} ${state}`).join(", ") || "none"}
        </Fact>
        <Fact name="Disk">
          {store.full && <Badge kind="bad">full</Badge>} {bytes(store.free_bytes)} of {bytes(store.total_bytes)} free
          {store.home && <> in <code>{shown(store.home)}</code></>}
          <meter min={0} max={100} high={90} value={store.used_percent} aria-label="Used disk space" />
          {store.remedy && <p>{shown(store.remedy)}</p>}
        </Fact>
        {status.box_error && <Fact name="Boxes"><Badge kind="bad">not available</Badge> {shown(status.box_error)}</Fact>}
        {box && (
          <>
            <Fact name="Boxes">made {box.rootless ? "as a user, without root" : "as root"}; limits by cgroup {box.cgroup}</Fact>
            <Fact name="Limit of disk">{way("disk", box.disk)}</Fact>
            <Fact name="Files">layers are mounted {shown(box.layers ?? "")}; {way("images", box.images)}</Fact>
            <Fact name="Network">{way("network", box.network)}</Fact>
            <Fact name="Limits">
              {missing.length === 0 ? <Badge kind="good">all enforced</Badge> : <Badge kind="warn">not enforced</Badge>} {missing.map(shown).join("; ")}
            </Fact>
            {box.pool && (
              <Fact name="Kept ready">{box.pool.ready} of {count(box.pool.ready_wanted, "empty box", "empty boxes")}, for a fast start {shown(box.pool.refusal ?? "")} {shown(box.pool.remedy ?? "")}</Fact>
            )}
          </>
        )}
      </dl>
    </section>
  );
}

function Check() {
  const [told, setTold] = useState<StoreCheck>();
  const run = async () => setTold(await api.get<StoreCheck>("/v1/store/check"));
  return (
    <section class="panel">
      <div class="bar">
        <h2>Store</h2>
        <Act run={run}>Check the store</Act>
      </div>
      {told && (
        <p role="status">
          {told.whole ? <Badge kind="good">complete</Badge> : <Badge kind="bad">{count(told.problems.length, "problem")}</Badge>}{" "}
          {count(told.machines, "machine")}, {count(told.layers, "layer")}, {told.leftovers} unused
        </p>
      )}
      {told && !told.whole && <pre>{shownText(JSON.stringify(told.problems, null, 2))}</pre>}
    </section>
  );
}

export function Host() {
  const { data, error } = useLoad((signal) => api.get<Status>("/v1/status", {}, signal), [], (e) => e.type.startsWith("machine"));
  const { samples, error: lost } = useSamples();
  return (
    <>
      <div class="bar"><h1>Host</h1></div>
      <Problem error={error ?? lost} />
      {!data && !error && <Loading />}
      {data && <Doctor status={data} />}
      {samples.length > 0 && <Plots samples={samples} />}
      {data && <Check />}
    </>
  );
}
