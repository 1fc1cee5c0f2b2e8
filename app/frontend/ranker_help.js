// The list of all keys, in which a person changes them.

import { Overlay } from "./ranker_dialogs.js";
import { button, elements, make, named, there } from "./ranker_dom.js";
import { keysText } from "./ranker_keys.js";
import { isChangeable, usualLines } from "./ranker_own_keys.js";

/** @import { OwnKeys } from "./ranker_own_keys.js" */
/** @import { Has, KeyLine } from "./ranker_types" */

const SECTIONS = [
  ["page", "While a task is on the page"],
  ["pair", "With two responses side by side"],
  ["anywhere", "Always"],
  ["skip", "Skipping"],
  ["flags", "Flags"],
  ["history", "Your answers"],
];
const MODIFIERS = ["Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock", "Dead"];
const NOTE = "The same rank for two responses is a tie. Nothing is sent before you submit.";
const HOW = "Choose a line, then press its new key. This browser keeps your keys.";

export class Help extends Overlay {
  /** @type {OwnKeys} */
  keys;
  /** @type {Has} */
  has;
  /** @type {boolean} */
  isChanging;
  /** @type {KeyLine | null} */
  asked;

  constructor() {
    super("Keys");
    this.lists = make("div", "keys");
    this.words = make("p", "said");
    this.words.setAttribute("role", "status");
    this.change = button("Change keys", "plain", () => this.toggle());
    this.usual = button("Reset keys", "plain", () => this.reset());
    const close = button("Close", "primary ready", () => this.close());
    const buttons = make("div", "buttons", [this.change, this.usual, make("span", "grow"), close]);
    this.element.append(this.lists, make("div", "foot", [this.words, buttons]));
  }

  /**
   * `keys`: the person's; on a page with this and that.
   * @param {OwnKeys} keys
   * @param {Has} has
   */
  show(keys, has) {
    this.keys = keys;
    this.has = has;
    this.isChanging = false;
    this.asked = null;
    this.paint(NOTE);
    this.open();
  }

  /** @param {string} words */
  paint(words) {
    this.words.textContent = words;
    this.words.classList.remove("urgent");
    this.change.textContent = this.isChanging ? "Done" : "Change keys";
    this.usual.hidden = !this.isChanging || !this.keys.isChanged;
    const sections = SECTIONS.map(([context, title]) => ({ title, lines: this.heldIn(context) }));
    const held = sections.filter(({ lines }) => lines.length);
    this.lists.replaceChildren(
      ...held.map(({ title, lines }) => {
        const list = make(
          "dl",
          "",
          lines.flatMap((line) => this.line(line)),
        );
        return make("section", "", [make("h3", "", [], title), list]);
      }),
    );
  }

  /** @param {string} context */
  heldIn(context) {
    if (context === "flags" && !this.has.flags.length) return [];
    return this.keys.lines.filter((line) => line.context === context && (line.when?.(this.has) ?? true));
  }

  /** @param {KeyLine} line */
  line(line) {
    const hints = keysText(line)
      .split(" ")
      .map((key) => make(key === "…" ? "span" : "kbd", "", [], key));
    const label = make("dd", "", [], line.label);
    if (!this.isChanging || !isChangeable(line)) return [make("dt", "", hints), label];
    const usual = keysText(usualLines(line.action)[0]);
    if (usual !== keysText(line)) label.append(make("span", "usual", [], ` (usually ${usual})`));
    const chosen = button("", "small", () => this.ask(line));
    const isAsked = this.asked?.action === line.action;
    chosen.append(...(isAsked ? ["press a key"] : hints));
    chosen.dataset.action = line.action;
    named(chosen, "", isAsked ? `press a key to ${line.label}` : `${keysText(line)}: change the key to ${line.label}`);
    return [make("dt", "", [chosen]), label];
  }

  // ---- changing

  toggle() {
    this.isChanging = !this.isChanging;
    this.asked = null;
    this.paint(this.isChanging ? HOW : NOTE);
  }

  reset() {
    this.keys.reset();
    this.asked = null;
    this.paint("The usual keys hold again.");
    this.change.focus();
  }

  get isAsking() {
    return this.isOpen && this.asked !== null;
  }

  /** @param {KeyLine} line */
  ask(line) {
    this.asked = line;
    this.paint(`Press the key to ${line.label}. Esc leaves it as it is.`);
    this.focusLine(line);
  }

  /**
   * The next key is meant for the line that was asked for. Returns whether it is taken.
   * @param {string} key
   * @param {boolean} isRepeat
   */
  take(key, isRepeat) {
    if (isRepeat || MODIFIERS.includes(key)) return true;
    const line = there(this.asked);
    const why = ["Escape", "Tab"].includes(key) ? "" : this.keys.give(line.action, key);
    if (why) {
      this.words.textContent = `${why} Press another key, or Esc to leave it as it is.`;
      this.words.classList.add("urgent");
      return true;
    }
    this.asked = null;
    const [now] = this.keys.lines.filter((each) => isChangeable(each) && each.action === line.action);
    const same = keysText(now) === keysText(line);
    this.paint(same ? HOW : `Now ${keysText(now)}: ${line.label}.`);
    this.focusLine(line);
    return key !== "Tab";
  }

  /** @param {KeyLine} given */
  focusLine({ action }) {
    elements(this.lists, `button[data-action=${action}]`)[0]?.focus();
  }
}
