// Requests that wait for a decision, and questions of programs in machines.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Decision, decide, notifies, notifySet, type PendingItem, pending, pendingAt, pendingEnd, pendingError,
  pendingText } from "../approvals";
import { machineName, machinesWatch } from "../machines";
import { href } from "../router";
import { Act, Badge, Empty, Loading, Problem } from "../ui/basics";
import { bytes, duration, shown, shownText } from "../ui/format";
import { confirmDialog } from "../ui/dialog";
import { useKeys } from "../ui/keys";
import { STEADY_MS, useGuard, useInside } from "../ui/steady";
import { toast, toastError } from "../ui/toast";

const ENDED_MAX = 100; // that stay in the list
const AGAIN = "Look at the request, and press again.";
const SAID = {
  list: `Nothing was decided: the list moved just before you pressed. ${AGAIN}`,
  mark: `Nothing was decided: another request was marked just before you pressed the key. ${AGAIN}`,
};

interface Row {
  item: PendingItem;
  ended: boolean;
}

/** The requests in their order. While `stays`, one that has ended keeps its place, so that no other one moves. */
function useRows(items: PendingItem[] | null, stays: boolean): Row[] {
  const rows = useRef<Row[]>([]);
  const waiting = new Map((items ?? []).map((item) => [item.id, item]));
  const next: Row[] = [];
  for (const { item } of rows.current) {
    const now = waiting.get(item.id);
    if (now || stays) next.push({ item: now ?? item, ended: !now });
    waiting.delete(item.id);
  }
  for (const item of waiting.values()) next.push({ item, ended: false });
  const over = next.filter((row) => row.ended).length - ENDED_MAX;
  const cut = new Set(next.filter((row) => row.ended).slice(0, Math.max(0, over)));
  return (rows.current = next.filter((row) => !cut.has(row)));
}

/** Counts down between two answers of the daemon. */
function Left({ item }: { item: PendingItem }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return <span class="soft">{duration(item.left_ms - (now - pendingAt.value))} left</span>;
}

async function send(item: PendingItem, how: Decision, said: string): Promise<void> {
  const added = await decide(item.id, how);
  toast(added ? `${said} Added the rule: ${shown(added)}` : said);
}

interface WaysProps {
  item: PendingItem;
  off: boolean; // it was decided; the buttons stay, so that nothing moves and no key is lost
}

function Answer({ item, off }: WaysProps) {
  const [text, setText] = useState("");
  return (
    <>
      <textarea rows={3} aria-label="Your answer" readOnly={off} value={text} onInput={(e) => setText(e.currentTarget.value)} />
      <div class="bar">
        <Act class="primary" off={off || !text.trim()} run={() => send(item, { decision: "answer", text }, "Answered.")}>
          Answer
        </Act>
        <Act class="danger" off={off} run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
      </div>
    </>
  );
}

/** `carrel move REASON` in a box. The move ends its programs, so it is confirmed. */
function Move({ item, off }: WaysProps) {
  return (
    <>
      <p class="soft">
        A program asks that its machine becomes a vm, with a kernel of its own. Approving moves it: all processes
        of the machine end; its id, files, grants, network rules and steps stay. This takes a few seconds and cannot be
        undone.
      </p>
      <div class="bar">
        <Act class="primary" off={off} run={() => approveMove(item)}>Approve and move</Act>
        <Act class="danger" off={off} run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
      </div>
    </>
  );
}

function approveMove(item: PendingItem): void {
  confirmDialog(
    `Make ${machineName(item.machine)} a vm`,
    "All processes of the machine end, and it boots a kernel of its own.",
    "Move",
    () => send(item, { decision: "approve" }, "The machine is a vm now."),
  );
}

function Ways(props: WaysProps) {
  if (props.item.moves) return <Move {...props} />;
  return props.item.protocol === "question" ? <Answer {...props} /> : <Decide {...props} />;
}

function Decide({ item, off }: WaysProps) {
  const approve = (more: Partial<Decision> = {}) => () => send(item, { decision: "approve", ...more }, "Approved.");
  return (
    <>
      <p class="soft">
        {item.always
          ? <>“Always” adds this rule: <code>{shown(item.always)}</code></>
          : `No rule can be added: ${shown(item.no_rule ?? "")}`}
      </p>
      <div class="bar">
        <Act class="primary" off={off} run={approve()}>Approve once</Act>
        {item.always && <Act off={off} run={approve({ ttl: "1h" })}>For an hour</Act>}
        {item.always && <Act off={off} run={approve({ always: true })}>Always</Act>}
        <Act class="danger" off={off} run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
      </div>
    </>
  );
}

function Fate({ item, ended }: Row) {
  if (!ended && !item.approved) return <Left item={item} />;
  const what = item.approved ? "approved" : pendingEnd(item);
  return (
    <span class="clip">
      <Badge kind={what === "approved" || what === "answered" ? "good" : ""}>{what}</Badge>
      {!ended && <span class="soft"> until the machine sends it again</span>}
    </span>
  );
}

function Item({ item, ended, current, fresh }: Row & { current: boolean; fresh: boolean }) {
  const kind = `${current ? "current" : ""} ${current && fresh ? "fresh" : ""} ${ended ? "ended" : ""}`;
  return (
    <section class={`panel pending ${kind}`} tabIndex={-1} aria-label={pendingText(item)} aria-current={current}>
      <div class="bar">
        <Badge kind="warn">{item.moves ? "move to a vm" : item.protocol}</Badge>
        <a href={href(["machines", item.machine])} title={item.machine}>{machineName(item.machine)}</a>
        {(item.waiting ?? 0) > 1 && <span class="soft">{item.waiting} connections</span>}
        <span class="space" />
        <Fate item={item} ended={ended} />
      </div>
      <pre>{pendingText(item)}</pre>
      {item.why && <p class="soft">{shown(item.why)}</p>}
      {(item.body ?? 0) > 0 && (
        <p class="soft">Body of {bytes(item.body)}, SHA-256 <code>{item.body_sha256}</code></p>
      )}
      {item.first && (
        <details>
          <summary>First bytes</summary>
          <pre>{shownText(item.first)}</pre>
        </details>
      )}
      <Ways item={item} off={ended || !!item.approved} />
    </section>
  );
}

export function Approvals() {
  const [at, setAt] = useState(""); // the id of a request, so that another one in its place is not meant
  const list = useRef<HTMLDivElement>(null);
  const rows = useRows(pending.value, useInside(list));
  useEffect(machinesWatch, []);
  const items = pending.value;
  const current = items?.findIndex((p) => p.id === at) ?? -1;
  const item = items?.[current];
  const [fresh, setFresh] = useState(false); // the page has just marked it, so the user has not looked at it yet
  const wanted = useRef(""); // the newest mark: `at` follows when the page is drawn, and keys may come before
  const mark = (id: string) => setAt((wanted.current = id));
  const markNext = (id: string) => {
    setFresh(true);
    mark(id);
  };
  const move = (by: number) => {
    const now = pending.value ?? [];
    const place = now.findIndex((p) => p.id === wanted.current);
    setFresh(false);
    const id = now[Math.max(0, Math.min(place + by, now.length - 1))]?.id ?? "";
    along.current = id !== at;
    if (id === at) list.current?.querySelector<HTMLElement>(".current")?.focus(); // marked already, but not where the keys are
    mark(id);
  };
  const next = () => markNext(pending.value?.find((p) => !p.approved)?.id ?? "");
  useEffect(() => {
    if (!at && items?.length) markNext(items[0]!.id);
  }, [at, items]);
  // Who goes along the list with keys is there with the focus: then it is in view, and read aloud.
  const along = useRef(false);
  useEffect(() => {
    const row = list.current?.querySelector<HTMLElement>(".current");
    if (along.current || list.current?.querySelector(".pending.ended:focus")) row?.focus({ preventScroll: true });
    along.current = false;
    row?.scrollIntoView({ block: "nearest" });
  }, [at]);
  useEffect(() => {
    if (!fresh) return;
    const timer = setTimeout(() => setFresh(false), STEADY_MS);
    return () => clearTimeout(timer);
  }, [fresh, at]);
  const act = (how: Decision, said: string) => () => {
    if (item && (fresh || at !== wanted.current)) return toast(SAID.mark, "bad");
    if (item?.moves && how.decision === "approve") return how.always ? undefined : approveMove(item);
    const refuses = item?.moves && how.decision === "deny";
    const fits = item && (refuses || (!item.approved && item.protocol !== "question" && !(how.always && !item.always)));
    if (fits) send(item, how, said).then(next, toastError);
  };
  useKeys([
    { keys: "j", what: "Next request", repeats: true, run: () => move(1) },
    { keys: "k", what: "Previous request", repeats: true, run: () => move(-1) },
    { keys: "a", what: "Approve the request once", run: act({ decision: "approve" }, "Approved.") },
    { keys: "A", what: "Approve it always", run: act({ decision: "approve", always: true }, "Approved.") },
    { keys: "d", what: "Refuse the request", run: act({ decision: "deny" }, "Refused.") },
  ]);
  const guard = useGuard(list, SAID.list);
  const [unheard, setUnheard] = useState("");
  const notify = async () => setUnheard(await notifySet(!notifies.value));
  return (
    <>
      <div class="bar">
        <h1>Approvals</h1>
        <span class="space" />
        <Act run={notify}>{notifies.value ? "Stop notifying me" : "Notify me"}</Act>
      </div>
      {unheard && <p class="advice" role="alert">{unheard}</p>}
      {!items && !pendingError.value && <Loading />}
      {items && rows.length === 0 && (
        <Empty>Nothing waits. A request waits here if a network rule of its machine has the action “ask”.</Empty>
      )}
      <div ref={list} onClickCapture={guard}>
        {rows.map((row) => <Item key={row.item.id} {...row} current={row.item.id === at && !row.ended} fresh={fresh} />)}
      </div>
      <Problem error={pendingError.value ?? undefined} />
    </>
  );
}
