// Requests that wait for a decision, and questions of programs in machines.
import { useEffect, useState } from "preact/hooks";
import { type Decision, decide, notifies, notifySet, type PendingItem, pending, pendingAt, pendingError,
  pendingText } from "../approvals";
import { machineName, machinesWatch } from "../machines";
import { href } from "../router";
import { Act, Badge, Empty, Loading, Problem } from "../ui/basics";
import { bytes, duration, shown, shownText } from "../ui/format";
import { confirmDialog } from "../ui/dialog";
import { useKeys } from "../ui/keys";
import { toast } from "../ui/toast";

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

function Answer({ item }: { item: PendingItem }) {
  const [text, setText] = useState("");
  return (
    <>
      <textarea rows={3} aria-label="Your answer" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      <div class="bar">
        <Act class="primary" disabled={!text.trim()} run={() => send(item, { decision: "answer", text }, "Answered.")}>
          Answer
        </Act>
        <Act class="danger" run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
      </div>
    </>
  );
}

/** `carrel move REASON` in a box. The move ends its programs, so it is confirmed. */
function Move({ item }: { item: PendingItem }) {
  return (
    <>
      <p class="soft">
        A program asks that its machine becomes a vm, with a kernel of its own. Approving moves it: all processes
        of the machine end; its id, files, grants, network rules and steps stay. This takes a few seconds and cannot be
        undone.
      </p>
      <div class="bar">
        <Act class="primary" run={() => approveMove(item)}>Approve and move</Act>
        <Act class="danger" run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
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

function Ways({ item }: { item: PendingItem }) {
  if (item.moves) return <Move item={item} />;
  return item.protocol === "question" ? <Answer item={item} /> : <Decide item={item} />;
}

function Decide({ item }: { item: PendingItem }) {
  const approve = (more: Partial<Decision> = {}) => () => send(item, { decision: "approve", ...more }, "Approved.");
  return (
    <>
      <p class="soft">
        {item.always
          ? <>“Always” adds this rule: <code>{shown(item.always)}</code></>
          : `No rule can be added: ${shown(item.no_rule ?? "")}`}
      </p>
      <div class="bar">
        <Act class="primary" run={approve()}>Approve once</Act>
        {item.always && <Act run={approve({ ttl: "1h" })}>For an hour</Act>}
        {item.always && <Act run={approve({ always: true })}>Always</Act>}
        <Act class="danger" run={() => send(item, { decision: "deny" }, "Refused.")}>Refuse</Act>
      </div>
    </>
  );
}

function Item({ item, current }: { item: PendingItem; current: boolean }) {
  return (
    <section class={`panel pending ${current ? "current" : ""}`} aria-label={pendingText(item)} aria-current={current}>
      <div class="bar">
        <Badge kind="warn">{item.moves ? "move to a vm" : item.protocol}</Badge>
        <a href={href(["machines", item.machine])} title={item.machine}>{machineName(item.machine)}</a>
        {(item.waiting ?? 0) > 1 && <span class="soft">{item.waiting} connections</span>}
        <span class="space" />
        <Left item={item} />
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
      {item.approved
        ? <p><Badge kind="good">approved</Badge> The machine has not sent the request again yet.</p>
        : <Ways item={item} />}
    </section>
  );
}

export function Approvals() {
  const [at, setAt] = useState(""); // the id of a request, so that another one in its place is not meant
  useEffect(machinesWatch, []);
  const items = pending.value;
  const current = items?.findIndex((p) => p.id === at) ?? -1;
  const item = items?.[current];
  const move = (by: number) => setAt(items?.[Math.max(0, Math.min(current + by, items.length - 1))]?.id ?? "");
  const next = () => setAt(pending.value?.find((p) => !p.approved)?.id ?? "");
  useEffect(() => {
    if (!at && items?.length) setAt(items[0]!.id);
  }, [at, items]);
  const act = (how: Decision, said: string) => () => {
    if (item?.moves && how.decision === "approve") return how.always ? undefined : approveMove(item);
    const refuses = item?.moves && how.decision === "deny";
    const fits = item && (refuses || (!item.approved && item.protocol !== "question" && !(how.always && !item.always)));
    if (fits) send(item, how, said).then(next, (e: Error) => toast(e.message, "bad"));
  };
  useKeys([
    { keys: "j", what: "Next request", run: () => move(1) },
    { keys: "k", what: "Previous request", run: () => move(-1) },
    { keys: "a", what: "Approve the request once", run: act({ decision: "approve" }, "Approved.") },
    { keys: "A", what: "Approve it always", run: act({ decision: "approve", always: true }, "Approved.") },
    { keys: "d", what: "Refuse the request", run: act({ decision: "deny" }, "Refused.") },
  ]);
  const notify = async () => {
    if (!(await notifySet(!notifies.value))) toast("This browser does not allow notifications here.", "bad");
  };
  return (
    <>
      <div class="bar">
        <h1>Approvals</h1>
        <span class="space" />
        <Act run={notify}>{notifies.value ? "Stop notifying me" : "Notify me"}</Act>
      </div>
      <Problem error={pendingError.value ?? undefined} />
      {!items && !pendingError.value && <Loading />}
      {items?.length === 0 && (
        <Empty>Nothing waits. A request waits here if a network rule of its machine has the action “ask”.</Empty>
      )}
      {items?.map((p, i) => <Item key={p.id} item={p} current={i === current} />)}
    </>
  );
}
