// Ranking by dragging: a card's handle or a chip into the order. Pointer events, so a finger does as well as a mouse;
// only handles and chips start it, so that scrolling over a text never ranks.

import { elements, make } from "./ranker_dom.js";
import { letter } from "./ranker_judgement.js";

/** @import { Actions, Target } from "./ranker_types" */

/**
 * @typedef {{ left: number, right: number, top: number, bottom: number }} Area
 * @typedef {Area & { place: number }} Chip
 */
const START_PX = 5;
const AROUND_PX = 14; // the order is wide to hit

/**
 * Where in the order a point lies: `chips` are { place, left, right, top, bottom } of what is placed, in their order;
 * `sameGroup(a, b)` tells ties. A chip is a tie with it, a gap is the place between. `null` outside of `area`.
 * @param {Chip[]} chips
 * @param {Area} area
 * @param {number} x
 * @param {number} y
 * @param {(a: number, b: number) => boolean} sameGroup
 * @returns {Target | null}
 */
export function dropTarget(chips, area, x, y, sameGroup) {
  const isIn = x >= area.left - AROUND_PX && x <= area.right + AROUND_PX;
  if (!isIn || y < area.top - AROUND_PX || y > area.bottom + AROUND_PX) return null;
  if (!chips.length) return { only: true };
  const away = (/** @type {Chip} */ chip) => Math.max(chip.top - y, y - chip.bottom, 0);
  const nearest = Math.min(...chips.map(away));
  const line = chips.filter((chip) => away(chip) === nearest);
  const on = line.find((chip) => x >= chip.left && x <= chip.right);
  if (on) return { tie: on.place };
  const left = line.findLast((chip) => chip.right < x);
  const n = left ? chips.indexOf(left) : -1;
  if (n >= 0) {
    const next = chips[n + 1];
    return next && sameGroup(chips[n].place, next.place) ? { tie: chips[n].place } : { after: chips[n].place };
  }
  const first = chips.indexOf(line[0]);
  const before = chips[first - 1];
  return before && sameGroup(before.place, line[0].place) ? { tie: line[0].place } : { before: line[0].place };
}

export class Drag {
  /** @type {{ id: number, place: number, x: number, y: number, isChip: boolean } | null} */
  held;
  /** @type {HTMLElement | null} */
  ghost;
  /** @type {Target | null} */
  target;

  /**
   * @param {HTMLElement} root
   * @param {HTMLElement} order
   * @param {Actions} actions
   */
  constructor(root, order, actions) {
    this.root = root;
    this.order = order;
    this.actions = actions; // mayDrag(), ranks(), drop(place, target)
    root.addEventListener("pointerdown", (event) => this.press(event));
    root.addEventListener("pointermove", (event) => this.move(event));
    root.addEventListener("pointerup", (event) => this.release(event));
    root.addEventListener("pointercancel", () => this.cancel());
    root.addEventListener("lostpointercapture", () => this.cancel());
  }

  get isOn() {
    return this.ghost != null;
  }

  /** @param {PointerEvent} event */
  press(event) {
    const handle = event.target instanceof HTMLElement ? event.target.closest(".grip, .order .chip") : null;
    if (!(handle instanceof HTMLElement) || event.button !== 0 || this.held || !this.actions.mayDrag()) return;
    const [place, isChip] = [Number(handle.dataset.place), handle.classList.contains("chip")];
    this.held = { id: event.pointerId, place, x: event.clientX, y: event.clientY, isChip };
    handle.setPointerCapture(event.pointerId);
    event.preventDefault(); // no selection of text
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (!this.held || event.pointerId !== this.held.id) return;
    const { x, y, place } = this.held;
    if (!this.ghost) {
      if (Math.hypot(event.clientX - x, event.clientY - y) < START_PX) return;
      this.ghost = make("div", "ghost", [], letter(place));
      this.ghost.setAttribute("aria-hidden", "true");
      this.root.append(this.ghost);
      this.root.classList.add("dragging");
    }
    this.ghost.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`;
    this.target = this.find(event.clientX, event.clientY);
    this.show();
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  find(x, y) {
    const ranks = this.actions.ranks();
    const chips = elements(this.order, ".placed").map((chip) => {
      const { left, right, top, bottom } = chip.getBoundingClientRect();
      return { place: Number(chip.dataset.place), left, right, top, bottom };
    });
    return dropTarget(chips, this.order.getBoundingClientRect(), x, y, (a, b) => ranks[a] === ranks[b]);
  }

  show() {
    this.order.classList.toggle("over", this.target !== null);
    for (const chip of elements(this.order, ".chip")) {
      const place = Number(chip.dataset.place);
      chip.classList.toggle("onto", this.target?.tie === place && place !== this.held?.place);
      chip.classList.toggle("gap-before", this.target?.before === place);
      chip.classList.toggle("gap-after", this.target?.after === place);
    }
  }

  /** @param {PointerEvent} event */
  release(event) {
    if (!this.held || event.pointerId !== this.held.id) return;
    const { place, isChip } = this.held;
    const target = this.isOn ? this.find(event.clientX, event.clientY) : undefined;
    this.cancel();
    if (target !== undefined) this.swallowClick(); // else the handle's card would be marked
    if (target === undefined)
      this.actions.pick(place); // only a click
    else if (target !== null || isChip) this.actions.drop(place, target);
  }

  swallowClick() {
    const swallow = (/** @type {Event} */ event) => event.stopPropagation();
    this.root.addEventListener("click", swallow, { capture: true, once: true });
    setTimeout(() => this.root.removeEventListener("click", swallow, { capture: true }), 0);
  }

  cancel() {
    this.ghost?.remove();
    this.ghost = this.held = this.target = null;
    this.root.classList.remove("dragging");
    this.order.classList.remove("over");
    for (const chip of elements(this.order, ".chip")) chip.classList.remove("onto", "gap-before", "gap-after");
  }
}
