// The arithmetic of one ranking: plain functions on ranks by display place (a number, or null: not placed yet).

const LETTERS = "ABCDEFGHIJKL";
const HIGH_KEYS = "abc"; // ranks 10, 11, 12

export const letter = (place) => LETTERS[place];

export const isComplete = (ranks) => ranks.every((rank) => rank !== null);

export function missing(ranks) {
  return ranks.flatMap((rank, place) => (rank === null ? [letter(place)] : []));
}

// 1 is best and no number is left out: what the person typed as 2, 2, 5 is 1, 1, 2.
export function denseRanks(ranks) {
  const used = [...new Set(ranks.filter((rank) => rank !== null))].sort((a, b) => a - b);
  return ranks.map((rank) => (rank === null ? null : used.indexOf(rank) + 1));
}

// Places from best to worst in groups of equals, those not placed left out.
export function groups(ranks) {
  const found = new Map();
  ranks.forEach((rank, place) => {
    if (rank !== null) found.set(rank, [...(found.get(rank) ?? []), place]);
  });
  return [...found.keys()].sort((a, b) => a - b).map((rank) => found.get(rank));
}

export function orderText(ranks, rest = []) {
  const words = groups(ranks).map((places) => {
    const isRest = rest.length > 0 && rest.includes(places[0]);
    return isRest ? `the rest (${places.map(letter).join(", ")})` : places.map(letter).join(" = ");
  });
  return words.join(" > ");
}

export function tiedWith(ranks, place) {
  if (ranks[place] === null) return [];
  return ranks.flatMap((rank, other) => (other !== place && rank === ranks[place] ? [letter(other)] : []));
}

// The next place without a rank after `place`, around the end; `place` itself when there is none.
export function nextOpen(ranks, place) {
  for (let step = 1; step <= ranks.length; step += 1) {
    const other = (place + step) % ranks.length;
    if (ranks[other] === null) return other;
  }
  return place;
}

// The rank that a key stands for: digits by their place on the keyboard too (French digits need Shift), a to c for
// 10 to 12. Null if the key means none of n ranks.
export function rankOfKey(event, n) {
  const code = /^(?:Digit|Numpad)([1-9])$/.exec(event.code ?? "");
  let rank = null;
  if (/^[1-9]$/.test(event.key)) rank = Number(event.key);
  else if (code && !event.shiftKey) rank = Number(code[1]);
  else if (event.key.length === 1 && HIGH_KEYS.includes(event.key.toLowerCase())) {
    rank = 10 + HIGH_KEYS.indexOf(event.key.toLowerCase());
  }
  return rank !== null && rank <= n ? rank : null;
}

export const keyOfRank = (rank) => (rank <= 9 ? String(rank) : HIGH_KEYS[rank - 10]);

// A draft fits if it was made for this very order; ranks out of range are no ranks.
export function draftRanks(draft, task) {
  const n = task.responses.length;
  const fits =
    draft && Array.isArray(draft.ranks) && draft.ranks.length === n &&
    JSON.stringify(draft.display_order) === JSON.stringify(task.display_order);
  if (!fits) return null;
  return draft.ranks.map((rank) => (Number.isInteger(rank) && rank >= 1 && rank <= n ? rank : null));
}

// All that is not placed is put last together, "worse, in no order". Null if nothing is placed, or nothing is left.
export function withRest(ranks) {
  const rest = ranks.flatMap((rank, place) => (rank === null ? [place] : []));
  if (!rest.length || rest.length === ranks.length) return null;
  const dense = denseRanks(ranks);
  const last = Math.max(...dense.filter((rank) => rank !== null)) + 1;
  return { ranks: dense.map((rank) => rank ?? last), rest: rest.length > 1 ? rest : [] }; // one alone has its place
}

// A draft's rest fits if it is just those that have the last rank.
export function draftRest(draft, ranks) {
  const last = Math.max(...ranks);
  const rest = ranks.flatMap((rank, place) => (rank === last ? [place] : []));
  const isWhole = isComplete(ranks) && Array.isArray(draft?.rest) && draft.rest.length < ranks.length;
  return isWhole && JSON.stringify(draft.rest) === JSON.stringify(rest) ? rest : [];
}

export const newerDraft = (a, b) => (!a ? b : !b ? a : a.at >= b.at ? a : b);
