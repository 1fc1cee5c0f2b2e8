// The keys that a person has put in the place of the usual ones. This browser keeps them, for each person.
//
// An action has its usual keys, or one of the person's own in place of all of them. What chooses from a list (ranks,
// reasons, flags), what goes back (Esc) and the arrows in lists and beside each other stay as they are.

import { collisions, KEYS, keysIn, keyText, OPEN_TO_ALL } from "./ranker_keys.js";

/** @import { Storage } from "./ranker_storage.js" */
/** @import { KeyLine } from "./ranker_types" */

const NAMED = ["Enter", "Backspace", "Delete", "Insert", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
const FIXED = ["rank", "leaveEdit"];
// Where the keys of a changeable line must not meet those of another.
/** @type {Record<string, string[]>} */
const NEAR = { page: ["page", "pair", "anywhere"], idle: ["idle", "anywhere"], anywhere: [...OPEN_TO_ALL, "anywhere"] };
const OUTDATED =
  "Your own keys do not fit this page any more: the usual ones hold again. The list of keys changes them.";

/** @param {KeyLine} given */
export const isChangeable = ({ context, action }) => context in NEAR && !FIXED.includes(action);

export class OwnKeys {
  /** @type {Record<string, string>} */
  own;
  /** @type {KeyLine[]} */
  lines;

  /**
   * `onChange(lines)`: the keys are others now.
   * @param {Storage} storage
   * @param {(lines: KeyLine[]) => void} onChange
   */
  constructor(storage, onChange) {
    this.storage = storage;
    this.onChange = onChange;
    this.own = {};
    this.trouble = this.read() ? "" : OUTDATED;
    if (this.trouble) storage.remember("keys", {});
  }

  // Take what this browser has kept, whole or not at all; false if it can't be used.
  read() {
    const kept = this.storage.recall("keys") ?? {};
    const isGood = Object.entries(kept).every(
      ([action, key]) => usualKeys(action).length && !whyNot(action, key, kept),
    );
    this.own = isGood ? kept : {};
    this.lines = withOwn(this.own);
    return isGood;
  }

  /** @param {StorageEvent} event */
  changedElsewhere(event) {
    if (!this.storage.isRemembered(event)) return;
    this.read();
    this.onChange(this.lines);
  }

  get isChanged() {
    return Object.keys(this.own).length > 0;
  }

  /**
   * Give an action a key; one of its usual keys brings all of them back. Returns why it can't be, "" when it is done.
   * @param {string} action
   * @param {string} key
   */
  give(action, key) {
    const { [action]: _, ...others } = this.own;
    const isUsual = usualKeys(action).includes(key) && !collisions(withOwn(others)).length;
    const why = isUsual ? "" : whyNot(action, key, this.own);
    if (!why) this.keep(isUsual ? others : { ...others, [action]: key });
    return why;
  }

  reset() {
    this.keep({});
  }

  /** @param {Record<string, string>} own */
  keep(own) {
    this.own = own;
    this.lines = withOwn(own);
    this.storage.remember("keys", own);
    this.onChange(this.lines);
  }
}

/**
 * All lines, with a person's own keys (action -> key) in place of the usual ones.
 * @param {Record<string, string>} own
 */
export function withOwn(own) {
  return KEYS.map((line) => {
    if (isChangeable(line) && own[line.action]) return { ...line, keys: [own[line.action]], shown: undefined };
    return line.opener && own[line.opener] ? follow(line, own[line.opener]) : line;
  });
}

/**
 * The key that opens something goes on or back there too, unless it chooses something there.
 * @param {KeyLine} line
 * @param {string} key
 */
function follow(line, key) {
  const others = keysIn(line.context).filter((each) => each !== line);
  const kept = line.keys.filter((each) => !usualKeys(line.opener ?? "").includes(each));
  const isFree = !others.some((each) => each.keys.includes(key));
  return { ...line, keys: [...new Set(isFree ? [...kept, key] : kept)], shown: undefined };
}

/** @param {string} action */
export const usualLines = (action) => KEYS.filter((line) => isChangeable(line) && line.action === action);
/** @param {string} action */
const usualKeys = (action) => usualLines(action)[0]?.keys ?? [];

/**
 * @param {string} action
 * @param {string} key
 * @param {Record<string, string>} own
 */
function whyNot(action, key, own) {
  if (key === "r" || key === "c") return `${key} belongs to the page around this one.`;
  const isOne = typeof key === "string" && /^[^\s\p{C}\p{M}]$/u.test(key);
  if (!isOne && !NAMED.includes(key)) return "That key can't be used: take a letter or a sign.";
  const near = usualLines(action).flatMap((line) => NEAR[line.context]);
  const taken = withOwn(own).find(
    (line) => line.action !== action && near.includes(line.context) && line.keys.includes(key),
  );
  return taken ? `${keyText(key)} is taken: ${taken.label}.` : "";
}
