// All usual keys of the ranking page: what each means where, in one list. The handler, the help and the hints on buttons
// read this list, with what the person has changed in it (ranker_own_keys.js); a test looks for collisions in it.
// Streamlit's own keys, r and c, stay free.

/** @import { Has, Key, KeyLine } from "./ranker_types" */

export const RANK_KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "t", "e", "l"]; // ten, eleven, twelve
export const FLAG_KEYS = [..."123456789abdefghijklmn"].filter((key) => key !== "g");
const DIGITS = RANK_KEYS.slice(0, 9);
/** @type {Record<string, string>} */
const SIGNS = {
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  Delete: "Del",
  Insert: "Ins",
  Backspace: "⌫",
  Escape: "Esc",
};

// Where keys mean different things. What stands under "page" holds while a task is on the screen and nothing is open.
// With two responses side by side all of that holds too, but for the keys that mean something of their own there.
// `follows`: what the key waits for; `opener`: the action whose key has led here, and goes on or back when it is pressed again.
const PAGE = "page";
const PAIR = "pair";

/** @type {KeyLine[]} */
export const KEYS = [
  {
    keys: DIGITS,
    shown: "1 … 9",
    context: PAGE,
    label: "rank the marked response and go on to the next open one",
    action: "rank",
  },
  {
    keys: RANK_KEYS.slice(9),
    shown: "t e l",
    context: PAGE,
    label: "ranks ten, eleven and twelve",
    action: "rank",
    when: (has) => has.n > 9,
  },
  { keys: ["0", "Delete"], shown: "0 Del", context: PAGE, label: "take its rank away", action: "unplace" },
  {
    keys: ["ArrowDown", "ArrowRight", "j"],
    shown: "↓ → j",
    context: PAGE,
    label: "mark the next response",
    action: "next",
  },
  {
    keys: ["ArrowUp", "ArrowLeft", "k"],
    shown: "↑ ← k",
    context: PAGE,
    label: "mark the one before",
    action: "previous",
  },
  { keys: ["w"], context: PAGE, label: "the rest are worse, in no order", action: "rest", when: (has) => has.partial },
  { keys: ["u", "Backspace"], shown: "u ⌫", context: PAGE, label: "take the last step back", action: "undo" },
  { keys: ["Enter"], context: PAGE, label: "submit when every response has its place", action: "submit" },
  { keys: ["z"], context: PAGE, label: "take back the last submit, to change it", action: "takeBack" },
  { keys: ["x"], context: PAGE, label: "no response is acceptable (asks once)", action: "none" },
  { keys: ["s"], context: PAGE, label: "skip this task, with a reason", action: "skip" },
  {
    keys: ["a"],
    context: PAGE,
    label: "acceptable: yes, no, open",
    action: "acceptable",
    when: (has) => has.acceptable,
  },
  {
    keys: ["q"],
    follows: "1 … 7",
    context: PAGE,
    label: "quality of the marked response",
    action: "quality",
    when: (has) => has.quality,
  },
  {
    keys: ["g"],
    context: PAGE,
    label: "flags of the marked response",
    action: "flags",
    when: (has) => has.flags.length > 0,
  },
  {
    keys: ["p"],
    follows: "1 … 4",
    context: PAGE,
    label: "how much better the best is than the next",
    action: "strength",
    when: (has) => has.strength,
  },
  {
    keys: ["n"],
    context: PAGE,
    label: "write why; Ctrl+Enter submits, Esc leaves the field",
    action: "rationale",
    when: (has) => has.rationale,
  },
  { keys: ["m"], context: PAGE, label: "texts as they were written, or as Markdown", action: "raw" },
  { keys: ["f"], context: PAGE, label: "fold or open the start that all responses share", action: "fold" },
  {
    keys: ["d"],
    context: PAGE,
    label: "differences from the marked response, then from the others, then none",
    action: "differences",
  },
  { keys: ["v"], context: PAGE, label: "read the marked response and another side by side, or all", action: "pair" },
  {
    keys: ["Escape"],
    shown: "Esc",
    context: PAGE,
    label: "leave a sent answer as it was",
    action: "leaveEdit",
    when: (has) => has.editing,
  },
  { keys: ["z"], context: "idle", label: "take back the last submit, to change it", action: "takeBack" },
  { keys: ["?"], context: "anywhere", label: "show or close this list", action: "help" },
  { keys: ["h"], context: "anywhere", label: "show or close your answers", action: "history" },
  { keys: ["i"], context: "anywhere", label: "show or close the guidelines", action: "guidelines" },

  { keys: ["ArrowLeft", "ArrowRight"], shown: "← →", context: PAIR, label: "mark the other one", action: "otherSide" },
  {
    keys: ["ArrowDown"],
    shown: "↓",
    context: PAIR,
    label: "the next response beside the marked one",
    action: "nextBeside",
  },
  { keys: ["ArrowUp"], shown: "↑", context: PAIR, label: "the one before", action: "previousBeside" },
  { keys: ["Escape"], shown: "Esc", context: PAIR, label: "all responses again", action: "pair" },

  { keys: DIGITS, shown: "1 … 9", context: "skip", label: "choose a reason", action: "reason" },
  { keys: ["Enter"], context: "skip", label: "skip the task", action: "skipNow" },
  { keys: ["Escape"], shown: "Esc", context: "skip", label: "go back", action: "close" },

  {
    keys: ["Enter", "x"],
    shown: "Enter x",
    context: "none",
    label: "send that no response is acceptable",
    action: "noneNow",
    opener: "none",
  },
  { keys: ["Escape"], shown: "Esc", context: "none", label: "go back", action: "close" },

  { keys: FLAG_KEYS, shown: "1 … 9 a b", context: "flags", label: "put a flag on, or take it off", action: "flag" },
  {
    keys: ["Escape", "g", "Enter"],
    shown: "Esc g",
    context: "flags",
    label: "close the flags",
    action: "close",
    opener: "flags",
  },

  { keys: DIGITS.slice(0, 7), shown: "1 … 7", context: "quality", label: "1 very bad, 7 very good", action: "rate" },
  { keys: ["Escape", "q"], shown: "Esc", context: "quality", label: "go back", action: "close", opener: "quality" },

  {
    keys: DIGITS.slice(0, 4),
    shown: "1 … 4",
    context: "strength",
    label: "1 negligibly, 4 significantly",
    action: "compare",
  },
  { keys: ["Escape", "p"], shown: "Esc", context: "strength", label: "go back", action: "close", opener: "strength" },

  { keys: ["ArrowDown", "j"], shown: "↓ j", context: "history", label: "the answer below", action: "lower" },
  { keys: ["ArrowUp", "k"], shown: "↑ k", context: "history", label: "the answer above", action: "higher" },
  { keys: ["PageDown", "ArrowRight"], shown: "→ PgDn", context: "history", label: "older answers", action: "older" },
  { keys: ["PageUp", "ArrowLeft"], shown: "← PgUp", context: "history", label: "newer answers", action: "newer" },
];

// Contexts in which the keys for "anywhere" hold too: elsewhere a letter may choose something.
export const OPEN_TO_ALL = [PAGE, PAIR, "idle", "history", "help"];
export const CONTEXTS = [...new Set([...KEYS.map((each) => each.context), "idle", "help"])];

/**
 * @param {string} context
 * @param {KeyLine[]} [keys]
 */
export function keysIn(context, keys = KEYS) {
  const own = keys.filter(
    (each) => each.context === context || (each.context === "anywhere" && OPEN_TO_ALL.includes(context)),
  );
  if (context !== PAIR) return own;
  const taken = new Set(own.flatMap((each) => each.keys));
  const ofPage = keys.filter((each) => each.context === PAGE);
  return [...own, ...ofPage.map((each) => ({ ...each, keys: each.keys.filter((key) => !taken.has(key)) }))];
}

/**
 * The name of a key: digits by their place on the keyboard too (French ones need Shift), letters in lower case.
 * @param {Key} event
 */
export function keyName(event) {
  if (/^[0-9]$/.test(event.key)) return event.key;
  const code = /^(?:Digit|Numpad)([0-9])$/.exec(event.code ?? "");
  if (code && !event.shiftKey && event.key.length === 1) return code[1];
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

/**
 * A key, and the keys of a line, as they are shown.
 * @param {string} key
 */
export const keyText = (key) => SIGNS[key] ?? key;
/** @param {KeyLine} given */
export const keysText = ({ keys, shown, follows = "" }) => `${shown ?? keys.map(keyText).join(" ")} ${follows}`.trim();

/**
 * The key of an action on the page, in words; on a button there is less room.
 * @param {string} action
 * @param {KeyLine[]} keys
 */
export const keyOf = (action, keys) => keyText(keys.find((each) => each.action === action)?.keys[0] ?? "");
/**
 * @param {string} action
 * @param {KeyLine[]} keys
 */
export const hintOf = (action, keys) => keyOf(action, keys).replace("Enter", "⏎");

/**
 * What a key does in a context, for a page that has this and that (`has`); undefined if nothing.
 * @param {string} name
 * @param {string} context
 * @param {Has} has
 * @param {KeyLine[]} [keys]
 */
export function bound(name, context, has, keys = KEYS) {
  return keysIn(context, keys).find((each) => each.keys.includes(name) && (each.when?.(has) ?? true));
}

/**
 * Pairs of lines that claim one key in one context, and lines that claim one of Streamlit's keys.
 * @param {KeyLine[]} [keys]
 */
export function collisions(keys = KEYS) {
  const found = [];
  for (const context of CONTEXTS) {
    const taken = new Map([
      ["r", "Streamlit"],
      ["c", "Streamlit"],
    ]);
    for (const each of keysIn(context, keys)) {
      for (const key of each.keys) {
        if (taken.has(key)) found.push(`${context}: ${key} is ${taken.get(key)} and ${each.action}`);
        taken.set(key, each.action);
      }
    }
  }
  return found;
}
