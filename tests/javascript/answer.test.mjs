// One answer while it is made, and as it is sent and comes back.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Answer } from "../../app/frontend/ranker_answer.js";
import { comparable, draftOf, fits, savedState, sentBefore, statusOf } from "../../app/frontend/ranker_sent.js";

const ASKS = {
  partial: true,
  acceptable: true,
  flags: ["rude", "wrong"],
  quality: true,
  strength: true,
  rationale: true,
};

test("ranks are dense as they are sent, and the rest shares the last one", () => {
  const answer = new Answer(4, ASKS);
  answer.rank(2, 1);
  answer.rank(0, 3);
  assert.deepEqual(answer.missing, ["B", "D"]);
  assert.ok(answer.placeRest());
  assert.deepEqual(answer.ranking(), { ranks: [2, 3, 1, 3], unplaced: [1, 3] });
  answer.undo();
  assert.equal(answer.rest, false);
  answer.rank(1, 4);
  assert.ok(answer.placeRest());
  assert.deepEqual(answer.ranking(), { ranks: [2, 3, 1, 4] }, "one response alone has simply its place");
});

test("every gesture can be taken back, in its order", () => {
  const answer = new Answer(3, ASKS);
  const before = JSON.stringify(answer.draft());
  answer.rank(0, 1);
  answer.toggleAcceptable(0);
  answer.toggleFlag(1, "rude");
  answer.rate(2, 5);
  answer.compare(3);
  answer.move(1, { after: 0 });
  answer.unplace(0);
  for (let n = 7; n; n -= 1) assert.ok(answer.undo());
  assert.equal(answer.undo(), false);
  assert.equal(JSON.stringify(answer.draft()), before);
});

test("what is said beside the ranks goes with them, and only what was said", () => {
  const answer = new Answer(2, ASKS);
  answer.rank(0, 1);
  answer.rank(1, 2);
  assert.deepEqual(answer.ranking(), { ranks: [1, 2] });
  answer.toggleAcceptable(0, true);
  answer.toggleFlag(1, "rude");
  answer.rate(0, 6);
  answer.compare(2);
  answer.rationale = " because ";
  assert.deepEqual(answer.ranking(), {
    ranks: [1, 2],
    acceptable: [true, null],
    flags: [[], ["rude"]],
    quality: [6, null],
    rationale: "because",
    strength: 2,
  });
});

test("of a saved answer, what can't be right for this task is left out", () => {
  const saved = {
    ranks: [1, 9, "2"],
    acceptable: [true, 1, null],
    flags: [["rude", "gone"], [], "x"],
    quality: [8, 7, 0],
    strength: 9,
    rationale: 5,
    rest: true,
  };
  const answer = Answer.from(saved, 3, ASKS);
  assert.deepEqual(answer.ranks, [1, null, null]);
  assert.deepEqual(answer.acceptable, [true, null, null]);
  assert.deepEqual(answer.flags, [["rude"], [], []]);
  assert.deepEqual(answer.quality, [null, 7, null]);
  assert.deepEqual([answer.strength, answer.rationale, answer.rest, answer.marked], [null, "", true, 1]);
  assert.deepEqual(Answer.from({ ranks: [1, 2] }, 3, ASKS).ranks, [null, null, null], "another number of responses");
  assert.equal(Answer.from({ ranks: [1, null, null], rest: true }, 3, { ...ASKS, partial: false }).rest, false);
});

test("what was sent comes back as it was", () => {
  const sent = { ranks: [2, 3, 1, 3], unplaced: [1, 3] };
  assert.deepEqual(draftOf(sent).ranks, [2, null, 1, null]);
  const again = Answer.from(draftOf(sent), 4, ASKS);
  assert.equal(comparable(sentBefore({ status: "ranked" }, again)), comparable(sent));
  assert.notEqual(comparable({ ...sent, strength: 1 }), comparable(sent));
  assert.deepEqual(statusOf({ skip_reason: "no idea" }), { status: "skipped", skip_reason: "no idea" });
  assert.deepEqual(statusOf({ unacceptable: true }), { status: "unacceptable" });
  assert.deepEqual(statusOf(sent), { status: "ranked" });
});

test("a draft fits the order that it was made for", () => {
  const draft = { ranks: [1], display_order: [1, 0] };
  assert.equal(fits(draft, { display_order: [1, 0] }), draft);
  assert.equal(fits(draft, { display_order: [0, 1] }), null);
  assert.equal(fits(null, { display_order: [0] }), null);
});

test("how it stands with what is on its way", () => {
  const now = Date.now();
  assert.equal(savedState([], "").state, "saved");
  assert.equal(savedState([{ sent_at: now }], "").words, "1 saving…");
  assert.equal(savedState([{ sent_at: now }], "the store is away").state, "trouble");
  assert.equal(savedState([{ sent_at: now - 7000 }, { sent_at: now }], "").state, "trouble");
  assert.equal(savedState([{ sent_at: now - 7000 }], "").mayBackUp, false);
  assert.equal(savedState([{ sent_at: now - 21_000 }], "").mayBackUp, true);
});
