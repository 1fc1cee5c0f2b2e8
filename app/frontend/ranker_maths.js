// Maths in Markdown: what counts as a formula, and how one is drawn (as MathML, by KaTeX, loaded when first needed).
//
// Formulas are \( \), \[ \], $$ $$, and $ $ where it can be nothing else. The rule for single dollars: no letter, digit
// or dollar just outside (but the $n$th), no space just inside, no dollar between, and between them something that looks
// like maths: a sign of TeX (\ ^ _ {), or single letters with or without operators; never a plain amount, never words.

import { appendText, hasHidden } from "./ranker_letters.js";

/** @import MarkdownIt from "./markdown-it.esm.js" */
/** @import { BlockState, InlineState, Token } from "./markdown-it.esm.js" */

/** @type {Record<string, string>} */
const CLOSING = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
const TEX = /[\\^_{]/;
const WORD = /\p{L}{3}|\s\p{L}{2,}(?=[\s,.]|$)|^\p{L}{2,}\s/u;
const AMOUNT = /^[\d.,\s()+\u2013-]*(?:\d\s?[kKmMbB%][+)]?)?$/;
const ENDING = /^(?:th|st|nd|rd|s)(?![\p{L}\p{N}_])/u; // the $n$th
const SENTENCE = /\p{L}{4,}[\s,]+\p{L}{2,}/u;
const SETTINGS = { output: "mathml", trust: false, throwOnError: true, strict: "ignore", maxExpand: 200, maxSize: 10 };
const LONGEST = 5000;

/** @param {string} text */
export const looksLikeMaths = (text) => TEX.test(text) || (!WORD.test(text) && !AMOUNT.test(text));

/**
 * Teach a markdown-it parser our formulas: tokens `maths`, with `markup` what opens it and `info` "block" or "".
 * @param {MarkdownIt} parser
 */
export function addMaths(parser) {
  parser.inline.ruler.before("escape", "maths", inlineMaths);
  parser.block.ruler.before("fence", "maths", blockMaths, { alt: ["paragraph", "blockquote", "list"] });
}

/**
 * @param {InlineState} state
 * @param {boolean} silent
 */
function inlineMaths(state, silent) {
  const found = formulaAt(state);
  if (!found) return false;
  if (!silent) {
    const token = state.push("maths", "", 0);
    token.markup = found.open;
    token.content = found.content;
  }
  state.pos = found.end;
  return true;
}

/** @param {InlineState} state */
function formulaAt(state) {
  const { src, pos } = state;
  const two = src.slice(pos, pos + 2);
  const isBracket = two === "\\(" || two === "\\[";
  if (!isBracket && src[pos] !== "$") return null;
  if (!isBracket && two !== "$$") return dollarAt(src, pos);
  if (!isBracket && (src[pos - 1] === "$" || src[pos + 2] === "$")) return null;
  const end = nextOf(state, CLOSING[two], pos + 2);
  if (end < 0 || end - pos > LONGEST) return null;
  const content = src.slice(pos + 2, end);
  if (!content.trim() || (!isBracket && src[end + 2] === "$")) return null;
  const isMaths = isBracket ? TEX.test(content) || !SENTENCE.test(content) : looksLikeMaths(content.trim());
  return isMaths ? { open: two, content, end: end + 2 } : null;
}

/**
 * @param {string} src
 * @param {number} pos
 */
function dollarAt(src, pos) {
  if (/[\p{L}\p{N}$]/u.test(src[pos - 1] ?? " ") || /[\s$]/.test(src[pos + 1] ?? " ")) return null;
  const end = src.indexOf("$", pos + 1);
  if (end < 0 || end - pos > LONGEST) return null;
  const content = src.slice(pos + 1, end);
  if (/\s|\\/.test(src[end - 1])) return null;
  if (/[\p{L}\p{N}_$]/u.test(src[end + 1] ?? " ") && !ENDING.test(src.slice(end + 1, end + 4))) return null;
  return looksLikeMaths(content) ? { open: "$", content, end: end + 1 } : null;
}

/**
 * indexOf that looks through the rest of a text in vain only once.
 * @param {InlineState} state
 * @param {string} closing
 * @param {number} from
 */
function nextOf(state, closing, from) {
  state.without ??= {};
  if (from >= (state.without[closing] ?? Infinity)) return -1;
  const at = state.src.indexOf(closing, from);
  if (at < 0) state.without[closing] = from;
  return at;
}

/**
 * A formula that fills whole lines: nothing in it is a list or a heading.
 * @param {BlockState} state
 * @param {number} startLine
 * @param {number} endLine
 * @param {boolean} silent
 */
function blockMaths(state, startLine, endLine, silent) {
  const start = state.bMarks[startLine] + state.tShift[startLine];
  const open = state.src.slice(start, start + 2);
  if ((open !== "$$" && open !== "\\[") || state.sCount[startLine] - state.blkIndent >= 4) return false;
  const found = closingLine(state, startLine, endLine, open);
  if (!found) return false;
  if (silent) return true;
  const token = state.push("maths", "", 0);
  token.block = true;
  token.markup = open;
  token.info = "block";
  token.content = found.content;
  token.map = [startLine, found.line + 1];
  state.line = found.line + 1;
  return true;
}

/**
 * @param {BlockState} state
 * @param {number} startLine
 * @param {number} endLine
 * @param {string} open
 */
function closingLine(state, startLine, endLine, open) {
  const lines = [];
  for (let line = startLine; line < endLine && (line === startLine || !state.isEmpty(line)); line += 1) {
    if (line > startLine && state.sCount[line] < state.blkIndent) return null;
    let text = state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
    if (line === startLine) text = text.slice(2);
    const at = text.indexOf(CLOSING[open]);
    lines.push(at < 0 ? text : text.slice(0, at));
    if (at < 0) continue;
    const content = lines.join("\n");
    const isAlone = !text.slice(at + 2).trim();
    return isAlone && content.trim() && looksLikeMaths(content.trim()) ? { content, line } : null;
  }
  return null;
}

// ---- drawing

/** @type {typeof import("./katex.esm.js").default | null} */
let katex = null;
/** @type {Promise<unknown> | null} */
let loading = null;

/**
 * An element that shows a formula: its source until KaTeX is here, and for good where it can't be drawn.
 * @param {Token} token
 */
export function formula(token) {
  const element = document.createElement(token.info ? "div" : "span");
  const isDisplay = token.markup === "$$" || token.markup === "\\[";
  element.className = isDisplay ? "maths display" : "maths";
  element.dir = "ltr";
  showSource(element, token);
  if (hasHidden(token.content)) return element; // what can't be seen is shown, not set
  if (katex) draw(element, token, isDisplay);
  else
    load().then(
      () => draw(element, token, isDisplay),
      () => {},
    );
  return element;
}

export function load() {
  loading ??= import("./katex.esm.js").then((module) => {
    katex = module.default;
  });
  return loading;
}

/**
 * @param {HTMLElement} element
 * @param {Token} token
 * @param {boolean} isDisplay
 */
function draw(element, token, isDisplay) {
  try {
    katex?.render(token.content.trim(), element, { ...SETTINGS, displayMode: isDisplay });
  } catch (error) {
    showSource(element, token);
    element.classList.add("wrong");
    element.title = `Not shown as a formula: ${error instanceof Error ? error.message : error}`;
  }
}

/**
 * @param {HTMLElement} element
 * @param {Token} token
 */
function showSource(element, token) {
  element.replaceChildren();
  appendText(element, token.markup + token.content + (CLOSING[token.markup] ?? "$"));
}
