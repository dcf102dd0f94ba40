// One change set: its files, what of them is picked, and its shipment.
import { useState } from "preact/hooks";
import { type Done, type Order, order, type Review, repositoryDiffs, type ReviewFile } from "../orders";
import { who } from "../session";
import type { ChangeSet } from "../types";
import { Act, Badge } from "../ui/basics";
import { DiffView } from "../ui/diff";
import { FormDialog, openDialog } from "../ui/dialog";
import { count, shown, shownOutput, shownText } from "../ui/format";
import { useKeys } from "../ui/keys";
import { toast } from "../ui/toast";
import { FileView } from "./review_file";
import { type Choice, choiceOf, flagsOf, type Picked, shipOrder } from "./review_pick";

const OPENED = 20; // files whose difference is shown at first

/** The directory that the review showed. A link that leads elsewhere by now is refused. */
const where = (review: Review, to: string | undefined) => ({ ...(to && { to }), ...(review.target && { target: review.target }) });

interface ShipProps {
  review: Review;
  what: Order;
  files: ReviewFile[];
  done: (done: Done) => void;
  close: () => void;
}

function ShipDialog({ review, what, files, done, close }: ShipProps) {
  const [uncommitted, setUncommitted] = useState(false);
  const flagged = files.filter((f) => flagsOf(f).length > 0);
  const submit = async (closed: AbortSignal) =>
    done(await order({ ...what, ...(uncommitted ? { uncommitted } : {}) }, closed));
  const from = review.branch ? `${count(review.commits ?? 0, "commit")} as the branch ${review.branch}` : ofFiles(files);
  return (
    <FormDialog title="Ship" action="Ship" submit={submit} close={close}>
      <p>{shown(from)} to <code>{shown(review.target ?? "")}</code></p>
      {flagged.length > 0 && (
        <div class="warning">
          Look at these first:
          <ul>{flagged.slice(0, 20).map((f) => <li key={f.path}><code>{shown(f.path)}</code> {flagsOf(f).join(", ")}</li>)}</ul>
        </div>
      )}
      {!!review.uncommitted?.length && (
        <label class="field line">
          <input type="checkbox" checked={uncommitted} onChange={() => setUncommitted(!uncommitted)} />
          Ship {count(review.uncommitted.length, "uncommitted file")} too, as one more commit
        </label>
      )}
    </FormDialog>
  );
}

/** What `carrel ship --undo` printed, beside the word "undone". */
function undoneText(output: string): string {
  return shown(output.trim()).replace(/^(\d+) undone/m, (_, n) => count(Number(n), "change"));
}

/** Directories are listed and picked too. */
function ofFiles(files: ReviewFile[]): string {
  return count(files.length, files.some((f) => f.directory) ? "change" : "file");
}

/** What `carrel ship` printed at its end: the receipt, and how to undo. */
function Receipt({ review, to, text, undone }: { review: Review; to: string | undefined; text: string; undone: (output: string) => void }) {
  const undo = async () => undone((await order({ undo: review.changeset, yes: true, ...where(review, to) })).output);
  const lines = text.trim().split("\n");
  const told = lines.filter((l) => !/^[-+ @\\]|^[AMDC!] {2}|^hunk \d/.test(l)).join("\n");
  const refused = review.branch ? [] : lines.filter((l) => /^! {2}.*  refused: /.test(l)).map((l) => l.slice(3).split(/  refused: (?!.*  refused: )/));
  return (
    <div class="receipt">
      <h3>Receipt</h3>
      <pre>{shownOutput(told || text)}</pre>
      {refused.length > 0 && (
        <div class="problem">
          Not shipped:
          <ul>{refused.map(([what, why], i) => <li key={i}><code>{shown(what!.replace(/  \[.*/, ""))}</code>: {shown(why!)}</li>)}</ul>
        </div>
      )}
      <Act run={undo}>Undo</Act>
    </div>
  );
}

/** A change set that was shipped earlier, perhaps by another page. */
function Shipped({ review, to, undone }: { review: Review; to: string | undefined; undone: (output: string) => void }) {
  const undo = async () => undone((await order({ undo: review.changeset, yes: true, ...where(review, to) })).output);
  return (
    <div class="receipt bar">
      <Badge kind="good">shipped</Badge> This change set was shipped.
      <span class="space" />
      <Act off={!who.value?.ships} run={undo}>Undo</Act>
    </div>
  );
}

function Repository({ review }: { review: Review }) {
  return (
    <>
      {review.log && <><h3>Commits</h3><pre>{shownText(review.log)}</pre></>}
      {review.diff_left_out && <p class="warning">The difference is too long to be shown here: use carrel ship {review.changeset}.</p>}
      {!!review.uncommitted?.length && (
        <details>
          <summary>{count(review.uncommitted.length, "uncommitted file")}</summary>
          <ul>{review.uncommitted.map((f) => <li key={f.path}><code>{shown(f.path)}</code></li>)}</ul>
        </details>
      )}
    </>
  );
}

function Database({ review, sides }: { review: Review; sides: boolean }) {
  const db = review.database;
  if (!db) return null;
  if (db.error) return <p class="problem">{shown(db.error)}</p>;
  if (db.same || !db.diff) return <p class="empty">The database is unchanged.</p>;
  return (
    <>
      <DiffView hunks={db.diff} sides={sides} />
      {db.cut && <p class="warning">The difference reached its limit and is incomplete.</p>}
    </>
  );
}

function filesOf(review: Review): ReviewFile[] {
  if (!review.diff) return review.files;
  const diffs = repositoryDiffs(review.diff);
  return review.files.map((f) => {
    const diff = diffs.get(f.path);
    return diff === undefined ? f : { ...f, diff };
  });
}

interface SetProps {
  review: Review;
  to: string | undefined; // directory of this host, if it is not where the change set came from
  row: ChangeSet | undefined; // undefined: not known yet
  names: Map<number, string>; // of steps
  sides: boolean;
  first: boolean; // the key S ships this one
}

export function ChangeSetView({ review, to, row, names, sides, first }: SetProps) {
  const state = row?.state;
  const [picked, setPicked] = useState<Picked>({});
  const [receipt, setReceipt] = useState("");
  const [undone, setUndone] = useState("");
  const files = filesOf(review);
  const chosen = files.filter((f) => choiceOf(picked, f) !== "none");
  const alone = !review.branch && !review.database;
  const leftOut = files.filter((f) => f.diff_left_out && f.diff === undefined).length;
  const nothing = review.branch ? !review.commits : review.database ? review.database.same : chosen.length === 0;
  const ship = () => {
    const what = { ...shipOrder(review, picked), ...where(review, to) };
    const done = ({ status, output }: Done) => {
      setUndone("");
      setReceipt(output);
      if (status) toast("Not everything was shipped: read the receipt.", "bad");
      else toast("Shipped.");
    };
    openDialog((close) => <ShipDialog review={review} what={what} files={chosen} done={done} close={close} />);
  };
  const over = !undone && (receipt !== "" || state === "shipped");
  const canShip = !nothing && !!who.value?.ships;
  useKeys(first ? [{ keys: "S", what: "Ship what is picked", run: () => canShip && ship() }] : []);
  const takeBack = (output: string) => {
    setUndone(output);
    toast(output.trim().split("\n").at(-1) || "Undone.");
  };
  const all = (choice: Choice) => setPicked(Object.fromEntries(files.map((f) => [f.path, choice])));
  return (
    <section class="changeset" aria-label={`Change set ${review.changeset}`}>
      <div class="bar">
        <h2>{review.branch ? `Branch ${shown(review.branch)}` : shown(review.slice || "Files")}</h2>
        <span class="soft">to <code>{shown(review.target ?? "")}</code> · {review.changeset}</span>
        <span class="space" />
        {alone && files.length > 1 && (
          <>
            <button type="button" class="quiet" onClick={() => all("all")}>All</button>
            <button type="button" class="quiet" onClick={() => all("none")}>None</button>
          </>
        )}
        <Act class={over ? "" : "primary"} off={!canShip} run={ship}>
          {`${over ? "Ship again" : "Ship"}${alone ? ` ${chosen.length} of ${ofFiles(files)}` : ""}`}
        </Act>
      </div>
      {alone && <div class="unseen" role="status">{chosen.length} of {ofFiles(files)} picked</div>}
      {files.length === 0 && !review.database && !review.commits && <p class="empty">Nothing has changed.</p>}
      {review.branch && <Repository review={review} />}
      {receipt && !undone && <Receipt review={review} to={to} text={receipt} undone={takeBack} />}
      {state === "shipped" && !receipt && !undone && <Shipped review={review} to={to} undone={takeBack} />}
      {undone && <p class="receipt"><Badge kind="good">undone</Badge> {undoneText(undone)}</p>}
      <Database review={review} sides={sides} />
      {row?.tainted && files.length > 0 && (
        <p class="warning" role="status">
          The machine had read untrusted data (<code>{shown(row.tainted)}</code>) before this was frozen. It sets the times of its files
          itself, so any of these changes may be from after that.
        </p>
      )}
      {leftOut > 0 && (
        <p class="warning" role="status">
          This review is long: the {leftOut === 1 ? "difference" : "differences"} of {count(leftOut, "file")} {leftOut === 1 ? "is" : "are"} shown
          when you ask for {leftOut === 1 ? "it" : "them"}, one file at a time.
        </p>
      )}
      {files.map((f, i) => (
        <FileView key={f.path} review={review} file={f} sides={sides} opened={i < OPENED} stepName={names.get(f.step ?? 0)} choice={choiceOf(picked, f)}
          pick={alone ? (choice) => setPicked({ ...picked, [f.path]: choice }) : undefined} />
      ))}
    </section>
  );
}
