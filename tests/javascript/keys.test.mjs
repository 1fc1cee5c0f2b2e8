// The one list of keys: nothing in it collides, each line has an action and words, and people may change it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Desk } from "../../app/frontend/ranker_desk.js";
import { bound, collisions, KEYS, keyName, keyOf, keysIn, keysText } from "../../app/frontend/ranker_keys.js";
import { isChangeable, OwnKeys } from "../../app/frontend/ranker_own_keys.js";

test("no two keys collide, and none is Streamlit's", () => {
  assert.deepEqual(collisions(), []);
  const more = [
    ["j", "page", "jump"],
    ["c", "skip", "clear"],
    ["z", "anywhere", "zoom"],
  ];
  const lines = more.map(([key, context, action]) => ({ keys: [key], context, action, label: action }));
  assert.deepEqual(collisions([...KEYS, ...lines]).sort(), [
    "idle: z is takeBack and zoom",
    "page: j is next and jump",
    "page: z is takeBack and zoom",
    "pair: j is next and jump",
    "skip: c is Streamlit and clear",
  ]);
});

test("every key has an action and words", () => {
  const actions = Object.keys(new Desk({ data: null, view: null, root: null }).does);
  assert.deepEqual(new Set(KEYS.map((line) => line.action)), new Set(actions));
  for (const line of KEYS) assert.ok(line.label && line.keys.length, line.action);
});

for (const [event, name] of [
  [{ key: "3", code: "Digit3" }, "3"],
  [{ key: "\u00e9", code: "Digit2" }, "2"], // French: digits need Shift
  [{ key: "2", code: "Digit2", shiftKey: true }, "2"],
  [{ key: '"', code: "Digit2", shiftKey: true }, '"'],
  [{ key: "End", code: "Numpad1" }, "End"],
  [{ key: "1", code: "Numpad1" }, "1"],
  [{ key: "J", code: "KeyJ", shiftKey: true }, "j"],
  [{ key: "?", code: "Minus", shiftKey: true }, "?"],
  [{ key: "Enter", code: "NumpadEnter" }, "Enter"],
]) {
  test(`the name of a key: ${JSON.stringify(event)}`, () => assert.equal(keyName(event), name));
}

const HAS = {
  partial: true,
  acceptable: false,
  flags: [],
  quality: true,
  strength: false,
  rationale: false,
  n: 4,
  editing: false,
};

test("a key does what its page has, and nothing else", () => {
  assert.equal(bound("w", "page", HAS)?.action, "rest");
  assert.equal(bound("w", "page", { ...HAS, partial: false }), undefined);
  assert.equal(bound("t", "page", HAS), undefined, "rank ten, of four");
  assert.equal(bound("t", "page", { ...HAS, n: 10 })?.action, "rank");
  assert.equal(bound("ArrowLeft", "pair", HAS)?.action, "otherSide", "its own before the page's");
  assert.equal(bound("h", "skip", HAS), undefined, "a letter may choose something there");
});

test("keys in words", () => {
  assert.equal(keyOf("submit", KEYS), "Enter");
  assert.equal(keyOf("nothing of ours", KEYS), "");
  const quality = KEYS.find((line) => line.action === "quality");
  assert.equal(keysText(quality), "q 1 … 7");
});

const memory = (kept = {}) => ({
  recall: (name) => kept[name],
  remember: (name, value) => {
    kept[name] = value;
  },
  isRemembered: () => true,
});

// What is wrong after an action was given a key.
function faultsOf(own, storage) {
  const again = new OwnKeys(storage, () => {});
  const isSame = !again.trouble && JSON.stringify(again.lines) === JSON.stringify(own.lines);
  const lines = ["page", "pair"].flatMap((context) => keysIn(context, own.lines).filter(isChangeable));
  const empty = lines.filter((line) => !line.keys.length).map((line) => `no key for ${line.action}`);
  return [...collisions(own.lines), ...empty, ...(isSame ? [] : ["not kept"])];
}

test("no own key collides, whatever is tried", () => {
  // Each changeable action is given each key in turn, from the keys as they are by then.
  const storage = memory();
  const own = new OwnKeys(storage, () => {});
  const actions = [...new Set(KEYS.filter(isChangeable).map((line) => line.action))];
  const all = [...new Set([...KEYS.flatMap((line) => line.keys), ..."boy#-é", "Insert", "Escape", "Tab", "F1"])];
  let count = 0;
  for (const [action, key] of actions.flatMap((each) => all.map((key) => [each, key]))) {
    if (!own.give(action, key)) count += 1;
    assert.deepEqual(faultsOf(own, storage), [], `${action} ${key}`);
  }
  own.reset();
  assert.ok(count > actions.length);
  assert.equal(JSON.stringify(own.lines), JSON.stringify(KEYS));
  assert.equal(actions.length, 21);
});

test("own keys that do not fit any more are left, whole, and that is said", () => {
  const kept = { keys: { undo: "r" } };
  const own = new OwnKeys(memory(kept), () => {});
  assert.match(own.trouble, /the usual ones hold again/);
  assert.deepEqual(kept.keys, {});
  assert.equal(JSON.stringify(own.lines), JSON.stringify(KEYS));
});
