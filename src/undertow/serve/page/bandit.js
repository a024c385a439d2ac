// One bandit: what it believes about each arm, who decides, what it earned, and what can be done.

import { call, download, listen, place } from "./api.js";
import { Cells, Lines, Panel, Shared, armColour, colour, modelColour, rangeOf, shades, table, when } from "./charts.js";
import { ago, ask, clock, fill, h, notice, number, pill, span } from "./dom.js";

const LEAST = 1000; // milliseconds between two looks at the past
const MANY = 8; // arms above which a heat map shows all, and panels the chosen ones
const TABLE = 100; // rows of a table
const MOMENTS = 12; // that the table of a heat map shows
const WINDOWS = [["Last 500 rounds", 500], ["Last 2,000 rounds", 2000], ["Everything", 1e6]];

export async function showBandit(main, name, decision, signal) {
  const [first, access] = await Promise.all([call(place(name), { signal }), call("v1/access", { signal })]);
  const view = new View(main, name, access.role === "admin", signal);
  await view.start(first, decision);
}

class View {
  constructor(main, name, admin, signal) {
    Object.assign(this, { main, name, admin, signal });
    this.window = WINDOWS[0][1]; // rounds
    this.paused = false;
    this.selected = null; // arms with a panel, if there are many
    this.position = 0; // number of the last event that was heard of
    this.heard = 0;
    this.shared = new Shared(() => this.toldZoom());
    this.panels = new Map();
  }

  async start(state, decision) {
    this.state = state;
    this.layout();
    this.position = state.events;
    this.drawState();
    await this.look();
    if (decision !== undefined) this.why(decision);
    this.main.addEventListener("why", ({ detail }) => this.why(detail), { signal: this.signal });
    document.addEventListener("keydown", (event) => this.key(event), { signal: this.signal });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.drawPast(), { signal: this.signal });
    const ticking = setInterval(() => this.drawTimes(), 1000);
    this.signal.addEventListener("abort", () => {
      clearInterval(ticking);
      this.shared.destroy();
    });
    listen(this.name, this.position, (events) => this.hear(events), (up) => this.linked(up), this.signal);
  }

  // Layout: made once, filled again and again

  layout() {
    const section = (title, ...children) =>
      h("section", { "aria-label": title }, h("h2", {}, title), ...children);
    const part = (className) => h("div", { class: className });
    const scroll = (title) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: table` });
    this.parts = {
      head: part("head"),
      alerts: part("alerts"),
      tiles: part("tiles"),
      controls: part("controls"),
      why: part("why"),
      heat: part("chart"),
      heatTable: part(""),
      choose: part("choose"),
      panels: part("panels"),
      panelTable: part(""),
      chosen: part("chart"),
      chosenKey: part("key"),
      chosenTable: part(""),
      deciding: part("chart"),
      decidingKey: part("key"),
      decidingTable: part(""),
      earned: part("chart"),
      earnedKey: part("key"),
      earnedTable: part(""),
      arms: scroll("Arms"),
      hold: part("hold"),
      fitted: part("chart"),
      fittedKey: part("key"),
      fits: scroll("Fits"),
      marks: scroll("What happened"),
      id: null,
    };
    const p = this.parts;
    const asked = h("input", { name: "id", "aria-label": "Id of a decision", placeholder: "Id of a decision", required: true });
    const lookUp = h("form", { class: "look", onsubmit: (event) => {
      event.preventDefault();
      this.open(asked.value.trim());
    } }, asked, h("button", {}, "Why?"));
    fill(this.main, p.head, p.alerts, p.tiles,
      p.controls,
      section("Forecasts and rewards", p.heat, p.heatTable, p.choose, p.panels, p.panelTable),
      section("Chosen", p.chosen, p.chosenKey, p.chosenTable),
      (this.decidingSection = section("Deciding model", p.deciding, p.decidingKey, p.decidingTable)),
      section("Earned", p.earned, p.earnedKey, p.earnedTable),
      section("Why this decision?", lookUp, p.why),
      section("Arms", p.arms),
      (this.holdSection = section("Do the models hold?", p.hold)),
      (this.fitsSection = section("Fits", p.fitted, p.fittedKey, p.fits)),
      section("What happened", p.marks),
      section("Downloads", h("p", {},
        ["csv", "parquet"].map((kind) =>
          h("button", { onclick: () => this.save(kind) }, `Log as ${kind === "csv" ? "CSV" : "Parquet"}`)),
        " Decisions that have a reward, as ", h("code", {}, "undertow replay"), " reads them.")));
    this.drawControls();
  }

  // Tables are filled when they are opened, from what is seen then.
  drawTables() {
    const p = this.parts;
    fill(p.heatTable, table("Forecasts of all arms at some moments of what is seen", () => this.heatRows()));
    fill(p.panelTable, h("p", { class: "more" }, "Lines: forecasts, with their standard error or exploration bonus. Dots: the arm's own rewards. Select a part to zoom, click for a decision."),
      table("Last decisions: arm, reward, propensity and forecasts", () => this.lastRows()));
    fill(p.chosenTable, table("Chosen arms, the last ones first", () => this.runs("Arm", this.history.arms, this.history.arm)));
    fill(p.decidingTable, table("Deciding models, the last ones first", () => this.runs("Model", this.history.models, this.history.model)));
    fill(p.earnedTable, table("Mean reward so far", () => this.earnedRows()));
  }

  drawControls() {
    const button = (text, label, act) => h("button", { "aria-label": label, title: label, onclick: act }, text);
    const move = (by, factor) => () => this.history && this.shared.move(by, factor, this.history);
    this.follow = h("button", { "aria-pressed": "true", onclick: () => this.pause(!this.paused) }, "Following");
    this.zoomed = h("span", { class: "zoomed", role: "status" });
    fill(this.parts.controls,
      h("label", {}, "Show ", h("select", { onchange: (event) => {
        this.window = Number(event.target.value);
        this.shared.range = null;
        this.look();
      } }, WINDOWS.map(([text, rounds]) => h("option", { value: rounds, selected: rounds === this.window }, text)))),
      h("label", {}, "by ", h("select", { onchange: (event) => {
        this.shared.byClock = event.target.value === "clock";
        this.shared.range = null;
        this.drawPast();
        this.toldZoom();
      } }, h("option", { value: "rounds" }, "rounds"), h("option", { value: "clock" }, "the clock"))),
      h("span", { class: "group", role: "group", "aria-label": "Zoom" },
        button("◀", "Earlier (left arrow)", move(-0.25, 1)),
        button("−", "Zoom out (minus)", move(0, 2)),
        button("+", "Zoom in (plus)", move(0, 0.5)),
        button("▶", "Later (right arrow)", move(0.25, 1)),
        button("All", "Show all (0)", () => this.shared.zoom(null))),
      this.follow, this.zoomed);
  }

  key(event) {
    if (event.target.closest("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowLeft: [-0.25, 1], ArrowRight: [0.25, 1], "+": [0, 0.5], "=": [0, 0.5], "-": [0, 2],
    }[event.key];
    if (event.target.closest(".scroll") && event.key.startsWith("Arrow")) return;
    if (act && this.history) this.shared.move(...act, this.history);
    else if (event.key === "0") this.shared.zoom(null);
    else if (event.key === "p") this.pause(!this.paused);
    else return;
    event.preventDefault();
  }

  pause(paused) {
    this.paused = paused;
    this.follow.setAttribute("aria-pressed", String(!paused));
    this.follow.textContent = paused ? "Paused" : "Following";
    if (!paused) this.look();
  }

  toldZoom() {
    const { range, byClock } = this.shared;
    const shown = (value) => (byClock ? clock(value) : number(Math.round(value)));
    fill(this.zoomed, range ? `${shown(range[0])} to ${shown(range[1])}` : null);
  }

  // What comes

  linked(up) {
    fill(document.getElementById("link"), pill(up, up ? "live" : "reconnecting…"));
  }

  hear(events) {
    for (const { n, at, event } of events) {
      this.position = n;
      this.heard += 1;
      if (event.event === "decided") this.decidedAt = at;
      if (event.event === "rewarded") this.rewardedAt = at;
    }
    Object.assign(this.main.dataset, { position: this.position, heard: this.heard });
    if (!this.paused) this.lookSoon();
  }

  lookSoon() {
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      if (!this.signal.aborted && !document.hidden) this.look();
    }, Math.max(LEAST, 4 * (this.took ?? 0)));
  }

  async look() {
    const began = performance.now();
    try {
      const each = this.state.events / Math.max(this.state.round, 1); // events of a round
      const query = `?events=${Math.ceil(this.window * each)}&points=2000`;
      const [state, history] = await Promise.all([
        call(place(this.name), { signal: this.signal }),
        call(place(this.name, "history") + query, { signal: this.signal }),
      ]);
      Object.assign(this, { state, history });
      this.drawState();
      this.drawPast();
      this.main.dataset.drawn = history.next;
    } catch (error) {
      if (!this.signal.aborted) notice(error.message);
    }
    this.took = performance.now() - began;
  }

  // What is shown

  drawTimes() {
    if (this.lastDecision) fill(this.lastDecision, ago(this.decidedAt));
    if (this.lastReward) fill(this.lastReward, ago(this.rewardedAt));
  }

  drawState() {
    const { state, parts } = this;
    const { figures, health } = state;
    [this.decidedAt, this.rewardedAt] = [state.decided, state.rewarded];
    fill(parts.head, h("h1", {}, this.name), pill(health.ok, health.ok ? "well" : "needs attention"),
      h("span", { class: "policy" }, state.policy));
    fill(parts.alerts,
      state.pinned != null && h("p", { class: "alert" }, h("strong", {}, state.pinned),
        " is pinned: every decision is this arm. ", this.admin && this.action("Unpin", () => this.unpin(state.pinned))),
      health.problems.map((problem) => h("p", { class: "alert bad" }, problem)));
    const refused = Object.entries(health.refused).filter(([, n]) => n);
    const lead = this.history?.lead.at(-1);
    const model = state.models[0]?.name;
    this.lastDecision = h("dd", {}, ago(this.decidedAt));
    this.lastReward = h("dd", {}, ago(this.rewardedAt));
    const tile = (title, value, more) => h("div", {}, h("dt", {}, title),
      value instanceof Element ? value : h("dd", {}, value), more && h("dd", { class: "more" }, more));
    fill(parts.tiles, h("dl", {},
      tile("Round", number(state.round)),
      tile("Last decision", this.lastDecision),
      tile("Last reward", this.lastReward),
      tile("Decides", state.pinned != null ? "a person" : model ?? state.policy,
        model && lead != null ? `leads by ${number(lead, 2)} nats` : null),
      tile("Waiting for a reward", number(state.pending), state.pending ? `the oldest for ${number(health.waited)} rounds` : null),
      tile("Rewards per hour", number(figures.per_hour), figures.delay != null ? `95 % come within ${span(figures.delay)}` : null),
      tile("Refused", number(refused.reduce((sum, [, n]) => sum + n, 0)), refused.map(([why, n]) => `${n} ${why}`).join(", ") || null),
      tile("Alarms", number(Object.values(health.alarms).reduce((sum, n) => sum + n, 0)))));
    this.drawArms();
    this.drawModels();
  }

  drawArms() {
    const { state, history } = this;
    const rows = state.arms.map(({ name, retired }, arm) => h("tr", { class: retired ? "retired" : "" },
      h("th", { scope: "row" }, h("span", { class: `swatch arm-${arm % 8}` }), name),
      h("td", {}, retired ? "retired" : state.pinned === name ? "pinned" : "played"),
      h("td", { class: "number" }, number(state.forecast?.[name])),
      h("td", { class: "number" }, number(history?.plays[arm])),
      h("td", { class: "number" }, number(history?.means[arm])),
      h("td", { class: "number" }, number(state.costs[name])),
      this.admin && h("td", { class: "acts" }, !retired && [
        state.pinned === name ? this.action("Unpin", () => this.unpin(name), name) : this.action("Pin", () => this.pin(name), name),
        this.action("Retire", () => this.retire(name), name),
      ])));
    const focused = document.activeElement?.getAttribute?.("aria-label");
    fill(this.parts.arms, h("table", {},
      h("thead", {}, h("tr", {}, ["Arm", "State", "Forecast", "Plays", "Mean reward", "Cost", ...(this.admin ? ["Actions"] : [])]
        .map((title, column) => h("th", { scope: "col", class: column > 1 && column < 6 ? "number" : null }, title)))),
      h("tbody", {}, rows)));
    if (focused) this.parts.arms.querySelector(`button[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  drawModels() {
    const { health } = this.state;
    const names = Object.keys(health.innovations);
    this.holdSection.hidden = this.fitsSection.hidden = names.length === 0;
    fill(this.parts.hold, names.map((name) => {
      const squares = health.innovations[name].filter((value) => value != null).map((value) => value * value);
      const mean = squares.length ? squares.reduce((sum, value) => sum + value, 0) / squares.length : null;
      const level = health.level[name] ?? mean;
      const share = level == null ? 0 : Math.min(level / 4, 1) * 100;
      return h("div", { class: "gauge" },
        h("span", {}, name),
        h("meter", { min: 0, max: 100, high: 50, low: 50, optimum: 0, value: share, "aria-label": `${name}: mean squared innovation` }),
        h("span", { class: "number" }, number(level, 3)),
        h("span", { class: "more" }, `${number(health.alarms[name])} alarms`));
    }), h("p", { class: "more" }, "Mean squared innovation: about 1 while a model holds; the alarm is raised at 2, the middle of each bar."));
    const fits = [...health.fits].reverse().slice(0, 20);
    fill(this.parts.fits, fits.length
      ? h("table", {}, h("thead", {}, h("tr", {}, ["Model", "Round", "Order", "Tried", "Outcome"].map((title, column) =>
          h("th", { scope: "col", class: column > 0 && column < 4 ? "number" : null }, title)))),
          h("tbody", {}, fits.map((fit) => h("tr", { class: fit.failure ? "worry" : "" },
            h("th", { scope: "row" }, fit.model), h("td", { class: "number" }, number(fit.round)), h("td", { class: "number" }, number(fit.order)),
            h("td", { class: "number" }, number(fit.tried)), h("td", {}, fit.failure ?? "found")))))
      : h("p", { class: "more" }, "No model has been fitted yet."),
      health.under_way.length ? h("p", { class: "more" }, `Being fitted: ${health.under_way.join(", ")}`) : null);
  }

  drawPast() {
    const { history, parts, shared } = this;
    if (!history) return;
    const many = history.arms.length > MANY;
    if (this.selected === null) {
      const byPlays = history.arms.map((_, arm) => arm).sort((a, b) => history.plays[b] - history.plays[a]);
      this.selected = new Set(many ? byPlays.slice(0, 4) : byPlays);
    }
    if (!many) history.arms.forEach((_, arm) => this.selected.add(arm));
    this.drawHeat(many);
    for (const [arm, { chart, element }] of this.panels) {
      if (this.selected.has(arm)) continue;
      chart.destroy();
      element.remove();
      this.panels.delete(arm);
    }
    const range = rangeOf(history, [...this.selected]);
    [...this.selected].sort((a, b) => a - b).forEach((arm) => {
      if (!this.panels.has(arm)) {
        const inside = h("div", { class: "chart" });
        const element = h("figure", {}, h("figcaption", {}, h("span", { class: `swatch arm-${arm % 8}` }), history.arms[arm]), inside);
        parts.panels.append(element);
        this.panels.set(arm, { element, chart: new Panel(shared, inside, arm, (id) => this.open(id)) });
      }
      this.panels.get(arm).chart.draw(history, range);
    });
    if (!parts.chosenTable.firstChild) this.drawTables();
    this.strip("chosen", ["arm"], (row, i) => armColour(this.history.arm[i]), history.arms.map((name, arm) => [name, `arm-${arm % 8}`, history.plays[arm]]));
    this.decidingSection.hidden = history.models.length === 0;
    if (history.models.length)
      this.strip("deciding", ["model"], (row, i) => (this.history.model[i] < 0 ? null : modelColour(this.history.model[i])),
        history.models.map((name, model) => [name, `model-${model % 6}`, null]));
    this.drawEarned();
    this.drawFits();
    const marks = [...history.marks].reverse().slice(0, 30);
    fill(parts.marks, marks.length
      ? h("table", {}, h("thead", {}, h("tr", {}, ["Round", "Time", "Event"].map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, marks.map((mark) => h("tr", {}, h("td", { class: "number" }, number(mark.round)), h("td", {}, clock(mark.at)), h("td", {}, mark.text)))))
      : h("p", { class: "more" }, "No arm, price, pin or background fit has changed in what is shown."));
  }

  drawHeat(many) {
    const { history, parts, shared } = this;
    parts.heat.hidden = parts.heatTable.hidden = parts.choose.hidden = !many;
    if (!many) return;
    this.heat?.destroy();
    this.heat = new Cells(shared, parts.heat, history.arms.length);
    const shade = shades(history.forecast);
    this.heat.draw(history, history.arms, (row, i) => shade(history.forecast[row][i]));
    const focused = document.activeElement?.dataset?.arm;
    fill(parts.choose, h("span", {}, "Panels: "), history.arms.map((name, arm) =>
      h("button", { "aria-pressed": String(this.selected.has(arm)), "data-arm": arm, onclick: () => {
        if (!this.selected.delete(arm)) this.selected.add(arm);
        this.drawPast();
      } }, name)), h("span", { class: "more" }, " Shade: forecast, from low to high."));
    if (focused !== undefined) parts.choose.querySelector(`[data-arm="${focused}"]`)?.focus();
  }

  strip(kind, labels, fillOf, key) {
    this[kind] ??= new Cells(this.shared, this.parts[kind], 1);
    this[kind].draw(this.history, labels, fillOf);
    fill(this.parts[`${kind}Key`], key.slice(0, 40).map(([name, swatch, count]) =>
      h("span", {}, h("span", { class: `swatch ${swatch}` }), count == null ? name : `${name} (${number(count)})`)));
  }

  drawEarned() {
    const { history, parts, shared } = this;
    const { earned } = history;
    const lines = [["this bandit", "--line-0", undefined, earned.bandit]];
    if (earned.missing === null) {
      lines.push(["a uniform choice", "--line-1", [6, 4], earned.uniform]);
      if (earned.best !== null) lines.push([`always ${earned.best}, the best fixed arm (± ${number(earned.error, 2)})`, "--line-2", [2, 3], earned.fixed]);
    }
    const style = getComputedStyle(document.documentElement);
    this.lines ??= new Lines(shared, parts.earned, 180);
    this.lines.draw(history, lines.map(([, name, dash, values]) => ({ stroke: style.getPropertyValue(name).trim(), dash, values })));
    const note = earned.missing === null
      ? `Mean reward so far. Baselines are estimated from the ${number(earned.rounds)} decisions whose arm was drawn (${number(100 * earned.share, 2)} % of those with a reward), by self-normalised inverse propensities.`
      : `Mean reward so far. No baseline: ${earned.missing}.`;
    fill(parts.earnedKey, lines.map(([name, line, dash, values]) => {
      const last = values.findLast((value) => value != null);
      return h("span", {}, h("span", { class: `swatch ${line.slice(2)}` }), `${name}: ${number(last)}`);
    }), h("p", { class: "more" }, note));
  }

  // At the last decision before each fit, so that rounds and the clock show it in its place.
  drawFits() {
    const { history, parts, shared } = this;
    const { fits, innovations } = this.state.health;
    const names = Object.keys(innovations);
    this.fitted?.destroy();
    if (!names.length) return;
    const [found, failed] = [colour("--good"), colour("--bad")];
    const rows = names.map(() => new Map());
    for (const { model, round, failure } of fits) {
      const cells = rows[names.indexOf(model)];
      const i = history.round.findLastIndex((t) => t <= round);
      if (cells.get(i) !== failed) cells.set(i, failure == null ? found : failed);
    }
    this.fitted = new Cells(shared, parts.fitted, names.length, 4);
    this.fitted.draw(history, names, (row, i) => rows[row].get(i));
    fill(parts.fittedKey, [["found", "good"], ["failed", "bad"]].map(([outcome, swatch]) =>
      h("span", {}, h("span", { class: `swatch ${swatch}` }), outcome)));
  }

  // The rows of tables

  seen() {
    const xs = this.shared.x(this.history);
    const [low, high] = this.shared.range ?? [-Infinity, Infinity];
    return [...xs.keys()].filter((i) => xs[i] >= low && xs[i] <= high);
  }

  last(row) {
    return this.seen().slice(-TABLE).reverse().map(row);
  }

  lastRows() {
    const { history } = this;
    return [["Round", "Time", "Arm", "Reward", "Propensity", "Forecasts", "Id"], ...this.last((i) => [
      number(history.round[i]), clock(history.at[i]), history.arms[history.arm[i]], number(history.reward[i]), number(history.propensity[i]),
      history.arms.map((name, arm) => `${name} ${number(history.forecast[arm][i])}`).join(", "),
      h("a", { href: this.address(history.id[i]) }, history.id[i]),
    ])];
  }

  earnedRows() {
    const { history: { earned }, shared } = this;
    return [["Round", "Bandit", "Uniform", "Best fixed arm"], ...this.last((i) =>
      [when(shared, this.history, i), number(earned.bandit[i]), number(earned.uniform[i]), number(earned.fixed[i])])];
  }

  // As in the heat map, a row for each arm.
  heatRows() {
    const { history, shared } = this;
    const seen = this.seen();
    const count = Math.min(seen.length, MOMENTS);
    const some = Array.from({ length: count }, (_, n) => seen[Math.round((n * (seen.length - 1)) / Math.max(count - 1, 1))]);
    return [["Arm", ...some.map((i) => when(shared, history, i))],
      ...history.arms.map((name, arm) => [name, ...some.map((i) => number(history.forecast[arm][i]))])];
  }

  // What was the same for a while.
  runs(title, names, column) {
    const { history, shared } = this;
    const found = [];
    for (const i of this.seen()) {
      if (found.length && found.at(-1).which === column[i]) found.at(-1).last = i;
      else found.push({ which: column[i], first: i, last: i });
    }
    return [["From", "To", title], ...found.slice(-TABLE).reverse().map(({ which, first, last }) =>
      [when(shared, history, first), when(shared, history, last), names[which] ?? "–"])];
  }

  // Why a decision was made

  address(id) {
    return `#/bandits/${encodeURIComponent(this.name)}/decisions/${encodeURIComponent(id)}`;
  }

  open(id) {
    if (location.hash === this.address(id)) this.why(id);
    else location.hash = this.address(id);
  }

  async why(id) {
    if (id === undefined) return fill(this.parts.why);
    try {
      const found = await call(place(this.name, "decisions", id), { signal: this.signal });
      const { why } = found;
      const best = Object.keys(found.forecast);
      const columns = ["Arm", "Forecast", "Exploration bonus", ...(why ? ["Standard error"] : []), ...(found.value ? ["Compared"] : [])];
      fill(this.parts.why, h("div", { class: "card", tabindex: -1 },
        h("h3", {}, `${found.arm} in round ${number(found.round)}`),
        h("p", {}, h("code", {}, found.id), ` Played with probability ${number(found.propensity)}. `,
          found.reward == null ? "Its reward has not come." : `Its reward was ${number(found.reward)}.`),
        why && h("p", {}, why.model ? `${why.model} decided, ${why.lead == null ? "alone" : `leading by ${number(why.lead)} nats`}; fitted ${why.since_fit < 0 ? "not yet" : `${number(why.since_fit)} rounds before`}.` : "No model had been fitted; the arms took turns.",
          why.look ? ` It was a look at the arm, at odds of ${number(why.look)} that it has changed.` : null),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Forecasts of this decision" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map((title) => h("th", { scope: "col" }, title)))),
          h("tbody", {}, best.map((arm) => h("tr", { class: arm === found.arm ? "chosen" : "" },
            h("th", { scope: "row" }, arm, arm === found.arm ? " (chosen)" : null),
            h("td", { class: "number" }, number(found.forecast[arm])),
            h("td", { class: "number" }, found.width[arm] == null ? "must be tried" : number(found.width[arm])),
            why && h("td", { class: "number" }, number(Math.hypot(why.state_error[arm], why.arm_error[arm]))),
            found.value && h("td", { class: "number" }, number(found.value[arm]))))))),
        h("button", { onclick: () => (location.hash = `#/bandits/${encodeURIComponent(this.name)}`) }, "Close")));
      this.parts.why.firstChild.focus();
      this.parts.why.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (!this.signal.aborted) fill(this.parts.why, h("p", { class: "alert bad", role: "alert" }, error.message));
    }
  }

  // What admins do

  action(text, act, about) {
    return h("button", { "aria-label": about === undefined ? null : `${text} ${about}`, onclick: act }, text);
  }

  async change(method, parts, body) {
    try {
      await call(place(this.name, ...parts), { method, body });
    } catch (error) {
      notice(error.message);
    }
    await this.look();
  }

  async pin(arm) {
    const form = await ask(`Pin ${arm}?`,
      `Every decision of ${this.name} will be ${arm}, with probability 1, until it is unpinned. Decisions made before keep their arms, and their rewards are still learned.`,
      `Pin ${arm}`, [h("label", {}, h("input", { type: "checkbox", name: "learn", checked: true }), " Learn from the rewards of these decisions")]);
    if (form) await this.change("PUT", ["pin", arm], { learn: form.has("learn") });
  }

  async unpin(arm) {
    if (await ask(`Unpin ${arm}?`, `The policy of ${this.name} chooses again, from the next decision on.`, "Unpin"))
      await this.change("DELETE", ["pin", arm]);
  }

  async retire(arm) {
    if (await ask(`Retire ${arm}?`, `${this.name} will not play ${arm} any more. Rewards of its earlier decisions are still learned, and PUT …/arms/${arm} brings it back with what was learned.`, `Retire ${arm}`))
      await this.change("DELETE", ["arms", arm]);
  }

  async save(kind) {
    try {
      await download(place(this.name, `log.${kind}`), `${this.name}.${kind}`);
    } catch (error) {
      notice(error.message);
    }
  }
}
