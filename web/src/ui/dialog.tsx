// Dialogs: the browser's own <dialog>, which keeps the focus inside and closes with Escape.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "./basics";

interface DialogProps {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

/** Where the keyboard begins: the first field, or the action; Cancel if the action cannot be undone. */
function begin(dialog: HTMLDialogElement): void {
  const wanted = ["[autofocus]", "form :is(input:not([type=checkbox]), select, textarea)", "footer .primary", "footer button"];
  for (const what of wanted) {
    const found = dialog.querySelector<HTMLElement>(what);
    if (found) return found.focus();
  }
}

export function Dialog({ title, close, children, wide }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    if (ref.current) begin(ref.current);
    return () => requestAnimationFrame(() => {
      if (document.activeElement !== document.body) return; // the next page or dialog has the focus
      const back = before?.isConnected && before !== document.body ? before : document.getElementById("main");
      (back as HTMLElement | null)?.focus({ preventScroll: true });
    });
  }, []);
  return (
    <dialog ref={ref} class={wide ? "wide" : ""} aria-label={title} onClose={close}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={close}>✕</button>
      </header>
      {children}
    </dialog>
  );
}

interface FormProps {
  title: string;
  action: string;
  danger?: boolean;
  wide?: boolean;
  submit: (closed: AbortSignal) => Promise<unknown>;
  close: () => void;
  children: ComponentChildren;
}

/** A dialog with one action. It closes when the action succeeded, and shows why it failed. */
export function FormDialog({ title, action, danger, wide, submit, close, children }: FormProps) {
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const send = async (e: Event) => {
    e.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await submit(stop.current.signal);
      close();
    } catch (problem) {
      setError(problem as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close} wide={wide ?? false}>
      <form onSubmit={send}>
        {children}
        <Problem error={error} />
        <footer>
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" class={danger ? "danger" : "primary"} aria-disabled={busy ? true : undefined}>{action}</button>
        </footer>
      </form>
    </Dialog>
  );
}

type Make = (close: () => void) => ComponentChildren;

const opened = signal<Make | null>(null);
const over = signal<Make | null>(null);

/** Shows a dialog from anywhere: openDialog((close) => <FormDialog close={close} …/>). */
export function openDialog(make: Make): void {
  opened.value = make;
}

/** Shows a dialog over the one that is open, which keeps what was typed. */
export function openOver(make: Make): void {
  over.value = make;
}

export function OpenedDialog() {
  return <>{opened.value?.(() => (opened.value = null))}{over.value?.(() => (over.value = null))}</>;
}

/** Asks before something that cannot be undone. */
export function confirmDialog(title: string, text: string, action: string, run: () => Promise<unknown>): void {
  openDialog((close) => (
    <FormDialog title={title} action={action} danger submit={run} close={close}>
      <p>{text}</p>
    </FormDialog>
  ));
}
