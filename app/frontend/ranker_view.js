// The ranking surface as it is drawn: builds the elements once, then shows what the controller says.
//
// Texts of people and models only ever go in as textContent.

import { groups, keyOfRank, letter, missing, tiedWith } from "./ranker_judgement.js";

const ROLES = { system: "System", user: "User", assistant: "Assistant" };
const KEYS = [
  ["1 … 9", "rank the marked response and go on to the next open one"],
  ["a b c", "ranks 10, 11 and 12, where there are so many"],
  ["↓ → j", "mark the next response"],
  ["↑ ← k", "mark the one before"],
  ["u ⌫", "take the last step back"],
  ["Enter", "submit when every response has a rank"],
  ["w", "place all that is left as worse, in no order (where the project allows it)"],
  ["x x", "no response is acceptable: an answer of its own"],
  ["s", "skip this task, with a reason"],
  ["?", "show or close this list"],
];

export class View {
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    this.build();
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.prompt);
    this.observer.observe(this.dock);
  }

  build() {
    const make = this.make.bind(this);
    this.title = make("h1", "title");
    this.progress = make("span", "progress");
    this.saved = make("span", "saved");
    this.guidelinesButton = this.button("Guidelines", "quiet", () => this.toggleGuidelines());
    this.guidelinesButton.setAttribute("aria-expanded", "false");
    const keys = this.button("Keys", "quiet", () => this.toggleHelp(), "?");
    const top = make("header", "top", [this.title, this.progress, make("span", "grow"), this.saved]);
    top.append(this.guidelinesButton, keys);

    this.guidelines = make("div", "guidelines");
    this.guidelines.dir = "auto";
    this.guidelines.hidden = true;
    this.noticeText = make("span", "notice-text");
    const dismiss = this.button("Dismiss", "quiet", () => this.showNotice(""));
    this.notice = make("div", "notice", [this.noticeText, dismiss]);
    this.notice.setAttribute("role", "alert");
    this.notice.hidden = true;

    this.prompt = make("section", "prompt");
    this.prompt.setAttribute("aria-label", "Prompt");
    this.cards = make("div", "cards");
    this.cards.setAttribute("role", "group");
    this.cards.setAttribute("aria-label", "Responses");
    this.work = make("div", "work", [this.prompt, this.cards, this.buildDock()]);
    this.idle = make("div", "idle");
    this.live = make("div", "unseen");
    this.live.setAttribute("aria-live", "polite");
    this.help = this.buildHelp();
    this.root.replaceChildren(top, this.notice, this.guidelines, this.work, this.idle, this.live, this.help);
    this.work.hidden = true;
  }

  buildDock() {
    this.order = this.make("div", "order");
    this.hint = this.make("p", "hint");
    this.undoButton = this.button("Undo", "plain", () => this.actions.undo(), "u");
    this.skipButton = this.button("Skip", "plain", () => this.actions.openSkip(), "s");
    this.submitButton = this.button("Submit", "primary", () => this.actions.submit(), "⏎");
    this.restButton = this.button("Rest is worse", "plain", () => this.actions.placeRest(), "w");
    this.noneButton = this.button("None acceptable", "plain", () => this.actions.none(), "x");
    const all = [this.undoButton, this.restButton, this.noneButton, this.skipButton, this.submitButton];
    const buttons = this.make("div", "buttons", all);
    this.row = this.make("div", "row", [this.make("div", "state", [this.order, this.hint]), buttons]);
    this.skipForm = this.buildSkipForm();
    this.dock = this.make("div", "dock", [this.skipForm, this.row]);
    return this.dock;
  }

  buildSkipForm() {
    const form = this.make("form", "skip");
    form.hidden = true;
    form.setAttribute("aria-label", "Skip this task");
    this.reasons = this.make("div", "reasons");
    this.reasons.setAttribute("role", "radiogroup");
    this.reasons.setAttribute("aria-label", "Why do you skip it?");
    this.ownReason = this.make("input", "own");
    this.ownReason.type = "text";
    this.ownReason.maxLength = 500;
    this.ownReason.placeholder = "Another reason, in your words";
    this.ownReason.setAttribute("aria-label", "Another reason");
    this.ownReason.addEventListener("input", () => this.chooseReason(-1));
    this.skipProblem = this.make("span", "hint");
    const cancel = this.button("Cancel", "plain", () => this.actions.closeSkip(), "Esc");
    const confirm = this.button("Skip task", "primary", () => {}, "⏎");
    confirm.type = "submit";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.actions.skip(this.chosenReason());
    });
    const buttons = this.make("div", "buttons", [cancel, confirm]);
    const question = this.make("p", "question", [], "Why do you skip this task?");
    form.append(question, this.reasons, this.ownReason, this.make("div", "row", [this.skipProblem, buttons]));
    return form;
  }

  buildHelp() {
    const help = this.make("dialog", "help");
    help.setAttribute("aria-label", "Keys");
    const list = this.make("dl");
    for (const [keys, meaning] of KEYS) {
      const names = keys.split(" ").map((key) => this.make(key === "…" ? "span" : "kbd", "", [], key));
      list.append(this.make("dt", "", names), this.make("dd", "", [], meaning));
    }
    const note = "The same rank for two responses is a tie. Nothing is sent before you submit.";
    const close = this.button("Close", "primary", () => this.toggleHelp());
    help.append(this.make("h2", "", [], "Keys"), list, this.make("p", "", [], note), close);
    return help;
  }

  // ---- what is shown

  showProject(project, guidelines, allowPartial) {
    this.restButton.hidden = !allowPartial;
    this.title.textContent = project.name;
    this.guidelines.textContent = guidelines;
    this.guidelinesButton.hidden = !guidelines.trim();
  }

  showProgress(n) {
    this.progress.textContent = `${n} ranked`;
  }

  showSaved(state, text) {
    this.saved.dataset.state = state;
    this.saved.textContent = text;
  }

  showNotice(text) {
    this.noticeText.textContent = text;
    this.notice.hidden = !text;
  }

  showTask(task) {
    this.work.hidden = false;
    this.idle.hidden = true;
    const isChat = task.prompt.length > 1;
    this.prompt.replaceChildren(
      ...task.prompt.map((message) => {
        const role = this.make("span", "role", [], isChat ? (ROLES[message.role] ?? message.role) : "Prompt");
        return this.make("div", `message ${message.role}`, [role, this.text(message.content)]);
      }),
    );
    if (task.facts) {
      const role = this.make("span", "role", [], "Reference facts, not shown to the model");
      this.prompt.append(this.make("div", "message facts", [role, this.text(task.facts)]));
    }
    this.cards.replaceChildren(...task.responses.map((_, place) => this.card(task, place, task.responses.length)));
    const n = task.responses.length;
    this.cards.classList.toggle("thirds", n === 3 || n > 4);
    this.cards.classList.toggle("many", n > 6);
    this.prompt.scrollTop = isChat ? this.prompt.scrollHeight : 0;
    this.scrollToTop();
    this.measure();
  }

  showIdle(lines) {
    this.work.hidden = true;
    this.idle.hidden = false;
    this.idle.replaceChildren(...lines.map((line, n) => this.make(n ? "p" : "h2", "", [], line)));
  }

  // ranks by display place, which place is marked, and which places are a rest in no order
  paint(ranks, marked, rest = []) {
    [...this.cards.children].forEach((card, place) => this.paintCard(card, ranks, place, place === marked, rest));
    const chips = [];
    groups(ranks).forEach((places, n) => {
      if (n) chips.push(this.make("span", "sign", [], ">"));
      places.forEach((place, m) => {
        if (m) chips.push(this.make("span", "sign", [], rest.includes(place) ? "," : "="));
        else if (rest.includes(place)) chips.push(this.make("span", "sign", [], "the rest:"));
        chips.push(this.make("span", "chip", [], letter(place)));
      });
    });
    const open = missing(ranks);
    if (open.length) {
      const rest = this.make("span", "rest", open.map((name) => this.make("span", "chip open", [], name)));
      chips.push(rest);
    }
    this.order.replaceChildren(...chips);
    this.submitButton.classList.toggle("ready", open.length === 0);
    this.showHint(open.length ? `Still to rank: ${open.join(", ")}` : "Every response has a rank.");
  }

  paintCard(card, ranks, place, isMarked, rest) {
    const rank = ranks[place];
    const ties = tiedWith(ranks, place);
    const placed = rest.includes(place) ? "Among the rest" : `Rank ${rank}${ties.length ? `, tied with ${ties.join(", ")}` : ""}`;
    const words = rank === null ? "Not ranked" : placed;
    card.classList.toggle("marked", isMarked);
    card.classList.toggle("ranked", rank !== null);
    card.tabIndex = isMarked ? 0 : -1;
    card.setAttribute("aria-label", `Response ${letter(place)}. ${words}.`);
    card.querySelector(".standing").textContent = words;
    const radios = [...card.querySelectorAll(".ranks button")];
    radios.forEach((radio, n) => {
      const isChecked = n + 1 === rank;
      radio.setAttribute("aria-checked", String(isChecked));
      radio.tabIndex = isMarked && (rank === null ? n === 0 : isChecked) ? 0 : -1;
    });
  }

  showHint(text, isUrgent = false) {
    this.hint.textContent = text;
    this.hint.classList.toggle("urgent", isUrgent);
  }

  // Announced by screen readers; the same words twice are announced twice.
  say(text) {
    this.live.textContent = this.live.textContent === text ? `${text}\u00a0` : text;
  }

  focusCard(place) {
    const card = this.cards.children[place];
    if (!card) return;
    this.measure();
    card.focus({ preventScroll: true });
    const room = window.innerHeight - this.prompt.offsetHeight - this.dock.offsetHeight;
    card.scrollIntoView({ block: card.offsetHeight < room ? "nearest" : "start" }); // long ones are read from the top
  }

  // ---- the skip form

  openSkip(reasons) {
    this.reasons.replaceChildren(
      ...reasons.map((reason, n) => {
        const radio = this.make("input");
        radio.type = "radio";
        radio.name = "reason";
        radio.value = reason;
        const key = n < 9 ? [this.make("kbd", "", [], String(n + 1))] : [];
        return this.make("label", "reason", [radio, ...key, this.make("span", "", [], reason)]);
      }),
    );
    this.ownReason.value = "";
    this.skipProblem.textContent = "";
    this.skipForm.hidden = false;
    this.row.hidden = true;
    (this.reasons.querySelector("input") ?? this.ownReason).focus({ preventScroll: true });
  }

  closeSkip() {
    this.skipForm.hidden = true;
    this.row.hidden = false;
  }

  get isSkipOpen() {
    return !this.skipForm.hidden;
  }

  // Choose the nth reason; -1 for the person's own words.
  chooseReason(n) {
    const radios = [...this.reasons.querySelectorAll("input")];
    radios.forEach((radio, other) => (radio.checked = other === n));
    if (n >= 0) radios[n]?.focus({ preventScroll: true });
  }

  chosenReason() {
    const own = this.ownReason.value.trim();
    return this.reasons.querySelector("input:checked")?.value ?? own;
  }

  showSkipProblem(text) {
    this.skipProblem.textContent = text;
  }

  // ---- help and guidelines

  toggleHelp() {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }

  toggleGuidelines() {
    this.guidelines.hidden = !this.guidelines.hidden;
    this.guidelinesButton.setAttribute("aria-expanded", String(!this.guidelines.hidden));
  }

  // ---- parts

  card(task, place, n) {
    const ranks = this.make("div", "ranks");
    ranks.setAttribute("role", "radiogroup");
    ranks.setAttribute("aria-label", `Rank of response ${letter(place)}`);
    for (let rank = 1; rank <= n; rank += 1) {
      const radio = this.button(String(rank), "rank", () => this.actions.rank(place, rank));
      radio.setAttribute("role", "radio");
      if (rank > 9) radio.append(this.make("kbd", "", [], keyOfRank(rank)));
      ranks.append(radio);
    }
    const name = this.make("span", "letter", [], letter(place));
    const head = this.make("div", "head", [name, this.make("span", "standing"), ranks]);
    const badges = (task.badges?.[place] ?? []).map((words) => this.make("li", "badge", [], words));
    const notes = badges.length ? [this.make("ul", "badges", badges)] : [];
    const card = this.make("article", "card", [head, ...notes, this.text(task.responses[place])]);
    card.addEventListener("focusin", () => this.actions.mark(place));
    card.addEventListener("click", () => this.actions.mark(place));
    return card;
  }

  text(content) {
    const element = this.make("div", content.trim() ? "text" : "text empty", [], content.trim() ? content : "(empty)");
    element.dir = "auto";
    return element;
  }

  button(label, kind, onClick, key = "") {
    const button = this.make("button", kind, [], label);
    button.type = "button";
    if (key) {
      const hint = this.make("kbd", "", [], key);
      hint.setAttribute("aria-hidden", "true");
      button.append(hint);
    }
    button.addEventListener("click", onClick);
    return button;
  }

  make(tag, className = "", children = [], content = "") {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (content) element.textContent = content;
    element.append(...children);
    return element;
  }

  // ---- geometry

  measure() {
    this.root.style.setProperty("--prompt-height", `${this.prompt.offsetHeight}px`);
    this.root.style.setProperty("--dock-height", `${this.dock.offsetHeight}px`);
    this.prompt.tabIndex = this.prompt.scrollHeight > this.prompt.clientHeight + 1 ? 0 : -1;
  }

  scrollToTop() {
    for (let node = this.root; node; node = node.parentElement ?? node.getRootNode().host) {
      if (node.scrollTop > 0) node.scrollTop = 0;
    }
  }

  destroy() {
    this.observer.disconnect();
  }
}
