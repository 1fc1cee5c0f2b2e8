// Live curves of a run, and of further runs over it. The server sends only points that are new; what came before is kept
// here, and so is the zoom.
//
// data: {charts: [{title, note, series: [{name, label}]}], runs: [{id, name, version, after, points}]}
// points: {name: [[step...], [value|null...]]}, everything of the run after step `after`. If that leaves a gap to what we
// have (a message was lost, or this view is new), we ask for everything again by the state `have`. Another `version`
// means: forget what you have of the run. One run has a colour for each metric; several have a colour for each run, and
// a dash for each metric of a chart.
import uPlot from "./uPlot.esm.js";

const HEIGHT = 180;
const ON_LIGHT = ["#3b5bdb", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#a61e4d"];
const ON_DARK = ["#91a7ff", "#ffa94d", "#69db7c", "#e599f7", "#66d9e8", "#faa2c1"];
// Of runs. Told apart by everybody, whatever colours they see: tests/unit/test_run_colours.py has the least distance.
const RUNS_ON_LIGHT = ["#332288", "#d55e00", "#009e73", "#a05195", "#000000"];
const RUNS_ON_DARK = ["#99ddff", "#d55e00", "#f0e442", "#009e73", "#a95aa1"];
const DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3]];
const views = new WeakMap();
let isSmooth = false; // one choice for all runs, as long as the page is open

export default function (component) {
  const root = component.parentElement;
  if (!views.has(root)) views.set(root, new View(root));
  views.get(root).update(component);
  return () => {
    views.get(root)?.destroy();
    views.delete(root);
  };
}

class View {
  constructor(root) {
    this.root = root;
    this.cards = new Map();
    this.sync = uPlot.sync(`curves-${Math.random()}`);
    this.runs = new Map(); // id -> {id, name, version, last, curves: name -> {x, y}}
    const bar = root.querySelector(".bar");
    this.smoothButton = button(bar, "Smooth", () => this.setSmooth(!isSmooth));
    this.resetButton = button(bar, "Reset zoom", () => this.zoom(null));
    bar.append(element("span", "hint", "Drag over a chart to zoom all of them; double-click to see everything again."));
    this.resizer = new ResizeObserver(() => this.cards.forEach((card) => fit(card)));
    this.resizer.observe(root.querySelector(".grid"));
    // The theme is a set of CSS variables on an element around us: when they change, everything is drawn again.
    this.themer = new MutationObserver(() => this.cards.forEach((card) => card.plot?.redraw()));
    for (let at = root.host ?? root; at; at = at.parentElement) {
      this.themer.observe(at, { attributes: true, attributeFilter: ["style", "class"] });
    }
    this.setSmooth(isSmooth);
    this.zoom(null);
  }

  update({ data, setStateValue }) {
    const known = this.runs;
    if (data.runs[0].version !== known.get(data.runs[0].id)?.version) this.range = null;
    this.runs = new Map(data.runs.map((run) => [run.id, known.get(run.id)?.version === run.version ? known.get(run.id) : newRun(run)]));
    if (data.runs.some(({ id, after }) => after > this.runs.get(id).last)) {
      if (!this.hasAsked) setStateValue("have", { steps: [...this.runs.values()].map(({ last }) => last), at: Date.now() });
      this.hasAsked = true;
      return;
    }
    this.hasAsked = false;
    data.runs.forEach((run) => merge(this.runs.get(run.id), run));
    const lasts = [...this.runs.values()].map(({ last }) => last);
    Object.assign(this.root.querySelector(".grid").dataset, { last: lasts[0], lasts: lasts.join(" ") });
    this.charts = data.charts;
    this.draw();
  }

  draw() {
    const grid = this.root.querySelector(".grid");
    const drawn = new Set();
    for (const chart of this.charts ?? []) {
      const series = seriesOf(chart, [...this.runs.values()]);
      if (!series.length) continue;
      drawn.add(chart.title);
      if (!this.cards.has(chart.title)) this.cards.set(chart.title, newCard(grid, chart));
      const card = this.cards.get(chart.title);
      const columns = align(series.map(({ run, name }) => run.curves.get(name)));
      card.data = [columns[0], ...columns.slice(1).flatMap((y) => (isSmooth ? [y, smoothed(y)] : [y]))];
      const made = `${isSmooth} ${this.runs.size} ${series.map(({ run, name }) => [run.id, name])}`;
      card.series = series;
      card.hasRuns = this.runs.size > 1;
      if (card.made === made) {
        card.plot.setData(card.data, !this.range);
      } else {
        card.made = made;
        card.plot?.destroy();
        card.plot = newPlot(card, this);
      }
      if (this.range) card.plot.setScale("x", this.range);
      legend(card, card.plot.cursor.idx);
      card.body.setAttribute("aria-label", `${chart.title}, ${card.step.textContent}: ${card.legend.innerText.replaceAll("\n", " ")}`);
    }
    for (const [title, card] of this.cards) if (!drawn.has(title)) this.drop(title, card);
  }

  drop(title, card) {
    card.plot.destroy();
    card.box.remove();
    this.cards.delete(title);
  }

  zoom(range) {
    this.range = range;
    this.resetButton.hidden = !range;
    for (const { plot, data } of this.cards.values()) {
      if (range) plot.setScale("x", range);
      else plot.setData(data, true);
    }
  }

  // Which steps are shown, for whoever looks at the page from outside.
  note({ min, max }) {
    this.root.querySelector(".grid").dataset.shown = `${min} ${max}`;
  }

  setSmooth(value) {
    isSmooth = value;
    this.smoothButton.setAttribute("aria-pressed", value);
    this.draw();
  }

  destroy() {
    this.resizer.disconnect();
    this.themer.disconnect();
    this.cards.forEach(({ plot }) => plot?.destroy());
  }
}

function newRun({ id, name, version }) {
  return { id, name, version, last: -1, curves: new Map() };
}

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

// The lines of a chart: each metric of each run that has it.
function seriesOf(chart, runs) {
  const lines = runs.flatMap((run, at) => chart.series.map((one, metric) => ({ ...one, run, at, dash: DASHES[metric % DASHES.length] })));
  const found = lines.filter(({ run, name }) => run.curves.get(name)?.x.length);
  return runs.length > 1 ? found : found.map((line, at) => ({ ...line, at, dash: [] }));
}

function newCard(grid, chart) {
  const box = element("section", "card");
  const body = element("div", "plot");
  body.setAttribute("role", "img");
  const css = (name, other) => getComputedStyle(body).getPropertyValue(name).trim() || other;
  const card = { box, body, css, step: element("span", "step"), legend: element("div", "legend") };
  const head = element("h2", "", chart.title);
  head.append(card.step);
  box.append(head, element("p", "note", chart.note), body, card.legend);
  grid.append(box);
  return card;
}

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
    return isSmooth ? [faint, { ...full, points: { show: false } }] : [full];
  });
  const options = {
    width: card.body.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    series: [{}, ...lines],
    scales: { x: { time: false } },
    axes: [
      { ...axis, size: 26, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? tick : "")) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(short) },
    ],
    cursor: {
      y: false,
      sync: { key: view.sync.key, setSeries: false },
      drag: { setScale: false, x: true, y: false },
      bind: { dblclick: () => () => view.zoom(null) },
    },
    hooks: {
      setScale: [(plot, name) => name === "x" && view.note(plot.scales.x)],
      setCursor: [(plot) => legend(card, plot.cursor.idx)],
      setSelect: [
        (plot) => {
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

// The values under the cursor, or the last ones of each run.
function legend(card, place) {
  const [x] = card.data;
  const at = place ?? x.length - 1;
  const parts = new Map();
  card.series.forEach((line, number) => {
    if (!parts.has(line.run)) parts.set(line.run, card.hasRuns ? [element("em", "", line.run.name)] : []);
    const part = element("span");
    part.append(sample(colour(card, line.at), line.dash), `${line.label} `, element("b", "", valueAt(card, number, at, place)));
    parts.get(line.run).push(part);
  });
  card.legend.replaceChildren(...[...parts.values()].map((each) => row(each)));
  const isOneEnd = new Set([...parts.keys()].map(({ last }) => last)).size === 1;
  card.step.textContent = place == null && !isOneEnd ? "last steps" : `step ${x[at]}`;
}

// What the line has at a place or last had before it. Under the cursor, a run that ended before has nothing.
function valueAt(card, number, at, place) {
  const y = card.data[(number + 1) * (isSmooth ? 2 : 1)];
  if (place != null && card.hasRuns && card.data[0][at] > card.series[number].run.last) return "-";
  let found = at;
  while (found >= 0 && y[found] === undefined) found--;
  return found < 0 ? "-" : short(y[found]);
}

function row(parts) {
  const made = element("div");
  made.append(...parts);
  return made;
}

// A piece of the line, for the legend.
function sample(stroke, dash) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ d: "M0 4H20", stroke, "stroke-width": 3, "stroke-dasharray": dash.join(" ") })) {
    line.setAttribute(name, value);
  }
  made.setAttribute("viewBox", "0 0 20 8");
  made.append(line);
  return made;
}

// Curves that have points at different steps, on one axis: undefined where a curve has no point, null for a gap.
function align(curves) {
  const x = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  return [x, ...curves.map((curve) => onto(x, curve))];
}

function onto(x, curve) {
  const values = new Map(curve.x.map((step, place) => [step, curve.y[place]]));
  return x.map((step) => values.get(step));
}

// Exponential mean without the pull of its start.
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

// Hues that can be told apart on either ground; whether it is dark is told by the colour of the text on it.
function colour({ css, hasRuns }, place) {
  const isDark = isLight(css("--st-text-color", "#000"));
  const colours = hasRuns ? (isDark ? RUNS_ON_DARK : RUNS_ON_LIGHT) : isDark ? ON_DARK : ON_LIGHT;
  return colours[place % colours.length];
}

function isLight(text) {
  const hex = text.match(/^#(..)(..)(..)/);
  const [red, green, blue] = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : (text.match(/[\d.]+/g) ?? []).map(Number);
  return 0.3 * red + 0.6 * green + 0.1 * blue > 128;
}

function short(value) {
  if (value === null || value === undefined) return "not finite";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

function fit({ plot, body }) {
  if (plot && body.clientWidth && plot.width !== body.clientWidth) {
    plot.setSize({ width: body.clientWidth, height: HEIGHT });
  }
}

function button(bar, text, onClick) {
  const made = element("button", "", text);
  made.type = "button";
  made.addEventListener("click", onClick);
  bar.append(made);
  return made;
}

function element(tag, name = "", text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  return made;
}
