import { signal } from "@preact/signals";

interface Message {
  id: number;
  text: string;
  kind: "good" | "bad";
}

const messages = signal<Message[]>([]);
let next = 1;

/** Shows a short message; one about a failure stays longer. */
export function toast(text: string, kind: Message["kind"] = "good"): void {
  const id = next++;
  messages.value = [...messages.value.slice(-3), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === "bad" ? 12_000 : 4000);
}

function dismiss(id: number): void {
  messages.value = messages.value.filter((m) => m.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {messages.value.map((m) => (
        <button type="button" class={`toast ${m.kind}`} key={m.id} onClick={() => dismiss(m.id)}>
          {m.text}
        </button>
      ))}
    </div>
  );
}
