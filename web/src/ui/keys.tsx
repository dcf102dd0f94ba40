// Keyboard shortcuts: one key, or `g` and a key for a page. They are off while text is typed.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { Dialog, openDialog } from "./dialog";

interface Shortcut {
  keys: string; // "r", or "g m" for two keys in a row
  what: string;
  repeats?: boolean; // while the key is held down
  run: () => void;
}

const shortcuts = new Map<string, Shortcut>();
let first = "";
let firstAt = 0;

/** Keys of the page that is shown, from the moment it is shown. */
export function useKeys(rows: Shortcut[]): void {
  useLayoutEffect(() => {
    for (const row of rows) shortcuts.set(row.keys, row);
    return () => {
      for (const row of rows) if (shortcuts.get(row.keys) === row) shortcuts.delete(row.keys);
    };
  });
}

/**
 * Where the user types, until the user goes elsewhere. A machine can take it away in the middle of a word: by
 * the end of its desktop, or of a question. The rest of the word then goes to the page, and is neither a shortcut
 * nor a press of a button that Tab has reached. A page in a frame can do the same: it may give the keyboard to the
 * page around it.
 */
let typed: Element | null = null;
let keyAt = 0; // when the newest key came
const QUIET_MS = 1000; // nobody is in the middle of a word
const off = signal(false); // a key was kept from doing something

const TEXT = "input:not([type=checkbox], [type=radio]), textarea"; // a box takes no letters
const ENDED = "textarea[readonly]"; // takes no answer any more

function typedIsGone(): boolean {
  return typed !== null && (!typed.isConnected || typed.matches(`iframe, ${ENDED}`));
}

function keysOn(): void {
  typed = null;
  off.value = false;
}

function typedWatch(): void {
  const take = (e: KeyboardEvent) => {
    const quiet = Date.now() - keyAt > QUIET_MS;
    keyAt = Date.now();
    if (!(e.target instanceof Element)) return;
    const presses = e.key === "Enter" || e.key === " ";
    if (typedIsGone()) {
      if (!presses || isTyping(e.target) || (quiet && e.target.closest(".keys-off"))) return;
      e.preventDefault();
      e.stopPropagation();
      off.value = true;
      return;
    }
    if (e.target === document.body) return;
    const types = e.target.closest(`${TEXT}, .xterm, .desktop`) && !e.target.matches(ENDED) && !e.target.closest("dialog");
    const over = e.key === "Enter" && e.target.matches("input");
    typed = types && !over ? e.target : null;
  };
  document.addEventListener("keydown", take, true);
  document.addEventListener("pointerdown", keysOn, true);
  window.addEventListener("blur", () => (typed = document.querySelector("iframe") ?? typed));
}

/** What turns the keys on again without a pointer. Nobody types Shift+Tab, a pause and Enter by chance. */
export function KeysOff() {
  if (!off.value) return null;
  return (
    <div class="problem keys-off" role="alert">
      The keys of this page wait: what you typed in has lost the keyboard. Click in the page, or go to this button,
      pause for a second and press Enter:
      <button type="button" onClick={keysOn}>Turn the keys on</button>
    </div>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest(`${TEXT}, select, dialog, .xterm`) !== null;
}

export function keysStart(): void {
  typedWatch();
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || isTyping(e.target)) return;
    const both = Date.now() - firstAt < 1500 ? `${first} ${e.key}` : "";
    const row = shortcuts.get(both) ?? shortcuts.get(e.key);
    first = row ? "" : e.key;
    firstAt = Date.now();
    if (!row || (e.repeat && !row.repeats)) return;
    if (typedIsGone()) {
      off.value = true;
      return;
    }
    e.preventDefault();
    row.run();
  });
}

export function keysHelp(): void {
  const rows = [...shortcuts.values()];
  openDialog((close) => (
    <Dialog title="Keys" close={close}>
      <dl class="keys">
        {rows.map((row) => (
          <div key={row.keys}>
            <dt>{row.keys.split(" ").map((k) => <kbd key={k}>{k}</kbd>)}</dt>
            <dd>{row.what}</dd>
          </div>
        ))}
        <div><dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>Enter</kbd></dt><dd>Move in a list, open a row</dd></div>
      </dl>
    </Dialog>
  ));
}
