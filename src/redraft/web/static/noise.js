// What the learned noise puts in a token's place.

import { ask, element, fill } from "./page.js";

const BINS = ["m4", "m3", "m2", "m1", "z0", "p1", "p2", "p3", "p4"];
const PER_BIT = 2; // colours in which a probability doubles

const times = (ratio) => (ratio >= 9.95 ? ratio.toFixed(0) : Number(ratio.toPrecision(2))) + "×";
const share = (p) => `${(100 * p).toPrecision(2)} %`;

export function noise(panel, known) {
  const find = (selector) => panel.querySelector(selector);
  const { model, t, shown } = find("form").elements;
  const token = find("[name=token]");
  const table = find("table");
  let map = null;
  let at = [0, 1]; // the cell that has the focus

  fill(model, known.models.map((one) => one.name));
  find(".legend").append(...BINS.map((bin, n) => {
    const label = times(2 ** ((n - 4) / PER_BIT));
    const ends = { 0: `${label} or less`, 8: `${label} or more`, 4: "as uniform" };
    return element("li", {}, element("i", { className: bin }), ends[n] ?? label);
  }));

  function choose() {
    const one = known.models.find((other) => other.name === model.value);
    t.max = one.T;
    t.value = Math.ceil(one.T / 2);
    map = null;
    load();
  }

  let turn = 0;
  async function load() {
    const mine = ++turn;
    shown.value = `t = ${t.value} of ${t.max}`;
    try {
      const query = new URLSearchParams({ model: model.value, t: t.value });
      const found = await ask(`noise?${query}`);
      if (mine !== turn) return;
      const fresh = map === null;
      map = found;
      if (fresh) build();
      paint();
      find(".problem").textContent = "";
      find(".columns").hidden = false;
    } catch (error) {
      if (mine !== turn) return;
      find(".columns").hidden = true;
      find(".problem").textContent = error.message;
    }
  }

  function build() {
    const heads = map.tokens.map((name) => element("th", { scope: "col" }, element("span", {}, name)));
    const rows = map.tokens.map((name, i) => element("tr", {},
      element("th", { scope: "row" }, name),
      ...map.tokens.map((_, j) => {
        const cell = element("td", { role: "gridcell", tabIndex: -1 });
        [cell.dataset.i, cell.dataset.j] = [i, j];
        return cell;
      })));
    table.replaceChildren(
      element("thead", {}, element("tr", {}, element("td", { className: "corner" }), ...heads)),
      element("tbody", {}, ...rows));
    fill(token, map.tokens);
    at = [0, 1];
    token.selectedIndex = 0;
  }

  const cellAt = (i, j) => table.tBodies[0].rows[i].cells[j + 1];

  function paint() {
    map.p.forEach((row, i) => row.forEach((p, j) => {
      const cell = cellAt(i, j);
      const bits = Math.log2(Math.max(p / map.uniform, 1e-9));
      const bin = Math.round(Math.max(-4, Math.min(4, PER_BIT * bits))) + 4;
      cell.className = i === j ? "self" : BINS[bin];
      cell.setAttribute("aria-label", words(i, j));
    }));
    cellAt(...at).tabIndex = 0;
    read(...at);
    bars();
  }

  function words(i, j) {
    const [from, to, p] = [map.tokens[i], map.tokens[j], map.p[i][j]];
    if (i === j) return `${from} to itself: not counted`;
    return `${from} → ${to}: ${share(p)}, ${times(p / map.uniform)} uniform`;
  }

  function read(i, j) {
    find(".reading").textContent = words(i, j);
    [...table.tBodies[0].rows].forEach((row, k) => row.classList.toggle("chosen", k === i));
    [...table.tHead.rows[0].cells].forEach((head, k) => head.classList.toggle("chosen", k === j + 1));
  }

  function bars() {
    const top = map.top[token.selectedIndex];
    const most = Math.max(...top.map(([, p]) => p), 1e-9);
    find(".bars").replaceChildren(...top.map(([name, p]) => element("li", {},
      element("span", { className: "mono" }, name),
      element("progress", { max: most, value: p, "aria-hidden": "true" }),
      element("span", { className: "numbers" }, `${share(p)} · ${times(p / map.uniform)}`))));
  }

  function placed(event) {
    const cell = event.target.closest?.("td[data-i]");
    return cell ? [Number(cell.dataset.i), Number(cell.dataset.j)] : null;
  }

  function move(i, j) {
    cellAt(...at).tabIndex = -1;
    at = [i, j];
    cellAt(i, j).tabIndex = 0;
    read(i, j);
  }

  table.addEventListener("mouseover", (event) => {
    const cell = placed(event);
    if (cell) read(...cell);
  });
  table.addEventListener("focusin", (event) => {
    const cell = placed(event);
    if (cell) move(...cell);
  });
  table.addEventListener("click", (event) => {
    const cell = placed(event);
    if (!cell) return;
    cellAt(...cell).focus();
    token.selectedIndex = cell[0];
    bars();
  });
  table.addEventListener("keydown", (event) => {
    const last = map.tokens.length - 1;
    const [i, j] = at;
    const next = {
      ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1],
      Home: [i, 0], End: [i, last],
    }[event.key];
    if (event.key === "Enter") {
      token.selectedIndex = i;
      bars();
    }
    if (!next) return;
    event.preventDefault();
    cellAt(...next.map((k) => Math.max(0, Math.min(last, k)))).focus();
  });
  token.addEventListener("change", bars);
  model.addEventListener("change", choose);
  t.addEventListener("input", load);
  find("form").addEventListener("submit", (event) => event.preventDefault());
  choose();
}
