// One person's work on the ranking surface: which task is on, what is on its way to the server, what the server said.
//
// Answers go into an outbox (ranker_outbox.js) and leave it when the server acknowledges them; the next tasks are here already, so the next one is drawn at once, however busy the server is.

import { Desk } from "./ranker_desk.js";
import { givenText, timeText } from "./ranker_dialogs.js";
import { there } from "./ranker_dom.js";
import { Guide } from "./ranker_guide.js";
import { AnswerHistory } from "./ranker_history.js";
import { denseRanks, letter, newerDraft } from "./ranker_judgement.js";
import { keyOf } from "./ranker_keys.js";
import { Outbox } from "./ranker_outbox.js";
import { OwnKeys } from "./ranker_own_keys.js";
import { idleLines, mayTakeFocus, onActivity, Stopwatch, stop } from "./ranker_page.js";
import { comparable, draftOf, fits, sentBefore, statusOf } from "./ranker_sent.js";
import { download, newKey, Storage } from "./ranker_storage.js";
import { View } from "./ranker_view.js";

/** @import { Ack, Actions, Body, Component, Data, Item, Key, Saved, Task } from "./ranker_types" */

const DRAFT_AFTER_MS = 300;
const LOOK_IDLE_MS = 20_000; // nothing to rank: look whether something has come free
const LOOK_BUSY_MS = 5 * 60_000; // somebody is reading: keep their leases alive
export class Ranker {
  /** @type {HTMLElement} */
  root;
  /** @type {View} */
  view;
  /** @type {Component<Data>} */
  component;
  /** @type {Data | null} */
  data;
  /** @type {Data["project"] | null | undefined} */
  project;
  /** @type {Storage} */
  storage;
  /** @type {Outbox} */
  outbox;
  /** @type {OwnKeys} */
  keys;
  /** @type {Task[]} */
  queue;
  /** @type {string | null} */
  person;
  /** @type {Key[] | null} */
  heldKeys;
  /** @type {{ editOf: string, before: string, words: string } | null} */
  editing;
  /** @type {{ task: Task, key: string, saved: Saved } | null} */
  last;
  /** @type {string | null} */
  lastText;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  draftTimer;
  /** @type {number | undefined} */
  draftAt;
  /** @type {boolean} */
  hasDrawn;
  /** @type {string | undefined} */
  savedState;

  constructor() {
    this.desk = new Desk(this);
    this.guide = new Guide(this);
    this.heldKeys = null; // while there is no element to draw in: the keys that came meanwhile
    this.editing = this.last = this.person = null;
    this.history = new AnswerHistory(
      (what) => this.send("ask", what),
      () => this.view.history,
    );
    this.lastLook = Date.now();
    this.isActive = false;
    this.clock = new Stopwatch();
    this.ended = new AbortController();
    const { signal } = this.ended;
    onActivity(() => this.active(), signal); // before the keys, which stop here
    document.addEventListener("keydown", (event) => this.key(event), { capture: true, signal }); // before Streamlit's own keys
    window.addEventListener("storage", (event) => this.answeredElsewhere(event), { signal });
    window.addEventListener("storage", (event) => this.keys?.changedElsewhere(event), { signal });
    document.addEventListener("visibilitychange", () => this.visible(), { signal });
    this.timer = setInterval(() => this.tick(), 1000);
  }

  /**
   * Draw in this element from now on: the first one, or another after Streamlit took that away.
   * @param {HTMLElement} root
   */
  attach(root) {
    this.root = root;
    const before = this.view;
    before?.destroy();
    this.view = new View(root, this.actions(), before);
    if (this.outbox) this.outbox.hasSent = false; // the new element knows nothing of what is on its way
    this.history.reset();
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

  /** @param {KeyboardEvent} event */
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
  /** @returns {Actions} */
  actions() {
    const { desk } = this;
    return {
      ...desk.gestures(),
      mayDrag: () => desk.task !== null && ["page", "pair"].includes(desk.context),
      ranks: () => desk.answer.ranks,
      leaveEdit: () => this.leaveEdit(),
      openHelp: () => this.openHelp(),
      openHistory: () => this.history.toggle(Boolean(this.data)),
      toggleGuidelines: () => this.guide.toggle(),
      overlayClosed: () => this.overlayClosed(),
      backUp: () => download("rankloop-unsent-answers.json", this.storage.backup()),
      ask: (offset) => this.history.ask({ history: offset }),
      reopen: (line) => this.history.reopen(line),
      takeFile: (file) => this.takeFile(file),
    };
  }

  // ---- from the server

  /** @param {Component<Data>} component */
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
    if (this.outbox.size && !this.outbox.hasSent) setTimeout(() => this.outbox.flush(), 0); // left from before a reload
  }

  showData() {
    const { project, guidelines, asks } = there(this.data);
    this.view.showProject(project, guidelines, asks);
    this.view.showKeys(this.keys.lines);
    this.guide.show();
  }

  /** @param {string} person */
  startFor(person) {
    this.person = person;
    this.storage = new Storage(person);
    this.keys = new OwnKeys(this.storage, (lines) => this.view.showKeys(lines));
    this.view.showNotice(this.keys.trouble, "keys");
    this.outbox = new Outbox(this.storage, (value) => this.send("outbox", value));
    this.project = this.data = this.lastText = null;
    this.changeProject();
  }

  changeProject() {
    this.desk.clear();
    this.project = this.data?.project;
    this.editing = this.last = null;
  }

  /** @param {Ack[]} acks */
  takeAcks(acks) {
    for (const { ack, item } of this.outbox.take(acks)) {
      const isKept = ack.outcome !== "refused" && ack.outcome !== "superseded";
      if (!isKept && this.last?.key === ack.key) this.last = null;
      if (ack.outcome === "refused") this.takeBackRefused(item);
      if (ack.reason) this.view.showNotice(`An answer was not stored: ${ack.reason}.`);
    }
  }

  /**
   * What was refused comes back: a first answer with what was ranked, a change as the answer that is stored.
   * @param {Item} item
   */
  takeBackRefused(item) {
    if (item.edit_of) this.history.ask({ open: item.task_id });
    else if (item.ranks) this.storage.saveDraft(item.task_id, { ...draftOf(item), at: Date.now() });
  }

  /** @param {Task[]} tasks */
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

  // A page of the history, or an answer to change.
  takeAsked() {
    const opened = this.history.take(there(this.data), this.outbox.size);
    if (opened?.task) this.edit(opened.task, opened.answer, opened.edit_of);
    else if (opened) this.view.showNotice("That answer is not there any more.");
  }

  // ---- one task

  next() {
    this.editing = null;
    this.view.showBanner("");
    const isFirst = !this.hasDrawn;
    const task = this.queue.find((each) => !this.outbox.answered.has(each.task_id)); // what is answered may still be sent
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
    const { task_id, display_order } = there(this.desk.task);
    this.draftAt = Math.max(Date.now(), (this.draftAt ?? 0) + 1);
    const draft = { ...this.desk.answer.draft(), display_order, at: this.draftAt, elapsed_ms: this.clock.read() };
    this.storage.saveDraft(task_id, draft);
    this.sendDraftSoon(draft);
  }

  /** @param {Saved} draft */
  sendDraftSoon(draft) {
    const { task_id } = there(this.desk.task);
    clearTimeout(this.draftTimer);
    this.draftTimer = setTimeout(() => this.send("draft", { task_id, ...draft }), DRAFT_AFTER_MS);
  }

  // ---- answers

  /** @param {Body} body */
  deliver(body) {
    if (this.editing && this.editing.before === comparable(body)) {
      this.view.say("Nothing was changed.");
      this.leaveEdit();
      return;
    }
    clearTimeout(this.draftTimer);
    const { answer } = this.desk;
    const task = there(this.desk.task);
    const { task_id, display_order, lease_token = null } = task;
    const [submission_key, duration_ms, sent_at] = [newKey(), this.clock.read(), Date.now()];
    const guidelines_version = there(this.data).guidelines.version;
    const edit = this.editing ? { edit_of: this.editing.editOf } : {};
    const item = { submission_key, task_id, lease_token, display_order, duration_ms, guidelines_version, ...edit };
    this.outbox.put({ ...item, ...body, sent_at });
    const saved = { ...answer.draft(), ...statusOf(body), at: Date.now(), elapsed_ms: duration_ms };
    this.last = { task, key: submission_key, saved };
    this.view.showNotice("");
    this.next();
    this.outbox.flush();
    this.showSaved();
  }

  takeBack() {
    if (!this.last) {
      this.view.say(`Nothing was sent from this page yet. ${keyOf("history", this.view.keys)} shows your answers.`);
      return;
    }
    this.edit(this.last.task, this.last.saved, this.last.key);
  }

  /**
   * Put an answer that was sent on the desk again; a change goes out as its next version.
   * @param {Task} task
   * @param {Saved} saved
   * @param {string} editOf
   */
  edit(task, saved, editOf) {
    const ranks = saved.ranks.length ? denseRanks(saved.ranks) : [];
    this.clock.start(saved.elapsed_ms ?? 0);
    this.desk.begin({ ...task, lease_token: null }, { ...saved, ranks }, true);
    const given = saved.status === "ranked" ? "" : ` You answered: ${givenText(saved)}.`;
    const words = `You change your answer of ${timeText(saved.at ?? 0)}.${given}`;
    const banner = this.history.isOpenFrozen ? `${words} A snapshot holds it as it is, and keeps it so.` : words;
    this.editing = { editOf, before: comparable(sentBefore(saved, this.desk.answer)), words: banner };
    this.view.showBanner(banner);
    this.history.isOpenFrozen = false;
    this.view.focusCard(this.desk.marked);
    this.view.say(`${words} ${keyOf("submit", this.view.keys)} sends the change, Escape leaves it as it was.`);
  }

  leaveEdit() {
    if (this.editing) this.next();
  }

  /** @param {StorageEvent} event */
  answeredElsewhere(event) {
    const taskId = this.storage?.taskAnsweredElsewhere(event);
    if (!taskId) return;
    this.outbox.answered.add(taskId);
    if (this.editing || this.desk.task?.task_id !== taskId) return;
    this.view.showNotice("You answered that task in another tab.");
    this.next();
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  send(name, value) {
    this.component.setStateValue(name, value);
  }

  // ---- the history and the other overlays

  openHelp() {
    if (this.view.help.isOpen) this.view.help.close();
    else if (this.data) this.view.help.show(this.keys, this.desk.has);
  }

  overlayClosed() {
    this.history.closed();
    if (this.desk.task) this.view.focusCard(this.desk.marked);
  }

  /** @param {File} file */
  async takeFile(file) {
    let words;
    try {
      const items = this.outbox.restore(await file.text());
      if (!this.editing && this.desk.task && this.outbox.answered.has(this.desk.task.task_id)) this.next();
      this.outbox.flush();
      this.showSaved();
      words = `${items.length} answers were taken in from the file and are on their way.`;
    } catch (error) {
      words = `Nothing was taken in: ${error instanceof Error ? error.message : error}.`;
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
    if (this.outbox.isDue(now)) this.outbox.flush();
    const isDue = now - this.lastLook >= (this.desk.task ? LOOK_BUSY_MS : LOOK_IDLE_MS);
    if (isDue && !document.hidden && (!this.desk.task || this.isActive)) {
      this.lastLook = now;
      this.isActive = false;
      this.send("look", { at: now });
    }
    this.showSaved();
  }

  /** @param {string} [trouble] */
  showSaved(trouble = "") {
    const ranked = this.outbox.items.filter((item) => !item.skip_reason && !item.edit_of).length;
    if (this.data) this.view.showProgress(this.data.n_done + ranked, this.data.n_today, this.data.pace_s);
    const { state, words, mayBackUp } = this.outbox.state(trouble);
    this.view.showSaved(state, words, mayBackUp);
    if (state === "trouble" && this.savedState !== state)
      this.view.say("Not saved yet, trying again. Keep the page open.");
    if (!this.desk.task && this.data) this.view.showIdle(this.idleLines());
    this.savedState = state;
  }

  idleLines() {
    return idleLines(there(this.data), this.outbox.size);
  }
}
