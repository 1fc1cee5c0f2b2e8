// One person's work on the ranking surface: which task is on, what has been ranked, what is on its way to the server.
//
// Answers go into an outbox (component state and this browser's storage) and leave it when the server acknowledges
// them; the next tasks are here already, so the next one is drawn at once, however busy the server is.

import { denseRanks, draftRanks, draftRest, isComplete, letter, missing, newerDraft, nextOpen, orderText, rankOfKey,
  tiedWith, withRest } from "./ranker_judgement.js";
import { idleLines, isControl, isDialogOpen, isTextField, mayTakeFocus, Stopwatch } from "./ranker_page.js";
import { newKey, Storage } from "./ranker_storage.js";
import { View } from "./ranker_view.js";

const DRAFT_AFTER_MS = 300;
const RESEND_MS = 4000;
const TROUBLE_MS = 6000;
const LOOK_IDLE_MS = 20_000; // nothing to rank: look whether something has come free
const LOOK_BUSY_MS = 5 * 60_000; // somebody is reading: keep their leases alive

export class Ranker {
  constructor() {
    this.task = null;
    this.heldKeys = null; // while there is no element to draw in: the keys that came meanwhile
    this.person = null;
    this.lastFlush = this.lastLook = Date.now();
    this.isActive = false;
    this.onKey = (event) => this.key(event);
    this.onStorage = (event) => this.answeredElsewhere(event);
    this.onVisible = () => this.clock.toggle(document.hidden);
    this.onActive = () => (this.isActive = true);
    this.clock = new Stopwatch();
    document.addEventListener("keydown", this.onKey, true); // before Streamlit's own keys
    window.addEventListener("storage", this.onStorage);
    document.addEventListener("visibilitychange", this.onVisible);
    this.timer = setInterval(() => this.tick(), 1000);
  }

  // Draw in this element from now on: the first one, or another after Streamlit took that away.
  attach(root) {
    this.root = root;
    root.addEventListener("pointermove", this.onActive);
    this.view?.destroy();
    this.view = new View(root, {
      rank: (place, rank) => this.rank(place, rank),
      mark: (place) => this.mark(place),
      undo: () => this.undo(),
      openSkip: () => this.openSkip(),
      closeSkip: () => this.closeSkip(),
      skip: (reason) => this.skip(reason),
      submit: () => this.submit(),
      placeRest: () => this.placeRest(),
      none: () => this.none(),
    });
    this.hasFlushed = false; // the new element knows nothing of what is on its way
    if (!this.data) return;
    this.view.showProject(this.data.project, this.data.guidelines, this.data.allow_partial);
    if (!this.task) return;
    this.view.showTask(this.task);
    this.paint();
    if (mayTakeFocus(false)) this.view.focusCard(this.marked);
  }

  // The element is gone: keys are held until there is another.
  park() {
    this.heldKeys = [];
  }

  // Take the keys that came while there was no element.
  release() {
    const keys = this.heldKeys ?? [];
    this.heldKeys = null;
    for (const key of keys) this.handle(key, this.root);
  }

  destroy() {
    clearInterval(this.timer);
    clearTimeout(this.draftTimer);
    document.removeEventListener("keydown", this.onKey, true);
    window.removeEventListener("storage", this.onStorage);
    document.removeEventListener("visibilitychange", this.onVisible);
    this.view.destroy();
  }

  // ---- from the server

  update(component) {
    this.component = component;
    const data = component.data;
    if (!data) return;
    if (data.person !== this.person) this.startFor(data.person);
    if (data.trouble) {
      this.showSaved(data.trouble);
      return;
    }
    const text = JSON.stringify(data);
    if (text === this.lastText) return; // only an echo of what we sent
    this.lastText = text;
    this.takeAcks(data.acks);
    if (data.project.id !== this.project?.id) this.task = null;
    this.project = data.project;
    this.data = data;
    this.view.showProject(data.project, data.guidelines, data.allow_partial);
    this.takeTasks(data.tasks);
    this.showSaved();
    if (this.storage.items.size && !this.hasFlushed) setTimeout(() => this.flush(), 0); // left from before a reload
  }

  startFor(person) {
    this.person = person;
    this.storage = new Storage(person);
    this.done = new Set([...this.storage.items.values()].map((item) => item.task_id));
    this.task = this.project = this.data = this.lastText = null;
    this.hasFlushed = false;
  }

  takeAcks(acks) {
    for (const ack of acks) {
      if (!this.storage.items.has(ack.key)) continue;
      const item = this.storage.remove(ack.key);
      if (ack.outcome === "refused") {
        this.done.delete(item.task_id); // the task comes back, with what was ranked
        if (item.ranks) this.storage.saveDraft(item.task_id, { ...item, at: Date.now() });
      }
      if (ack.reason) this.view.showNotice(`A ranking was not stored: ${ack.reason}.`);
    }
  }

  takeTasks(tasks) {
    this.queue = tasks;
    const fresh = this.task && this.queue.find((task) => task.task_id === this.task.task_id);
    if (this.task && (this.isTouched() || JSON.stringify(fresh?.display_order) === JSON.stringify(this.order()))) {
      if (fresh && !this.isTouched()) this.task = { ...this.task, lease_token: fresh.lease_token };
      return;
    }
    this.next();
  }

  // ---- one task

  next() {
    const isFirst = !this.task && !this.hasDrawn;
    this.task = this.queue.find((task) => !this.done.has(task.task_id)) ?? null; // what is answered may still be sent
    this.view.closeSkip();
    if (!this.task) {
      this.view.showIdle(this.idleLines());
      return;
    }
    const own = this.storage.draft(this.task.task_id);
    const draft = newerDraft(own, this.task.draft);
    const n = this.task.responses.length;
    this.ranks = draftRanks(draft, this.task) ?? Array(n).fill(null);
    this.rest = this.data.allow_partial ? draftRest(draft, this.ranks) : [];
    this.marked = Math.max(0, this.ranks.indexOf(null));
    this.history = [];
    this.isSureOfNone = false;
    this.clock.start(draft?.elapsed_ms ?? 0);
    this.view.showTask(this.task);
    this.paint();
    if (mayTakeFocus(isFirst)) this.view.focusCard(this.marked);
    this.hasDrawn = true;
    if (draft && draft === own) this.sendDraftSoon(own); // a reload may have come before it was sent
    this.view.say(`New task with ${n} responses. Response ${letter(this.marked)} is marked.`);
  }

  order() {
    return this.task.display_order;
  }

  isTouched() {
    return this.history.length > 0 || this.ranks.some((rank) => rank !== null);
  }

  rank(place, rank) {
    if (!this.task) return;
    this.remember(place);
    this.rest.forEach((other) => (this.ranks[other] = null)); // a rest is of what nobody has placed
    this.rest = [];
    this.ranks[place] = rank;
    this.marked = nextOpen(this.ranks, place);
    const ties = tiedWith(this.ranks, place);
    const words = `Response ${letter(place)}: rank ${rank}${ties.length ? `, tied with ${ties.join(" and ")}` : ""}.`;
    this.changed(isComplete(this.ranks) ? `${words} All ranked: ${orderText(this.ranks)}.` : words);
  }

  placeRest() {
    const placed = this.task && this.data.allow_partial ? withRest(this.ranks) : null;
    if (!placed) {
      const words = this.rest.length ? "The rest is placed already." : "Rank the best first; the rest can then be placed.";
      if (this.task && this.data.allow_partial) this.view.say(words);
      return;
    }
    this.remember(this.marked);
    Object.assign(this, placed);
    this.changed(`The rest is placed as worse, in no order: ${orderText(this.ranks, this.rest)}.`);
  }

  remember(marked) {
    this.history.push({ ranks: [...this.ranks], rest: [...this.rest], marked });
  }

  undo() {
    const before = this.task && this.history.pop();
    if (!before) {
      this.view.say("Nothing to undo.");
      return;
    }
    Object.assign(this, before);
    this.changed(`Undone. ${orderText(this.ranks, this.rest) || "Nothing is ranked"}.`);
  }

  paint() {
    this.view.paint(this.ranks, this.marked, this.rest);
  }

  changed(words) {
    this.isSureOfNone = false;
    this.paint();
    this.view.focusCard(this.marked);
    this.view.say(words);
    this.keepDraft();
  }

  mark(place) {
    if (!this.task || place === this.marked) return;
    this.isSureOfNone = false;
    this.marked = place;
    this.paint();
  }

  move(step) {
    const n = this.ranks.length;
    this.mark((this.marked + step + n) % n);
    this.view.focusCard(this.marked);
  }

  keepDraft() {
    const { task_id, display_order } = this.task;
    this.draftAt = Math.max(Date.now(), (this.draftAt ?? 0) + 1);
    const draft = { ranks: [...this.ranks], rest: [...this.rest], display_order, at: this.draftAt, elapsed_ms: this.clock.read() };
    this.storage.saveDraft(task_id, draft);
    this.sendDraftSoon(draft);
  }

  sendDraftSoon(draft) {
    const { task_id } = this.task;
    clearTimeout(this.draftTimer);
    this.draftTimer = setTimeout(() => this.send("draft", { task_id, ...draft }), DRAFT_AFTER_MS);
  }

  // ---- answers

  submit() {
    if (!this.task) return;
    const open = missing(this.ranks);
    if (open.length) {
      const words = `Not sent yet: ${open.join(", ")} ${open.length > 1 ? "have" : "has"} no rank`;
      this.mark(this.ranks.indexOf(null));
      this.view.focusCard(this.marked);
      this.view.showHint(words, true);
      this.view.say(words);
      return;
    }
    this.deliver({ ranks: denseRanks(this.ranks), ...(this.rest.length ? { unplaced: this.rest } : {}) });
  }

  // "No response is acceptable" is an answer of its own; it takes the same gesture twice.
  none() {
    if (!this.task) return;
    if (this.isSureOfNone) {
      this.deliver({ unacceptable: true });
      return;
    }
    this.isSureOfNone = true;
    const words = "No response is acceptable? Once more (x, or the button) sends that; a rank takes it back.";
    this.view.showHint(words, true);
    this.view.say(words);
  }

  openSkip() {
    if (!this.task) return;
    this.isSureOfNone = false;
    this.paint();
    this.view.openSkip(this.data.skip_reasons);
    this.view.say("Why do you skip this task? Choose a reason, Enter skips, Escape goes back.");
  }

  closeSkip() {
    this.view.closeSkip();
    this.view.focusCard(this.marked);
  }

  skip(reason) {
    if (!this.task) return;
    if (!reason) {
      this.view.showSkipProblem("Choose a reason, or write one");
      this.view.say("Choose a reason, or write one.");
      return;
    }
    this.deliver({ skip_reason: reason });
  }

  deliver(answer) {
    clearTimeout(this.draftTimer);
    const { task_id, lease_token, display_order } = this.task;
    const item = { submission_key: newKey(), task_id, lease_token, display_order, duration_ms: this.clock.read() };
    this.storage.add({ ...item, ...answer, sent_at: Date.now() });
    this.storage.dropDraft(task_id);
    this.done.add(task_id);
    this.view.showNotice("");
    this.task = null;
    this.next();
    this.flush();
    this.showSaved();
  }

  answeredElsewhere(event) {
    const taskId = this.storage?.taskAnsweredElsewhere(event);
    if (!taskId) return;
    this.done.add(taskId);
    if (this.task?.task_id !== taskId) return;
    this.view.showNotice("You answered that task in another tab.");
    this.task = null;
    this.next();
  }

  flush() {
    this.hasFlushed = true;
    this.lastFlush = Date.now();
    this.send("outbox", { at: this.lastFlush, items: [...this.storage.items.values()] });
  }

  send(name, value) {
    this.component.setStateValue(name, value);
  }

  // ---- time

  tick() {
    if (!this.storage || this.heldKeys) return;
    const now = Date.now();
    if (this.storage.items.size && now - this.lastFlush >= RESEND_MS) this.flush();
    const isDue = now - this.lastLook >= (this.task ? LOOK_BUSY_MS : LOOK_IDLE_MS);
    if (isDue && !document.hidden && (!this.task || this.isActive)) {
      this.lastLook = now;
      this.isActive = false;
      this.send("look", { at: now });
    }
    this.showSaved();
  }

  showSaved(trouble = "") {
    const items = [...this.storage.items.values()];
    const ranked = items.filter((item) => !item.skip_reason).length;
    if (this.data) this.view.showProgress(this.data.n_done + ranked);
    const oldest = Math.min(...items.map((item) => item.sent_at ?? 0));
    const state = !items.length ? "saved" : Date.now() - oldest < TROUBLE_MS && !trouble ? "saving" : "trouble";
    const words = { saved: "All saved", saving: `${items.length} saving…`, trouble: "Not saved yet, trying again" };
    this.view.showSaved(state, words[state]);
    if (state === "trouble" && this.savedState !== state) this.view.say("Not saved yet, trying again. Keep the page open.");
    if (!this.task && this.data) this.view.showIdle(this.idleLines());
    this.savedState = state;
  }

  idleLines() {
    return idleLines(this.data.waiting, this.storage.items.size);
  }

  // ---- keys

  key(event) {
    this.isActive = true;
    const path = event.composedPath();
    const isInside = path.includes(this.root);
    const origin = path[0];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTextField(origin)) {
      if (isInside && event.key === "Escape" && !event.isComposing) this.closeSkip();
      return;
    }
    if (event.isComposing || event.keyCode === 229 || isDialogOpen(this.view.help)) return;
    if (!isInside && isControl(origin)) return;
    if (this.heldKeys) {
      if (event.key === "Tab" || event.key === "Escape") return;
      this.heldKeys.push({ key: event.key, code: event.code, shiftKey: event.shiftKey, repeat: event.repeat });
      event.preventDefault();
      event.stopImmediatePropagation();
    } else if (this.handle(event, origin)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }

  // Whether the key was one of ours.
  handle(event, origin) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (this.view.help.open) {
      if (key === "?") this.view.toggleHelp();
      return !["Escape", "Enter", "Tab", " "].includes(key);
    }
    if (key === "?") this.view.toggleHelp();
    else if (this.view.isSkipOpen) return this.handleInSkip(event, key, origin);
    else if (!this.task) return key === "r" || key === "c";
    else if (rankOfKey(event, this.ranks.length)) {
      if (!event.repeat) this.rank(this.marked, rankOfKey(event, this.ranks.length));
    } else if (origin.role === "radio" && (key === "ArrowLeft" || key === "ArrowRight")) {
      (key === "ArrowLeft" ? origin.previousElementSibling : origin.nextElementSibling)?.focus();
    } else if (["ArrowRight", "ArrowDown", "j"].includes(key)) this.move(1);
    else if (["ArrowLeft", "ArrowUp", "k"].includes(key)) this.move(-1);
    else if (key === "u" || key === "Backspace") this.undo();
    else if (key === "s") this.openSkip();
    else if (key === "w") this.placeRest();
    else if (key === "x") {
      if (!event.repeat) this.none();
    }
    else if (key === "Enter" && !(origin instanceof HTMLButtonElement)) {
      if (!event.repeat) this.submit();
    } else return key === "r" || key === "c"; // Streamlit's own keys: rerun, clear cache
    return true;
  }

  handleInSkip(event, key, origin) {
    const isButton = origin instanceof HTMLButtonElement;
    if (key === "Escape") this.closeSkip();
    else if (/^[1-9]$/.test(key) && Number(key) <= this.data.skip_reasons.length) this.view.chooseReason(Number(key) - 1);
    else if (key === "Enter" && !isButton && !event.repeat) this.skip(this.view.chosenReason());
    else return key === "r" || key === "c";
    return true;
  }
}
