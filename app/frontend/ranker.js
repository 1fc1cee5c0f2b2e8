// The entry of the ranking surface: which controller draws in which element.
//
// Streamlit calls the default export again whenever the data changes. Now and then it takes the element away and puts
// another in its place at once, with somebody in the middle of a ranking: the controller outlives its element for that
// long, with all that it knows, and holds the keys that are pressed meanwhile.

import { Ranker } from "./ranker_control.js";

const PARKED_MS = 1500;
const CONTROLLERS = new WeakMap();
let parked = null; // the controller whose element is gone, and the timer that ends it

export default function ranker(component) {
  const place = component.parentElement;
  if (!CONTROLLERS.has(place)) mount(place);
  const controller = CONTROLLERS.get(place);
  controller.update(component);
  controller.release();
  return () => unmount(place, controller);
}

function mount(place) {
  const controller = parked?.controller ?? new Ranker();
  clearTimeout(parked?.timer);
  parked = null;
  controller.attach(place.querySelector(".ranker"));
  CONTROLLERS.set(place, controller);
}

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
