// Help for the reader of one task: raw texts, the common start folded, differences, two responses side by side.
//
// It fills the texts of the prompt, the facts and the cards. Nothing but the look at the common start is computed before
// somebody asks for it, and every change of what is shown is said aloud.

import { commonPrefix, countWords, diffWords } from "./ranker_diff.js";
import { actionButton, make, named, there } from "./ranker_dom.js";
import { letter } from "./ranker_judgement.js";
import { appendText, directionOf } from "./ranker_letters.js";
import { Pair } from "./ranker_pair.js";
import { showText } from "./ranker_text.js";

/** @import { Card } from "./ranker_card.js" */
/** @import { Actions } from "./ranker_types" */

const FOLD_ABOVE = 60; // words: a shorter start is read faster than a line about it...
const FOLD_SHARE = 1 / 3; // ...and so is one that is only a small part of the shortest text
const MAY_FOLD = 8; // words: less is not worth a button

export class Reader {
  /** @type {HTMLElement[]} */
  texts;
  /** @type {string[]} */
  responses;
  /** @type {[HTMLElement, string][]} */
  others;
  /** @type {Card[]} */
  cards;
  /** @type {([added: number, removed: number] | null)[]} */
  counts;
  /** @type {number | null} */
  base;
  /** @type {number} */
  firstBase;
  /** @type {number} */
  start;
  /** @type {number} */
  startWords;
  /** @type {boolean} */
  isFolded;

  /**
   * `before`: the reader of an element that is gone, to go on like it. `say(words)` announces.
   * @param {Actions} actions
   * @param {(words: string) => void} say
   * @param {Reader | undefined} before
   */
  constructor(actions, say, before) {
    this.say = say;
    this.isRaw = before?.isRaw ?? false;
    this.pair = new Pair();
    this.texts = [];
    this.rawButton = actionButton("Raw text", "quiet", () => actions.toggleRaw(), "raw");
    this.foldButton = actionButton("Fold the same start", "quiet", () => actions.toggleFold(), "fold");
    this.diffButton = actionButton("Differences", "quiet", () => actions.differences(), "differences");
    this.pairButton = actionButton("Two side by side", "quiet", () => actions.togglePair(), "pair");
    this.note = make("span", "note");
    const buttons = [this.rawButton, this.foldButton, this.diffButton, this.pairButton];
    this.bar = named(make("div", "reading", [...buttons, this.note]), "group", "Help for reading");
  }

  // ---- one task

  /**
   * `others`: [element, text] of the prompt's messages and facts; `cards`: in display order.
   * @param {string[]} responses
   * @param {[HTMLElement, string][]} others
   * @param {Card[]} cards
   */
  begin(responses, others, cards) {
    Object.assign(this, { responses, others, cards, base: null });
    this.texts = cards.map((card) => card.text);
    this.pair.begin(cards.map((card) => card.element));
    this.start = commonPrefix(responses);
    this.startWords = this.start ? countWords(responses[0].slice(0, this.start)) : 0;
    const shortest = Math.min(...responses.map(countWords));
    this.isFolded = this.startWords > FOLD_ABOVE && this.startWords > FOLD_SHARE * shortest;
    this.refresh();
  }

  /**
   * Go on as in the element that is gone.
   * @param {Reader} before
   */
  resume(before) {
    this.isFolded = before.isFolded;
    this.base = before.base;
    this.pair.show(before.pair.places);
    this.refresh();
  }

  get mayFold() {
    return this.startWords >= MAY_FOLD;
  }

  refresh() {
    const { isRaw } = this;
    for (const [element, text] of this.others) showText(element, text, { raw: isRaw });
    this.counts = this.texts.map(() => null);
    for (const place of this.texts.keys()) this.show(place);
    this.paintBar();
  }

  /** @param {number} place */
  show(place) {
    const [element, whole] = [this.texts[place], this.responses[place]];
    const text = this.isFolded ? whole.slice(this.start) : whole;
    if (this.base !== null && this.base !== place) this.showDifferences(element, text, place);
    else if (this.isFolded && !text.trim()) element.replaceChildren(make("p", "", [], "(nothing after that)"));
    else showText(element, text, { raw: this.isRaw });
    element.dir = directionOf(whole);
    if (this.isFolded)
      element.prepend(make("p", "folded", [], `The first ${this.startWords} words are the same in all`));
    this.cards[place].showCompared(this.comparedWords(place));
  }

  // ---- differences

  /**
   * @param {HTMLElement} element
   * @param {string} text
   * @param {number} place
   */
  showDifferences(element, text, place) {
    const other = this.responses[there(this.base)];
    const parts = diffWords(this.isFolded ? other.slice(this.start) : other, text);
    const block = make("div", "written");
    for (const { kind, text: words } of parts) {
      const part = kind === "same" ? block : make(kind === "added" ? "ins" : "del");
      appendText(part, words);
      if (kind !== "same") block.append(part);
    }
    const nWords = (/** @type {string} */ kind) =>
      parts.reduce((sum, part) => sum + (part.kind === kind ? countWords(part.text) : 0), 0);
    this.counts[place] = [nWords("added"), nWords("removed")];
    element.classList.remove("empty");
    element.replaceChildren(block);
  }

  /** @param {number} place */
  comparedWords(place) {
    if (this.base === null) return "";
    if (place === this.base) return "the others are compared with this one";
    const [added, removed] = there(this.counts[place]);
    return `against ${letter(this.base)}: ${added} words new, ${removed} gone`;
  }

  /**
   * Off, then from the marked response, then from those after it, then off again.
   * @param {number} marked
   */
  differences(marked) {
    const n = this.texts.length;
    const next = this.base === null ? marked : (this.base + 1) % n;
    if (this.base === null) this.firstBase = marked;
    this.base = this.base !== null && next === this.firstBase ? null : next;
    this.refresh();
    if (this.base === null) this.say("Differences are no longer shown.");
    else this.say(`Differences from response ${letter(this.base)}. ${this.spokenCounts()}`);
  }

  spokenCounts() {
    const said = this.counts.flatMap((n, place) => (n ? [`${letter(place)}: ${n[0]} words new, ${n[1]} gone.`] : []));
    return said.join(" ");
  }

  // ---- raw text, folding, two side by side

  toggleRaw() {
    this.isRaw = !this.isRaw;
    this.refresh();
    this.say(this.isRaw ? "Raw texts, as they were written." : "Texts as Markdown.");
  }

  toggleFold() {
    if (!this.mayFold) {
      this.say("The responses have no long start in common.");
      return;
    }
    this.isFolded = !this.isFolded;
    this.refresh();
    const words = `Folded: the first ${this.startWords} words are the same in all responses.`;
    this.say(this.isFolded ? words : "The whole texts are shown.");
  }

  /** @param {number} marked */
  togglePair(marked) {
    this.pair.show(this.pair.places ? null : [marked, (marked + 1) % this.texts.length]);
    this.paintBar();
    this.say(this.pair.places ? this.pairWords() : "All responses are shown.");
  }

  /**
   * Another response beside the marked one.
   * @param {number} step
   * @param {number} marked
   */
  otherInPair(step, marked) {
    this.pair.turn(step, marked);
    this.say(this.pairWords());
  }

  pairWords() {
    const [left, right] = there(this.pair.places).map(letter);
    return `Side by side: ${left} and ${right}.`;
  }

  paintBar() {
    /** @type {[HTMLElement, boolean][]} */
    const states = [
      [this.rawButton, this.isRaw],
      [this.foldButton, this.isFolded],
      [this.diffButton, this.base !== null],
      [this.pairButton, this.pair.places !== null],
    ];
    for (const [each, isOn] of states) each.setAttribute("aria-pressed", String(isOn));
    this.foldButton.hidden = !this.mayFold;
    const from = this.base === null ? "" : letter(this.base);
    this.note.textContent = from && `Underlined is new, struck out stands only in ${from}.`;
  }
}
