// One file of a change set: its flags with their reasons, its difference, its picture.
import { useEffect, useState } from "preact/hooks";
import { at, contentOf, request } from "../api";
import { archiveFile, imageType } from "../archive";
import { order, reviewsRead, type Review, type ReviewFile } from "../orders";
import { Act, Badge } from "../ui/basics";
import { DiffView } from "../ui/diff";
import { bytes, shown } from "../ui/format";
import { type Choice, flagsOf, hunksOf, toggleHunk } from "./review_pick";

const changes: Record<string, [string, string]> = {
  A: ["added", "added"],
  M: ["modified", "modified"],
  D: ["deleted", "deleted"],
  C: ["modified", "in an earlier commit"],
};

const IMAGE_MAX = 16 << 20;
const ARCHIVE_MAX = 256 << 20; // it is read into memory

function isImage(file: ReviewFile): boolean {
  return /\.(png|jpe?g|gif|webp)$/i.test(file.path) && file.change !== "D" && file.size <= IMAGE_MAX;
}

/** A picture from the frozen archive. The browser gets only pixels: the first bytes decide, not the name. */
function Picture({ changeset, file }: { changeset: string; file: ReviewFile }) {
  const [url, setUrl] = useState("");
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  const load = async () => {
    const archive = await request("GET", at`/v1/changesets/${changeset}/archive`);
    const found = archiveFile(new Uint8Array(await contentOf(archive, ARCHIVE_MAX)), file.path);
    const type = found && imageType(found);
    if (!type) throw new Error("This file is not a PNG, JPEG, GIF or WebP image.");
    setUrl(URL.createObjectURL(new Blob([found], { type })));
  };
  return url ? <img class="picture" src={url} alt={shown(file.path)} /> : <Act run={load}>Show the image</Act>;
}

interface HunksProps {
  file: ReviewFile;
  diff: string;
  sides: boolean;
  choice: Choice;
  pick: ((choice: Choice) => void) | undefined;
}

function Hunks({ file, diff, sides, choice, pick }: HunksProps) {
  const hunks = hunksOf(diff);
  const single = !pick || hunks.length < 2 || file.change !== "M" || !!file.refused;
  if (single) return <DiffView hunks={diff} sides={sides} />;
  return (
    <>
      {hunks.map((hunk, i) => {
        const on = choice === "all" || (Array.isArray(choice) && choice.includes(i + 1));
        return (
          <div class={`hunk-part ${on ? "" : "off"}`} key={i}>
            <label class="hunk-pick">
              <input type="checkbox" checked={on} onChange={() => pick(toggleHunk(choice, i + 1, hunks.length))} />
              hunk {i + 1}
            </label>
            <DiffView hunks={hunk} sides={sides} />
          </div>
        );
      })}
    </>
  );
}

function Content({ review, file, sides, choice, pick }: Props) {
  const [late, setLate] = useState<string>();
  const diff = file.diff ?? late;
  const load = async () => {
    const done = await order({ machine: review.changeset, only: [file.path] });
    const found = reviewsRead(done.output)[0]?.files.find((f) => f.path === file.path);
    if (found?.diff === undefined)
      throw new Error(`The difference is too long to be shown here: use carrel ship ${review.changeset}.`);
    setLate(found.diff);
  };
  if (diff) return <Hunks file={file} diff={diff} sides={sides} choice={choice} pick={pick} />;
  if (file.diff_left_out) return <Act run={load}>Show the difference</Act>;
  if (isImage(file)) return <Picture changeset={review.changeset} file={file} />;
  if (file.target !== undefined) return <p class="empty">A symbolic link: what is shipped is the link, not what it leads to.</p>;
  if (file.directory) return <p class="empty">A directory. What is in it is listed for itself.</p>;
  return <p class="empty">{file.was || file.now ? "The content is the same." : "No text to compare."}</p>;
}

interface Props {
  review: Review;
  file: ReviewFile;
  sides: boolean;
  choice: Choice;
  pick: ((choice: Choice) => void) | undefined; // undefined: it cannot be picked alone
}

export function FileView(props: Props & { opened: boolean; stepName: string | undefined }) {
  const { file, choice, pick, opened, stepName } = props;
  const [open, setOpen] = useState(opened);
  const [kind, word] = changes[file.change ?? ""] ?? ["", "unchanged"];
  const flags = flagsOf(file);
  return (
    <section class="panel file" tabIndex={-1} aria-label={shown(file.path)}>
      <div class="bar">
        {pick && (
          <input type="checkbox" aria-label={`Ship ${shown(file.path)}`} checked={choice !== "none"}
            disabled={!!file.refused} ref={(box) => { if (box) box.indeterminate = Array.isArray(choice); }}
            onChange={() => pick(choice === "none" ? "all" : "none")} />
        )}
        <button type="button" class="quiet fold" aria-expanded={open} aria-label={`Changes of ${shown(file.path)}`}
          onClick={() => setOpen(!open)}>{open ? "▾" : "▸"}</button>
        <code class="path">{shown(file.path)}</code>
        {file.target !== undefined && <span class="soft">link to <code>{shown(file.target)}</code></span>}
        <Badge kind={kind}>{word}</Badge>
        {flags.map((f) => <Badge kind="warn" key={f}>{f}</Badge>)}
        <span class="soft">
          {[file.change !== "D" && file.target === undefined && !file.directory && bytes(file.size), file.step && `step ${shown(stepName || String(file.step))}`]
            .filter(Boolean).join(" · ")}
        </span>
      </div>
      {file.refused && <p class="problem">Refused: {shown(file.refused)}</p>}
      {file.why && <p class="warning">{flags.length > 0 && `${flags.join(", ")}: `}{shown(file.why)}</p>}
      {(file.was || file.now) && <p class="soft">{file.was ? "was" : "is now"} <code>{shown((file.was ?? file.now)!)}</code></p>}
      {open && <Content {...props} />}
    </section>
  );
}
