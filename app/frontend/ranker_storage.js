// What this browser remembers for a person: answers that the server has not acknowledged, and half-done rankings.
//
// Each answer has an entry of its own, so that two tabs never overwrite each other's. An answer of somebody else stays
// until that person is back (it is their work, and holds no text); their half-done rankings are cleared away.

const OUTBOX = "rankloop.outbox.";
const DRAFT = "rankloop.draft.";
const KEPT_MS = 14 * 24 * 3600 * 1000;

export class Storage {
  constructor(person) {
    this.person = person;
    this.items = new Map(); // also what is left when storage is switched off
    this.tidy();
    this.read();
  }

  read() {
    const start = `${OUTBOX}${this.person}.`;
    for (const key of names(start)) {
      const item = load(key);
      if (item && item.submission_key) this.items.set(item.submission_key, item);
    }
  }

  add(item) {
    this.items.set(item.submission_key, item);
    save(`${OUTBOX}${this.person}.${item.submission_key}`, item);
  }

  remove(key) {
    const item = this.items.get(key);
    this.items.delete(key);
    drop(`${OUTBOX}${this.person}.${key}`);
    return item;
  }

  draft(taskId) {
    return load(`${DRAFT}${this.person}.${taskId}`);
  }

  saveDraft(taskId, draft) {
    save(`${DRAFT}${this.person}.${taskId}`, draft);
  }

  dropDraft(taskId) {
    drop(`${DRAFT}${this.person}.${taskId}`);
  }

  // The task that another tab of the same person has just answered, from a storage event; null for anything else.
  taskAnsweredElsewhere(event) {
    if (!event.newValue || !event.key?.startsWith(`${OUTBOX}${this.person}.`)) return null;
    return load(event.key)?.task_id ?? null;
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

function names(start) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(start));
  } catch {
    return [];
  }
}

function load(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // full or switched off: the item is in memory and goes to the server all the same
  }
}

function drop(key) {
  try {
    localStorage.removeItem(key);
  } catch {
    // switched off
  }
}
