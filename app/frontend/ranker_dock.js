// The foot of the page: the order so far, what may be said of the whole, what can be done.

import { STRENGTHS } from "./ranker_answer.js";
import { actionButton, button, check, keyHint, make, named, radios, there } from "./ranker_dom.js";
import { groups, letter, open } from "./ranker_judgement.js";

/** @import { Answer } from "./ranker_answer.js" */
/** @import { Choice } from "./ranker_dom.js" */
/** @import { Actions, Asks, Mode, Ranks } from "./ranker_types" */

export class Dock {
  /** @type {HTMLElement} */
  strength;
  /** @type {HTMLElement} */
  scale;
  /** @type {HTMLTextAreaElement} */
  rationale;
  /** @type {HTMLButtonElement} */
  noneNow;
  /** @type {Asks} */
  asks;

  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.order = named(make("div", "order"), "group", "Order so far");
    this.hint = make("p", "hint");
    this.undo = actionButton("Undo", "plain", () => actions.undo(), "undo");
    this.rest = actionButton("The rest are worse", "plain", () => actions.placeRest(), "rest");
    this.none = actionButton("None acceptable", "plain", () => actions.openNone(), "none");
    this.skip = actionButton("Skip", "plain", () => actions.openSkip(), "skip");
    this.submit = actionButton("Submit", "primary", () => actions.submit(), "submit");
    this.submitLabel = there(this.submit.firstChild);
    const buttons = make("div", "buttons", [this.undo, this.rest, this.none, this.skip, this.submit]);
    this.row = make("div", "row", [make("div", "state", [this.order, this.hint]), buttons]);
    this.whole = this.buildWhole();
    this.skipForm = new SkipForm(actions);
    this.noneForm = this.buildNone();
    this.element = make("div", "dock", [this.skipForm.element, this.noneForm, this.whole, this.row]);
  }

  // What may be said of the whole: how much better the best is, and why.
  buildWhole() {
    const choices = STRENGTHS.map((words, n) => /** @type {Choice<number>} */ ([`${n + 1} ${words}`, n + 1]));
    const label = "How much better is the best than the next?";
    this.strength = radios(label, "small", choices, (value, event) => this.actions.compare(value, event));
    const words = make("span", "of", [], "The best is better");
    words.setAttribute("aria-hidden", "true");
    this.scale = make("div", "scale", [words, this.strength]);
    this.rationale = named(make("textarea", "rationale"), "", "Why this order?");
    this.rationale.rows = 1;
    this.rationale.maxLength = 5000;
    this.rationale.dir = "auto";
    this.rationale.addEventListener("input", () => this.actions.write(this.rationale.value));
    return make("div", "whole", [this.scale, this.rationale]);
  }

  buildNone() {
    const form = named(make("div", "none"), "group", "No response is acceptable");
    this.noneNow = button("Send that", "primary ready", () => this.actions.none(), "⏎");
    const cancel = button("Cancel", "plain", () => this.actions.close(), "Esc");
    const words = "No response is acceptable? This is sent in place of a ranking.";
    form.append(make("p", "question", [], words), make("div", "buttons", [cancel, this.noneNow]));
    form.hidden = true;
    return form;
  }

  /**
   * What the project lets its annotators say.
   * @param {Asks} asks
   */
  allow(asks) {
    this.asks = asks;
    this.rest.hidden = !asks.partial;
    this.rationale.hidden = !asks.rationale;
    this.showWhole(false);
  }

  /** @param {boolean} isComplete */
  showWhole(isComplete) {
    this.scale.hidden = !this.asks.strength || !isComplete;
    this.whole.hidden = this.scale.hidden && !this.asks.rationale;
  }

  /**
   * @param {Answer} answer
   * @param {Mode} mode
   * @param {boolean} isEdit
   */
  paint(answer, mode, isEdit) {
    const { ranks, rest, missing } = answer;
    this.order.replaceChildren(...this.chips(ranks, rest));
    this.submit.classList.toggle("ready", missing.length === 0);
    this.submitLabel.textContent = isEdit ? "Send change" : "Submit";
    this.rest.disabled = !answer.mayPlaceRest || rest;
    this.undo.disabled = answer.steps.length === 0;
    this.showWhole(missing.length === 0 && groups(ranks).length + (rest ? 1 : 0) > 1);
    this.scale.classList.toggle("asked", mode === "strength");
    check(this.strength, answer.strength);
    if (this.rationale.value !== answer.rationale) this.rationale.value = answer.rationale;
    this.showHint(missing.length ? `Still to rank: ${missing.join(", ")}` : "Every response has its place.");
  }

  /**
   * @param {Ranks} ranks
   * @param {boolean} rest
   */
  chips(ranks, rest) {
    const made = [];
    groups(ranks).forEach((places, n) => {
      if (n) made.push(make("span", "sign", [], ">"));
      places.forEach((place, m) => {
        if (m) made.push(make("span", "sign", [], "="));
        made.push(chip(place, "chip placed"));
      });
    });
    const left = open(ranks);
    if (rest) made.push(make("span", "sign", [], "> the rest"));
    if (left.length)
      made.push(
        make(
          "span",
          "left",
          left.map((place) => chip(place, rest ? "chip worse" : "chip open")),
        ),
      );
    return made;
  }

  /**
   * Write at the end of a field, as a person would.
   * @param {HTMLInputElement | HTMLTextAreaElement} field
   * @param {string} text
   */
  type(field, text) {
    field.setRangeText(text, field.value.length, field.value.length, "end");
    field.dispatchEvent(new Event("input"));
  }

  /**
   * @param {string} text
   * @param {boolean} [isUrgent]
   */
  showHint(text, isUrgent = false) {
    this.hint.textContent = text;
    this.hint.classList.toggle("urgent", isUrgent);
  }

  /**
   * Which of the forms is open: "skip", "none", or another mode, for which neither is.
   * @param {Mode} mode
   */
  show(mode) {
    this.skipForm.element.hidden = mode !== "skip";
    this.noneForm.hidden = mode !== "none";
    this.row.hidden = mode === "skip" || mode === "none";
    if (this.row.hidden) this.whole.hidden = true;
  }
}

/**
 * @param {number} place
 * @param {string} kind
 */
function chip(place, kind) {
  const made = make("span", kind, [], letter(place));
  made.dataset.place = String(place);
  return made;
}

export class SkipForm {
  /** @param {Actions} actions */
  constructor(actions) {
    this.element = named(make("form", "skip"), "", "Skip this task");
    this.element.hidden = true;
    this.reasons = named(make("div", "reasons"), "radiogroup", "Why do you skip it?");
    this.own = named(make("input", "own"), "", "Another reason");
    this.own.type = "text";
    this.own.maxLength = 500;
    this.own.placeholder = "Another reason, in your words";
    this.own.addEventListener("input", () => this.choose(-1));
    this.problem = make("span", "hint urgent");
    const cancel = button("Cancel", "plain", () => actions.close(), "Esc");
    const confirm = button("Skip task", "primary ready", () => {}, "⏎");
    confirm.type = "submit";
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      actions.skip(this.chosen());
    });
    const row = make("div", "row", [this.problem, make("div", "buttons", [cancel, confirm])]);
    this.element.append(make("p", "question", [], "Why do you skip this task?"), this.reasons, this.own, row);
  }

  /** @param {string[]} reasons */
  start(reasons) {
    this.reasons.replaceChildren(
      ...reasons.map((reason, n) => {
        const radio = make("input");
        radio.type = "radio";
        radio.name = "reason";
        radio.value = reason;
        const key = n < 9 ? [keyHint(String(n + 1))] : [];
        return make("label", "reason", [radio, ...key, make("span", "", [], reason)]);
      }),
    );
    this.own.value = "";
    this.problem.textContent = "";
  }

  /**
   * Go on where another form was left.
   * @param {SkipForm} before
   * @param {string[]} reasons
   */
  resume(before, reasons) {
    this.start(reasons);
    this.own.value = before.own.value;
    const chosen = before.radios().findIndex((radio) => radio.checked);
    if (chosen >= 0) this.radios()[chosen].checked = true;
  }

  focus() {
    (this.radios().find((radio) => radio.checked) ?? this.radios()[0] ?? this.own).focus({ preventScroll: true });
  }

  /**
   * Choose the nth reason; -1 for the person's own words.
   * @param {number} n
   */
  choose(n) {
    const all = this.radios();
    all.forEach((radio, other) => {
      radio.checked = other === n;
    });
    if (n >= 0) all[n]?.focus({ preventScroll: true });
  }

  chosen() {
    return this.radios().find((radio) => radio.checked)?.value ?? this.own.value.trim();
  }

  radios() {
    return [...this.reasons.querySelectorAll("input")];
  }
}
