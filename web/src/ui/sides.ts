// One column or two: for all differences of this browser, also after a reload.
import { signal } from "@preact/signals";

const KEY = "carrel.sides";
const kept = localStorage.getItem(KEY);

/** "" until the user has chosen. */
const chosen = signal(kept === "1" || kept === "2" ? kept : "");

/** Whether differences are shown in two columns, and what changes that. */
export function sidesOf(usual: boolean): [boolean, () => void] {
  const sides = chosen.value ? chosen.value === "2" : usual;
  return [sides, () => localStorage.setItem(KEY, (chosen.value = sides ? "1" : "2"))];
}
