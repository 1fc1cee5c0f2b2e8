// Who is signed in, with a sign-out button that asks first when this browser still holds unsent rankings.

const WIRED = new WeakSet();

export default function account({ data, parentElement }) {
  const form = parentElement.querySelector("form");
  if (!form) return; // signed out: there is only a link
  parentElement.querySelector(".who").textContent = `${data.name} · ${data.role}`;
  form.dataset.person = data.person;
  if (WIRED.has(form)) return;
  WIRED.add(form);
  form.addEventListener("submit", (event) => {
    const unsent = countUnsent(form.dataset.person);
    if (!unsent) return;
    const what = unsent === 1 ? "One ranking has" : `${unsent} rankings have`;
    const question = `${what} not been saved yet. If you sign out now, it is sent when you sign in here again. Sign out?`;
    if (!window.confirm(question)) event.preventDefault();
  });
}

function countUnsent(person) {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(`rankloop.outbox.${person}.`)).length;
  } catch {
    return 0; // storage is switched off in this browser
  }
}
