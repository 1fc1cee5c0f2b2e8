// The arithmetic of one ranking: plain functions on ranks by display place (a number, or null: not placed yet).
//
// `rest`: whether all that is not placed was put last, "worse, in no order". Such responses have no rank here.

/** @import { Ranks, Saved, Target } from "./ranker_types" */

const LETTERS = "ABCDEFGHIJKL";

/** @param {number} place */
export const letter = (place) => LETTERS[place];

/** @param {number[]} places */
export const letters = (places) => places.map(letter).join(", ");

/** @param {Ranks} ranks */
export const open = (ranks) => ranks.flatMap((rank, place) => (rank === null ? [place] : []));

/**
 * 1 is best and no number is left out: what the person typed as 2, 2, 5 is 1, 1, 2.
 * @param {Ranks} ranks
 * @returns {Ranks}
 */
export function denseRanks(ranks) {
  const used = [...new Set(ranks.filter((rank) => rank !== null))].sort((a, b) => a - b);
  return ranks.map((rank) => (rank === null ? null : used.indexOf(rank) + 1));
}

/**
 * Places from best to worst in groups of equals, those not placed left out.
 * @param {Ranks} ranks
 * @returns {number[][]}
 */
export function groups(ranks) {
  const found = new Map();
  ranks.forEach((rank, place) => {
    if (rank !== null) found.set(rank, [...(found.get(rank) ?? []), place]);
  });
  return [...found.keys()].sort((a, b) => a - b).map((rank) => found.get(rank));
}

/**
 * @param {Ranks} ranks
 * @param {boolean} [rest]
 */
export function orderText(ranks, rest = false) {
  const placed = groups(ranks).map((places) => places.map(letter).join(" = "));
  return [...placed, ...(rest ? [`the rest (${letters(open(ranks))})`] : [])].join(" > ");
}

/**
 * @param {Ranks} ranks
 * @param {number} place
 */
export function tiedWith(ranks, place) {
  if (ranks[place] === null) return [];
  return ranks.flatMap((rank, other) => (other !== place && rank === ranks[place] ? [letter(other)] : []));
}

/**
 * The next place without a rank after `place`, around the end; `place` itself when there is none.
 * @param {Ranks} ranks
 * @param {number} place
 */
export function nextOpen(ranks, place) {
  for (let step = 1; step <= ranks.length; step += 1) {
    const other = (place + step) % ranks.length;
    if (ranks[other] === null) return other;
  }
  return place;
}

/**
 * Ranks after `place` was dragged: `{ tie: p }` onto place p, `{ before: p }` or `{ after: p }` into the gap beside p's
 * group, `{ only: true }` into an empty order, null out of it. Numbers close up.
 * @param {Ranks} ranks
 * @param {number} place
 * @param {Target | null} target
 * @returns {Ranks}
 */
export function moved(ranks, place, target) {
  const lone = target && [target.tie, target.before, target.after].includes(place) && !tiedWith(ranks, place).length;
  if (lone || (target && target.tie === place)) return ranks;
  const beside = target?.before ?? target?.after;
  const without = ranks.map((rank, other) => (other === place ? null : rank));
  const left = groups(without);
  if (target?.only) left.push([place]);
  else if (target?.tie !== undefined) left.find((group) => group.includes(Number(target.tie)))?.push(place);
  else if (target) {
    const isOwn = beside === place;
    const at = left.findIndex((group) => group.includes(Number(beside)) || (isOwn && ranks[group[0]] === ranks[place]));
    left.splice(at + (target.after === undefined ? 0 : 1), 0, [place]);
  }
  const after = Array(ranks.length).fill(null);
  left.forEach((group, n) => {
    for (const other of group) after[other] = n + 1;
  });
  return after;
}

/**
 * @param {Saved | null} a
 * @param {Saved | null} b
 */
export const newerDraft = (a, b) => (!a ? b : !b ? a : (a.at ?? 0) >= (b.at ?? 0) ? a : b);
