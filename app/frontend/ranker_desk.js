// The desk: one task with the answer that is being made, every gesture on it, and the keys.
//
// A mode is what a key or button has opened: "skip", "none", "flags", "quality", "strength"; null is the page itself.

import { Answer, STRENGTHS } from "./ranker_answer.js";
import { there } from "./ranker_dom.js";
import { letter, orderText, tiedWith } from "./ranker_judgement.js";
import { bound, FLAG_KEYS, keyName, RANK_KEYS } from "./ranker_keys.js";
import { isControl, isDialogOpen, isTextField, mayTakeFocus, stop } from "./ranker_page.js";

/** @import { Ranker } from "./ranker_control.js" */
/** @import { Reader } from "./ranker_reader.js" */
/** @import { Key, Mode, Saved, Target, Task } from "./ranker_types" */
/** @import { View } from "./ranker_view.js" */

const MAY_REPEAT = new Set(["next", "previous", "lower", "higher", "undo"]);

export class Desk {
  /** @type {Answer} */
  answer;
  /** @type {Task | null} */
  task;
  /** @type {Mode} */
  mode;
  /** @type {boolean} */
  isEdit;

  /** @param {Ranker} host */
  constructor(host) {
    this.host = host; // the controller: view, data, deliver(body), changed(), and what keys ask of the page
    this.task = null;
    this.mode = null;
    this.isWriting = false; // the last key went into a field of ours
    this.does = this.keyActions();
  }

  get view() {
    return this.host.view;
  }

  get asks() {
    return there(this.host.data).asks;
  }

  get skipReasons() {
    return there(this.host.data).skip_reasons;
  }

  // What buttons and handles ask for.
  gestures() {
    return bind(this, [
      "rank",
      "mark",
      "pick",
      "drop",
      "undo",
      "placeRest",
      "acceptable",
      "rate",
      "flag",
      "openFlags",
      "compare",
      "write",
      "toggleRaw",
      "toggleFold",
      "differences",
      "togglePair",
      "openNone",
      "none",
      "openSkip",
      "skip",
      "close",
      "submit",
    ]);
  }

  get marked() {
    return this.answer.marked;
  }

  /**
   * Put a task on the desk, with what was answered of it so far.
   * @param {Task} task
   * @param {Saved | null} saved
   * @param {boolean} [isEdit]
   */
  begin(task, saved, isEdit = false) {
    this.task = task;
    this.isEdit = isEdit;
    this.answer = Answer.from(saved, task.responses.length, this.asks);
    this.mode = null;
    this.view.showTask(task);
    this.paint();
  }

  clear() {
    this.task = null;
    this.mode = null;
  }

  paint() {
    if (this.task) this.view.paint(this.answer, this.mode, this.isEdit);
  }

  get has() {
    return { ...this.asks, n: this.task?.responses.length ?? 0, editing: Boolean(this.isEdit && this.task) };
  }

  // ---- ranks

  /**
   * @param {number} place
   * @param {number} rank
   */
  rank(place, rank) {
    if (!this.task || rank > this.answer.n) return;
    this.answer.rank(place, rank);
    const ties = tiedWith(this.answer.ranks, place);
    const words = `Response ${letter(place)}: rank ${rank}${ties.length ? `, tied with ${ties.join(" and ")}` : ""}.`;
    this.changed(this.answer.isComplete ? `${words} All ranked: ${this.orderText()}.` : words);
  }

  unplace() {
    const name = letter(this.marked);
    if (this.answer.unplace(this.marked)) this.changed(`Response ${name}: no rank any more.`);
    else this.view.say(`Response ${name} has no rank.`);
  }

  /**
   * @param {number} place
   * @param {Target | null} target
   */
  drop(place, target) {
    if (this.task && this.answer.move(place, target)) this.changed(`${this.orderText() || "Nothing is ranked"}.`);
    else this.view.focusCard(this.marked);
  }

  placeRest() {
    if (!this.task || !this.asks.partial) return;
    if (this.answer.placeRest()) this.changed(`The rest are worse, in no order: ${this.orderText()}.`);
    else this.view.say(this.answer.rest ? "The rest is placed already." : "Rank the best first, then the rest.");
  }

  undo() {
    if (this.task && this.answer.undo()) this.changed(`Undone. ${this.orderText() || "Nothing is ranked"}.`);
    else this.view.say("Nothing to undo.");
  }

  /** @param {number} place */
  mark(place) {
    if (!this.task || place === this.marked) return;
    this.answer.marked = place;
    if (this.mode === "flags" || this.mode === "quality") this.mode = null;
    this.paint();
  }

  /** @param {number} place */
  pick(place) {
    this.mark(place);
    this.view.focusCard(place);
  }

  /** @param {number} step */
  move(step) {
    this.pick((this.marked + step + this.answer.n) % this.answer.n);
  }

  orderText() {
    return orderText(this.answer.ranks, this.answer.rest);
  }

  // ---- beside the ranks

  /**
   * @param {number} place
   * @param {boolean | undefined} wanted
   * @param {{ detail: number } | undefined} event
   */
  acceptable(place, wanted, event) {
    if (!this.task) return;
    this.answer.toggleAcceptable(place, wanted);
    const said = this.answer.acceptable[place];
    const words = said === null ? "left open" : said ? "acceptable" : "not acceptable";
    this.said(`Response ${letter(place)}: ${words}.`, event);
  }

  /**
   * @param {number} place
   * @param {number} quality
   * @param {{ detail: number } | undefined} event
   */
  rate(place, quality, event) {
    if (!this.task) return;
    this.answer.rate(place, quality);
    this.mode = null;
    const said = this.answer.quality[place];
    this.said(`Response ${letter(place)}: ${said === null ? "no quality" : `quality ${said} of 7`}.`, event);
  }

  /**
   * @param {number} place
   * @param {string | undefined} name
   */
  flag(place, name) {
    if (!this.task || name === undefined) return;
    this.answer.toggleFlag(place, name);
    const isOn = this.answer.flags[place].includes(name);
    this.said(`${name}: ${isOn ? "on" : "off"}.`, { detail: 0 });
  }

  /**
   * @param {number} strength
   * @param {{ detail: number } | undefined} event
   */
  compare(strength, event) {
    if (!this.task) return;
    this.answer.compare(strength);
    this.mode = null;
    const said = this.answer.strength;
    this.said(said === null ? "No strength." : `The best is ${STRENGTHS[said - 1]} better.`, event);
  }

  /** @param {string} text */
  write(text) {
    if (!this.task) return;
    this.answer.rationale = text;
    this.host.changed();
  }

  /**
   * A gesture beside the ranks keeps the focus where a keyboard has it; after a mouse it is the card's again.
   * @param {string} words
   * @param {{ detail: number } | undefined} event
   */
  said(words, event) {
    this.paint();
    if (event?.detail) this.view.focusCard(this.marked);
    this.view.say(words);
    this.host.changed();
  }

  /** @param {string} words */
  changed(words) {
    this.paint();
    this.view.focusCard(this.marked);
    this.view.say(words);
    this.host.changed();
  }

  // ---- reading

  /** @param {(reader: Reader) => void} does */
  read(does) {
    if (!this.task) return;
    does(this.view.reader);
    this.view.focusCard(this.marked);
  }

  toggleRaw() {
    this.read((reader) => reader.toggleRaw());
  }

  toggleFold() {
    this.read((reader) => reader.toggleFold());
  }

  differences() {
    this.read((reader) => reader.differences(this.marked));
  }

  togglePair() {
    this.read((reader) => reader.togglePair(this.marked));
  }

  // ---- modes

  /**
   * @param {Mode} mode
   * @param {string} words
   */
  enter(mode, words) {
    if (!this.task) return;
    this.mode = mode;
    this.paint();
    this.view.focusMode(mode, this.marked);
    this.view.say(words);
  }

  openSkip() {
    if (!this.task) return;
    this.view.dock.skipForm.start(this.skipReasons);
    this.enter("skip", "Why do you skip this task? Choose a reason, Enter skips, Escape goes back.");
  }

  openNone() {
    this.enter("none", "No response is acceptable? Enter sends that, Escape goes back.");
  }

  /** @param {number} place */
  openFlags(place) {
    this.mark(place);
    if (this.mode === "flags") this.close();
    else this.enter("flags", `Flags of response ${letter(place)}. Escape closes them.`);
  }

  askQuality() {
    this.enter("quality", `Quality of response ${letter(this.marked)}, 1 very bad to 7 very good.`);
  }

  askStrength() {
    if (!this.task) return;
    if (this.view.dock.scale.hidden) this.view.say("Rank every response first.");
    else this.enter("strength", "How much better is the best than the next? 1 negligibly to 4 significantly.");
  }

  writeWhy() {
    this.view.focusMode("rationale", this.marked);
  }

  close() {
    this.mode = null;
    this.paint();
    if (this.task) this.view.focusCard(this.marked);
  }

  // ---- answers

  submit() {
    if (!this.task) return;
    const { missing } = this.answer;
    if (missing.length) {
      const words = `Not sent yet: ${missing.join(", ")} ${missing.length > 1 ? "have" : "has"} no rank`;
      this.pick(this.answer.ranks.indexOf(null));
      this.view.dock.showHint(words, true);
      this.view.say(words);
      return;
    }
    this.host.deliver({ ...this.answer.ranking() });
  }

  none() {
    if (this.task) this.host.deliver({ unacceptable: true, ...this.answer.said() });
  }

  /** @param {string} reason */
  skip(reason) {
    if (!this.task) return;
    if (reason) {
      this.host.deliver({ skip_reason: reason });
      return;
    }
    const words = "Choose a reason, or write one";
    this.view.dock.skipForm.problem.textContent = words;
    this.view.say(`${words}.`);
  }

  // ---- keys

  /** @returns {Record<string, (key: string) => void>} */
  keyActions() {
    const { host } = this;
    return {
      rank: (key) => this.rank(this.marked, RANK_KEYS.indexOf(key) + 1),
      unplace: () => this.unplace(),
      next: () => this.move(1),
      previous: () => this.move(-1),
      rest: () => this.placeRest(),
      undo: () => this.undo(),
      submit: () => this.submit(),
      takeBack: () => host.takeBack(),
      none: () => this.openNone(),
      noneNow: () => this.none(),
      skip: () => this.openSkip(),
      skipNow: () => this.skip(this.view.dock.skipForm.chosen()),
      reason: (key) => this.view.dock.skipForm.choose(Number(key) - 1),
      acceptable: () => this.acceptable(this.marked, undefined, undefined),
      quality: () => this.askQuality(),
      rate: (key) => this.rate(this.marked, Number(key), { detail: 1 }),
      flags: () => this.openFlags(this.marked),
      flag: (key) => this.flag(this.marked, this.asks.flags[FLAG_KEYS.indexOf(key)]),
      strength: () => this.askStrength(),
      compare: (key) => this.compare(Number(key), { detail: 1 }),
      rationale: () => this.writeWhy(),
      raw: () => this.toggleRaw(),
      fold: () => this.toggleFold(),
      differences: () => this.differences(),
      pair: () => this.togglePair(),
      otherSide: () => this.pick(this.view.reader.pair.other(this.marked)),
      nextBeside: () => this.read((reader) => reader.otherInPair(1, this.marked)),
      previousBeside: () => this.read((reader) => reader.otherInPair(-1, this.marked)),
      close: () => this.close(),
      leaveEdit: () => host.leaveEdit(),
      help: () => host.openHelp(),
      history: () => host.history.toggle(Boolean(host.data)),
      guidelines: () => host.guide.toggle(),
      lower: () => this.view.history.step(1),
      higher: () => this.view.history.step(-1),
      older: () => this.view.history.turn(1),
      newer: () => this.view.history.turn(-1),
    };
  }

  get context() {
    const page = this.task && this.view.reader.pair.places ? "pair" : this.task ? "page" : "idle";
    return this.view.overlay ?? this.mode ?? page;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.mayBeOurs(event)) return;
    const path = event.composedPath();
    const isInside = path.includes(this.host.root);
    this.isWriting = isTextField(path[0]) && isInside;
    if (this.isWriting ? this.keyInField(event, path[0]) : this.handle(event, path[0])) stop(event);
  }

  /**
   * Whether nothing else on the page has the key: no input method, no field or control outside, no dialog.
   * @param {KeyboardEvent} event
   */
  mayBeOurs(event) {
    if (event.isComposing || event.keyCode === 229) return false;
    const path = event.composedPath();
    const isInside = path.includes(this.host.root);
    if (isTextField(path[0])) return isInside;
    if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return false;
    return isInside || !isControl(path[0]);
  }

  /**
   * A key that came while there was no element to draw in: held by the controller, done or written now.
   * @param {Key} key
   */
  late(key) {
    if (!this.isWriting) this.handle(key, this.host.root);
    else if (key.key.length === 1) this.view.dock.type(this.field, key.key);
  }

  get field() {
    return this.mode === "skip" ? this.view.dock.skipForm.own : this.view.dock.rationale;
  }

  /**
   * Go on in another element: what was open stays open, and what was being written goes on where it was.
   * @param {View} before
   */
  resume(before) {
    this.view.showTask(there(this.task));
    this.view.reader.resume(before.reader);
    this.paint();
    if (this.mode === "skip") this.view.dock.skipForm.resume(before.dock.skipForm, this.skipReasons);
    if (this.isWriting) this.field.focus({ preventScroll: true });
    else if (mayTakeFocus(false)) this.view.focusMode(this.mode, this.marked);
  }

  /**
   * @param {KeyboardEvent} event
   * @param {EventTarget} origin
   */
  keyInField(event, origin) {
    const isRationale = origin === this.view.dock.rationale;
    if (event.key === "Escape" && !event.ctrlKey) {
      this.close();
      return true;
    }
    if (isRationale && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      if (!event.repeat) this.submit();
      return true;
    }
    return false;
  }

  /**
   * Whether the key was one of ours.
   * @param {Key} event
   * @param {EventTarget} origin
   */
  handle(event, origin) {
    const name = keyName(event);
    if (this.view.help.isAsking) return this.view.help.take(name, event.repeat ?? false);
    const isOnButton = origin instanceof HTMLButtonElement || origin instanceof HTMLAnchorElement;
    if (isOnButton && (name === "Enter" || name === " ")) return false; // it presses the button
    if (!this.view.overlay && goBeside(name, origin)) return true;
    let line = bound(name, this.context, this.has, this.keys);
    if (!line && (this.mode === "quality" || this.mode === "strength")) {
      this.close();
      line = bound(name, this.context, this.has, this.keys);
    }
    if (line) {
      if (!event.repeat || MAY_REPEAT.has(line.action)) this.does[line.action](name);
      return true;
    }
    if (this.view.overlay) return !["Escape", "Enter", "Tab", " "].includes(name);
    return name === "r" || name === "c"; // Streamlit's own keys: rerun, clear cache
  }

  get keys() {
    return this.view.keys;
  }
}

/**
 * Methods by their names, to be called without their object.
 * @template {keyof Desk} K
 * @param {Desk} desk
 * @param {K[]} names
 */
const bind = (desk, names) =>
  /** @type {Pick<Desk, K>} */ (
    Object.fromEntries(names.map((name) => [name, /** @type {Function} */ (desk[name]).bind(desk)]))
  );

/**
 * In a row of choices the arrows go to the one beside. Returns whether the key was such an arrow.
 * @param {string} name
 * @param {EventTarget} origin
 */
function goBeside(name, origin) {
  if (!(origin instanceof HTMLElement) || origin.role !== "radio") return false;
  if (name !== "ArrowLeft" && name !== "ArrowRight") return false;
  const beside = name === "ArrowLeft" ? origin.previousElementSibling : origin.nextElementSibling;
  if (beside instanceof HTMLElement) beside.focus();
  return true;
}
