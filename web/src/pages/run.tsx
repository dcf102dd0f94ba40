// One run: the conversation of the model with its tools, and what the owner can do about it.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, at, download, jsonLines, withQuery } from "../api";
import { pending } from "../approvals";
import { onReturn } from "../events";
import { machineName, machinesWatch } from "../machines";
import { href } from "../router";
import { Act, Badge, Field, Loading, Problem, State } from "../ui/basics";
import { FormDialog, openDialog } from "../ui/dialog";
import { count, duration, shown, shownOutput, shownText, time } from "../ui/format";
import { useLoad } from "../ui/load";
import { useGuard } from "../ui/steady";
import { type Call, type Conversation, conversationAdd, conversationNew, type Entry, type RunEvent,
  type Try } from "./transcript";
import { type Run, runTitle, stateKind } from "./run_types";

const TRY_MS = 2000;
const END_MS = 30_000; // a run that is cancelled ends its commands first
const SHOWN = 200; // entries at first; the rest on request

/** Reads the transcript, and follows it if it is live. When `version` changes, or after a lost connection, it is
 * read again from its beginning. */
function useConversation(id: string, live: boolean, version = ""): { c: Conversation; error: Error | undefined } {
  const [c, setC] = useState(conversationNew);
  const [error, setError] = useState<Error>();
  const [again, setAgain] = useState(0);
  useEffect(() => onReturn(() => setAgain((n) => n + 1)), []);
  useEffect(() => {
    const stop = new AbortController();
    const next = conversationNew();
    let frame = 0;
    const show = () => {
      frame ||= requestAnimationFrame(() => { frame = 0; setC({ ...next }); });
    };
    const read = async () => {
      const target = withQuery(at`/v1/runs/${id}/transcript`, { follow: live });
      for await (const e of jsonLines<RunEvent>("GET", target, { signal: stop.signal })) {
        conversationAdd(next, e);
        show();
      }
    };
    read().then(() => setError(undefined), (e: Error) => stop.signal.aborted || setError(e));
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [id, live, version, again]);
  return { c, error };
}

/** The argument that says most, for the line of a folded call. */
function callSubject(call: Call): string {
  try {
    const all = JSON.parse(call.arguments) as Record<string, unknown>;
    if (call.tool === "plan" && Array.isArray(all.items)) {
      const done = (all.items as { status?: string }[]).filter((i) => i.status === "done").length;
      return `${count(all.items.length, "step")}, ${done} done`;
    }
    for (const name of ["cmd", "command", "path", "url", "query", "question", "status", "name"])
      if (typeof all[name] === "string") return all[name] as string;
  } catch {
    // a call that cannot be parsed is shown as it is
  }
  return call.arguments;
}

const DEEP_MAX = 8; // levels of JSON that are shown as an outline

/** JSON as an outline, which is read at a glance. */
function outline(value: unknown, deep = 0): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (deep === DEEP_MAX) return JSON.stringify(value);
  const indent = "  ".repeat(deep);
  const isList = Array.isArray(value);
  const rows = Object.entries(value).map(([k, v]) => {
    const nested = typeof v === "object" && v !== null && Object.keys(v).length > 0;
    if (isList) return `${indent}- ${outline(v, deep + 1).trimStart()}`;
    return nested ? `${indent}${k}:\n${outline(v, deep + 1)}` : `${indent}${k}: ${outline(v)}`;
  });
  return rows.join("\n");
}

function pretty(text: string): string {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null ? outline(value) : text;
  } catch {
    return text;
  }
}

/** The exit status of a command, if it is known and not 0. */
function exitOf(result: string | undefined): number {
  const found = /^\{[^{}]*?"exit_code":(\d+)/.exec(result ?? "");
  return Number(found?.[1] ?? 0);
}

function CallEntry({ call }: { call: Call }) {
  const waits = call.result === undefined;
  const exit = exitOf(call.result);
  return (
    <details class="call">
      <summary>
        <b>{shown(call.tool)}</b> <span class="clip mono">{shown(callSubject(call))}</span>
        {waits && <Badge kind="warn">running</Badge>}
        {exit ? <Badge kind="bad">exit {exit}</Badge> : null}
        {call.failed && <Badge kind="bad">failed</Badge>}
        {call.took_ms !== undefined && <span class="soft">{call.took_ms} ms</span>}
      </summary>
      {call.fallback && <p class="soft">{shown(call.fallback)}</p>}
      <h3>Arguments</h3>
      <pre>{shownText(pretty(call.arguments))}</pre>
      {!waits && <><h3>Result</h3><pre>{shownOutput(pretty(call.result!))}</pre></>}
    </details>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] | undefined }) {
  if (!lines?.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul>{lines.map((l, i) => <li key={i}>{shownText(l)}</li>)}</ul>
    </>
  );
}

/** What an entry can do: return to its checkpoint. Undefined while the run works. */
type Back = ((step: string) => void) | undefined;

function EntryView({ entry, machine, back }: { entry: Entry; machine: string; back?: Back }) {
  if (entry.kind === "call") return <CallEntry call={entry.call} />;
  if (entry.kind === "line") return <p class={entry.bad ? "problem" : "said soft"}>{shownText(entry.text)}</p>;
  if (entry.kind === "point")
    return (
      <p class="said soft">
        ◆ {shown(entry.text)}: <a href={href(["machines", machine], { tab: "timeline" })}>step {shown(entry.step)}</a>
        {back && <Act class="quiet" title={`Resume from here: step ${shown(entry.step)}`} run={() => back(entry.step)}>Resume from here</Act>}
      </p>
    );
  if (entry.kind === "end")
    return (
      <section class="panel report" aria-label="Report">
        <h2>Report <Badge kind={entry.status === "done" ? "good" : "bad"}>{entry.status}</Badge></h2>
        <p>{shownText(entry.report.summary ?? "")}</p>
        <Lines title="Evidence" lines={entry.report.evidence} />
        <Lines title="Results" lines={entry.report.outputs} />
        <Lines title="Open" lines={entry.report.open_issues} />
      </section>
    );
  return (
    <article class={`said ${entry.kind}`} aria-label={entry.kind === "owner" ? "You" : "Model"} title={time(entry.time)}>
      <b>{entry.kind === "owner" ? "You" : "Model"}</b>
      <div class="text">{shownText(entry.text)}</div>
      {entry.kind === "model" && <small class="soft">{entry.note}</small>}
    </article>
  );
}

function Budget({ name, used, limit, text }: { name: string; used: number; limit: number | undefined; text: string }) {
  return (
    <div class="budget">
      <span>{name}</span>
      <b>{text}</b>
      {limit
        ? <meter min={0} max={limit} high={limit * 0.8} value={used} aria-label={`${name} used`} />
        : <span class="soft">unlimited</span>}
    </div>
  );
}

function Budgets({ run, start }: { run: Run; start: RunEvent | undefined }) {
  const of = (used: string, limit: string | undefined) => (limit ? `${used} of ${limit}` : used);
  const money = (micro: number) => (micro / 1e6).toFixed(4);
  return (
    <section class="panel budgets" aria-label="Budget">
      <Budget name="Turns" used={run.turns} limit={start?.turns} text={of(`${run.turns}`, start?.turns?.toString())} />
      <Budget name="Tokens" used={run.tokens} limit={start?.tokens}
        text={of(run.tokens.toLocaleString("en"), start?.tokens?.toLocaleString("en"))} />
      <Budget name="Cost" used={run.cost_micro} limit={start?.money}
        text={of(money(run.cost_micro), start?.money ? money(start.money) : undefined)} />
      <Budget name="Time" used={run.wall_ms} limit={start?.timeout_ms}
        text={of(duration(run.wall_ms), start?.timeout_ms ? duration(start.timeout_ms) : undefined)} />
    </section>
  );
}

function Plan({ c }: { c: Conversation }) {
  if (!c.plan.length) return null;
  const marks = { todo: "○", doing: "◐", done: "●" };
  return (
    <section class="panel" aria-label="Plan">
      <h2>Plan</h2>
      <ul class="plan">
        {c.plan.map((p, i) => <li key={i} class={p.status}><span role="img" aria-label={p.status} title={p.status}>{marks[p.status] ?? "○"}</span> {shownText(p.text)}</li>)}
      </ul>
    </section>
  );
}

/** Tries are asked now and then: a browser keeps few connections open, too few to follow each of them. */
function TryView({ row, number }: { row: Try; number: number }) {
  const [tick, setTick] = useState(0);
  const { data, reload } = useLoad((signal) => api.get<Run>(at`/v1/runs/${row.run}`, {}, signal), [row.run],
    (e) => e.detail?.run === row.run);
  const over = data?.state === "ended";
  const { c } = useConversation(row.run, false, `${tick} ${over}`);
  useEffect(() => {
    if (over) return;
    const timer = setInterval(() => { setTick((n) => n + 1); reload(); }, TRY_MS);
    return () => clearInterval(timer);
  }, [over]);
  return (
    <section class="panel" aria-label={`Try ${number}`}>
      <h3>
        <a href={href(["runs", row.run])}>Try {number}</a>{" "}
        {row.good !== undefined && <Badge kind={row.good ? "good" : "bad"}>{row.good ? "successful" : "not successful"}</Badge>}{" "}
        {data && <Badge kind={stateKind(data)}>{data.status ?? data.state}</Badge>}
      </h3>
      <p class="soft">
        {row.machine} {row.changes !== undefined && `· ${row.changes} changed`} {data && `· ${count(data.calls, "call")}`}
        {row.changeset && <> · <a href={href(["review", row.changeset])}>review</a></>}
      </p>
      {c.entries.slice(-30).map((entry, i) => <EntryView key={i} entry={entry} machine={row.machine} />)}
    </section>
  );
}

type Asked = NonNullable<Run["question"]>;

function QuestionForm({ run, asked, done }: { run: Run; asked: Asked; done: () => void }) {
  const [text, setText] = useState("");
  const send = (action: string, answer?: string) => async () => {
    await api.post(at`/v1/runs/${run.id}/answer`, { question: asked.id, action, ...(answer === undefined ? {} : { answer }) });
    done();
  };
  return (
    <section class="panel question" role="alert" aria-label="Question">
      <h2>The run asks</h2>
      <p class="text">{shownText(asked.question ?? "")}</p>
      <div class="bar">{asked.options?.map((c) => <Act key={c} run={send("accept", c)}>{shown(c)}</Act>)}</div>
      <Field label="Your answer">
        <textarea rows={2} value={text} onInput={(e) => setText(e.currentTarget.value)} />
      </Field>
      <Act class="primary" off={!text.trim()} run={send("accept", text)}>Answer</Act>{" "}
      <Act run={send("decline")}>Decline</Act>
    </section>
  );
}

/** A new question has a form of its own: what was typed or pressed for the one before is not for it. */
function Question({ run, done }: { run: Run; done: () => void }) {
  const asked = run.question;
  const list = useRef<HTMLDivElement>(null);
  const guard = useGuard(list, "Nothing was answered: the question came just before you pressed. Read it, and press again.");
  return (
    <div ref={list} onClickCapture={guard}>
      {asked && !asked.question && <p class="warning">The run waits for an <a href={href(["approvals"])}>approval</a>.</p>}
      {asked?.question && <QuestionForm key={asked.id} run={run} asked={asked} done={done} />}
    </div>
  );
}

/** A program of a run may ask for something when the run ends: then nobody waits for it here. */
function StillWaits({ run }: { run: Run }) {
  if (run.state !== "ended" && run.state !== "interrupted") return null;
  const waiting = (pending.value ?? []).filter((p) => p.machine === run.machine && !p.approved).length;
  if (!waiting) return null;
  return (
    <p class="warning" role="status">
      The run {run.state === "ended" ? "has ended" : "was interrupted"}, and {count(waiting, "request")} of its machine still
      {waiting === 1 ? " waits" : " wait"} for <a href={href(["approvals"])}>your decision</a>.
    </p>
  );
}

function Comment({ run, done, close }: { run: Run; done: () => void; close: () => void }) {
  const [comment, setComment] = useState("");
  const key = useRef(crypto.randomUUID());
  const submit = async () => {
    await api.post(at`/v1/runs/${run.id}/resume`, { comment, key: key.current });
    done();
  };
  return (
    <FormDialog title="Continue the run" action="Continue" submit={submit} close={close}>
      <Field label="Comment" hint="What it should do now: the model gets it as its next message.">
        <textarea required rows={5} value={comment} onInput={(e) => setComment(e.currentTarget.value)} />
      </Field>
    </FormDialog>
  );
}

/** Ends a run that was interrupted, so that it can be returned with a comment. */
async function runEnd(run: Run): Promise<void> {
  let { state } = run;
  if (state !== "ended") await api.post(at`/v1/runs/${run.id}/cancel`);
  for (const end = Date.now() + END_MS; state !== "ended"; ) {
    if (Date.now() > end) throw new Error("The run has not ended yet. Try again.");
    await new Promise((done) => setTimeout(done, 200));
    ({ state } = await api.get<Run>(at`/v1/runs/${run.id}`));
  }
}

function GoBack({ run, step, done, close }: { run: Run; step: string; done: () => void; close: () => void }) {
  const [comment, setComment] = useState("");
  const key = useRef(crypto.randomUUID());
  const submit = async () => {
    await runEnd(run);
    await api.post(at`/v1/machines/${run.machine}/rewind`, { step });
    const said = `The files of the machine were rewound to the checkpoint ${step}: what was changed after it is undone.`;
    await api.post(at`/v1/runs/${run.id}/resume`, { comment: `${said}\n\n${comment}`.trim(), key: key.current });
    done();
  };
  return (
    <FormDialog title="Resume from this checkpoint" action="Rewind and resume" danger submit={submit} close={close}>
      <p>The files of {run.machine} become those of step <code>{shown(step)}</code>, and its processes end. The present
        state is kept as a step. The model is told, and continues.</p>
      <Field label="Comment" hint="What it should do differently. Optional.">
        <textarea rows={4} value={comment} onInput={(e) => setComment(e.currentTarget.value)} autofocus />
      </Field>
    </FormDialog>
  );
}

function Actions({ run, reload }: { run: Run; reload: () => void }) {
  const post = (verb: string) => () => api.post(`${at`/v1/runs/${run.id}`}/${verb}`).then(reload);
  const live = run.state === "running" || run.state === "waiting";
  return (
    <>
      {live && <Act class="danger" run={post("cancel")}>Cancel</Act>}
      {run.state === "interrupted" && <Act class="primary" run={post("resume")}>Resume</Act>}
      {run.state === "ended" && (
        <Act run={() => openDialog((close) => <Comment run={run} done={reload} close={close} />)}>Continue</Act>
      )}
      {!live && <a class="button" href={href(["review", run.machine])}>Review changes</a>}
      <Act run={() => download(at`/v1/runs/${run.id}/export`, `${run.id}.json`)}>Export</Act>
    </>
  );
}

function Talk({ c, machine, back }: { c: Conversation; machine: string; back: Back }) {
  const [all, setAll] = useState(false);
  const hidden = all ? 0 : Math.max(0, c.entries.length - SHOWN);
  return (
    <div class="talk">
      {hidden > 0 && <Act run={() => setAll(true)}>Show {hidden} earlier entries</Act>}
      {c.entries.slice(hidden).map((entry, i) => <EntryView key={hidden + i} entry={entry} machine={machine} back={back} />)}
    </div>
  );
}

export function RunPage({ id }: { id: string }) {
  const { data: run, error, reload } = useLoad((signal) => api.get<Run>(at`/v1/runs/${id}`, {}, signal), [id],
    (e) => e.detail?.run === id || e.type.startsWith("run") || e.type.startsWith("net"));
  useEffect(machinesWatch, []);
  const live = run !== undefined && run.state !== "ended" && run.state !== "interrupted";
  // A run that is continued may end again before the page sees it work.
  const { c, error: lost } = useConversation(id, live, live || !run ? "" : `${run.turns} ${run.calls}`);
  useEffect(() => {
    if (live) reload(); // for the turns and tokens
  }, [c.entries.length]);
  const back: Back = live || !run
    ? undefined
    : (step) => openDialog((close) => <GoBack run={run} step={step} done={reload} close={close} />);
  if (!run) return error ? <Problem error={error} /> : <Loading />;
  return (
    <>
      <div class="bar">
        <h1>{runTitle(run)}</h1>
        <State kind={stateKind(run)}>{run.status ?? run.state}</State>
        <span class="space" />
        <div class="acts"><Actions run={run} reload={reload} /></div>
      </div>
      <p class="soft">
        <code>{run.id}</code>: {shown(run.model)} in <a href={href(["machines", run.machine])}>{machineName(run.machine)}</a>, {run.mode},
        {" "}{time(run.created)}
      </p>
      {run.reason && <p class="warning">{shown(run.reason)}</p>}
      <Problem error={error ?? (live ? undefined : lost)} />
      <Question run={run} done={reload} />
      <StillWaits run={run} />
      <Budgets run={run} start={c.start} />
      <Plan c={c} />
      {c.tries.length > 0 && (
        <div class="tries">{c.tries.map((t, i) => t?.run && <TryView key={t.run} row={t} number={i + 1} />)}</div>
      )}
      <Talk c={c} machine={run.machine} back={back} />
    </>
  );
}
