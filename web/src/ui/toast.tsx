import { signal } from "@preact/signals";
import { shownText } from "./format";

interface Message {
  id: number;
  text: string;
  remedy: string;
  kind: "good" | "bad";
}

const messages = signal<Message[]>([]);
let next = 1;

/** Shows a short message; one about a failure stays longer. */
export function toast(text: string, kind: Message["kind"] = "good", remedy = ""): void {
  const id = next++;
  messages.value = [...messages.value.slice(-3), { id, text, remedy, kind }];
  setTimeout(() => dismiss(id), remedy ? 20_000 : kind === "bad" ? 12_000 : 4000);
}

/** What to do about a failure, as the daemon says it. */
export function remedyOf(error: unknown): string {
  const { remedy } = error as { remedy?: unknown };
  return typeof remedy === "string" ? remedy : "";
}

export function toastError(error: unknown): void {
  toast((error as Error).message, "bad", remedyOf(error));
}

function dismiss(id: number): void {
  messages.value = messages.value.filter((m) => m.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {messages.value.map((m) => (
        <button type="button" class={`toast ${m.kind}`} key={m.id} title="Dismiss" onClick={() => dismiss(m.id)}>
          <span>
            {shownText(m.text)}
            {m.remedy && <span class="remedy">{shownText(m.remedy)}</span>}
          </span>
        </button>
      ))}
    </div>
  );
}
