// The page around the ranking surface: where the focus is, what is open, how long something has been in sight.

// Time that a task was in sight.
export class Stopwatch {
  start(elapsed) {
    this.elapsed = elapsed;
    this.since = document.hidden ? null : performance.now();
  }

  toggle(isHidden) {
    this.elapsed = this.read();
    this.since = isHidden ? null : performance.now();
  }

  read() {
    return Math.round((this.elapsed ?? 0) + (this.since == null ? 0 : performance.now() - this.since));
  }
}

export function isTextField(element) {
  if (!(element instanceof HTMLElement)) return false;
  if (element instanceof HTMLInputElement) return !["radio", "checkbox", "button", "submit", "file"].includes(element.type);
  return element.isContentEditable || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;
}

// Something on the page that has keys of its own.
export const isControl = (element) =>
  element instanceof Element &&
  element.closest("a, button, input, select, textarea, summary, [contenteditable], [role=listbox], [role=menu]") !== null;

export function stop(event) {
  event.preventDefault();
  event.stopImmediatePropagation();
}

// Whether a dialog that is not ours is open.
export const isDialogOpen = () => document.querySelector("[role=dialog], dialog[open]") !== null;

// The first drawing may take the focus from a link; later ones only from ourselves or from nowhere.
export function mayTakeFocus(isFirst) {
  const active = document.activeElement;
  if (!isControl(active)) return true; // the page itself, or what holds our shadow root
  return isFirst && !isTextField(active) && !active.closest("[role=dialog]");
}

// What stands on the page while there is nothing to rank, and why.
export function idleLines({ n, first_free_at: at }, nSending) {
  if (nSending) return ["One moment: the next task is on its way."];
  if (!n) return ["Nothing left for you now.", "You have answered every task that is open to you. Thank you!"];
  const tasks = n === 1 ? "1 task is" : `${n} tasks are`;
  const when = at ? new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "";
  const rest = when ? ` with others; the first may come free at ${when}.` : " with others.";
  return ["Nothing left for you now.", tasks + rest, "This page looks again by itself."];
}
