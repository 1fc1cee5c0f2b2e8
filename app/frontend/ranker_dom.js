// Making elements. Texts of people and models only ever go in as textContent.

/**
 * @template V
 * @typedef {[label: string, value: V, key?: string, meaning?: string]} Choice
 */

/**
 * What has to be there.
 * @template T
 * @param {T | null | undefined} value
 * @returns {T}
 */
export function there(value) {
  if (value === null || value === undefined) throw new Error("something that has to be there is not");
  return value;
}

/**
 * All elements in a root that a selector names.
 * @param {ParentNode} root
 * @param {string} selector
 */
export const elements = (root, selector) => /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [className]
 * @param {(Node | string)[]} [children]
 * @param {string} [content]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, className = "", children = [], content = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (content) element.textContent = content;
  element.append(...children);
  return element;
}

/**
 * @param {string} label
 * @param {string} kind
 * @param {(event: MouseEvent) => void} onClick
 * @param {string} [key]
 */
export function button(label, kind, onClick, key = "") {
  const made = make("button", kind, [], label);
  made.type = "button";
  if (key) made.append(keyHint(key));
  made.addEventListener("click", onClick);
  return made;
}

/**
 * A button for something that has a key: which one is filled in by `showHints`, since people change their keys.
 * @param {string} label
 * @param {string} kind
 * @param {(event: MouseEvent) => void} onClick
 * @param {string} action
 */
export function actionButton(label, kind, onClick, action) {
  const made = button(label, kind, onClick);
  made.append(keyHint(""));
  there(made.querySelector("kbd")).dataset.action = action;
  return made;
}

/**
 * @param {ParentNode} root
 * @param {(action: string) => string} hint
 */
export function showHints(root, hint) {
  for (const each of elements(root, "kbd[data-action]")) each.textContent = hint(each.dataset.action ?? "");
}

/** @param {string} key */
export function keyHint(key) {
  const hint = make("kbd", "", [], key);
  hint.setAttribute("aria-hidden", "true");
  return hint;
}

/**
 * @template {HTMLElement} T
 * @param {T} element
 * @param {string} role
 * @param {string} label
 */
export function named(element, role, label) {
  if (role) element.setAttribute("role", role);
  element.setAttribute("aria-label", label);
  return element;
}

/**
 * A row of buttons of which one can be chosen: `choices` are [label, value, key?, what it means?].
 * @template V
 * @param {string} label
 * @param {string} kind
 * @param {Choice<V>[]} choices
 * @param {(value: V, event: MouseEvent) => void} onChoose
 */
export function radios(label, kind, choices, onChoose) {
  const group = named(make("div", "radios"), "radiogroup", label);
  for (const [text, value, key, meaning] of choices) {
    const radio = button(text, kind, (event) => onChoose(value, event), key);
    if (meaning) there(radio.firstChild).after(" ", make("span", "meaning", [], meaning));
    radio.setAttribute("role", "radio");
    radio.dataset.value = String(value);
    group.append(radio);
  }
  return group;
}

/**
 * Check the one with this value; one of them can be reached with Tab where `isReachable`.
 * @param {HTMLElement} group
 * @param {unknown} value
 * @param {boolean} [isReachable]
 */
export function check(group, value, isReachable = true) {
  const all = elements(group, ":scope > *");
  const chosen = all.findIndex((radio) => radio.dataset.value === String(value));
  all.forEach((radio, n) => {
    radio.setAttribute("aria-checked", String(n === chosen));
    radio.tabIndex = isReachable && n === Math.max(0, chosen) ? 0 : -1;
  });
}
