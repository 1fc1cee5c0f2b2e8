// One response: its letter, what it was given, the buttons for that, and its text.

import { QUALITY } from "./ranker_answer.js";
import { codeBadge, lengthBadge } from "./ranker_diff.js";
import { actionButton, button, check, keyHint, make, named, radios } from "./ranker_dom.js";
import { letter, tiedWith } from "./ranker_judgement.js";
import { FLAG_KEYS, RANK_KEYS } from "./ranker_keys.js";

/** @import { Answer } from "./ranker_answer.js" */
/** @import { Choice } from "./ranker_dom.js" */
/** @import { Actions, Asks, Mode, Task } from "./ranker_types" */

export class Card {
  /** @type {HTMLButtonElement} */
  close;
  /** @type {HTMLElement | undefined} */
  acceptable;
  /** @type {HTMLElement | undefined} */
  quality;
  /** @type {HTMLElement | undefined} */
  flags;
  /** @type {HTMLButtonElement} */
  flagButton;
  /** @type {HTMLElement} */
  flagNames;

  /**
   * `text`: the element that holds its text, which the reader fills.
   * @param {Task} task
   * @param {number} place
   * @param {Asks} asks
   * @param {Actions} actions
   */
  constructor(task, place, asks, actions) {
    this.place = place;
    this.asks = asks;
    this.actions = actions;
    this.name = letter(place);
    const n = task.responses.length;
    /** @type {Record<number, string>} */
    const ends = { 1: "best", [n]: n > 1 ? "worst" : "best" };
    const choices = task.responses.map((_, other) => {
      return /** @type {Choice<number>} */ ([
        String(other + 1),
        other + 1,
        other > 8 ? RANK_KEYS[other] : "",
        ends[other + 1],
      ]);
    });
    const label = `Rank of response ${this.name}, 1 best${n > 1 ? ` to ${n} worst` : ""}`;
    this.ranks = radios(label, "rank", choices, (rank) => actions.rank(place, rank));
    this.ranks.classList.add("ranks");
    const grip = make("span", "grip", [make("span", "letter", [], this.name)]);
    grip.dataset.place = String(place);
    grip.title = "Drag into the order below";
    this.standing = make("span", "standing");
    const head = make("div", "head", [grip, this.standing, this.ranks]);
    this.text = make("div", "text");
    this.badges = badges(task.responses[place], task.badges?.[place]);
    this.element = make("article", "card", [head, ...this.details(), this.badges, this.text]);
    this.element.classList.toggle("many", n > 6);
    this.element.addEventListener("focusin", () => actions.mark(place));
    this.element.addEventListener("click", () => actions.mark(place));
  }

  details() {
    const { asks, place, actions, name } = this;
    const parts = [];
    if (asks.acceptable) {
      /** @type {Choice<boolean>[]} */
      const choices = [
        ["Acceptable", true],
        ["Not acceptable", false],
      ];
      const label = `Is response ${name} acceptable?`;
      this.acceptable = radios(label, "small", choices, (value, event) => actions.acceptable(place, value, event));
      parts.push(this.acceptable);
    }
    if (asks.quality) {
      /** @type {Record<number, string>} */
      const ends = { 1: "very bad", [QUALITY]: "very good" };
      /** @type {Choice<number>[]} */
      const choices = Array.from({ length: QUALITY }, (_, n) => [String(n + 1), n + 1, "", ends[n + 1]]);
      const label = `Quality of response ${name}, 1 very bad to ${QUALITY} very good`;
      this.quality = radios(label, "small", choices, (value, event) => actions.rate(place, value, event));
      const words = make("span", "of", [], "Quality");
      words.setAttribute("aria-hidden", "true");
      parts.push(make("div", "scale", [words, this.quality]));
    }
    if (asks.flags.length) {
      this.flagButton = actionButton("Flags", "small", () => actions.openFlags(place), "flags");
      this.flagNames = make("span", "flagged");
      parts.push(this.flagButton, this.flagNames);
    }
    if (!parts.length) return [];
    const row = make("div", "details", parts);
    return asks.flags.length ? [row, this.chooser()] : [row];
  }

  chooser() {
    const list = make("div", "flags");
    named(list, "group", `Flags of response ${this.name}`);
    this.asks.flags.forEach((flag, n) => {
      const box = make("input");
      box.type = "checkbox";
      box.value = flag;
      box.addEventListener("change", () => this.actions.flag(this.place, flag));
      const key = n < FLAG_KEYS.length ? [keyHint(FLAG_KEYS[n])] : [];
      list.append(make("label", "flag", [box, ...key, make("span", "", [], flag)]));
    });
    this.close = button("Close", "small", () => this.actions.close(), "Esc");
    list.append(this.close);
    list.hidden = true;
    this.flags = list;
    return list;
  }

  /**
   * @param {Answer} answer
   * @param {boolean} isMarked
   * @param {Mode} mode
   */
  paint(answer, isMarked, mode) {
    const { place, element } = this;
    const words = this.standingWords(answer);
    element.classList.toggle("marked", isMarked);
    element.classList.toggle("ranked", answer.ranks[place] !== null);
    element.classList.toggle("rating", isMarked && mode === "quality");
    element.tabIndex = isMarked ? 0 : -1;
    element.setAttribute("aria-label", `Response ${this.name}. ${[words, ...this.said(answer)].join(". ")}.`);
    this.standing.textContent = words;
    check(this.ranks, answer.ranks[place], isMarked);
    if (this.acceptable) check(this.acceptable, answer.acceptable[place], isMarked);
    if (this.quality) check(this.quality, answer.quality[place], isMarked);
    if (this.flags) this.paintFlags(this.flags, answer.flags[place], isMarked, isMarked && mode === "flags");
  }

  /**
   * @param {HTMLElement} list
   * @param {string[]} names
   * @param {boolean} isMarked
   * @param {boolean} isOpen
   */
  paintFlags(list, names, isMarked, isOpen) {
    this.flagNames.textContent = isOpen ? "" : names.join(" · ");
    this.flagButton.tabIndex = isMarked ? 0 : -1;
    this.flagButton.setAttribute("aria-expanded", String(isOpen));
    list.hidden = !isOpen;
    for (const box of list.querySelectorAll("input")) box.checked = names.includes(box.value);
  }

  focusFlags() {
    this.flags?.querySelector("input")?.focus({ preventScroll: true });
    this.flags?.scrollIntoView({ block: "nearest" });
  }

  /**
   * How it differs from another one; nothing for an empty text.
   * @param {string} words
   */
  showCompared(words) {
    this.badges.querySelector(".compared")?.remove();
    if (words) this.badges.append(make("li", "compared", [], words));
  }

  /** @param {Answer} given */
  standingWords({ ranks, rest }) {
    const rank = ranks[this.place];
    if (rank === null) return rest ? "Among the rest, worse" : "Not ranked";
    const ties = tiedWith(ranks, this.place);
    return `Rank ${rank}${ties.length ? `, tied with ${ties.join(", ")}` : ""}`;
  }

  /**
   * What was said of it beside the rank, for those who hear the page.
   * @param {Answer} given
   */
  said({ acceptable, quality, flags }) {
    const words = [];
    if (this.acceptable && acceptable[this.place] !== null) {
      words.push(acceptable[this.place] ? "Acceptable" : "Not acceptable");
    }
    if (this.quality && quality[this.place] !== null) words.push(`Quality ${quality[this.place]}`);
    if (this.flags && flags[this.place].length) words.push(`Flags: ${flags[this.place].join(", ")}`);
    return words;
  }
}

/**
 * How long a text is and what code stands in it, and what was found wrong with it.
 * @param {string} text
 * @param {string[]} [names]
 */
function badges(text, names = []) {
  const facts = [lengthBadge(text), codeBadge(text)].filter(Boolean);
  const lines = [
    ...facts.map((words) => make("li", "fact", [], words)),
    ...names.map((words) => make("li", "badge", [], words)),
  ];
  return make("ul", "badges", lines);
}
