// The ranking surface as it is drawn: builds the elements once, then shows what the controller says.

import { Card } from "./ranker_card.js";
import { History } from "./ranker_dialogs.js";
import { Dock } from "./ranker_dock.js";
import { actionButton, button, make, named, showHints } from "./ranker_dom.js";
import { Drag } from "./ranker_drag.js";
import { Help } from "./ranker_help.js";
import { hintOf, KEYS, keyOf } from "./ranker_keys.js";
import { Reader } from "./ranker_reader.js";
import { showText } from "./ranker_text.js";

/** @import { Answer } from "./ranker_answer.js" */
/** @import { Actions, Asks, Data, KeyLine, Mode, Task } from "./ranker_types" */

/** @type {Record<string, string>} */
const ROLES = { system: "System", user: "User", assistant: "Assistant" };
const FACTS = "Reference facts, not shown to the model";

export class View {
  /** @type {HTMLElement} */
  title;
  /** @type {HTMLElement} */
  progress;
  /** @type {HTMLElement} */
  pace;
  /** @type {HTMLElement} */
  saved;
  /** @type {HTMLElement} */
  guidelinesText;
  /** @type {HTMLElement} */
  guidelinesVersion;
  /** @type {HTMLElement} */
  guidelines;
  /** @type {HTMLElement} */
  notices;
  /** @type {HTMLElement} */
  banner;
  /** @type {HTMLElement} */
  prompt;
  /** @type {HTMLElement} */
  grid;
  /** @type {HTMLElement} */
  work;
  /** @type {HTMLElement} */
  idle;
  /** @type {HTMLElement} */
  live;
  /** @type {HTMLButtonElement} */
  backup;
  /** @type {HTMLButtonElement} */
  guidelinesButton;
  /** @type {Dock} */
  dock;
  /** @type {Reader} */
  reader;
  /** @type {Help} */
  help;
  /** @type {History} */
  history;
  /** @type {Card[]} */
  cards;
  /** @type {KeyLine[]} */
  keys;
  /** @type {Asks} */
  asks;
  /** @type {number} */
  marked;
  /** @type {string | undefined} */
  guidelinesShown;

  /**
   * `before`: the view of an element that is gone.
   * @param {HTMLElement} root
   * @param {Actions} actions
   * @param {View | undefined} before
   */
  constructor(root, actions, before) {
    this.root = root;
    this.actions = actions;
    this.cards = [];
    this.keys = KEYS;
    this.build(before);
    this.drag = new Drag(root, this.dock.order, actions);
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.prompt);
    this.observer.observe(this.dock.element);
  }

  /** @param {View | undefined} before */
  build(before) {
    const { actions } = this;
    this.title = make("h1", "title");
    this.progress = make("span", "progress");
    this.pace = make("span", "pace");
    this.saved = make("span", "saved");
    this.backup = button("Save to a file", "quiet", () => actions.backUp());
    this.backup.hidden = true;
    this.guidelinesButton = actionButton("Guidelines", "quiet", () => actions.toggleGuidelines(), "guidelines");
    const answers = actionButton("Answers", "quiet", () => actions.openHistory(), "history");
    const keys = actionButton("Keys", "quiet", () => actions.openHelp(), "help");
    const tools = make("div", "tools", [this.guidelinesButton, answers, keys]);
    const top = make("header", "top", [this.title, this.progress, this.pace, make("span", "grow")]);
    top.append(this.saved, this.backup, tools);

    this.guidelinesText = make("div", "guidelines-text text");
    this.guidelinesVersion = make("span", "version");
    const close = named(
      button("Close", "quiet", () => actions.toggleGuidelines()),
      "",
      "Close guidelines",
    );
    const head = make("div", "guidelines-head", [make("h2", "", [], "Guidelines"), this.guidelinesVersion, close]);
    this.guidelines = named(make("aside", "guidelines", [head, this.guidelinesText]), "", "Guidelines");
    this.guidelines.tabIndex = -1;
    this.notices = make("div", "notices");
    this.notices.setAttribute("role", "alert");

    this.banner = make("div", "banner");
    this.banner.hidden = true;
    this.prompt = named(make("section", "prompt"), "", "Prompt");
    this.grid = named(make("div", "cards"), "group", "Responses");
    this.dock = new Dock(actions);
    this.reader = new Reader(actions, (words) => this.say(words), before?.reader);
    const parts = [this.banner, this.prompt, this.reader.bar, this.grid, this.dock.element];
    this.work = make("div", "work", parts);
    this.idle = make("div", "idle");
    this.live = make("div", "unseen");
    this.live.setAttribute("aria-live", "polite");
    this.help = new Help();
    this.history = new History(actions);
    const main = make("div", "main", [this.notices, this.work, this.idle]);
    const body = make("div", "body", [main, this.guidelines]);
    this.root.replaceChildren(top, body, this.live, this.help.element, this.history.element);
    for (const overlay of [this.help, this.history]) {
      overlay.element.addEventListener("close", () => actions.overlayClosed());
    }
    this.work.hidden = true;
  }

  // ---- the page around the task

  /**
   * @param {Data["project"]} project
   * @param {Data["guidelines"]} guidelines
   * @param {Asks} asks
   */
  showProject(project, guidelines, asks) {
    this.title.textContent = project.name;
    if (this.guidelinesShown !== guidelines.text) showText(this.guidelinesText, guidelines.text);
    this.guidelinesShown = guidelines.text;
    this.guidelinesVersion.textContent = `version ${guidelines.version}`;
    this.guidelinesButton.hidden = !guidelines.text.trim();
    this.asks = asks;
    this.dock.allow(asks);
  }

  /**
   * The keys that hold for this person, wherever one is shown.
   * @param {KeyLine[]} keys
   */
  showKeys(keys) {
    this.keys = keys;
    showHints(this.root, (action) => hintOf(action, keys));
    this.dock.rationale.placeholder = `Why this order? (${keyOf("rationale", keys)})`;
  }

  /** @param {boolean} isOpen */
  showGuidelines(isOpen) {
    this.root.classList.toggle("guided", isOpen);
    this.guidelinesButton.setAttribute("aria-expanded", String(isOpen));
    this.measure();
  }

  get hasRoomForGuidelines() {
    return this.root.clientWidth > 70 * parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  /**
   * @param {number} n
   * @param {number} nToday
   * @param {number | null} pace
   */
  showProgress(n, nToday, pace) {
    const today = nToday ? `${nToday} today${pace ? `, about ${paceText(pace)} each` : ""}` : "";
    if (this.progress.textContent !== `${n} ranked`) this.progress.textContent = `${n} ranked`;
    if (this.pace.textContent !== today) this.pace.textContent = today;
  }

  /**
   * @param {string} state
   * @param {string} text
   * @param {boolean} mayBackUp
   */
  showSaved(state, text, mayBackUp) {
    this.saved.dataset.state = state;
    if (this.saved.textContent !== text) this.saved.textContent = text;
    this.backup.hidden = !mayBackUp;
  }

  /**
   * A notice of a kind replaces the one before it; an empty text takes it away.
   * @param {string} text
   * @param {string} [kind]
   */
  showNotice(text, kind = "news") {
    this.notices.querySelector(`[data-kind=${kind}]`)?.remove();
    if (!text) return;
    const dismiss = button("Dismiss", "quiet", () => notice.remove());
    const notice = make("div", "notice", [make("span", "notice-text", [], text), dismiss]);
    notice.dataset.kind = kind;
    this.notices.append(notice);
  }

  /** @param {string} text */
  showBanner(text) {
    this.banner.hidden = !text;
    if (!text) return;
    const leave = button("Leave it as it was", "plain", () => this.actions.leaveEdit(), "Esc");
    this.banner.replaceChildren(make("span", "", [], text), leave);
  }

  /** @param {string[]} lines */
  showIdle(lines) {
    this.work.hidden = true;
    this.idle.hidden = false;
    const text = lines.join("\n");
    if (this.idle.dataset.text === text) return;
    this.idle.dataset.text = text;
    this.idle.replaceChildren(...lines.map((line, n) => make(n ? "p" : "h2", "", [], line)));
  }

  // ---- the task

  /** @param {Task} task */
  showTask(task) {
    this.drag.cancel();
    this.work.hidden = false;
    this.idle.hidden = true;
    const isChat = task.prompt.length > 1;
    /** @type {[HTMLElement, string][]} */
    const others = task.prompt.map(({ content }) => [make("div", "text"), content]);
    const messages = task.prompt.map(({ role }, n) => {
      const title = make("span", "role", [], isChat ? (ROLES[role] ?? role) : "Prompt");
      return make("div", `message ${role}`, [title, others[n][0]]);
    });
    if (task.facts) {
      const text = make("div", "text");
      others.push([text, task.facts]);
      messages.push(named(make("div", "facts", [make("span", "role", [], FACTS), text]), "note", FACTS));
    }
    this.prompt.replaceChildren(make("div", "messages", messages));
    this.prompt.classList.toggle("with-facts", Boolean(task.facts));
    const n = task.responses.length;
    this.cards = task.responses.map((_, place) => new Card(task, place, this.asks, this.actions));
    this.grid.replaceChildren(...this.cards.map((card) => card.element));
    this.grid.classList.toggle("thirds", n === 3 || n > 4);
    this.grid.classList.toggle("many", n > 6);
    this.showKeys(this.keys);
    this.reader.begin(task.responses, others, this.cards);
    this.prompt.scrollTop = isChat ? this.prompt.scrollHeight : 0;
    this.scrollToTop();
    this.measure();
  }

  /**
   * @param {Answer} answer
   * @param {Mode} mode
   * @param {boolean} isEdit
   */
  paint(answer, mode, isEdit) {
    this.reader.pair.follow(answer.marked, this.marked);
    this.marked = answer.marked;
    for (const card of this.cards) card.paint(answer, card.place === answer.marked, mode);
    this.dock.paint(answer, mode, isEdit);
    this.dock.show(mode);
  }

  /**
   * Announced by screen readers; the same words twice are announced twice.
   * @param {string} text
   */
  say(text) {
    this.live.textContent = this.live.textContent === text ? `${text}\u00a0` : text;
  }

  /** @param {number} place */
  focusCard(place) {
    const card = this.cards[place]?.element;
    if (!card) return;
    this.measure();
    card.focus({ preventScroll: true });
    const room = window.innerHeight - this.prompt.offsetHeight - this.dock.element.offsetHeight;
    if (card.offsetHeight < room) card.scrollIntoView({ block: "nearest" });
    else if (card.offsetTop === this.cards[0].element.offsetTop)
      this.scrollToTop(); // with the head of the page
    else card.scrollIntoView({ block: "start" }); // long ones are read from the top
  }

  /**
   * @param {Mode} mode
   * @param {number} place
   */
  focusMode(mode, place) {
    if (mode === "skip") this.dock.skipForm.focus();
    else if (mode === "none") this.dock.noneNow.focus({ preventScroll: true });
    else if (mode === "flags") this.cards[place].focusFlags();
    else if (mode === "rationale") this.dock.rationale.focus({ preventScroll: true });
    else this.focusCard(place);
  }

  get overlay() {
    return this.help.isOpen ? "help" : this.history.isOpen ? "history" : null;
  }

  // ---- geometry

  measure() {
    this.root.style.setProperty("--prompt-height", `${this.prompt.offsetHeight}px`);
    this.root.style.setProperty("--dock-height", `${this.dock.element.offsetHeight}px`);
    this.prompt.tabIndex = this.prompt.scrollHeight > this.prompt.clientHeight + 1 ? 0 : -1;
  }

  scrollToTop() {
    /** @type {Element | null} */
    let node = this.root;
    while (node) {
      if (node.scrollTop > 0) node.scrollTop = 0;
      const root = node.getRootNode();
      node = node.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
    }
  }

  destroy() {
    this.observer.disconnect();
  }
}

/** @param {number} seconds */
function paceText(seconds) {
  return seconds < 100 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`;
}
