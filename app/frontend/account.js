// Who is signed in, with a sign-out button; the page's return to life after the server was away; and its end when the
// session has ended: the server closes the page's stream then, and what the page still shows is nobody's any more.

/** @import { Component } from "./ranker_types" */

const ASK_EVERY_MS = 5000;
/**
 * What belongs to the form, or to the way in.
 * @typedef {object} Watch
 * @property {MutationObserver | null} observer
 * @property {ReturnType<typeof setInterval> | undefined} timer
 * @property {string} [person]
 * @property {(name: string, value: unknown) => void} [send]
 */
/** @type {WeakMap<HTMLElement, Watch>} */
const WATCHES = new WeakMap(); // the form, or the way in -> what belongs to it

/** @param {Component<{ name: string, role: string, person: string }>} component */
export default function account(component) {
  const root = component.parentElement;
  const own = root.querySelector("form, .way-in");
  if (!(own instanceof HTMLElement)) return undefined;
  const state = WATCHES.get(own) ?? watch(own);
  WATCHES.set(own, state);
  state.send = component.setStateValue;
  if (own.matches("form")) {
    const who = root.querySelector(".who");
    if (who) who.textContent = `${component.data.name} · ${component.data.role}`;
    state.person = component.data.person;
  }
  return () => {
    state.observer?.disconnect();
    clearInterval(state.timer);
  };
}

/** @param {HTMLElement} own */
function watch(own) {
  /** @type {Watch} */
  const state = { observer: null, timer: undefined };
  if (own.matches("form")) own.addEventListener("submit", (event) => askIfUnsent(event, state.person));
  const app = document.querySelector("[data-test-connection-state]");
  if (!(app instanceof HTMLElement)) return state;
  let wasAway = false;
  state.observer = new MutationObserver(() => {
    const isConnected = app.dataset.testConnectionState === "CONNECTED";
    clearInterval(state.timer);
    // A new server knows nothing of this page: parts that run by themselves would stay dead. One run of the whole page,
    // asked for here because this stands outside of all such parts, brings them back.
    if (isConnected && wasAway) state.send?.("back", Date.now());
    if (!isConnected) {
      if (!wasAway) leaveIfSignedOut();
      state.timer = setInterval(leaveIfSignedOut, ASK_EVERY_MS);
    }
    wasAway = !isConnected;
  });
  state.observer.observe(app, { attributeFilter: ["data-test-connection-state"] });
  return state;
}

// Where the server is there and knows no session of ours, the way in is all that is left of this page.
async function leaveIfSignedOut() {
  try {
    const answer = await fetch("/_stcore/host-config", { cache: "no-store", redirect: "manual" });
    if (answer.status !== 401) return;
  } catch {
    return; // the server is away: the page waits for it
  }
  const here = encodeURIComponent(location.pathname + location.search);
  location.assign(`/signin?ended=1&next=${here}`);
}

/**
 * Rankings that the server does not have yet are not lost by signing out, but they wait.
 * @param {Event} event
 * @param {string | undefined} person
 */
function askIfUnsent(event, person) {
  const unsent = countUnsent(person);
  if (!unsent) return;
  const what = unsent === 1 ? "One ranking has" : `${unsent} rankings have`;
  const question = `${what} not been saved yet. If you sign out now, that waits until you sign in here again. Sign out?`;
  if (!window.confirm(question)) event.preventDefault();
}

/** @param {string | undefined} person */
function countUnsent(person) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(`rankloop.outbox.${person}.`)).length;
  } catch {
    return 0; // storage is switched off in this browser
  }
}
