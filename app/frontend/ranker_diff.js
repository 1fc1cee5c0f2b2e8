// Texts compared: what all have in common at the start, how two differ word by word, how long each is. Pure functions.

import { diffArrays } from "./diff.esm.js";

/** @import { Change } from "./diff.esm.js" */

const UNSPACED = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}`;
const EMOJI = String.raw`\p{Extended_Pictographic}(?:\p{EMod}|\ufe0f)?(?:\u200d\p{Extended_Pictographic}(?:\p{EMod}|\ufe0f)?)*|\p{RI}\p{RI}`;
const LETTER = String.raw`(?:(?![${UNSPACED}])[\p{L}\p{N}_])\p{M}*`;
const WORD = String.raw`${LETTER}(?:['\u2019\u200c\u200d-]?${LETTER})*`;
const WORDS = new RegExp(WORD, "gu");
const CHARACTERS = new RegExp(`[${UNSPACED}]`, "gu");
const TOKENS = new RegExp(`${WORD}|\\s+|${EMOJI}|[^][\\p{M}\\u200d\\ufe0f]*`, "gu");
const FENCE = /^ {0,3}(?:```|~~~)/;
const FORMULA = /(?<!\$)\$\$(?!\$)|\\[[\]]/g;
const IN_FENCE = /^ {0,3}(```+|~~~+)([^\n]*)\n([\s\S]*?)(?:^ {0,3}\1|$(?![\s\S]))/gm;

const MOST_EDITS = 1500; // words and spaces; beyond these, two texts are simply shown as different

// ---- length

/**
 * Words, and the characters of scripts without spaces, each counted as one.
 * @param {string} text
 */
export const countWords = (text) => (text.match(WORDS)?.length ?? 0) + (text.match(CHARACTERS)?.length ?? 0);

/** @param {string} text */
export function lengthBadge(text) {
  const all = [...text].length;
  const unspaced = text.match(CHARACTERS)?.length ?? 0;
  const characters = `${count(all)} ${all === 1 ? "character" : "characters"}`;
  if (unspaced > all / 3) return characters; // words can't be told apart there
  const words = text.match(WORDS)?.length ?? 0;
  return `${count(words)} ${words === 1 ? "word" : "words"} \u00b7 ${characters}`;
}

/**
 * "code: python, 12 lines", or "" where there is no code.
 * @param {string} text
 */
export function codeBadge(text) {
  const names = new Set();
  let lines = 0;
  let n = 0;
  for (const [, , info, code] of text.matchAll(IN_FENCE)) {
    const name = info.trim().split(/\s/)[0];
    if (name) names.add(name);
    lines += code ? code.replace(/\n$/, "").split("\n").length : 0;
    n += 1;
  }
  if (!n) return "";
  return `code: ${[...names, `${count(lines)} ${lines === 1 ? "line" : "lines"}`].join(", ")}`;
}

/** @param {number} n */
const count = (n) => n.toLocaleString("en");

// ---- the common start

/**
 * How much of the start is the same in all texts: cut between words or lines, where Markdown can go on from.
 * @param {string[]} texts
 */
export function commonPrefix(texts) {
  const first = texts[0] ?? "";
  let n = texts.length > 1 ? Math.min(...texts.map((text) => text.length)) : 0;
  for (const text of texts.slice(1)) {
    let same = 0;
    while (same < n && text.charCodeAt(same) === first.charCodeAt(same)) same += 1;
    n = same;
  }
  if (texts.every((text) => text.length === n)) return n;
  const inLine = wordBorder(texts, n);
  const lineStart = first.lastIndexOf("\n", inLine - 1) + 1;
  const { fresh, isOpen } = lineBorder(texts, inLine);
  return !isOpen && inLine > lineStart && mayCutLine(first.slice(lineStart, inLine)) ? inLine : fresh;
}

/**
 * The last place up to n where a word, or a character of its own, ends in every text.
 * @param {string[]} texts
 * @param {number} n
 */
function wordBorder(texts, n) {
  const first = texts[0];
  const start = Math.max(first.lastIndexOf("\n", n - 1) + 1, n - 2000);
  let border = start;
  for (const found of first.slice(start, n).matchAll(TOKENS)) {
    const isWhole = texts.every((text) => tokenAt(text, border, found[0].length) === found[0]);
    if (!isWhole) break;
    border += found[0].length;
  }
  return border;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {number} length
 */
const tokenAt = (text, at, length) => text.slice(at, at + length + 60).match(TOKENS)?.[0];

/**
 * The last line start up to `at` from which each text can be read on its own (not indented, no table row, not inside
 * code or a formula), and whether a block of code or a formula is open at `at`.
 * @param {string[]} texts
 * @param {number} at
 */
function lineBorder(texts, at) {
  const first = texts[0];
  let [fresh, start, isCode, isMaths] = [0, 0, false, false];
  for (const line of first.slice(0, at).split(/(?<=\n)/)) {
    if (!isCode && !isMaths && texts.every((text) => !/^[ \t|]/.test(text.slice(start, start + 1)))) fresh = start;
    start += line.length;
    if (FENCE.test(line)) isCode = !isCode;
    else if (!isCode)
      for (const sign of line.match(FORMULA) ?? []) isMaths = sign === "\\[" || (sign === "$$" && !isMaths);
  }
  const isFresh = first[start - 1] === "\n" && texts.every((text) => !/^[ \t|]/.test(text.slice(start, start + 1)));
  if (isFresh && !isCode && !isMaths) fresh = start;
  return { fresh, isOpen: isCode || isMaths };
}

/**
 * A line may be cut after these words if no mark of Markdown stands in them.
 * @param {string} head
 */
const mayCutLine = (head) => !/^\s*(?:[#>]|[-+]\s|\d+[.)]\s)|[|`*_$~[\]\\]/.test(head);

// ---- differences

/**
 * What turns one text into another: [{ kind: "same" | "added" | "removed", text }], joined they are the two texts.
 * @param {string} before
 * @param {string} after
 */
export function diffWords(before, after) {
  const [a, b] = [before, after].map((text) => text.match(TOKENS) ?? []);
  const whole = [
    { removed: true, value: a },
    { added: true, value: b },
  ];
  return smoothed(diffArrays(a, b, { maxEditLength: MOST_EDITS }) ?? whole);
}

/**
 * Runs of the same kind; what is kept between two changes and is only space is shown as changed too.
 * @param {Change[]} parts
 */
function smoothed(parts) {
  /** @type {{ kind: string, text: string }[]} */
  const found = [];
  let [removed, added] = ["", ""];
  const close = () => {
    for (const [kind, text] of [
      ["removed", removed],
      ["added", added],
    ])
      if (text) found.push({ kind, text });
    [removed, added] = ["", ""];
  };
  parts.forEach(({ value, removed: isRemoved, added: isAdded }, n) => {
    const text = value.join("");
    const isBetween = (removed || added) && n + 1 < parts.length && /^\s+$/.test(text);
    if (isRemoved || isBetween) removed += text;
    if (isAdded || isBetween) added += text;
    if (isRemoved || isAdded || isBetween || !text) return;
    close();
    found.push({ kind: "same", text });
  });
  close();
  return found;
}
