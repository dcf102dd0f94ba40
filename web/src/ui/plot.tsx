// Lines over time. uPlot is loaded when the first plot is shown.
import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { dark } from "../theme";

export interface Series {
  title: string;
  values: (number | null)[];
}

interface Props {
  title: string;
  times: number[]; // seconds since 1970
  series: Series[];
  format: (n: number) => string;
  bars?: boolean;
  steps?: number[]; // distances between the lines of the scale
}

export const BINARY = Array.from({ length: 46 }, (_, n) => 2 ** n); // 512 KiB, not 488.3
export const WHOLE = Array.from({ length: 10 }, (_, n) => [1, 2, 5].map((digit) => digit * 10 ** n)).flat(); // no half machines

const HEIGHT = 150;
const SPAN_S = 120; // at least
const COLOURS = ["--accent", "--good", "--warn", "--bad", "--soft"];

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** From the first sample to the newest one. Of a single sample, uPlot would make a whole day. */
function spanOf({ data: [times] }: uPlot): [number, number] {
  const newest = times?.at(-1) ?? 0;
  return [Math.min(times?.[0] ?? 0, newest - SPAN_S), newest];
}

function options(p: Props, width: number, lib: typeof uPlot): uPlot.Options {
  const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false } };
  // A short time would fill the whole width, and its axis would have milliseconds.
  const clock = { ...axis, values: (_u: uPlot, all: number[]) => all.map((t) => new Date(t * 1000).toLocaleTimeString()), space: 90 };
  const x: uPlot.Scales = p.bars ? {} : { x: { range: spanOf } };
  const paths = p.bars ? { paths: lib.paths.bars!({ size: [0.7, 60] }), points: { show: false } } : {};
  return {
    width,
    height: HEIGHT,
    padding: [null, 36, null, null], // half of a time below the newest value
    cursor: { y: false },
    legend: { show: p.series.length > 1 },
    scales: { ...x, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [p.bars ? axis : clock, { ...axis, size: 70, ...(p.steps ? { incrs: p.steps } : {}), values: (_u, all) => all.map((n) => p.format(n)) }],
    series: [
      {},
      ...p.series.map((s, i) => ({
        label: s.title,
        stroke: token(COLOURS[i % COLOURS.length]!),
        ...(p.bars ? { fill: token(COLOURS[i % COLOURS.length]!) } : {}),
        width: 1.5,
        // Without a pointer on the plot, idx is null: then the newest value.
        value: (u: uPlot, n: number | null, at: number, idx: number | null) => {
          const value = idx === null ? u.data[at]!.at(-1) : n;
          return typeof value === "number" ? p.format(value) : "–";
        },
        ...paths,
      })),
    ],
  };
}

export function Plot(p: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const data = [p.times, ...p.series.map((s) => s.values)] as uPlot.AlignedData;
  const latest = useRef({ p, data });
  latest.current = { p, data };
  const shape = `${dark.value} ${p.series.map((s) => s.title).join("\n")}`;

  useEffect(() => {
    let over = false;
    const size = new ResizeObserver(([entry]) =>
      plot.current?.setSize({ width: Math.floor(entry!.contentRect.width), height: HEIGHT }));
    void import("uplot").then(({ default: lib }) => {
      if (over || !place.current) return;
      const width = place.current.clientWidth;
      plot.current = new lib(options(latest.current.p, width, lib), latest.current.data, place.current);
      size.observe(place.current);
    });
    return () => {
      over = true;
      size.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [p.times.at(-1), p.times.length]);

  const newest = (s: Series) => {
    const now = s.values.at(-1);
    return typeof now === "number" ? p.format(now) : "";
  };
  const said = p.series.length === 1 ? newest(p.series[0]!) : "";
  const all = p.series.map((s) => `${s.title} ${newest(s)}`).join(", ");
  return (
    <figure class="panel plot" role="img" aria-label={`${p.title}: ${said || all}`}>
      <figcaption><b>{p.title}</b> <span class="soft">{said}</span></figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  );
}
