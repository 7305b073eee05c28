// Frames as they come, one a beat, and back again by a slider.

import { element } from "./page.js";

const BEAT = 70; // milliseconds that a frame stays at least
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** `draw` is given all that the row in view has been so far, and shows what a domain has to show. */
export function projector(find, draw = () => {}) {
  const [tokens, player, slider, where, play] =
    [".tokens", ".player", ".slider", ".where", ".play"].map(find);
  let frames = [];
  let at = -1;
  let row = 0;
  let timer = null;

  function begin() {
    stop();
    [frames, at, row] = [[], -1, 0];
    tokens.replaceChildren();
    draw([]);
    player.hidden = true;
  }

  /** A row tells only what is new. */
  function add({ label, rows }) {
    const before = frames.at(-1)?.rows ?? [];
    frames.push({ label, rows: rows.map((one, n) => ({ ...before[n], ...one })) });
    slider.max = frames.length - 1;
    player.hidden = false;
    if (at < 0) render(0);
    if (timer === null && at === frames.length - 2) run();
  }

  function run() {
    if (still.matches) return render(frames.length - 1);
    play.textContent = "Pause";
    timer ??= setInterval(() => {
      if (at < frames.length - 1) render(at + 1);
      else stop();
    }, BEAT);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function render(n) {
    at = n;
    const past = frames.slice(0, n + 1).map(({ rows }) => rows[Math.min(row, rows.length - 1)]);
    const one = past.at(-1);
    showTokens(one);
    draw(past);
    slider.value = n;
    const said = `step ${n} of ${frames.length - 1}: ${frames[n].label}`;
    slider.setAttribute("aria-valuetext", `${said}, ${one.text}`);
    where.textContent = said;
    find(".current").textContent = one.text;
  }

  function showTokens({ tokens: words, changed, cut, masked, free = [], end }) {
    while (tokens.children.length > words.length) tokens.lastChild.remove();
    while (tokens.children.length < words.length) tokens.append(element("li"));
    const [fresh, gaps, holes, open] = [changed, cut, masked, free].map((places) => new Set(places));
    words.forEach((word, n) => {
      const item = tokens.children[n];
      item.textContent = word === "[EOS]" ? "·" : word;
      item.className = "";
      if (fresh.has(n)) {
        void item.offsetWidth; // so that it flashes again
        item.classList.add("changed", "flash");
      }
      item.classList.toggle("cut", gaps.has(n));
      item.classList.toggle("masked", holes.has(n));
      item.classList.toggle("free", open.has(n));
      item.classList.toggle("after", n >= end);
    });
  }

  /** A candidate's own row; or, where all are in one, the last frame that shows it. */
  function follow(candidate, jump) {
    if (!frames.length) return;
    if (frames.at(-1).rows.length > 1) {
      row = candidate.row;
      return render(at);
    }
    const shown = frames.findLastIndex((frame) => frame.rows[0].text === candidate.text);
    if (!jump || shown < 0) return;
    stop();
    render(shown);
  }

  slider.addEventListener("input", () => {
    stop();
    render(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (at >= frames.length - 1) render(0);
    run();
  });
  return { begin, add, follow };
}
