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
  if (element instanceof HTMLInputElement) return !["radio", "checkbox", "button", "submit"].includes(element.type);
  return element.isContentEditable || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;
}

// Something on the page that has keys of its own.
export const isControl = (element) =>
  element instanceof Element &&
  element.closest("a, button, input, select, textarea, summary, [contenteditable], [role=listbox], [role=menu]") !== null;

export const isDialogOpen = (own) =>
  [...document.querySelectorAll("[role=dialog], dialog[open]")].some((dialog) => dialog !== own);
