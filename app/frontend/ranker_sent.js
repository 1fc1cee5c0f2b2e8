// Answers as they are sent, and as they come back: drafts, statuses, what makes two of them equal. No elements.

/** @import { Answer } from "./ranker_answer.js" */
/** @import { Body, Item, Saved, Task } from "./ranker_types" */

const TROUBLE_MS = 6000;
const BACKUP_AFTER_MS = 20_000;

/**
 * How it stands with what is on its way: a name, words for it, and whether a copy in a file is offered.
 * @param {Item[]} items
 * @param {string} trouble
 */
export function savedState(items, trouble) {
  const waits = items.length ? Date.now() - Math.min(...items.map((item) => item.sent_at ?? 0)) : 0;
  const state = !items.length ? "saved" : waits < TROUBLE_MS && !trouble ? "saving" : "trouble";
  const words = { saved: "All saved", saving: `${items.length} saving…`, trouble: "Not saved yet, trying again" };
  return { state, words: words[state], mayBackUp: waits >= BACKUP_AFTER_MS };
}

/**
 * A draft fits if it was made for this very order.
 * @param {Saved | null | undefined} draft
 * @param {Task} task
 * @returns {Saved | null}
 */
export function fits(draft, task) {
  return draft && JSON.stringify(draft.display_order) === JSON.stringify(task.display_order) ? draft : null;
}

/**
 * What was sent as a draft again: the rest has no rank.
 * @param {Item} item
 * @returns {Saved}
 */
export function draftOf(item) {
  const rest = item.unplaced ?? [];
  const ranks = (item.ranks ?? []).map((rank, place) => (rest.includes(place) ? null : rank));
  return { ...item, ranks, rest: rest.length > 0 };
}

/** @param {Body} given */
export function statusOf({ unacceptable, skip_reason: reason }) {
  if (reason) return { status: "skipped", skip_reason: reason };
  return { status: unacceptable ? "unacceptable" : "ranked" };
}

/**
 * @param {Saved} given
 * @param {Answer} answer
 * @returns {Body}
 */
export function sentBefore({ status, skip_reason: reason }, answer) {
  if (status === "skipped") return { skip_reason: reason };
  return status === "ranked" ? answer.ranking() : { unacceptable: true, ...answer.said() };
}

/**
 * An answer as text, to see whether a change changes anything.
 * @param {Body} given
 */
export function comparable({
  ranks,
  unplaced,
  acceptable,
  flags,
  quality,
  strength,
  rationale,
  unacceptable,
  skip_reason: skip,
}) {
  return JSON.stringify([
    ranks,
    unplaced,
    acceptable,
    flags,
    quality,
    strength,
    rationale || undefined,
    unacceptable,
    skip,
  ]);
}
