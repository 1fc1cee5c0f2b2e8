// The arithmetic of one ranking, and where a dragged response lands.

import assert from "node:assert/strict";
import { test } from "node:test";

import { dropTarget } from "../../app/frontend/ranker_drag.js";
import {
  denseRanks,
  groups,
  moved,
  newerDraft,
  nextOpen,
  orderText,
  tiedWith,
} from "../../app/frontend/ranker_judgement.js";

test("where a point lies in the order", () => {
  // Two lines of chips: A, B = C on the first, D on the second.
  const chip = { top: 0, bottom: 20 };
  const chips = [
    { place: 0, left: 0, right: 20, ...chip },
    { place: 1, left: 40, right: 60, ...chip },
    { place: 2, left: 80, right: 100, ...chip },
    { place: 3, left: 0, right: 20, top: 30, bottom: 50 },
  ];
  const area = { left: 0, right: 120, top: 0, bottom: 50 };
  const isSame = (a, b) => [a, b].every((place) => place === 1 || place === 2);
  for (const [[x, y], target] of [
    [[10, 10], { tie: 0 }],
    [[-5, 10], { before: 0 }],
    [[30, 10], { after: 0 }],
    [[70, 10], { tie: 1 }],
    [[110, 10], { after: 2 }],
    [[10, 40], { tie: 3 }],
    [[60, 44], { after: 3 }],
    [[-8, 40], { before: 3 }],
    [[10, 90], null],
    [[200, 10], null],
  ])
    assert.deepEqual(dropTarget(chips, area, x, y, isSame), target, `${x}, ${y}`);
  assert.deepEqual(dropTarget([], area, 4, 4, isSame), { only: true });
});

for (const [ranks, place, target, after] of [
  [[null, null, null], 1, { only: true }, [null, 1, null]],
  [[1, 4, null], 2, { after: 0 }, [1, 3, 2]],
  [[1, 2, null], 2, { before: 0 }, [2, 3, 1]],
  [[1, 2, null], 2, { tie: 1 }, [1, 2, 2]],
  [[1, 2, 3], 0, { after: 2 }, [3, 1, 2]],
  [[1, 1, 2], 0, { after: 0 }, [2, 1, 3]],
  [[1, 1, 2], 1, { before: 0 }, [2, 1, 3]],
  [[1, 2, 3], 1, { after: 1 }, [1, 2, 3]],
  [[1, 2, 3], 1, { tie: 1 }, [1, 2, 3]],
  [[1, 2, 3], 1, null, [1, null, 2]],
  [[3, null, 3], 0, { tie: 2 }, [1, null, 1]],
]) {
  test(`ranks after a drag: ${JSON.stringify([ranks, place, target])}`, () => {
    assert.deepEqual(moved(ranks, place, target), after);
  });
}

test("1 is best and no number is left out", () => {
  assert.deepEqual(denseRanks([2, null, 5, 2]), [1, null, 2, 1]);
  assert.deepEqual(groups([2, null, 5, 2]), [[0, 3], [2]]);
  assert.equal(orderText([2, null, 5, 2], true), "A = D > C > the rest (B)");
  assert.deepEqual(tiedWith([1, 1, 2], 0), ["B"]);
  assert.equal(nextOpen([null, 1, null], 2), 0, "around the end");
  assert.equal(nextOpen([1, 2, 3], 2), 2);
});

test("the newer draft counts, and one without a time is the older", () => {
  const [old, fresh] = [
    { ranks: [1], at: 1 },
    { ranks: [2], at: 2 },
  ];
  assert.equal(newerDraft(old, fresh), fresh);
  assert.equal(newerDraft(null, old), old);
  assert.equal(newerDraft({ ranks: [3] }, old), old);
});
