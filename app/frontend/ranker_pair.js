// Two responses side by side, the others out of sight: which two.

import { there } from "./ranker_dom.js";

export class Pair {
  /** @type {HTMLElement[]} */
  elements;
  /** @type {number[] | null} */
  places;

  /** @param {HTMLElement[]} elements */
  begin(elements) {
    this.elements = elements;
    this.show(null);
  }

  /**
   * `places`: the left and the right one; null shows all.
   * @param {number[] | null} places
   */
  show(places) {
    this.places = places;
    this.elements.forEach((element, place) => {
      const at = places ? places.indexOf(place) : 0;
      element.hidden = at < 0;
      element.style.order = places ? String(at) : "";
    });
    this.elements[0]?.parentElement?.classList.toggle("pair", places !== null);
  }

  /** @param {number} marked */
  other(marked) {
    const [left, right] = there(this.places);
    return left === marked ? right : left;
  }

  /**
   * The next (or the one before) response in the place of the one that is not marked.
   * @param {number} step
   * @param {number} marked
   */
  turn(step, marked) {
    const n = this.elements.length;
    const places = there(this.places);
    const side = places[0] === marked ? 1 : 0;
    let place = places[side];
    do place = (place + step + n) % n;
    while (place === marked);
    this.put(side, place);
  }

  /**
   * The marked response is always one of the two: a new one takes the place of the one that was marked.
   * @param {number} marked
   * @param {number} before
   */
  follow(marked, before) {
    if (!this.places || this.places.includes(marked)) return;
    this.put(this.places[1] === before ? 1 : 0, marked);
  }

  /**
   * @param {number} side
   * @param {number} place
   */
  put(side, place) {
    const places = [...there(this.places)];
    places[side] = place;
    this.show(places);
  }
}
