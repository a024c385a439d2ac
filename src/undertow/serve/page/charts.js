// Charts that share one x axis: panels with a line, a band and dots; strips; a heat map.

import uPlot from "./vendor/uPlot.esm.js";
import { clock, h, number } from "./dom.js";

const AXIS = 78; // pixels left of every chart, so that the same round is in the same place everywhere

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export const armColour = (arm) => colour(`--arm-${arm % 8}`);
export const modelColour = (model) => colour(`--model-${model % 6}`);

// The x axis that all charts of a page share: rounds or the clock, and what part of it is seen.
export class Shared {
  constructor(changed) {
    this.charts = new Set();
    this.byClock = false;
    this.range = null; // null for all
    this.changed = changed;
    this.sync = uPlot.sync(`undertow-${Math.random()}`);
  }

  x(history) {
    return this.byClock ? history.at : history.round;
  }

  zoom(range) {
    this.range = range;
    for (const chart of this.charts) chart.rescale();
    this.changed();
  }

  move(by, factor, history) {
    const xs = this.x(history);
    if (!xs.length) return;
    const [all0, all1] = [xs[0], xs[xs.length - 1]];
    const [low, high] = this.range ?? [all0, all1];
    const width = (high - low) * factor;
    if (factor > 1 && width >= all1 - all0) return this.zoom(null);
    const middle = (low + high) / 2 + by * (high - low);
    const from = Math.max(all0, Math.min(middle - width / 2, all1 - width));
    this.zoom([from, from + width]);
  }

  destroy() {
    for (const chart of [...this.charts]) chart.destroy();
  }
}

class Chart {
  constructor(shared, place, height) {
    Object.assign(this, { shared, place, height, plot: null });
    shared.charts.add(this);
    this.watch = new ResizeObserver(() => {
      const width = place.clientWidth;
      if (this.plot && width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height });
    });
    this.watch.observe(place);
  }

  build(options, data) {
    const grid = { stroke: colour("--grid"), width: 1 };
    const font = `12px ${colour("--font") || "sans-serif"}`;
    const axis = { stroke: colour("--faint"), grid, ticks: grid, font };
    const shared = this.shared;
    this.plot?.destroy();
    this.plot = new uPlot(
      {
        width: this.place.clientWidth || 300,
        height: this.height,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: {
          sync: { key: shared.sync.key, setSeries: false },
          drag: { x: true, y: false, setScale: false },
          points: { size: 6 },
        },
        ...options,
        scales: { x: { time: shared.byClock, range: (u, low, high) => shared.range ?? [low, high] }, ...options.scales },
        axes: [
          { ...axis, size: 28, space: 70, ...(shared.byClock ? {} : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5] }), ...options.xAxis },
          { ...axis, size: AXIS, ...options.yAxis },
        ],
        hooks: {
          ...options.hooks,
          setSelect: [
            (u) => {
              if (u.select.width < 5) return;
              const low = u.posToVal(u.select.left, "x");
              const high = u.posToVal(u.select.left + u.select.width, "x");
              u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              shared.zoom([low, high]);
            },
          ],
        },
      },
      data,
      this.place,
    );
    this.plot.over.addEventListener("dblclick", () => shared.zoom(null));
  }

  rescale() {
    if (!this.plot) return;
    const xs = this.plot.data[0];
    const [min, max] = this.shared.range ?? [xs[0] ?? 0, xs[xs.length - 1] ?? 1];
    this.plot.setScale("x", { min, max });
  }

  destroy() {
    this.watch.disconnect();
    this.plot?.destroy();
    this.shared.charts.delete(this);
    this.place.replaceChildren();
  }
}

// One arm: its forecast with a band, and its own rewards as dots.
export class Panel extends Chart {
  constructor(shared, place, arm, open) {
    super(shared, place, 150);
    this.arm = arm;
    this.open = open;
  }

  draw(history, range) {
    const { arm } = this;
    this.history = history;
    const middle = history.forecast[arm];
    const half = history.band[arm];
    const low = middle.map((value, i) => (value == null || half[i] == null ? null : value - half[i]));
    const high = middle.map((value, i) => (value == null || half[i] == null ? null : value + half[i]));
    const own = history.reward.map((value, i) => (history.arm[i] === arm ? value : null));
    const stroke = armColour(arm);
    const none = { show: false };
    this.build(
      {
        series: [
          {},
          { stroke: "transparent", points: none },
          { stroke: "transparent", points: none },
          { stroke, width: 2, points: none },
          { stroke: colour("--dot"), paths: () => null, points: { show: true, size: 3.5, width: 0, fill: colour("--dot") } },
        ],
        bands: [{ series: [2, 1], fill: `color-mix(in srgb, ${stroke} 22%, transparent)` }],
        scales: { y: { range } },
        yAxis: { space: 28, values: (u, values) => values.map((value) => number(value)) },
      },
      [this.shared.x(history), low, high, middle, own],
    );
    this.plot.over.addEventListener("click", () => {
      const i = this.plot.cursor.idx;
      if (i != null) this.open(history.id[i]);
    });
  }
}

// One range for all panels: where 99 of 100 forecasts and rewards are, so that a band that begins wide hides nothing.
export function rangeOf(history, arms) {
  const values = [...history.reward, ...arms.flatMap((arm) => history.forecast[arm])].filter((value) => value != null);
  values.sort((a, b) => a - b);
  return spread(values[Math.floor(values.length * 0.005)], values[Math.ceil(values.length * 0.995) - 1]);
}

function spread(min, max) {
  if (min == null || max == null) return [0, 1];
  const room = (max - min) * 0.08 || Math.abs(max) * 0.1 || 0.5;
  return [min - room, max + room];
}

// Lines of one value each, such as mean rewards.
export class Lines extends Chart {
  draw(history, lines) {
    const none = { show: false };
    const values = lines.flatMap((line) => line.values).filter((value) => value != null).sort((a, b) => a - b);
    const range = spread(values[Math.floor(values.length * 0.02)], values[Math.ceil(values.length * 0.98) - 1]);
    this.build(
      {
        series: [{}, ...lines.map(({ stroke, dash }) => ({ stroke, dash, width: 2, points: none, spanGaps: true }))],
        scales: { y: { range } }, // first estimates come from few draws, and may be anywhere
        yAxis: { space: 32, values: (u, values) => values.map((value) => number(value)) },
      },
      [this.shared.x(history), ...lines.map(({ values }) => values)],
    );
  }
}

// Coloured cells, a row for each of `rows`: which arm was chosen, which model decided, fits, or all forecasts at once.
export class Cells extends Chart {
  constructor(shared, place, rows, least = 1) {
    super(shared, place, Math.max(rows * 20, 24) + 36);
    this.rows = rows;
    this.least = least; // pixels of the narrowest cell
  }

  draw(history, labels, fillOf) {
    const xs = this.shared.x(history);
    const step = (i) => (i + 1 < xs.length ? xs[i + 1] : xs[i] + (xs[i] - (xs[i - 1] ?? xs[i] - 1) || 1));
    const cells = (u) => {
      const { ctx, bbox } = u;
      const height = bbox.height / this.rows;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (let row = 0; row < this.rows; row++) {
        const top = Math.round(bbox.top + row * height);
        const tall = Math.round(bbox.top + (row + 1) * height) - top - (this.rows > 1 ? 1 : 0);
        let i = 0;
        while (i < xs.length) {
          const shade = fillOf(row, i);
          let end = i + 1;
          while (end < xs.length && fillOf(row, end) === shade) end++;
          if (shade) {
            const left = u.valToPos(xs[i], "x", true);
            ctx.fillStyle = shade;
            ctx.fillRect(left, top, Math.max(u.valToPos(step(end - 1), "x", true) - left, this.least), tall);
          }
          i = end;
        }
      }
      ctx.restore();
    };
    this.build(
      {
        series: [{}, { stroke: "transparent", points: { show: false } }],
        scales: { y: { range: [0, this.rows] } },
        xAxis: { grid: { show: false } },
        yAxis: {
          grid: { show: false },
          ticks: { show: false },
          splits: () => labels.map((_, row) => this.rows - row - 0.5),
          values: () => labels.map((label) => (label.length > 9 ? `${label.slice(0, 8)}…` : label)),
        },
        cursor: { show: true, sync: { key: this.shared.sync.key, setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { show: false } },
        hooks: { drawClear: [cells] },
      },
      [xs, xs.map(() => 0)],
    );
  }
}

// Shades from low to high, in steps, so that neighbours that look alike are one cell.
export function shades(values) {
  const known = values.flat().filter((value) => value != null);
  if (!known.length) return () => null;
  known.sort((a, b) => a - b);
  const [low, high] = [known[Math.floor(known.length * 0.02)], known[Math.floor(known.length * 0.98)]];
  const [from, to] = [colour("--heat-0"), colour("--heat-1")];
  return (value) => {
    if (value == null) return null;
    const share = high > low ? Math.min(Math.max((value - low) / (high - low), 0), 1) : 0.5;
    return `color-mix(in oklab, ${to} ${Math.round(share * 20) * 5}%, ${from})`;
  };
}

// The rows behind a chart, the titles of their columns first, for those who read better than they see.
export function table(caption, rows) {
  const shown = () => {
    const [titles, ...body] = rows();
    return h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, body.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))));
  };
  const inside = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption });
  const details = h("details", { class: "behind", ontoggle: () => details.open && inside.replaceChildren(shown()) },
    h("summary", {}, "Table"), inside);
  return details;
}

export function when(shared, history, i) {
  return shared.byClock ? clock(history.at[i]) : number(history.round[i]);
}
