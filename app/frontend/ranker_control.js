// One person's work on the ranking surface: which task is on, what is on its way to the server, what the server said.
//
// Answers go into an outbox (component state and this browser's storage) and leave it when the server acknowledges
// them; the next tasks are here already, so the next one is drawn at once, however busy the server is.

import { Desk } from "./ranker_desk.js";
import { givenText, timeText } from "./ranker_dialogs.js";
import { Guide } from "./ranker_guide.js";
import { denseRanks, letter, newerDraft } from "./ranker_judgement.js";
import { keyOf } from "./ranker_keys.js";
import { OwnKeys } from "./ranker_own_keys.js";
import { idleLines, mayTakeFocus, onActivity, stop, Stopwatch } from "./ranker_page.js";
import { comparable, draftOf, fits, savedState, sentBefore, statusOf } from "./ranker_sent.js";
import { download, newKey, Storage } from "./ranker_storage.js";
import { View } from "./ranker_view.js";

const DRAFT_AFTER_MS = 300;
const RESEND_MS = 4000;
const LOOK_IDLE_MS = 20_000; // nothing to rank: look whether something has come free
const LOOK_BUSY_MS = 5 * 60_000; // somebody is reading: keep their leases alive
export class Ranker {
  constructor() {
    this.desk = new Desk(this);
    this.guide = new Guide(this);
    this.heldKeys = null; // while there is no element to draw in: the keys that came meanwhile
    this.editing = this.last = this.person = null;
    this.lastFlush = this.lastLook = Date.now();
    this.isActive = false;
    this.clock = new Stopwatch();
    this.ended = new AbortController();
    const listen = (target, name, does, capture = false) =>
      target.addEventListener(name, does, { capture, signal: this.ended.signal });
    onActivity(() => this.active(), this.ended.signal); // before the keys, which stop here
    listen(document, "keydown", (event) => this.key(event), true); // before Streamlit's own keys
    listen(window, "storage", (event) => this.answeredElsewhere(event));
    listen(window, "storage", (event) => this.keys?.changedElsewhere(event));
    listen(document, "visibilitychange", () => this.visible());
    this.timer = setInterval(() => this.tick(), 1000);
  }

  // Draw in this element from now on: the first one, or another after Streamlit took that away.
  attach(root) {
    this.root = root;
    const before = this.view;
    before?.destroy();
    this.view = new View(root, this.actions(), before);
    this.hasFlushed = false; // the new element knows nothing of what is on its way
    this.askedAt = this.shownAt = null; // overlays are closed
    if (!this.data) return;
    this.showData();
    if (this.editing) this.view.showBanner(this.editing.words);
    if (this.desk.task) this.desk.resume(before);
  }

  // The element is gone: keys are held until there is another.
  park() {
    this.heldKeys = [];
  }

  // Take the keys that came while there was no element.
  release() {
    const keys = this.heldKeys ?? [];
    this.heldKeys = null;
    for (const key of keys) this.desk.late(key);
  }

  key(event) {
    if (!this.heldKeys) this.desk.key(event);
    else if (this.desk.mayBeOurs(event) && event.key !== "Tab") {
      this.heldKeys.push({ key: event.key, code: event.code, shiftKey: event.shiftKey, repeat: event.repeat });
      stop(event);
    }
  }

  destroy() {
    clearInterval(this.timer);
    clearTimeout(this.draftTimer);
    this.ended.abort();
    this.view.destroy();
  }

  // What buttons, handles and overlays ask for.
  actions() {
    const { desk } = this;
    const gestures = ["rank", "mark", "pick", "drop", "undo", "placeRest", "acceptable", "rate", "flag", "openFlags",
      "compare", "write", "toggleRaw", "toggleFold", "differences", "togglePair", "openNone", "none", "openSkip", "skip",
      "close", "submit"];
    return {
      ...Object.fromEntries(gestures.map((name) => [name, (...values) => desk[name](...values)])),
      mayDrag: () => desk.task !== null && ["page", "pair"].includes(desk.context),
      ranks: () => desk.answer.ranks,
      leaveEdit: () => this.leaveEdit(),
      openHelp: () => this.openHelp(),
      openHistory: () => this.openHistory(),
      toggleGuidelines: () => this.guide.toggle(),
      overlayClosed: () => this.overlayClosed(),
      backUp: () => download("rankloop-unsent-answers.json", this.storage.backup()),
      ask: (offset) => this.ask({ history: offset }),
      reopen: (line) => this.reopen(line),
      takeFile: (file) => this.takeFile(file),
    };
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
    this.data = data;
    if (data.project.id !== this.project?.id) this.changeProject();
    this.takeAcks(data.acks);
    this.showData();
    this.desk.paint();
    this.takeTasks(data.tasks);
    this.takeAsked();
    this.showSaved();
    if (this.storage.items.size && !this.hasFlushed) setTimeout(() => this.flush(), 0); // left from before a reload
  }

  showData() {
    this.view.showProject(this.data.project, this.data.guidelines, this.data.asks);
    this.view.showKeys(this.keys.lines);
    this.guide.show();
  }

  startFor(person) {
    this.person = person;
    this.storage = new Storage(person);
    this.keys = new OwnKeys(this.storage, (lines) => this.view.showKeys(lines));
    this.view.showNotice(this.keys.trouble, "keys");
    this.done = new Set([...this.storage.items.values()].map((item) => item.task_id));
    this.project = this.data = this.lastText = null;
    this.hasFlushed = false;
    this.changeProject();
  }

  changeProject() {
    this.desk.clear();
    this.project = this.data?.project;
    this.editing = this.last = null;
  }

  takeAcks(acks) {
    for (const ack of acks) {
      if (!this.storage.items.has(ack.key)) continue;
      const item = this.storage.remove(ack.key);
      const isKept = ack.outcome !== "refused" && ack.outcome !== "superseded";
      if (!isKept && this.last?.key === ack.key) this.last = null;
      if (ack.outcome === "refused") this.takeBackRefused(item);
      if (ack.reason) this.view.showNotice(`An answer was not stored: ${ack.reason}.`);
    }
  }

  // What was refused comes back: a first answer with what was ranked, a change as the answer that is stored.
  takeBackRefused(item) {
    if (item.edit_of) {
      this.ask({ open: item.task_id });
      return;
    }
    this.done.delete(item.task_id);
    if (item.ranks) this.storage.saveDraft(item.task_id, { ...draftOf(item), at: Date.now() });
  }

  takeTasks(tasks) {
    this.queue = tasks;
    if (this.editing) return;
    const { task } = this.desk;
    const fresh = task && tasks.find((each) => each.task_id === task.task_id);
    const isTouched = task && this.desk.answer.isTouched;
    if (task && (isTouched || JSON.stringify(fresh?.display_order) === JSON.stringify(task.display_order))) {
      if (fresh && !isTouched) task.lease_token = fresh.lease_token;
      return;
    }
    this.next();
  }

  // A page of the history, or an answer to change, if it is what was asked for last.
  takeAsked() {
    const { history, opened } = this.data;
    if (history && history.at === this.askedAt && this.view.history.isOpen && this.shownAt !== history.at) {
      this.shownAt = history.at;
      this.view.history.show(history, this.storage.items.size);
    }
    if (!opened || opened.at !== this.askedAt) return;
    this.askedAt = null;
    if (!opened.task) this.view.showNotice("That answer is not there any more.");
    else this.edit(opened.task, opened.answer, opened.edit_of);
  }

  // ---- one task

  next() {
    this.editing = null;
    this.view.showBanner("");
    const isFirst = !this.hasDrawn;
    const task = this.queue.find((each) => !this.done.has(each.task_id)); // what is answered may still be sent
    if (!task) {
      this.desk.clear();
      this.view.showIdle(this.idleLines());
      return;
    }
    const own = this.storage.draft(task.task_id);
    const draft = newerDraft(fits(own, task), fits(task.draft, task));
    this.clock.start(draft?.elapsed_ms ?? 0);
    this.desk.begin({ ...task }, draft);
    if (mayTakeFocus(isFirst)) this.view.focusCard(this.desk.marked);
    this.hasDrawn = true;
    if (draft && draft === own) this.sendDraftSoon(own); // a reload may have come before it was sent
    const facts = task.facts ? " There are reference facts." : "";
    this.view.say(
      `New task with ${task.responses.length} responses. Response ${letter(this.desk.marked)} is marked.${facts}`,
    );
  }

  // The desk's answer has changed.
  changed() {
    if (this.editing) return; // what was sent stays sent until the change is
    const { task_id, display_order } = this.desk.task;
    this.draftAt = Math.max(Date.now(), (this.draftAt ?? 0) + 1);
    const draft = { ...this.desk.answer.draft(), display_order, at: this.draftAt, elapsed_ms: this.clock.read() };
    this.storage.saveDraft(task_id, draft);
    this.sendDraftSoon(draft);
  }

  sendDraftSoon(draft) {
    const { task_id } = this.desk.task;
    clearTimeout(this.draftTimer);
    this.draftTimer = setTimeout(() => this.send("draft", { task_id, ...draft }), DRAFT_AFTER_MS);
  }

  // ---- answers

  deliver(body) {
    if (this.editing && this.editing.before === comparable(body)) {
      this.view.say("Nothing was changed.");
      this.leaveEdit();
      return;
    }
    clearTimeout(this.draftTimer);
    const { task, answer } = this.desk;
    const { task_id, display_order, lease_token = null } = task;
    const item = { submission_key: newKey(), task_id, lease_token, display_order, duration_ms: this.clock.read() };
    item.guidelines_version = this.data.guidelines.version;
    if (this.editing) item.edit_of = this.editing.editOf;
    this.storage.add({ ...item, ...body, sent_at: Date.now() });
    this.storage.dropDraft(task_id);
    this.last = { task, key: item.submission_key, saved: { ...answer.draft(), ...statusOf(body), at: Date.now() } };
    this.last.saved.elapsed_ms = item.duration_ms;
    this.done.add(task_id);
    this.view.showNotice("");
    this.next();
    this.flush();
    this.showSaved();
  }

  takeBack() {
    if (!this.last) {
      this.view.say(`Nothing was sent from this page yet. ${keyOf("history", this.view.keys)} shows your answers.`);
      return;
    }
    this.edit(this.last.task, this.last.saved, this.last.key);
  }

  // Put an answer that was sent on the desk again; a change goes out as its next version.
  edit(task, saved, editOf) {
    const ranks = saved.ranks.length ? denseRanks(saved.ranks) : [];
    this.clock.start(saved.elapsed_ms ?? 0);
    this.desk.begin({ ...task, lease_token: null }, { ...saved, ranks }, true);
    const given = saved.status === "ranked" ? "" : ` You answered: ${givenText(saved)}.`;
    const words = `You change your answer of ${timeText(saved.at)}.${given}`;
    const banner = this.isOpenFrozen ? `${words} A snapshot holds it as it is, and keeps it so.` : words;
    this.editing = { editOf, before: comparable(sentBefore(saved, this.desk.answer)), words: banner };
    this.view.showBanner(banner);
    this.isOpenFrozen = false;
    this.view.focusCard(this.desk.marked);
    this.view.say(`${words} ${keyOf("submit", this.view.keys)} sends the change, Escape leaves it as it was.`);
  }

  leaveEdit() {
    if (this.editing) this.next();
  }

  answeredElsewhere(event) {
    const taskId = this.storage?.taskAnsweredElsewhere(event);
    if (!taskId) return;
    this.done.add(taskId);
    if (this.editing || this.desk.task?.task_id !== taskId) return;
    this.view.showNotice("You answered that task in another tab.");
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

  // ---- the history and the other overlays

  ask(what) {
    this.askedAt = Math.max(Date.now(), (this.askedAt ?? 0) + 1);
    this.send("ask", { ...what, at: this.askedAt });
  }

  openHistory() {
    if (this.view.history.isOpen) this.view.history.close();
    else if (this.data) this.view.history.start();
  }

  reopen(line) {
    this.isReopening = true;
    this.isOpenFrozen = line.is_frozen;
    this.view.history.close();
    this.ask({ open: line.task_id });
  }

  openHelp() {
    if (this.view.help.isOpen) this.view.help.close();
    else if (this.data) this.view.help.show(this.keys, this.desk.has);
  }

  overlayClosed() {
    if (!this.isReopening && this.shownAt) this.ask({}); // else the next look would bring the list again
    this.isReopening = false;
    this.shownAt = null;
    if (this.desk.task) this.view.focusCard(this.desk.marked);
  }

  async takeFile(file) {
    let words;
    try {
      const items = this.storage.restore(await file.text());
      items.forEach((item) => this.done.add(item.task_id));
      if (!this.editing && this.desk.task && this.done.has(this.desk.task.task_id)) this.next();
      this.flush();
      this.showSaved();
      words = `${items.length} answers were taken in from the file and are on their way.`;
    } catch (error) {
      words = `Nothing was taken in: ${error.message}.`;
    }
    this.view.history.close();
    this.view.showNotice(words);
  }

  // ---- time

  active() {
    this.isActive = true;
    this.clock.touch();
  }

  visible() {
    this.clock.toggle(document.hidden);
    if (document.hidden && this.desk.task && !this.editing) this.changed(); // may go on in another browser
  }

  tick() {
    if (!this.storage || this.heldKeys) return;
    const now = Date.now();
    if (this.storage.items.size && now - this.lastFlush >= RESEND_MS) this.flush();
    const isDue = now - this.lastLook >= (this.desk.task ? LOOK_BUSY_MS : LOOK_IDLE_MS);
    if (isDue && !document.hidden && (!this.desk.task || this.isActive)) {
      this.lastLook = now;
      this.isActive = false;
      this.send("look", { at: now });
    }
    this.showSaved();
  }

  showSaved(trouble = "") {
    const items = [...this.storage.items.values()];
    const ranked = items.filter((item) => !item.skip_reason && !item.edit_of).length;
    if (this.data) this.view.showProgress(this.data.n_done + ranked, this.data.n_today, this.data.pace_s);
    const { state, words, mayBackUp } = savedState(items, trouble);
    this.view.showSaved(state, words, mayBackUp);
    if (state === "trouble" && this.savedState !== state) this.view.say("Not saved yet, trying again. Keep the page open.");
    if (!this.desk.task && this.data) this.view.showIdle(this.idleLines());
    this.savedState = state;
  }

  idleLines() {
    return idleLines(this.data, this.storage.items.size);
  }
}
