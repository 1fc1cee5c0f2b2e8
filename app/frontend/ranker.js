// The entry of the ranking surface: which controller draws in which element.
//
// Streamlit calls the default export again whenever the data changes. Now and then it takes the element away and puts
// another in its place at once, with somebody in the middle of a ranking: the controller outlives its element for that
// long, with all that it knows, and holds the keys that are pressed meanwhile.

import { Ranker } from "./ranker_control.js";
import { elements } from "./ranker_dom.js";

/** @import { Component, Data } from "./ranker_types" */

const PARKED_MS = 1500;
/** @type {WeakMap<HTMLElement, Ranker>} */
const CONTROLLERS = new WeakMap();
/** @type {{ controller: Ranker, timer: ReturnType<typeof setTimeout> } | null} */
let parked = null; // the controller whose element is gone, and the timer that ends it

/** @param {Component<Data>} component */
export default function ranker(component) {
  const place = component.parentElement;
  const controller = CONTROLLERS.get(place) ?? mount(place);
  controller.update(component);
  controller.release();
  return () => unmount(place, controller);
}

/** @param {HTMLElement} place */
function mount(place) {
  const controller = parked?.controller ?? new Ranker();
  clearTimeout(parked?.timer);
  parked = null;
  controller.attach(elements(place, ".ranker")[0]);
  CONTROLLERS.set(place, controller);
  return controller;
}

/**
 * @param {HTMLElement} place
 * @param {Ranker} controller
 */
function unmount(place, controller) {
  if (CONTROLLERS.get(place) !== controller) return;
  CONTROLLERS.delete(place);
  parked?.controller.destroy();
  controller.park();
  parked = { controller, timer: setTimeout(end, PARKED_MS) };
}

function end() {
  parked?.controller.destroy();
  parked = null;
}
