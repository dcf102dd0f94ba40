// A list whose rows come and go under the pointer. A click on a row that has just moved is meant for what was
// there before, so it does not count.
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { toast } from "./toast";

export const STEADY_MS = 700; // longer than a click that has begun can be held back

interface Place {
  top: number;
  bottom: number;
  since: number;
}

function placeOf(row: Element, since: number): Place {
  const { top, bottom } = row.getBoundingClientRect();
  return { top: top + window.scrollY, bottom: bottom + window.scrollY, since };
}

const same = (a: Place, b: Place) => Math.abs(a.top - b.top) < 2 && Math.abs(a.bottom - b.bottom) < 2;

/** Marks rows of the list that came or moved as busy for a moment. The function says if a row is steady. */
export function useSteady(list: RefObject<HTMLElement | null>): (row: Element) => boolean {
  const places = useRef(new Map<Element, Place>());
  const timer = useRef(0);
  const look = () => {
    const now = performance.now();
    const next = new Map<Element, Place>();
    for (const row of list.current?.children ?? []) {
      const place = placeOf(row, now);
      const before = places.current.get(row);
      const kept = before && same(before, place) ? before : place;
      next.set(row, kept);
      row.setAttribute("aria-busy", String(now - kept.since < STEADY_MS));
    }
    places.current = next;
    clearTimeout(timer.current);
    if ([...next.values()].some((p) => now - p.since < STEADY_MS)) timer.current = window.setTimeout(look, STEADY_MS / 7);
  };
  useLayoutEffect(look);
  useEffect(() => {
    const resized = new ResizeObserver(look);
    for (const part of [document.body, document.getElementById("main"), list.current]) if (part) resized.observe(part);
    return () => {
      resized.disconnect();
      clearTimeout(timer.current);
    };
  }, []);
  return (row) => {
    look();
    return row.getAttribute("aria-busy") === "false";
  };
}

/** A handler of the clicks in the list: it stops those on the buttons of a row that is not steady, and says so. */
export function useGuard(list: RefObject<HTMLElement | null>, said: string): (e: MouseEvent) => void {
  const steady = useSteady(list);
  return (e) => {
    const pressed = (e.target as Element).closest("button");
    const row = pressed && [...(list.current?.children ?? [])].find((one) => one.contains(pressed));
    // A click that comes from a key means what has the focus, wherever it is.
    if (!row || e.detail === 0 || steady(row)) return;
    e.stopPropagation();
    toast(said, "bad");
  };
}

/** Whether the pointer or the keyboard is in an element. */
export function useInside(part: RefObject<HTMLElement | null>): boolean {
  const [inside, setInside] = useState({ pointer: false, focus: false });
  useEffect(() => {
    const has = (target: EventTarget | null) => target instanceof Element && !!part.current?.contains(target);
    const keyed = (target: EventTarget | null) => has(target) && (target as Element).matches(":focus-visible");
    const pointer = (e: Event) => setInside((old) => ({ ...old, pointer: has(e.target) }));
    const focus = (e: FocusEvent) => setInside((old) => ({ ...old, focus: e.type === "focusin" ? keyed(e.target) : old.focus && has(e.relatedTarget) }));
    const rows: [string, (e: never) => void][] = [
      ["pointerover", pointer], ["pointerdown", pointer], ["focusin", focus], ["focusout", focus],
    ];
    for (const [name, take] of rows) document.addEventListener(name, take as EventListener);
    return () => {
      for (const [name, take] of rows) document.removeEventListener(name, take as EventListener);
    };
  }, []);
  return inside.pointer || inside.focus;
}
