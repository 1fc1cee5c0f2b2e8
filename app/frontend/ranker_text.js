// How texts of people and models are shown: one renderer for prompts, facts and responses.
//
// Markdown becomes elements one by one; no text is ever taken for HTML. Nothing is fetched: an image is a label with its
// address. A link opens only after a second click, on the address itself. What Markdown would swallow without a trace
// (link definitions, entities, underlined headings, line breaks) stays as it was written.

import MarkdownIt from "./markdown-it.esm.js";
import { appendText, directionOf } from "./ranker_letters.js";
import { addMaths, formula } from "./ranker_maths.js";

/** @import { BlockState, InlineState, Token } from "./markdown-it.esm.js" */

const DEEPEST = 40; // blocks within blocks; what is deeper is shown as it was written
/** @type {Record<string, keyof HTMLElementTagNameMap>} */
const ELEMENTS = {
  paragraph: "p",
  blockquote: "blockquote",
  bullet_list: "ul",
  list_item: "li",
  em: "em",
  strong: "strong",
  s: "s",
  thead: "thead",
  tbody: "tbody",
  tr: "tr",
};
const PARSER = makeParser();

function makeParser() {
  const parser = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: true });
  parser.disable(["reference", "lheading", "entity", "html_block", "html_inline"]);
  parser.validateLink = (address) => /^https?:\/\//i.test(address.trim()); // anything else stays as it was written
  parser.inline.ruler.at("newline", newline);
  addMaths(parser);
  const tokenize = parser.block.tokenize;
  parser.block.tokenize = function (state, startLine, endLine) {
    if (state.level < DEEPEST) tokenize.call(this, state, startLine, endLine);
    else asWritten(state, startLine, endLine);
  };
  return parser;
}

/**
 * A line break is a line break, and the spaces that indent the next line stay.
 * @param {InlineState} state
 * @param {boolean} silent
 */
function newline(state, silent) {
  if (state.src[state.pos] !== "\n") return false;
  if (!silent) {
    state.pending = state.pending.replace(/ +$/, "");
    state.push("hardbreak", "br", 0);
  }
  state.pos += 1;
  return true;
}

/**
 * @param {BlockState} state
 * @param {number} startLine
 * @param {number} endLine
 */
function asWritten(state, startLine, endLine) {
  const token = state.push("as_written", "", 0);
  token.content = state.getLines(startLine, endLine, state.blkIndent, false);
  token.map = [startLine, endLine];
  state.line = endLine;
}

/**
 * What a text looks like, as nodes. `raw`: every character as it is, no Markdown.
 * @param {string} text
 * @param {{ raw?: boolean }} [options]
 */
export function renderText(text, { raw = false } = {}) {
  const content = text.replaceAll("\r\n", "\n");
  if (!content.trim()) return noted(content);
  if (raw) return written(content);
  const fragment = document.createDocumentFragment();
  build(fragment, PARSER.parse(content, {}));
  const hasContent = fragment.textContent.trim() || fragment.querySelector("hr, .image");
  return hasContent ? fragment : written(content);
}

/**
 * Show a text in an element, in the direction that its letters run.
 * @param {HTMLElement} element
 * @param {string} text
 * @param {{ raw?: boolean }} [options]
 */
export function showText(element, text, { raw = false } = {}) {
  element.dir = directionOf(text);
  element.classList.toggle("raw", raw);
  element.classList.toggle("empty", !text.trim());
  element.replaceChildren(renderText(text, { raw }));
}

/** @param {string} content */
function noted(content) {
  const n = [...content].length;
  const fragment = document.createDocumentFragment();
  fragment.append(n ? `(nothing but white space: ${n} ${n === 1 ? "character" : "characters"})` : "(empty)");
  return fragment;
}

/** @param {string} content */
function written(content) {
  const fragment = document.createDocumentFragment();
  const block = make(fragment, "div", "written");
  appendText(block, content);
  return fragment;
}

// ---- from tokens to elements

/**
 * @param {Node & ParentNode} root
 * @param {Token[]} tokens
 */
function build(root, tokens) {
  /** @type {(Node & ParentNode)[]} */
  const open = [root];
  for (const token of tokens) {
    const parent = open[open.length - 1];
    if (token.nesting > 0) open.push(begin(parent, token));
    else if (token.nesting < 0) open.pop();
    else add(parent, token);
  }
}

/**
 * @param {Node & ParentNode} parent
 * @param {Token} token
 */
function begin(parent, token) {
  const kind = token.type.replace(/_open$/, "");
  if (kind === "paragraph" && token.hidden) return parent; // in a tight list
  if (kind === "heading") return heading(parent, Number(token.tag[1]));
  if (kind === "ordered_list") {
    const list = make(parent, "ol");
    list.start = Number(token.attrGet("start") ?? 1);
    return list;
  }
  if (kind === "table") {
    const frame = make(parent, "div", "table");
    frame.tabIndex = 0; // wide ones scroll, by keyboard too
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", "Table");
    return make(frame, "table");
  }
  if (kind === "th" || kind === "td") {
    const cell = make(parent, kind);
    cell.style.textAlign = /text-align:(\w+)/.exec(token.attrGet("style") ?? "")?.[1] ?? "";
    return cell;
  }
  if (kind === "link") return link(parent, token.attrGet("href") ?? "");
  return make(parent, ELEMENTS[kind] ?? "div");
}

/**
 * @param {Node & ParentNode} parent
 * @param {Token} token
 */
function add(parent, token) {
  if (token.type === "inline") build(parent, token.children ?? []);
  else if (token.type === "text" || token.type === "text_special") appendText(parent, token.content);
  else if (token.type === "softbreak" || token.type === "hardbreak") make(parent, "br");
  else if (token.type === "code_inline") inlineCode(parent, token.content);
  else if (token.type === "fence" || token.type === "code_block") code(parent, token.content, token.info.trim());
  else if (token.type === "maths") parent.append(formula(token));
  else if (token.type === "image") image(parent, token);
  else if (token.type === "hr") make(parent, "hr");
  else appendText(make(parent, "div", "written"), token.content);
}

/**
 * @param {Node & ParentNode} parent
 * @param {number} level
 */
function heading(parent, level) {
  const element = make(parent, "div", `heading level-${level}`);
  element.setAttribute("role", "heading");
  element.setAttribute("aria-level", String(Math.min(level + 2, 6))); // below the page's own
  return element;
}

/**
 * @param {Node & ParentNode} parent
 * @param {string} content
 */
function inlineCode(parent, content) {
  const element = make(parent, "code");
  element.dir = "ltr";
  appendText(element, content);
}

/**
 * Each line is a block of its own, so that a long one wraps with an indent and none is cut.
 * @param {Node & ParentNode} parent
 * @param {string} content
 * @param {string} info
 */
function code(parent, content, info) {
  const block = make(parent, "div", "code");
  block.dir = "ltr";
  if (info) appendText(make(block, "div", "language"), info);
  const element = make(make(block, "pre"), "code");
  for (const line of content.replace(/\n$/, "").split(/(?<=\n)/)) appendText(make(element, "span", "line"), line);
}

/**
 * @param {Node & ParentNode} parent
 * @param {Token} token
 */
function image(parent, token) {
  const element = make(parent, "span", "image");
  make(element, "span", "what").textContent = "Image, not loaded";
  if (token.content) appendText(make(element, "span", "alt"), token.content);
  addressOf(make(element, "bdi", "address"), token.attrGet("src") ?? "");
}

/**
 * @param {HTMLElement} element
 * @param {string} address
 */
function addressOf(element, address) {
  element.dir = "ltr";
  appendText(element, address);
}

// ---- links: the first click shows where it leads, the second goes there

/**
 * @param {Node & ParentNode} parent
 * @param {string} address
 */
function link(parent, address) {
  const element = make(parent, "button", "link");
  element.type = "button";
  element.setAttribute("aria-expanded", "false");
  element.title = address;
  element.addEventListener("click", () => toggleLink(element, address));
  return element;
}

/**
 * @param {HTMLElement} element
 * @param {string} address
 */
function toggleLink(element, address) {
  const next = element.nextElementSibling;
  const open = next?.classList.contains("leave") ? next : null;
  element.setAttribute("aria-expanded", String(!open));
  if (open) {
    open.remove();
    return;
  }
  const panel = document.createElement("span");
  panel.className = "leave";
  panel.append("Opens in a new tab: ");
  const anchor = make(panel, "a");
  anchor.href = address;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer";
  addressOf(anchor, address);
  element.after(panel);
  anchor.focus({ preventScroll: true });
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {Node & ParentNode} parent
 * @param {K} tag
 * @param {string} [className]
 * @returns {HTMLElementTagNameMap[K]}
 */
function make(parent, tag, className = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  parent.append(element);
  return element;
}
