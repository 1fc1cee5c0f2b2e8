// What this browser remembers for a person: answers that the server has not acknowledged, half-done rankings, and how
// they like the page.
//
// Each answer has an entry of its own, so that two tabs never overwrite each other's. An answer of somebody else stays
// until that person is back (it is their work, and holds no text); their half-done rankings are cleared away.

/** @import { Item, Saved } from "./ranker_types" */

const OUTBOX = "rankloop.outbox.";
const DRAFT = "rankloop.draft.";
const PAGE = "rankloop.page.";
const BACKUP = "rankloop unsent answers";
const KEPT_MS = 14 * 24 * 3600 * 1000;

export class Storage {
  /** @type {Map<string, Item>} */
  items;

  /** @param {string} person */
  constructor(person) {
    this.person = person;
    this.items = new Map(); // in the order in which they were sent; also what is left when storage is switched off
    this.tidy();
    this.read();
  }

  read() {
    const start = `${OUTBOX}${this.person}.`;
    const found = names(start)
      .map(load)
      .filter((item) => item?.submission_key);
    found.sort((a, b) => (a.sent_at ?? 0) - (b.sent_at ?? 0)); // an edit comes after what it changes
    for (const item of found) this.items.set(item.submission_key, item);
  }

  /** @param {Item} item */
  add(item) {
    this.items.set(item.submission_key, item);
    save(`${OUTBOX}${this.person}.${item.submission_key}`, item);
  }

  /** @param {string} key */
  remove(key) {
    const item = this.items.get(key);
    this.items.delete(key);
    drop(`${OUTBOX}${this.person}.${key}`);
    return item;
  }

  /**
   * @param {string} taskId
   * @returns {Saved | null}
   */
  draft(taskId) {
    return load(`${DRAFT}${this.person}.${taskId}`);
  }

  /**
   * @param {string} taskId
   * @param {Saved} draft
   */
  saveDraft(taskId, draft) {
    save(`${DRAFT}${this.person}.${taskId}`, draft);
  }

  /** @param {string} taskId */
  dropDraft(taskId) {
    drop(`${DRAFT}${this.person}.${taskId}`);
  }

  /**
   * How the person likes the page: small things, by name.
   * @param {string} name
   */
  recall(name) {
    return load(`${PAGE}${this.person}`)?.[name];
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  remember(name, value) {
    save(`${PAGE}${this.person}`, { ...load(`${PAGE}${this.person}`), [name]: value });
  }

  /**
   * Whether a storage event says that another tab has remembered something.
   * @param {StorageEvent} event
   */
  isRemembered(event) {
    return event.key === `${PAGE}${this.person}`;
  }

  /**
   * The task that another tab of the same person has just answered, from a storage event; null for anything else.
   * @param {StorageEvent} event
   */
  taskAnsweredElsewhere(event) {
    if (!event.newValue || !event.key?.startsWith(`${OUTBOX}${this.person}.`)) return null;
    return load(event.key)?.task_id ?? null;
  }

  // Everything that is not acknowledged, as the text of a file.
  backup() {
    return JSON.stringify({ kind: BACKUP, person: this.person, items: [...this.items.values()] }, null, 1);
  }

  /**
   * Take in such a text; returns the answers in it. Throws an Error with a reason for the person.
   * @param {string} text
   * @returns {Item[]}
   */
  restore(text) {
    let saved;
    try {
      saved = JSON.parse(text);
    } catch {
      throw new Error("this file is not JSON: choose one that was saved on this page");
    }
    if (saved?.kind !== BACKUP || !Array.isArray(saved.items)) {
      throw new Error("this file holds no unsent answers: choose one that was saved on this page");
    }
    if (saved.person !== this.person) throw new Error("the answers in this file are somebody else's");
    /** @type {Item[]} */
    const items = saved.items.filter((/** @type {Item | null} */ item) => typeof item?.submission_key === "string");
    for (const item of items) this.add(item);
    return items;
  }

  tidy() {
    for (const key of names(DRAFT)) {
      const isOwn = key.startsWith(`${DRAFT}${this.person}.`);
      if (!isOwn || !((load(key)?.at ?? 0) > Date.now() - KEPT_MS)) drop(key);
    }
  }
}

export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID(); // only on https and on localhost
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} name
 * @param {string} text
 */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {string} start */
function names(start) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(start));
  } catch {
    return [];
  }
}

/** @param {string} key */
function load(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/**
 * @param {string} key
 * @param {unknown} value
 */
function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // full or switched off: the item is in memory and goes to the server all the same
  }
}

/** @param {string} key */
function drop(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // switched off
  }
}
