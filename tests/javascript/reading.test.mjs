// Texts compared, counted, and the direction that they run.

import assert from "node:assert/strict";
import { test } from "node:test";

import { codeBadge, commonPrefix, countWords, diffWords, lengthBadge } from "../../app/frontend/ranker_diff.js";
import { directionOf, hasHidden } from "../../app/frontend/ranker_letters.js";
import { looksLikeMaths } from "../../app/frontend/ranker_maths.js";

const diff = (before, after) => diffWords(before, after).map(({ kind, text }) => [kind, text]);

test("differences by words", () => {
  const cat = [
    ["same", "The "],
    ["removed", "cat"],
    ["added", "dog"],
    ["same", " sat."],
  ];
  assert.deepEqual(diff("The cat sat.", "The dog sat."), cat);
  const two = [
    ["same", "a "],
    ["removed", "b c"],
    ["added", "x y"],
    ["same", " d"],
  ];
  assert.deepEqual(diff("a b c d", "a x y d"), two);
  assert.deepEqual(diff("same", "same"), [["same", "same"]]);
  assert.deepEqual(diff("", "new"), [["added", "new"]]);
  const chinese = [
    ["same", "你"],
    ["removed", "好"],
    ["added", "们"],
    ["same", "世界"],
  ];
  assert.deepEqual(diff("你好世界", "你们世界"), chinese);
  const emoji = "\u{1f469}\u200d\u{1f467}";
  assert.deepEqual(diff(`a ${emoji}`, `a ${emoji}\ufe0f!`)[0], ["same", "a "], "an emoji is never cut");
});

test("differences put together are the texts", () => {
  const numbers = (mod) => Array.from({ length: 900 }, (_, n) => String((n * n) % mod)).join(" ");
  for (const [before, after] of [
    ["  leading\n\nand  double ", "leading\n\nand double"],
    [numbers(97), numbers(89)],
    ["x".repeat(5000), "y".repeat(5000)],
  ]) {
    const parts = diff(before, after);
    const without = (kind) =>
      parts
        .filter(([each]) => each !== kind)
        .map(([, text]) => text)
        .join("");
    assert.equal(without("added"), before);
    assert.equal(without("removed"), after);
  }
});

for (const [texts, start] of [
  [["one two three", "one two four"], "one two "],
  [["one two", "one twofold"], "one "],
  [["a **b** c", "a **b** d"], ""], // no cut within a line that has marks of Markdown
  [["line\n```\nx = 1\n", "line\n```\nx = 2\n"], "line\n"], // nor within code
  [["intro\n\n- a\n- b", "intro\n\n- a\n- c"], "intro\n\n- a\n"],
  [["你好世界", "你好吗"], "你好"],
]) {
  test(`the common start of ${JSON.stringify(texts)}`, () => assert.equal(commonPrefix(texts), start.length));
}

test("equal texts have all of themselves in common, one text alone nothing", () => {
  assert.equal(commonPrefix(["same", "same"]), 4);
  assert.equal(commonPrefix(["alone"]), 0);
});

test("badges of length and code", () => {
  assert.deepEqual(["one two-three\nfour", "日本語です"].map(lengthBadge), ["3 words · 18 characters", "5 characters"]);
  assert.equal(codeBadge("one"), "");
  assert.equal(codeBadge("See:\n```python\na\nb\n```\n```js\nc\n```"), "code: python, js, 3 lines");
  assert.equal(countWords("two words 你好"), 4);
});

test("the direction of a message is that of most of its letters, code aside", () => {
  for (const [text, direction] of [
    ["hello", "ltr"],
    ["مرحبا بكم", "rtl"],
    ["Python هي لغة برمجة سهلة", "rtl"],
    ["اكتب:\n```python\nprint('a long line of code that has many letters')\n```", "rtl"],
    ["The word شكرا means thanks in Arabic, and is said often", "ltr"],
    ["שלום", "rtl"],
    ["12 34", "ltr"],
  ])
    assert.equal(directionOf(text), direction, text);
});

test("letters that nobody sees are known, and an amount is no formula", () => {
  assert.ok(hasHidden("a\u202eb"));
  assert.equal(hasHidden("plain, é, 你"), false);
  for (const [text, isMaths] of [
    ["x^2", true],
    ["n", true],
    ["5 and ", false],
    ["100,000", false],
    ["some words here", false],
  ])
    assert.equal(looksLikeMaths(text), isMaths, text);
});
