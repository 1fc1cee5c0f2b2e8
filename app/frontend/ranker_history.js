// What is asked of the server about answers that it has: pages of them, and one of them to change.
//
// The server answers with the time of the question, so that only what was asked last counts.

/** @import { History } from "./ranker_dialogs.js" */
/** @import { HistoryPage, Line, Opened } from "./ranker_types" */

export class AnswerHistory {
  /** @type {number | null} */
  askedAt;
  /** @type {number | null} */
  shownAt;

  /**
   * `send(value)` asks the server; `overlay()` is the list of answers as it is drawn now.
   * @param {(value: object) => void} send
   * @param {() => History} overlay
   */
  constructor(send, overlay) {
    this.send = send;
    this.overlay = overlay;
    this.isOpenFrozen = false; // whether a snapshot holds the answer that is being opened
    this.isReopening = false;
    this.reset();
  }

  // Overlays are closed: there is another element.
  reset() {
    this.askedAt = this.shownAt = null;
  }

  /** @param {object} what */
  ask(what) {
    this.askedAt = Math.max(Date.now(), (this.askedAt ?? 0) + 1);
    this.send({ ...what, at: this.askedAt });
  }

  /** @param {boolean} mayOpen */
  toggle(mayOpen) {
    if (this.overlay().isOpen) this.overlay().close();
    else if (mayOpen) this.overlay().start();
  }

  /** @param {Line} line */
  reopen(line) {
    this.isReopening = true;
    this.isOpenFrozen = line.is_frozen;
    this.overlay().close();
    this.ask({ open: line.task_id });
  }

  // The list was closed: else the next look would bring it again.
  closed() {
    if (!this.isReopening && this.shownAt) this.ask({});
    this.isReopening = false;
    this.shownAt = null;
  }

  /**
   * Show a page, or return an answer that was opened, if it is what was asked for last; null for anything else.
   * @param {{ history?: HistoryPage, opened?: Opened }} given
   * @param {number} nUnsent
   */
  take({ history, opened }, nUnsent) {
    if (history && history.at === this.askedAt && this.overlay().isOpen && this.shownAt !== history.at) {
      this.shownAt = history.at;
      this.overlay().show(history, nUnsent);
    }
    if (!opened || opened.at !== this.askedAt) return null;
    this.askedAt = null;
    return opened;
  }
}
