// Every bandit in a row; what needs attention first.

import { call } from "./api.js";
import { ago, fill, h, notice, number, pill, span } from "./dom.js";

const EVERY = 5000; // milliseconds between two looks
const PAGE = 20;
const total = (counts) => Object.entries(counts).reduce((sum, [reason, n]) => sum + (reason === "repeated" ? 0 : n), 0);

// Larger is worse: problems, then rewards that stay away, then silence.
function worry({ figures, decided, rewarded }) {
  if (!figures) return 0;
  const silent = figures.pending > 100 && Date.now() / 1000 - (rewarded ?? decided ?? 0) > 3600;
  return 4 * !figures.ok + 2 * silent + 1 * (figures.pinned !== null);
}

const COLUMNS = [
  ["State", worry, (row) => state(row), "status"],
  ["Bandit", (row) => row.name, (row) => h("a", { href: `#/bandits/${encodeURIComponent(row.name)}` }, row.name), "name"],
  ["Round", (row) => row.figures?.round, (row) => number(row.figures?.round)],
  ["Last decision", (row) => row.decided, (row) => ago(row.decided)],
  ["Last reward", (row) => row.rewarded, (row) => ago(row.rewarded)],
  ["Decides", (row) => row.figures?.model ?? row.policy, (row) => decides(row), "text"],
  ["Rewards per hour", (row) => row.figures?.per_hour, (row) => number(row.figures?.per_hour)],
  ["Waiting", (row) => row.figures?.pending, (row) => number(row.figures?.pending)],
  ["Refused", (row) => row.figures && total(row.figures.refused), (row) => refused(row)],
  ["Delay, 95 %", (row) => row.figures?.delay, (row) => span(row.figures?.delay)],
  ["Alarms", (row) => row.figures?.alarms, (row) => number(row.figures?.alarms)],
];

function state(row) {
  if (!row.figures) return pill(null, "…");
  if (row.decided === null) return pill(null, "idle");
  if (!row.figures.ok) return pill(false, "look");
  return worry(row) >= 2 ? pill(false, "no rewards") : pill(true, "well");
}

function decides({ figures, policy }) {
  if (figures?.pinned != null) return h("span", { class: "pinned" }, `pinned: ${figures.pinned}`);
  return figures?.model ? `${figures.model} (${policy})` : policy;
}

function refused({ figures }) {
  if (!figures) return "–";
  const reasons = Object.entries(figures.refused).map(([reason, n]) => `${n} ${reason}`);
  return h("span", { title: reasons.join(", ") || "none" }, number(total(figures.refused)));
}

export async function showOverview(main, signal) {
  const rows = new Map();
  let order = { column: 0, down: true };
  const search = h("input", { type: "search", id: "search", placeholder: "Name or policy", oninput: () => draw() });
  const heads = COLUMNS.map(([title, , , kind], column) =>
    h("th", { scope: "col", class: kind ?? "number" }, h("button", { onclick: () => sort(column) }, title)),
  );
  const body = h("tbody");
  const count = h("p", { class: "count", role: "status" });
  fill(
    main,
    h("div", { class: "bar" }, h("h1", {}, "Bandits"), h("label", { for: "search" }, "Search ", search)),
    count,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Bandits" },
      h("table", { class: "overview" }, h("thead", {}, h("tr", {}, heads)), body)),
  );

  function sort(column) {
    order = { column, down: order.column === column ? !order.down : column !== 1 };
    draw();
  }

  function draw() {
    const words = search.value.trim().toLowerCase();
    const found = [...rows.values()].filter((row) => `${row.name} ${row.policy}`.toLowerCase().includes(words));
    const key = COLUMNS[order.column][1];
    found.sort((one, other) => {
      const [a, b] = [key(one) ?? -1, key(other) ?? -1];
      return (a < b ? -1 : a > b ? 1 : 0) * (order.down ? -1 : 1) || (one.name < other.name ? -1 : 1);
    });
    heads.forEach((head, column) =>
      head.setAttribute("aria-sort", column !== order.column ? "none" : order.down ? "descending" : "ascending"));
    const focused = document.activeElement?.getAttribute?.("href");
    fill(body, found.slice(0, 1000).map((row) =>
      h("tr", { class: row.figures && worry(row) >= 2 ? "worry" : "" },
        COLUMNS.map(([title, , cell, kind]) => h("td", { class: kind ?? "number", "data-title": title }, cell(row))))));
    if (focused?.startsWith("#/bandits/")) body.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    const bad = found.filter((row) => row.figures && worry(row) >= 2).length;
    const known = found.filter((row) => row.figures).length;
    fill(count, found.length === 0
      ? rows.size ? "No bandit has this name." : "There are no bandits yet. Create one with PUT /v1/bandits/NAME."
      : `${number(found.length)} bandits; ${bad ? `${bad} need attention` : known ? "none needs attention" : "looking…"}`);
  }

  async function look(figures) {
    for (let after = ""; after !== null && !signal.aborted && rows.size <= 1000; ) {
      const most = figures ? PAGE : 1000;
      const page = await call(`v1/bandits?most=${most}&figures=${figures}&after=${encodeURIComponent(after)}`, { signal });
      for (const row of page.bandits) rows.set(row.name, { ...row, figures: row.figures ?? rows.get(row.name)?.figures });
      after = page.next;
      draw();
    }
  }

  await look(false);
  while (!signal.aborted) {
    try {
      await look(true);
    } catch (error) {
      if (!signal.aborted) notice(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}
