// Who is signed in, with a sign-out button; and the page's return to life after the server was away.

const FORMS = new WeakMap(); // form -> what belongs to it

export default function account(component) {
  const form = component.parentElement.querySelector("form");
  if (!form) return undefined; // signed out: there is only a link
  component.parentElement.querySelector(".who").textContent = `${component.data.name} · ${component.data.role}`;
  if (!FORMS.has(form)) FORMS.set(form, wire(form));
  const state = FORMS.get(form);
  state.person = component.data.person;
  state.send = component.setStateValue;
  return () => state.observer?.disconnect();
}

function wire(form) {
  const state = { observer: null };
  form.addEventListener("submit", (event) => askIfUnsent(event, state.person));
  const app = document.querySelector("[data-test-connection-state]");
  if (!app) return state;
  // A new server knows nothing of this page: parts that run by themselves would stay dead. One run of the whole page,
  // asked for here because this stands outside of all such parts, brings them back.
  let wasAway = false;
  state.observer = new MutationObserver(() => {
    const isConnected = app.dataset.testConnectionState === "CONNECTED";
    if (isConnected && wasAway) state.send("back", Date.now());
    wasAway = !isConnected;
  });
  state.observer.observe(app, { attributeFilter: ["data-test-connection-state"] });
  return state;
}

// Rankings that the server does not have yet are not lost by signing out, but they wait.
function askIfUnsent(event, person) {
  const unsent = countUnsent(person);
  if (!unsent) return;
  const what = unsent === 1 ? "One ranking has" : `${unsent} rankings have`;
  const question = `${what} not been saved yet. If you sign out now, that waits until you sign in here again. Sign out?`;
  if (!window.confirm(question)) event.preventDefault();
}

function countUnsent(person) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(`rankloop.outbox.${person}.`)).length;
  } catch {
    return 0; // storage is switched off in this browser
  }
}
