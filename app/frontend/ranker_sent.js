// Answers as they are sent, and as they come back: drafts, statuses, what makes two of them equal. No elements.

// A draft fits if it was made for this very order.
export function fits(draft, task) {
  return draft && JSON.stringify(draft.display_order) === JSON.stringify(task.display_order) ? draft : null;
}

// What was sent as a draft again: the rest has no rank.
export function draftOf(item) {
  const rest = item.unplaced ?? [];
  const ranks = item.ranks.map((rank, place) => (rest.includes(place) ? null : rank));
  return { ...item, ranks, rest: rest.length > 0 };
}

export function statusOf({ unacceptable, skip_reason: reason }) {
  if (reason) return { status: "skipped", skip_reason: reason };
  return { status: unacceptable ? "unacceptable" : "ranked" };
}

export function sentBefore({ status, skip_reason: reason }, answer) {
  if (status === "skipped") return { skip_reason: reason };
  return status === "ranked" ? answer.ranking() : { unacceptable: true, ...answer.said() };
}

// An answer as text, to see whether a change changes anything.
export function comparable({ ranks, unplaced, acceptable, flags, quality, strength, rationale, unacceptable, skip_reason: skip }) {
  return JSON.stringify([ranks, unplaced, acceptable, flags, quality, strength, rationale || undefined, unacceptable, skip]);
}
