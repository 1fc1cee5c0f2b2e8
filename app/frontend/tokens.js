// Responses token by token, coloured by one measure, with every number under the pointer and the sums at the end.
//
// One scale for all panels, with 0 in its middle: `limit` is the value that has the full colour. A panel that names a
// measure keeps to it. Texts of models come in through textContent only.

import { elements, there } from "./ranker_dom.js";

/** @import { Component } from "./ranker_types" */

/**
 * @typedef {{ name: string, label: string, limit: number }} Measure
 * @typedef {{ title: string, measure?: string, tokens: string[], clipped: boolean[], values: Record<string, number[]>, sums: Record<string, number> }} Panel a measure without a sum is not summed
 * @typedef {{ measures: Measure[], panels: Panel[] }} Tokens what the server sends
 */
/** @type {WeakMap<HTMLElement, View>} */
const views = new WeakMap();
const chosen = { measure: "advantage", isTable: false }; // for all responses, as long as the page is open

/** @param {Component<Tokens>} component */
export default function (component) {
  const root = component.parentElement;
  const view = views.get(root) ?? new View(root);
  views.set(root, view);
  view.update(component.data);
  return () => views.delete(root);
}

class View {
  /** @type {HTMLElement} */
  bar;
  /** @type {HTMLElement} */
  panels;
  /** @type {HTMLElement} */
  facts;
  /** @type {Tokens} */
  data;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.bar = there(elements(root, ".measures")[0]);
    this.panels = there(elements(root, ".panels")[0]);
    this.facts = there(elements(root, ".facts")[0]);
    this.panels.addEventListener("pointerover", (event) => this.point(event.target));
    this.panels.addEventListener("focusin", (event) => this.point(event.target));
    this.panels.addEventListener("keydown", (event) => this.move(event));
  }

  /** @param {Tokens} data */
  update(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const { measures, panels } = this.data;
    if (!measures.some(({ name }) => name === chosen.measure)) chosen.measure = measures[0].name;
    this.bar.replaceChildren(
      ...measures.map(({ name, label }) =>
        button(label, name === chosen.measure, () => this.choose({ measure: name })),
      ),
      button("Table", chosen.isTable, () => this.choose({ isTable: !chosen.isTable })),
    );
    this.panels.replaceChildren(...panels.map((panel, place) => this.panel(panel, place)));
    this.facts.textContent = "Point at a token, or go through them with the arrow keys.";
  }

  /** @param {Partial<typeof chosen>} change */
  choose(change) {
    Object.assign(chosen, change);
    this.draw();
  }

  /**
   * @param {Panel} panel
   * @param {number} place
   */
  panel(panel, place) {
    const made = element("section", "panel");
    const name = panel.measure ?? chosen.measure;
    const measure = there(this.data.measures.find((each) => each.name === name));
    const legend = element("p", "legend");
    legend.append(
      `${measure.label}: `,
      sample(-1, `-${short(measure.limit)}`),
      sample(0, "0"),
      sample(1, short(measure.limit)),
    );
    made.append(element("h3", "", panel.title), legend);
    made.append(chosen.isTable ? this.table(panel, place) : this.inline(panel, place, measure));
    const summed = this.data.measures.filter(({ name }) => name in panel.sums);
    const sums = summed.map(({ name, label }) => `${label} ${short(panel.sums[name])}`);
    made.append(
      element(
        "p",
        "sums",
        `Sums over ${panel.tokens.length} token${panel.tokens.length === 1 ? "" : "s"}: ${sums.join(", ")}`,
      ),
    );
    return made;
  }

  /**
   * @param {Panel} panel
   * @param {number} place
   * @param {Measure} measure
   */
  inline(panel, place, measure) {
    const text = element("p", "text");
    text.append(
      ...panel.tokens.map((token, at) => {
        const made = element("span", "token", visible(token));
        made.style.background = colour(panel.values[measure.name][at] / measure.limit);
        made.classList.toggle("clipped", panel.clipped[at]);
        made.dataset.at = `${place}:${at}`;
        made.tabIndex = at ? -1 : 0;
        return made;
      }),
    );
    return text;
  }

  /**
   * @param {Panel} panel
   * @param {number} place
   */
  table(panel, place) {
    const table = element("table");
    const head = element("tr");
    head.append(element("th", "", "token"), ...this.data.measures.map(({ label }) => element("th", "", label)));
    table.append(head);
    panel.tokens.forEach((token, at) => {
      const row = element("tr");
      const first = element("td", "word", visible(token));
      first.classList.toggle("clipped", panel.clipped[at]);
      row.append(first);
      for (const { name, limit } of this.data.measures) {
        const cell = element("td", "", short(panel.values[name][at]));
        cell.style.background = colour(panel.values[name][at] / limit);
        row.append(cell);
      }
      row.dataset.at = `${place}:${at}`;
      table.append(row);
    });
    const scroll = element("div", "scroll");
    scroll.append(table);
    return scroll;
  }

  /**
   * Every number of the token that is pointed at.
   * @param {EventTarget | null} target
   */
  point(target) {
    const pointed = target instanceof Element ? target.closest("[data-at]") : null;
    const where = pointed instanceof HTMLElement ? pointed.dataset.at : undefined;
    if (!where) return;
    const [place, at] = where.split(":").map(Number);
    const panel = this.data.panels[place];
    const numbers = this.data.measures.map(({ name, label }) => `${label} ${short(panel.values[name][at])}`);
    const clipped = panel.clipped[at] ? ", clipped" : "";
    this.facts.textContent = `${at + 1}. ${JSON.stringify(panel.tokens[at])}: ${numbers.join(", ")}${clipped}`;
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const here = event.target instanceof Element ? event.target.closest(".token") : null;
    if (!step || !(here instanceof HTMLElement)) return;
    const next = step > 0 ? here.nextElementSibling : here.previousElementSibling;
    if (!(next instanceof HTMLElement)) return;
    event.preventDefault();
    here.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

/**
 * Orange below 0, blue above, nothing at 0; the same strength on either side.
 * @param {number} share
 */
function colour(share) {
  if (!Number.isFinite(share)) return "transparent";
  const strength = Math.min(1, Math.abs(share)) * 0.75;
  return share < 0 ? `rgba(217, 72, 15, ${strength})` : `rgba(59, 91, 219, ${strength})`;
}

/**
 * @param {number} share
 * @param {string} text
 */
function sample(share, text) {
  const made = element("span", "swatch", text);
  made.style.background = colour(share);
  return made;
}

/**
 * Line ends are shown and kept; an empty token is still a place to point at.
 * @param {string} token
 */
function visible(token) {
  return token === "" ? "\u00b7" : token.replaceAll("\n", "\u21b5\n").replaceAll("\t", "\u21e5\t");
}

/** @param {number | null | undefined} value */
function short(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

/**
 * @param {string} text
 * @param {boolean} isOn
 * @param {() => void} onClick
 */
function button(text, isOn, onClick) {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-pressed", String(isOn));
  made.addEventListener("click", onClick);
  return made;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [name]
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  return made;
}
