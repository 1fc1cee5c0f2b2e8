// Answers on their way: kept, sent again, taken off when the server speaks of them; and what this browser remembers.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { AnswerHistory } from "../../app/frontend/ranker_history.js";
import { Outbox } from "../../app/frontend/ranker_outbox.js";
import { Storage } from "../../app/frontend/ranker_storage.js";

const item = (key, more = {}) => ({
  submission_key: key,
  task_id: `task of ${key}`,
  ranks: [1, 2],
  sent_at: 1,
  ...more,
});

// What a browser keeps; `broken` as where storage is full or switched off.
function browserStorage(broken = false) {
  const kept = new Map();
  const store = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => {
      if (broken) throw new Error("full");
      kept.set(key, String(value));
      store[key] = value;
    },
    removeItem: (key) => {
      kept.delete(key);
      delete store[key];
    },
  };
  for (const name of ["getItem", "setItem", "removeItem"]) Object.defineProperty(store, name, { enumerable: false });
  return store;
}

const outboxOf = (person = "ann") => {
  const sent = [];
  const storage = new Storage(person);
  return { outbox: new Outbox(storage, (value) => sent.push(value)), storage, sent };
};

beforeEach(() => {
  globalThis.localStorage = browserStorage();
});

test("an answer stays until the server speaks of it, also over a reload", () => {
  const { outbox, sent } = outboxOf();
  outbox.put(item("one"));
  outbox.flush();
  assert.deepEqual(
    sent[0].items.map((each) => each.submission_key),
    ["one"],
  );
  const after = outboxOf();
  assert.equal(after.outbox.size, 1);
  assert.ok(after.outbox.answered.has("task of one"));
  assert.equal(after.outbox.hasSent, false);
  const words = after.outbox.take([
    { key: "one", outcome: "stored" },
    { key: "other", outcome: "stored" },
  ]);
  assert.deepEqual(
    words.map(({ item: { submission_key }, ack }) => [submission_key, ack.outcome]),
    [["one", "stored"]],
  );
  assert.equal(after.outbox.size, 0);
  assert.ok(after.outbox.answered.has("task of one"), "it is not given out again");
  assert.equal(outboxOf().outbox.size, 0);
});

test("what was refused is open again, but for a change, whose first answer stands", () => {
  const { outbox } = outboxOf();
  outbox.put(item("one"));
  outbox.put(item("two", { edit_of: "before" }));
  outbox.take([
    { key: "one", outcome: "refused" },
    { key: "two", outcome: "refused" },
  ]);
  assert.equal(outbox.answered.has("task of one"), false);
  assert.equal(outbox.answered.has("task of two"), true);
});

test("what waits is sent again after four seconds, and nothing when nothing waits", () => {
  const { outbox } = outboxOf();
  const later = Date.now() + 4001;
  assert.equal(outbox.isDue(later), false);
  outbox.put(item("one"));
  outbox.flush();
  assert.equal(outbox.isDue(outbox.sentAt + 3999), false);
  assert.equal(outbox.isDue(outbox.sentAt + 4000), true);
});

test("answers are sent in the order in which they were made", () => {
  const first = outboxOf().outbox;
  first.put(item("b", { sent_at: 2 }));
  first.put(item("a", { sent_at: 1 }));
  assert.deepEqual(
    outboxOf().outbox.items.map((each) => each.submission_key),
    ["a", "b"],
  );
});

test("a copy in a file brings all of them back, for that person alone", () => {
  const { outbox, storage } = outboxOf();
  outbox.put(item("one"));
  const text = storage.backup();
  globalThis.localStorage = browserStorage();
  assert.deepEqual(
    outboxOf()
      .outbox.restore(text)
      .map((each) => each.submission_key),
    ["one"],
  );
  assert.equal(outboxOf().outbox.size, 1);
  assert.throws(() => outboxOf("bo").outbox.restore(text), /somebody else's/);
  assert.throws(() => outboxOf().outbox.restore("{}"), /no unsent answers/);
  assert.throws(() => outboxOf().outbox.restore("not json"), /not JSON/);
});

test("where storage is full, answers are in memory and are sent all the same", () => {
  globalThis.localStorage = browserStorage(true);
  const { outbox, sent } = outboxOf();
  outbox.put(item("one"));
  outbox.flush();
  assert.equal(sent[0].items.length, 1);
});

test("drafts are a person's own, and old ones are cleared away", () => {
  const { storage } = outboxOf();
  storage.saveDraft("t", { ranks: [1], at: Date.now() });
  storage.saveDraft("old", { ranks: [1], at: Date.now() - 15 * 24 * 3600 * 1000 });
  assert.deepEqual(new Storage("ann").draft("t").ranks, [1]);
  assert.equal(new Storage("ann").draft("old"), null);
  new Storage("bo");
  assert.equal(new Storage("ann").draft("t"), null, "somebody else was here");
});

test("a task that another tab has answered is told by the event, of the same person", () => {
  const { outbox, storage } = outboxOf();
  outbox.put(item("one"));
  const key = "rankloop.outbox.ann.one";
  assert.equal(storage.taskAnsweredElsewhere({ key, newValue: "{}" }), "task of one");
  assert.equal(storage.taskAnsweredElsewhere({ key, newValue: null }), null);
  assert.equal(storage.taskAnsweredElsewhere({ key: "rankloop.outbox.bo.one", newValue: "{}" }), null);
});

// ---- what is asked about answers that the server has

function history() {
  const sent = [];
  const overlay = { isOpen: false, shown: [] };
  overlay.start = () => {
    overlay.isOpen = true;
  };
  overlay.close = () => {
    overlay.isOpen = false;
  };
  overlay.show = (page, n) => overlay.shown.push([page.at, n]);
  return {
    asked: new AnswerHistory(
      (value) => sent.push(value),
      () => overlay,
    ),
    sent,
    overlay,
  };
}

test("only the answer to what was asked last counts", () => {
  const { asked, sent, overlay } = history();
  asked.toggle(true);
  asked.ask({ history: 0 });
  asked.ask({ history: 20 });
  assert.ok(sent[1].at > sent[0].at, "within one millisecond too");
  assert.equal(asked.take({ history: { at: sent[0].at } }, 0), null);
  assert.deepEqual(overlay.shown, []);
  asked.take({ history: { at: sent[1].at } }, 3);
  asked.take({ history: { at: sent[1].at } }, 3);
  assert.deepEqual(overlay.shown, [[sent[1].at, 3]], "once");
});

test("an answer that was opened comes once, and an older question's never", () => {
  const { asked, sent } = history();
  asked.reopen({ task_id: "t", is_frozen: true });
  assert.deepEqual([sent[0].open, asked.isOpenFrozen], ["t", true]);
  asked.closed();
  assert.equal(sent.length, 1, "the list closed because an answer is opened: nothing is asked");
  assert.equal(asked.take({ opened: { at: sent[0].at - 1 } }, 0), null);
  const opened = { at: sent[0].at };
  assert.equal(asked.take({ opened }, 0), opened);
  assert.equal(asked.take({ opened }, 0), null);
});

test("a list that was closed is not brought again by the next look", () => {
  const { asked, sent, overlay } = history();
  asked.toggle(true);
  asked.ask({ history: 0 });
  asked.take({ history: { at: sent[0].at } }, 0);
  overlay.close();
  asked.closed();
  assert.deepEqual(Object.keys(sent[1]), ["at"]);
  asked.toggle(false);
  assert.equal(overlay.isOpen, false, "before there is data nothing opens");
});
