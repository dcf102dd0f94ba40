// What of a change set is ordered: files, and hunks of texts.
import { ORDER_LIST_MAX, type Order, type Review, type ReviewFile } from "../orders";

export type Choice = "all" | "none" | number[]; // numbers of hunks, from 1

export type Picked = Record<string, Choice>; // by path; a file that is not named is picked

export function hunksOf(diff: string | undefined): string[] {
  if (!diff) return [];
  return diff.split(/^(?=@@ )/m).filter((h) => h.startsWith("@@ "));
}

const TAINTED = "after untrusted input";

/** What to look at in this file. That the machine had read untrusted data is said once, of the whole change set. */
export function flagsOf(file: ReviewFile): string[] {
  return file.flags.split(/, (?!stripped)/).filter((f) => f && f !== TAINTED);
}

export function choiceOf(picked: Picked, file: ReviewFile): Choice {
  return file.refused ? "none" : (picked[file.path] ?? "all");
}

/** Picks or leaves one hunk. All hunks are the file; no hunk is no file. */
export function toggleHunk(choice: Choice, number: number, count: number): Choice {
  const every = Array.from({ length: count }, (_, i) => i + 1);
  const now = new Set(choice === "all" ? every : choice === "none" ? [] : choice);
  if (!now.delete(number)) now.add(number);
  if (now.size === 0) return "none";
  return now.size === count ? "all" : every.filter((n) => now.has(n));
}

/** The order that ships what is picked. Throws if it has too many parts. */
export function shipOrder(review: Review, picked: Picked): Order {
  const what: Order = { machine: review.changeset, yes: true };
  if (review.branch) return what;
  const files = review.files.filter((f) => !f.refused);
  if (files.every((f) => choiceOf(picked, f) === "all")) return what;
  const only = files.filter((f) => choiceOf(picked, f) === "all").map((f) => f.path);
  const hunks = files.flatMap((f) => {
    const choice = choiceOf(picked, f);
    return Array.isArray(choice) ? [`${f.path}:${choice.join(",")}`] : [];
  });
  if (only.length > ORDER_LIST_MAX || hunks.length > ORDER_LIST_MAX)
    throw new Error(`Pick at most ${ORDER_LIST_MAX} files, or all of them.`);
  return { ...what, ...(only.length ? { only } : {}), ...(hunks.length ? { hunks } : {}) };
}
