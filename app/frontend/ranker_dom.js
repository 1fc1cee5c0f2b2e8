// Making elements. Texts of people and models only ever go in as textContent.

export function make(tag, className = "", children = [], content = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (content) element.textContent = content;
  element.append(...children);
  return element;
}

export function button(label, kind, onClick, key = "") {
  const made = make("button", kind, [], label);
  made.type = "button";
  if (key) made.append(keyHint(key));
  made.addEventListener("click", onClick);
  return made;
}

// A button for something that has a key: which one is filled in by `showHints`, since people change their keys.
export function actionButton(label, kind, onClick, action) {
  const made = button(label, kind, onClick);
  made.append(keyHint(""));
  made.lastChild.dataset.action = action;
  return made;
}

export function showHints(root, hint) {
  for (const each of root.querySelectorAll("kbd[data-action]")) each.textContent = hint(each.dataset.action);
}

export function keyHint(key) {
  const hint = make("kbd", "", [], key);
  hint.setAttribute("aria-hidden", "true");
  return hint;
}

export function named(element, role, label) {
  if (role) element.setAttribute("role", role);
  element.setAttribute("aria-label", label);
  return element;
}

// A row of buttons of which one can be chosen: `choices` are [label, value, key?, what it means?].
export function radios(label, kind, choices, onChoose) {
  const group = named(make("div", "radios"), "radiogroup", label);
  for (const [text, value, key, meaning] of choices) {
    const radio = button(text, kind, (event) => onChoose(value, event), key);
    if (meaning) radio.firstChild.after(" ", make("span", "meaning", [], meaning));
    radio.setAttribute("role", "radio");
    radio.dataset.value = String(value);
    group.append(radio);
  }
  return group;
}

// Check the one with this value; one of them can be reached with Tab where `isReachable`.
export function check(group, value, isReachable = true) {
  const all = [...group.children];
  const chosen = all.findIndex((radio) => radio.dataset.value === String(value));
  all.forEach((radio, n) => {
    radio.setAttribute("aria-checked", String(n === chosen));
    radio.tabIndex = isReachable && n === Math.max(0, chosen) ? 0 : -1;
  });
}
