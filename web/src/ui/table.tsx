// A table of any number of rows: only those near the visible part are in the document.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  title: string;
  width: string; // as in grid-template-columns
  show: (row: T) => ComponentChildren;
  wide?: boolean; // left out on narrow screens
  narrow?: string; // its width there
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id: (row: T) => string;
  name?: (row: T) => string; // what its check box selects, in words
  open?: (row: T) => void;
  selected?: Set<string>;
  select?: (selected: Set<string>) => void;
}

const ROW = 40; // height in pixels, as in style.css
const MORE = 10; // rows beyond each end of the visible part

/** Columns that narrow screens leave out give way before the table is wider than the page. */
function widthOf<T>({ width, wide }: Column<T>): string {
  if (!wide) return width;
  return width.startsWith("minmax(") ? width.replace(/^minmax\([^,]+,/, "minmax(0,") : `minmax(0, ${width})`;
}

function useVisible(count: number) {
  const ref = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ first: 0, end: 60 });
  useEffect(() => {
    const look = () => {
      if (!ref.current) return;
      const top = ref.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(-top / ROW) - MORE);
      const end = Math.ceil((window.innerHeight - top) / ROW) + MORE;
      setRange((old) => (old.first === first && old.end === end ? old : { first, end }));
    };
    look();
    window.addEventListener("scroll", look, { passive: true });
    window.addEventListener("resize", look);
    return () => {
      window.removeEventListener("scroll", look);
      window.removeEventListener("resize", look);
    };
  }, [count]);
  return { ref, first: Math.min(range.first, count), end: Math.min(range.end, count) };
}

export function Table<T>({ label, rows, columns, id, name = id, open, selected, select }: Props<T>) {
  const { ref, first, end } = useVisible(rows.length);
  const [focus, setFocus] = useState(0);
  const template = `${select ? "2rem " : ""}${columns.map(widthOf).join(" ")}`;
  const slim = columns.filter((c) => !c.wide).map((c) => c.narrow ?? c.width.replace(/minmax\([^,]+,/, "minmax(4rem,"));
  const narrow = `${select ? "2rem " : ""}${slim.join(" ")}`;
  const grid = { "--columns": template, "--narrow": narrow };

  const move = (to: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setFocus(next);
    const element = ref.current;
    const top = (element?.getBoundingClientRect().top ?? 0) + next * ROW;
    if (top < 100 || top > window.innerHeight - ROW) window.scrollBy(0, top - window.innerHeight / 2);
    requestAnimationFrame(() => element?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus());
  };
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    select?.(next);
  };
  const key = (e: KeyboardEvent, row: T, i: number) => {
    if (e.target !== e.currentTarget) return;
    const to = { ArrowDown: i + 1, j: i + 1, ArrowUp: i - 1, k: i - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (to !== undefined) move(to);
    else if (e.key === "Enter") open?.(row);
    else if (e.key === " " || e.key === "x") toggle(id(row));
    else return;
    e.preventDefault();
  };
  const all = rows.length > 0 && rows.every((r) => selected?.has(id(r)));
  const current = Math.min(focus, Math.max(0, rows.length - 1));

  return (
    <div class="table" role="grid" aria-label={label} aria-rowcount={rows.length + 1} style={grid}>
      <div class="row head" role="row" aria-rowindex={1}>
        {select && (
          <span role="columnheader">
            <input
              type="checkbox"
              aria-label="Select all"
              checked={all}
              onChange={() => select(new Set(all ? [] : rows.map(id)))}
            />
          </span>
        )}
        {columns.map((c) => (
          <span role="columnheader" class={c.wide ? "wide" : ""} key={c.title}>{c.title}</span>
        ))}
      </div>
      <div ref={ref} class="rows" role="rowgroup" style={{ height: `${rows.length * ROW}px` }}>
        {rows.slice(first, end).map((row, n) => {
          const i = first + n;
          return (
            <div
              key={id(row)}
              class={`row ${open ? "opens" : ""}`}
              role="row"
              aria-rowindex={i + 2}
              aria-selected={select ? selected!.has(id(row)) : undefined}
              data-row={i}
              tabIndex={i === current ? 0 : -1}
              style={{ top: `${i * ROW}px` }}
              onClick={() => open?.(row)}
              onFocus={() => setFocus(i)}
              onKeyDown={(e) => key(e, row, i)}
            >
              {select && (
                <span role="gridcell" onClick={(e) => e.stopPropagation()}>
                  <input
                    type="checkbox"
                    aria-label={`Select ${name(row)}`}
                    checked={selected!.has(id(row))}
                    onChange={() => toggle(id(row))}
                  />
                </span>
              )}
              {columns.map((c) => (
                <span role="gridcell" class={c.wide ? "wide" : ""} key={c.title}>{c.show(row)}</span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
