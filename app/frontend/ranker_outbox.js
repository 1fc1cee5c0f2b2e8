// Answers on their way to the server: this browser keeps them until the server acknowledges them, and sends them again
// until then.

import { savedState } from "./ranker_sent.js";

/** @import { Storage } from "./ranker_storage.js" */
/** @import { Ack, Item } from "./ranker_types" */

const RESEND_MS = 4000;

export class Outbox {
  /** @type {Set<string>} */
  answered;

  /**
   * `send(value)` hands all that waits to the server.
   * @param {Storage} storage
   * @param {(value: { at: number, items: Item[] }) => void} send
   */
  constructor(storage, send) {
    this.storage = storage;
    this.send = send;
    this.answered = new Set(this.items.map((item) => item.task_id)); // tasks, those among them that the server has too
    this.sentAt = Date.now();
    this.hasSent = false; // since there is this element, which knows nothing of what was sent before
  }

  get items() {
    return [...this.storage.items.values()];
  }

  get size() {
    return this.storage.items.size;
  }

  /**
   * Keep an answer; `flush` sends it.
   * @param {Item} item
   */
  put(item) {
    this.storage.add(item);
    this.storage.dropDraft(item.task_id);
    this.answered.add(item.task_id);
  }

  flush() {
    this.hasSent = true;
    this.sentAt = Date.now();
    this.send({ at: this.sentAt, items: this.items });
  }

  /** @param {number} now */
  isDue(now) {
    return this.size > 0 && now - this.sentAt >= RESEND_MS;
  }

  /**
   * What the server says: each answer that it speaks of leaves. Returns them with its words; a first answer that it
   * refused is open again.
   * @param {Ack[]} acks
   */
  take(acks) {
    return acks.flatMap((ack) => {
      const item = this.storage.remove(ack.key);
      if (!item) return [];
      if (ack.outcome === "refused" && !item.edit_of) this.answered.delete(item.task_id);
      return [{ ack, item }];
    });
  }

  /**
   * Take in answers from a file; returns them. Throws an Error with a reason for the person.
   * @param {string} text
   */
  restore(text) {
    const items = this.storage.restore(text);
    for (const item of items) this.answered.add(item.task_id);
    return items;
  }

  /** @param {string} trouble */
  state(trouble) {
    return savedState(this.items, trouble);
  }
}
