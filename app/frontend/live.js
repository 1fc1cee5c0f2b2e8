// Live curves of a run, and of further runs over it. The server sends only points that are new; what came before is kept
// here, and so is the zoom.
//
// A run's points are everything of it after step `after`. If that leaves a gap to what we have (a message was lost, or
// this view is new), we ask for everything again by the state `have`. Another `version` means: forget what you have of
// the run. One run has a colour for each metric; several have a colour for each run, and a dash for each metric of a
// chart.

import { elements, there } from "./ranker_dom.js";
import uPlot from "./uPlot.esm.js";

/** @import { Component } from "./ranker_types" */
/** @import { Column, Range } from "./uPlot.esm.js" */

/**
 * @typedef {{ title: string, note: string, series: { name: string, label: string }[] }} Chart
 * @typedef {{ id: string, name: string, version: string, after: number, points: Record<string, [number[], (number | null)[]]> }} RunData
 * @typedef {{ charts: Chart[], runs: RunData[] }} Curves what the server sends
 * @typedef {{ x: number[], y: (number | null)[] }} Curve
 * @typedef {{ id: string, name: string, version: string, last: number, curves: Map<string, Curve> }} ShownRun
 * @typedef {{ name: string, label: string, run: ShownRun, at: number, dash: number[] }} Series a line of a chart
 * @typedef {object} ChartCard
 * @property {HTMLElement} box
 * @property {HTMLElement} body
 * @property {HTMLElement} step
 * @property {HTMLElement} legend
 * @property {(name: string, other: string) => string} css a variable of the theme
 * @property {Series[]} series
 * @property {Column[]} data
 * @property {boolean} hasRuns
 * @property {string} made what the plot was made for
 * @property {uPlot | null} plot
 */

const HEIGHT = 180;
const ON_LIGHT = ["#3b5bdb", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#a61e4d"];
const ON_DARK = ["#91a7ff", "#ffa94d", "#69db7c", "#e599f7", "#66d9e8", "#faa2c1"];
// Of runs. Told apart by everybody, whatever colours they see: tests/unit/test_run_colours.py has the least distance.
const RUNS_ON_LIGHT = ["#332288", "#d55e00", "#009e73", "#a05195", "#000000"];
const RUNS_ON_DARK = ["#99ddff", "#d55e00", "#f0e442", "#009e73", "#a95aa1"];
const DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3]];
/** @type {WeakMap<HTMLElement, View>} */
const views = new WeakMap();
let isSmooth = false; // one choice for all runs, as long as the page is open

/** @param {Component<Curves>} component */
export default function (component) {
  const root = component.parentElement;
  const view = views.get(root) ?? new View(root);
  views.set(root, view);
  view.update(component);
  return () => {
    views.get(root)?.destroy();
    views.delete(root);
  };
}

class View {
  /** @type {Map<string, ChartCard>} */
  cards;
  /** @type {Map<string, ShownRun>} */
  runs;
  /** @type {Chart[]} */
  charts;
  /** @type {Range | null} */
  range;
  /** @type {boolean} */
  hasAsked;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.cards = new Map();
    this.sync = uPlot.sync(`curves-${Math.random()}`);
    this.runs = new Map(); // id -> {id, name, version, last, curves: name -> {x, y}}
    const bar = there(elements(root, ".bar")[0]);
    this.grid = there(elements(root, ".grid")[0]);
    this.smoothButton = button(bar, "Smooth", () => this.setSmooth(!isSmooth));
    this.resetButton = button(bar, "Reset zoom", () => this.zoom(null));
    bar.append(element("span", "hint", "Drag over a chart to zoom all of them; double-click to see everything again."));
    this.resizer = new ResizeObserver(() => {
      for (const card of this.cards.values()) fit(card);
    });
    this.resizer.observe(this.grid);
    // The theme is a set of CSS variables on an element around us: when they change, everything is drawn again.
    this.themer = new MutationObserver(() => {
      for (const { plot } of this.cards.values()) plot?.redraw();
    });
    /** @type {Element | null} */
    let at = root instanceof ShadowRoot ? root.host : root;
    for (; at; at = at.parentElement)
      this.themer.observe(at, { attributes: true, attributeFilter: ["style", "class"] });
    this.setSmooth(isSmooth);
    this.zoom(null);
  }

  /** @param {Component<Curves>} given */
  update({ data, setStateValue }) {
    const known = this.runs;
    if (data.runs[0].version !== known.get(data.runs[0].id)?.version) this.range = null;
    const runs = data.runs.map((run) => {
      const shown = known.get(run.id);
      return shown?.version === run.version ? shown : newRun(run);
    });
    this.runs = new Map(runs.map((run) => [run.id, run]));
    if (data.runs.some(({ after }, at) => after > runs[at].last)) {
      if (!this.hasAsked)
        setStateValue("have", { steps: [...this.runs.values()].map(({ last }) => last), at: Date.now() });
      this.hasAsked = true;
      return;
    }
    this.hasAsked = false;
    data.runs.forEach((run, at) => {
      merge(runs[at], run);
    });
    const lasts = [...this.runs.values()].map(({ last }) => last);
    Object.assign(this.grid.dataset, { last: lasts[0], lasts: lasts.join(" ") });
    this.charts = data.charts;
    this.draw();
  }

  draw() {
    const drawn = new Set();
    for (const chart of this.charts ?? []) {
      const series = seriesOf(chart, [...this.runs.values()]);
      if (!series.length) continue;
      drawn.add(chart.title);
      const card = this.cards.get(chart.title) ?? newCard(this.grid, chart);
      this.cards.set(chart.title, card);
      const columns = align(series.map(({ run, name }) => there(run.curves.get(name))));
      card.data = [columns[0], ...columns.slice(1).flatMap((y) => (isSmooth ? [y, smoothed(y)] : [y]))];
      const made = `${isSmooth} ${this.runs.size} ${series.map(({ run, name }) => [run.id, name])}`;
      card.series = series;
      card.hasRuns = this.runs.size > 1;
      if (card.plot && card.made === made) {
        card.plot.setData(card.data, !this.range);
      } else {
        card.made = made;
        card.plot?.destroy();
        card.plot = newPlot(card, this);
      }
      if (this.range) card.plot.setScale("x", this.range);
      legend(card, card.plot.cursor.idx);
      card.body.setAttribute(
        "aria-label",
        `${chart.title}, ${card.step.textContent}: ${card.legend.innerText.replaceAll("\n", " ")}`,
      );
    }
    for (const [title, card] of this.cards) if (!drawn.has(title)) this.drop(title, card);
  }

  /**
   * @param {string} title
   * @param {ChartCard} card
   */
  drop(title, card) {
    card.plot?.destroy();
    card.box.remove();
    this.cards.delete(title);
  }

  /** @param {Range | null} range */
  zoom(range) {
    this.range = range;
    this.resetButton.hidden = !range;
    for (const { plot, data } of this.cards.values()) {
      if (range) plot?.setScale("x", range);
      else plot?.setData(data, true);
    }
  }

  /**
   * Which steps are shown, for whoever looks at the page from outside.
   * @param {Range} given
   */
  note({ min, max }) {
    this.grid.dataset.shown = `${min} ${max}`;
  }

  /** @param {boolean} value */
  setSmooth(value) {
    isSmooth = value;
    this.smoothButton.setAttribute("aria-pressed", String(value));
    this.draw();
  }

  destroy() {
    this.resizer.disconnect();
    this.themer.disconnect();
    for (const { plot } of this.cards.values()) plot?.destroy();
  }
}

/** @param {RunData} given */
function newRun({ id, name, version }) {
  return { id, name, version, last: -1, curves: new Map() };
}

/**
 * @param {ShownRun} run
 * @param {RunData} given
 */
function merge(run, { after, points }) {
  for (const name of new Set([...run.curves.keys(), ...Object.keys(points)])) {
    const old = run.curves.get(name) ?? { x: [], y: [] };
    const [x, y] = points[name] ?? [[], []];
    let keep = old.x.length;
    while (keep && old.x[keep - 1] > after) keep--;
    run.curves.set(name, { x: old.x.slice(0, keep).concat(x), y: old.y.slice(0, keep).concat(y) });
    run.last = Math.max(run.last, x.at(-1) ?? -1);
  }
}

/**
 * The lines of a chart: each metric of each run that has it.
 * @param {Chart} chart
 * @param {ShownRun[]} runs
 */
function seriesOf(chart, runs) {
  const lines = runs.flatMap((run, at) =>
    chart.series.map((one, metric) => ({ ...one, run, at, dash: DASHES[metric % DASHES.length] })),
  );
  const found = lines.filter(({ run, name }) => run.curves.get(name)?.x.length);
  return runs.length > 1 ? found : found.map((line, at) => ({ ...line, at, dash: [] }));
}

/**
 * @param {HTMLElement} grid
 * @param {Chart} chart
 */
function newCard(grid, chart) {
  const box = element("section", "card");
  const body = element("div", "plot");
  body.setAttribute("role", "img");
  const css = (/** @type {string} */ name, /** @type {string} */ other) =>
    getComputedStyle(body).getPropertyValue(name).trim() || other;
  const empty = { series: [], data: [], hasRuns: false, made: "", plot: null };
  /** @type {ChartCard} */
  const card = { box, body, css, step: element("span", "step"), legend: element("div", "legend"), ...empty };
  const head = element("h2", "", chart.title);
  head.append(card.step);
  box.append(head, element("p", "note", chart.note), body, card.legend);
  grid.append(box);
  return card;
}

/**
 * @param {ChartCard} card
 * @param {View} view
 */
function newPlot(card, view) {
  const { css } = card;
  const axis = {
    stroke: () => css("--st-text-color", "#555"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: () => css("--st-border-color-light", "#8883"), width: 1 },
    ticks: { show: false },
  };
  const lines = card.series.flatMap(({ at, dash }) => {
    const full = { stroke: () => colour(card, at), width: 1.5, dash, points: { size: 5 } };
    const faint = { stroke: () => colour(card, at), alpha: 0.25, width: 1, points: { show: false } };
    return /** @type {object[]} */ (isSmooth ? [faint, { ...full, points: { show: false } }] : [full]);
  });
  const whole = (/** @type {unknown} */ _, /** @type {number[]} */ ticks) =>
    ticks.map((tick) => (Number.isInteger(tick) ? tick : ""));
  const shortened = (/** @type {unknown} */ _, /** @type {number[]} */ ticks) => ticks.map(short);
  const options = {
    width: card.body.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    series: [{}, ...lines],
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 26, values: whole },
      { ...axis, size: 52, values: shortened },
    ],
    cursor: {
      y: false,
      sync: { key: view.sync.key, setSeries: false },
      drag: { setScale: false, x: true, y: false },
      bind: { dblclick: () => () => view.zoom(null) },
    },
    hooks: {
      setScale: [(/** @type {uPlot} */ plot, /** @type {string} */ name) => name === "x" && view.note(plot.scales.x)],
      setCursor: [(/** @type {uPlot} */ plot) => legend(card, plot.cursor.idx)],
      setSelect: [
        (/** @type {uPlot} */ plot) => {
          const { left, width } = plot.select;
          if (width < 4) return;
          const [min, max] = [left, left + width].map((at) => plot.posToVal(at, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          view.zoom({ min, max });
        },
      ],
    },
  };
  return new uPlot(options, card.data, card.body);
}

/**
 * The values under the cursor, or the last ones of each run.
 * @param {ChartCard} card
 * @param {number | null | undefined} place
 */
function legend(card, place) {
  const [x] = card.data;
  const at = place ?? x.length - 1;
  const parts = new Map();
  card.series.forEach((line, number) => {
    if (!parts.has(line.run)) parts.set(line.run, card.hasRuns ? [element("em", "", line.run.name)] : []);
    const part = element("span");
    part.append(
      sample(colour(card, line.at), line.dash),
      `${line.label} `,
      element("b", "", valueAt(card, number, at, place)),
    );
    parts.get(line.run)?.push(part);
  });
  card.legend.replaceChildren(...[...parts.values()].map((each) => row(each)));
  const isOneEnd = new Set([...parts.keys()].map(({ last }) => last)).size === 1;
  card.step.textContent = place == null && !isOneEnd ? "last steps" : `step ${x[at]}`;
}

/**
 * What the line has at a place or last had before it. Under the cursor, a run that ended before has nothing.
 * @param {ChartCard} card
 * @param {number} number
 * @param {number} at
 * @param {number | null | undefined} place
 */
function valueAt(card, number, at, place) {
  const y = card.data[(number + 1) * (isSmooth ? 2 : 1)];
  if (place != null && card.hasRuns && Number(card.data[0][at]) > card.series[number].run.last) return "-";
  let found = at;
  while (found >= 0 && y[found] === undefined) found--;
  return found < 0 ? "-" : short(y[found]);
}

/** @param {Node[]} parts */
function row(parts) {
  const made = element("div");
  made.append(...parts);
  return made;
}

/**
 * A piece of the line, for the legend.
 * @param {string} stroke
 * @param {number[]} dash
 */
function sample(stroke, dash) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({
    d: "M0 4H20",
    stroke,
    "stroke-width": 3,
    "stroke-dasharray": dash.join(" "),
  })) {
    line.setAttribute(name, String(value));
  }
  made.setAttribute("viewBox", "0 0 20 8");
  made.append(line);
  return made;
}

/**
 * Curves that have points at different steps, on one axis: undefined where a curve has no point, null for a gap.
 * @param {Curve[]} curves
 */
function align(curves) {
  const x = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  return [x, ...curves.map((curve) => onto(x, curve))];
}

/**
 * @param {number[]} x
 * @param {Curve} curve
 */
function onto(x, curve) {
  const values = new Map(curve.x.map((step, place) => [step, curve.y[place]]));
  return x.map((step) => values.get(step));
}

/**
 * Exponential mean without the pull of its start.
 * @param {Column} values
 */
function smoothed(values) {
  const span = Math.min(50, Math.max(3, values.length / 10));
  const decay = 1 - 2 / (1 + span);
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (value == null) return value;
    sum = decay * sum + (1 - decay) * value;
    weight = decay * weight + (1 - decay);
    return sum / weight;
  });
}

/**
 * Hues that can be told apart on either ground; whether it is dark is told by the colour of the text on it.
 * @param {ChartCard} given
 * @param {number} place
 */
function colour({ css, hasRuns }, place) {
  const isDark = isLight(css("--st-text-color", "#000"));
  const colours = hasRuns ? (isDark ? RUNS_ON_DARK : RUNS_ON_LIGHT) : isDark ? ON_DARK : ON_LIGHT;
  return colours[place % colours.length];
}

/** @param {string} text */
function isLight(text) {
  const hex = text.match(/^#(..)(..)(..)/);
  const [red, green, blue] = hex
    ? hex.slice(1).map((part) => parseInt(part, 16))
    : (text.match(/[\d.]+/g) ?? []).map(Number);
  return 0.3 * red + 0.6 * green + 0.1 * blue > 128;
}

/** @param {number | null | undefined} value */
function short(value) {
  if (value === null || value === undefined) return "not finite";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

/** @param {ChartCard} given */
function fit({ plot, body }) {
  if (plot && body.clientWidth && plot.width !== body.clientWidth) {
    plot.setSize({ width: body.clientWidth, height: HEIGHT });
  }
}

/**
 * @param {HTMLElement} bar
 * @param {string} text
 * @param {() => void} onClick
 */
function button(bar, text, onClick) {
  const made = element("button", "", text);
  made.type = "button";
  made.addEventListener("click", onClick);
  bar.append(made);
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
