// The page around the ranking surface: where the focus is, what is open, how long something has been in sight.

/** @import { Data, Paused } from "./ranker_types" */

// So long without a key, a move of the pointer or a scroll, and nobody is taken to be there: what a screen holds is read
// in less, and then people scroll or move on.
const IDLE_MS = 60_000;

// Time that a task was in sight of somebody who was there.
export class Stopwatch {
  /** @type {number} */
  elapsed;
  /** @type {number} */
  activeAt;
  /** @type {number | null} */
  since;

  /** @param {number} elapsed */
  start(elapsed) {
    this.elapsed = elapsed;
    this.activeAt = performance.now();
    this.since = document.hidden ? null : this.activeAt;
  }

  /** @param {boolean} isHidden */
  toggle(isHidden) {
    this.start(this.read());
    if (isHidden) this.since = null;
  }

  // Somebody is there: after a break the clock goes on from here.
  touch() {
    if (this.since != null && performance.now() - this.activeAt > IDLE_MS) this.start(this.read());
    this.activeAt = performance.now();
  }

  read() {
    if (this.since == null) return Math.round(this.elapsed ?? 0);
    return Math.round(this.elapsed + Math.min(performance.now(), this.activeAt + IDLE_MS) - this.since);
  }
}

/**
 * Call the listener whenever somebody does something on the page, until the signal says that it ends.
 * @param {() => void} listener
 * @param {AbortSignal} signal
 */
export function onActivity(listener, signal) {
  for (const name of ["keydown", "pointermove", "pointerdown", "wheel", "scroll"]) {
    document.addEventListener(name, listener, { capture: true, passive: true, signal });
  }
}

/** @param {EventTarget | null} element */
export function isTextField(element) {
  if (!(element instanceof HTMLElement)) return false;
  if (element instanceof HTMLInputElement)
    return !["radio", "checkbox", "button", "submit", "file"].includes(element.type);
  return element.isContentEditable || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;
}

/**
 * Something on the page that has keys of its own.
 * @param {EventTarget | null} element
 */
export const isControl = (element) =>
  element instanceof Element &&
  element.closest("a, button, input, select, textarea, summary, [contenteditable], [role=listbox], [role=menu]") !==
    null;

/** @param {Event} event */
export function stop(event) {
  event.preventDefault();
  event.stopImmediatePropagation();
}

// Whether a dialog that is not ours is open.
export const isDialogOpen = () => document.querySelector("[role=dialog], dialog[open]") !== null;

/**
 * The first drawing may take the focus from a link; later ones only from ourselves or from nowhere.
 * @param {boolean} isFirst
 */
export function mayTakeFocus(isFirst) {
  const active = document.activeElement;
  if (!isControl(active)) return true; // the page itself, or what holds our shadow root
  return isFirst && !isTextField(active) && !active?.closest("[role=dialog]");
}

/** @type {Record<string, string>} */
const WHY_PAUSED = {
  gold: "Your rankings differ from what this project expects more often than it allows.",
  haste: "Many of your answers came faster than their texts can be read.",
};

/** @param {Paused} given */
function pausedLines({ reason, ask }) {
  const whom = ask.join(" or ") || "whoever gave you this work";
  return [
    "Your work in this project is paused.",
    `${WHY_PAUSED[reason]} Ask ${whom} to look at this with you; they can let you go on.`,
    "All that you sent is kept. This page goes on by itself when the pause is over.",
  ];
}

/**
 * What stands on the page while there is nothing to rank, and why.
 * @param {Data} given
 * @param {number} nSending
 */
export function idleLines({ waiting: { n, first_free_at: at }, paused }, nSending) {
  if (nSending) return ["One moment: the next task is on its way."];
  if (paused) return pausedLines(paused);
  if (!n) return ["Nothing left for you now.", "You have answered every task that is open to you. Thank you!"];
  const tasks = n === 1 ? "1 task is" : `${n} tasks are`;
  const when = at ? new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "";
  const rest = when ? ` with others; the first may come free at ${when}.` : " with others.";
  return ["Nothing left for you now.", tasks + rest, "This page looks again by itself."];
}
