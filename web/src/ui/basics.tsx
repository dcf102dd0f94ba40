import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { shownText } from "./format";
import { remedyOf, toast, toastError } from "./toast";

export function Problem({ error }: { error: Error | undefined }) {
  if (!error) return null;
  const remedy = remedyOf(error);
  return (
    <div class="problem" role="alert">
      {shownText(error.message)}
      {remedy && <p>{shownText(remedy)}</p>}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Loading() {
  return <p class="empty" role="status">Loading…</p>;
}

/** A state that a screen reader says when it changes. */
export function State({ kind, children }: { kind: string; children: ComponentChildren }) {
  return <span role="status"><Badge kind={kind}>{children}</Badge></span>;
}

export function Badge({ kind, children }: { kind: string; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>;
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint && <small>{hint}</small>}
    </label>
  );
}

interface ActProps {
  run: () => Promise<unknown> | void;
  class?: string;
  title?: string;
  off?: boolean; // does nothing
  children: ComponentChildren;
}

/** A button that cannot be pressed twice while its action runs, and that shows why one failed. It keeps the
 * keyboard meanwhile: a browser takes it from a disabled element. */
export function Act({ run, children, off, ...rest }: ActProps) {
  const [busy, setBusy] = useState(false);
  const runs = useRef(false);
  const press = async () => {
    if (off || runs.current) return;
    setBusy((runs.current = true));
    try {
      await run();
    } catch (e) {
      toastError(e);
    }
    setBusy((runs.current = false));
  };
  // Of several buttons with the same text, a screen reader says what each is for.
  const label = rest.title?.startsWith(String(children)) ? rest.title : undefined;
  return (
    <button type="button" {...rest} aria-label={label} aria-disabled={busy || off ? true : undefined} aria-busy={busy} onClick={press}>
      {children}
    </button>
  );
}

export function Copy({ text, what }: { text: string; what?: string }) {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  };
  return <Act class="quiet" title={`Copy ${what ? `${what} ` : ""}to the clipboard`} run={copy}>Copy</Act>;
}

export interface Tab {
  name: string;
  title: string;
}

export function Tabs({ label, tabs, at, pick }: { label: string; tabs: Tab[]; at: string; pick: (name: string) => void }) {
  const step = (e: KeyboardEvent, i: number) => {
    const by = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const next = tabs[(i + by + tabs.length) % tabs.length]!;
    pick(next.name);
    document.getElementById(`tab-${next.name}`)?.focus();
  };
  // On a phone the tabs do not fit beside each other.
  useEffect(() => document.getElementById(`tab-${at}`)?.scrollIntoView({ block: "nearest", inline: "nearest" }), [at]);
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {tabs.map((t, i) => (
        <button
          key={t.name}
          id={`tab-${t.name}`}
          type="button"
          role="tab"
          aria-selected={t.name === at}
          tabIndex={t.name === at ? 0 : -1}
          onClick={() => pick(t.name)}
          onKeyDown={(e) => step(e, i)}
        >
          {t.title}
        </button>
      ))}
    </div>
  );
}
