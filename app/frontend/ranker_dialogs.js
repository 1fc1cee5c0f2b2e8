// What lies over the page when asked for; here the person's own answers, in ranker_help.js the keys.

import { button, make, named } from "./ranker_dom.js";
import { orderText } from "./ranker_judgement.js";

/** @import { Actions, HistoryPage, Line, Saved } from "./ranker_types" */

export class Overlay {
  /** @param {string} label */
  constructor(label) {
    this.title = make("h2", "", [], label);
    this.title.tabIndex = -1;
    this.element = named(make("dialog", "overlay", [this.title]), "", label);
  }

  get isOpen() {
    return this.element.open;
  }

  open() {
    if (this.isOpen) return;
    this.element.showModal();
    this.title.focus();
  }

  close() {
    if (this.isOpen) this.element.close();
  }
}

export class History extends Overlay {
  /** @type {HistoryPage | null} */
  page;

  /** @param {Actions} actions */
  constructor(actions) {
    super("Your answers");
    this.actions = actions; // ask(offset), reopen(line), takeFile(file)
    this.count = make("p", "count");
    this.list = make("ol", "answers");
    this.newer = button("Newer", "plain", () => this.turn(-1), "←");
    this.older = button("Older", "plain", () => this.turn(1), "→");
    const close = button("Close", "primary ready", () => this.close());
    this.file = make("input");
    this.file.type = "file";
    this.file.accept = "application/json,.json";
    this.file.hidden = true;
    this.file.addEventListener("change", () => {
      const [file] = this.file.files ?? [];
      if (file) this.actions.takeFile(file);
      this.file.value = "";
    });
    const take = button("Take in answers from a file", "quiet", () => this.file.click());
    const buttons = make("div", "buttons", [this.newer, this.older, make("span", "grow"), take, close]);
    this.element.classList.add("history");
    this.element.append(this.count, this.list, this.file, buttons);
  }

  start() {
    this.page = null;
    this.list.replaceChildren();
    this.count.textContent = "One moment…";
    this.newer.disabled = this.older.disabled = true;
    this.open();
    this.actions.ask(0);
  }

  /**
   * @param {HistoryPage} page
   * @param {number} nUnsent
   */
  show(page, nUnsent) {
    this.page = page;
    const { n, offset, size, lines } = page;
    const waiting = nUnsent ? ` ${nUnsent} more on the way to the server.` : "";
    const range = n > size ? ` ${offset + 1} to ${offset + lines.length}, the newest first.` : "";
    this.count.textContent =
      (n ? `${n} answered or skipped.${range}` : "You have not answered anything here yet.") + waiting;
    this.list.replaceChildren(...lines.map((line) => make("li", "", [this.line(line)])));
    this.newer.disabled = offset === 0;
    this.older.disabled = offset + size >= n;
    this.list.querySelector("button")?.focus();
  }

  /** @param {Line} line */
  line(line) {
    const when = make("span", "when", [], timeText(line.at));
    const marks = [];
    if (line.version > 1) marks.push(make("span", "mark", [], `version ${line.version}`));
    if (line.is_frozen) marks.push(make("span", "mark", [], "in a snapshot"));
    const words = make("span", "words", [], line.prompt);
    words.dir = "auto";
    const made = button("", "answer", () => this.actions.reopen(line));
    made.append(words, make("span", "given", [], givenText(line)), make("span", "when-marks", [...marks, when]));
    return made;
  }

  /**
   * To the answer above or below.
   * @param {number} by
   */
  step(by) {
    const all = [...this.list.querySelectorAll("button")];
    const root = /** @type {Document | ShadowRoot} */ (this.element.getRootNode());
    const at = all.indexOf(/** @type {HTMLButtonElement} */ (root.activeElement));
    all[Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
  }

  /** @param {number} by */
  turn(by) {
    const chosen = by > 0 ? this.older : this.newer;
    if (this.page && !chosen.disabled) this.actions.ask(this.page.offset + by * this.page.size);
  }
}

/**
 * What was answered, in a few words.
 * @param {Saved} given
 */
export function givenText({ status, ranks, rest, skip_reason: reason }) {
  if (status === "skipped") return `Skipped: ${reason}`;
  return status === "unacceptable" ? "No response is acceptable" : orderText(ranks, rest);
}

/** @param {number} at */
export function timeText(at) {
  const then = new Date(at);
  const clock = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const isToday = then.toDateString() === new Date().toDateString();
  return isToday ? clock : `${then.toLocaleDateString([], { day: "numeric", month: "short" })}, ${clock}`;
}
