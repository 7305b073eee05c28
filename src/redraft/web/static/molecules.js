// A molecule is broken, repaired, revised or sampled, and one watches.

import { ask, drawing, element, fill, listen, percent } from "./page.js";

const BEAT = 70; // milliseconds that a frame stays at least
const still = matchMedia("(prefers-reduced-motion: reduce)");

export function molecules(panel, known) {
  const find = (selector) => panel.querySelector(selector);
  const form = find("form");
  const field = form.elements;
  const film = projector(find);
  let original = null; // what was broken, and into what
  let busy = false; // buttons keep the focus, and do nothing
  let running = null; // the AbortController of a computation
  let candidates = [];

  const models = known.models.filter((model) => model.domain === "molecules");
  fill(field.model, models.map((model) => model.name));
  for (const [name, smiles] of Object.entries(known.examples)) {
    field.example.append(element("option", { value: smiles }, name));
  }
  if (!models.length) return say("No model of molecules is served.", true);

  // ---------------------------------------------------------------- what is given

  let looked = 0;
  async function look() {
    const smiles = field.smiles.value.replace(/\s+/g, "");
    const turn = ++looked;
    if (!smiles) return judge("", "");
    if (smiles.length > field.smiles.maxLength) return judge("too long", "bad");
    try {
      const seen = await ask("look", { model: field.model.value, smiles });
      if (turn === looked) show(seen);
    } catch (error) {
      if (turn === looked) judge(error.message, "bad");
    }
  }

  function show(seen) {
    const words = seen.valid ? "✓ parses" : "✗ does not parse";
    const remark = seen.remark ? `: ${seen.remark}` : "";
    const kind = seen.valid && !remark ? "good" : "bad";
    judge(seen.tokens.length ? words + remark : seen.remark, kind, seen.svg, seen.smiles);
  }

  function judge(words, kind, svg = null, smiles = "") {
    find(".verdict").textContent = words;
    find(".verdict").className = `verdict ${kind}`;
    find(".given").hidden = !svg;
    find(".given").replaceChildren(...(svg ? [drawing(svg, `Structure of ${smiles}`)] : []));
  }

  function give(smiles) {
    field.smiles.value = smiles;
    return look();
  }

  let pause;
  field.smiles.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(look, 250);
  });
  field.model.addEventListener("change", look);
  field.example.addEventListener("change", () => {
    if (field.example.value) give(field.example.value);
  });
  field.strength.addEventListener("input", () => {
    field.strengthShown.value = Number(field.strength.value).toFixed(2);
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  // ---------------------------------------------------------------- what is asked

  const number = (name) => (field[name].value === "" ? null : Number(field[name].value));

  function drawn() {
    const asked = { n: Number(field.n.value), steps: number("steps"), seed: number("seed") };
    return { ...asked, temperature: number("temperature") ?? 1 };
  }

  const asks = {
    repair: (given) => ({
      ...given,
      seed: number("seed"),
      original: original?.broken === given.smiles ? original.whole : null,
    }),
    revise: (given) => ({ ...given, ...drawn(), strength: Number(field.strength.value) }),
    sample: ({ model }) => ({ model, ...drawn() }),
  };
  const verbs = { repair: "Repairing", revise: "Revising", sample: "Sampling" };

  async function breakIt(given) {
    const seen = await ask("break", { ...given, seed: number("seed") });
    original = { whole: seen.original, broken: seen.smiles };
    field.smiles.value = seen.smiles;
    show(seen);
    say("Broken by one random edit. Repair it.");
  }

  async function watch(action, given) {
    running = new AbortController();
    find(".cancel").hidden = false;
    find(".results").hidden = true;
    film.begin();
    say(`${verbs[action]} …`);
    for await (const event of listen(action, asks[action](given), running.signal)) {
      if (event.kind === "waiting" && event.ahead > 0) {
        say(`Waiting: ${event.ahead} before you, about ${event.seconds} s.`);
      } else if (event.kind === "frame") film.add(event);
      else if (event.kind === "error") throw new Error(event.message);
      else if (event.kind === "done") {
        say(event.note);
        present(event);
      }
    }
  }

  async function act(action) {
    if (busy) return;
    const given = { model: field.model.value, smiles: field.smiles.value.replace(/\s+/g, "") };
    if (action !== "sample" && !given.smiles) {
      field.smiles.focus();
      return say("Paste a SMILES, or choose an example.", true);
    }
    lock(true);
    try {
      await (action === "break" ? breakIt(given) : watch(action, given));
    } catch (error) {
      const cancelled = error.name === "AbortError";
      say(cancelled ? "Cancelled." : error.message, !cancelled);
    } finally {
      running = null;
      find(".cancel").hidden = true;
      lock(false);
    }
  }

  function lock(on) {
    busy = on;
    for (const button of panel.querySelectorAll("[data-do]")) button.setAttribute("aria-disabled", busy);
  }

  function say(words, bad = false) {
    find(".status").textContent = words;
    find(".status").classList.toggle("bad", bad);
  }

  for (const button of panel.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => act(button.dataset.do));
  }
  find(".cancel").addEventListener("click", () => running?.abort());
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });

  // ---------------------------------------------------------------- what came of it

  function present({ candidates: found, against }) {
    candidates = found;
    find(".results").hidden = !found.length;
    find(".against").textContent = against ? `similarity ${against} (Tanimoto)` : "";
    find(".candidates").replaceChildren(...found.map((one, n) => element("li", {}, card(one, n))));
    follow(0);
  }

  function card(one, n) {
    const made = element("button", { type: "button", className: "candidate" });
    const picture = element("span", { className: "drawing" });
    picture.append(one.svg ? drawing(one.svg, "") : element("span", { className: "nothing" }, "does not parse"));
    const facts = [];
    if (one.similarity !== null) facts.push(`similarity ${one.similarity.toFixed(2)}`);
    if (one.edits !== undefined) facts.push(`${one.edits} edit${one.edits === 1 ? "" : "s"}`);
    if (one.sure !== undefined) facts.push(`${percent(one.sure)} of belief`);
    made.append(picture, element("span", { className: "mono" }, one.smiles || "(empty)"));
    made.append(element("span", { className: "facts" }, facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · ")));
    made.addEventListener("click", () => follow(n));
    return made;
  }

  function follow(n) {
    const cards = [...panel.querySelectorAll(".candidate")];
    cards.forEach((card, k) => card.setAttribute("aria-pressed", k === n));
    film.follow(n, candidates[n]);
  }

  const cell = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
  const copies = {
    smiles: () => candidates.map((one) => one.smiles).join("\n"),
    csv: () => ["smiles,valid,similarity,edits,sure", ...candidates.map((one) => [
      cell(one.smiles), one.svg !== null, one.similarity ?? "", one.edits ?? "", one.sure ?? "",
    ].join(","))].join("\n"),
  };
  for (const button of panel.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(`${copies[button.dataset.copy]()}\n`);
        say("Copied.");
      } catch {
        say("This browser does not let a page copy here.", true);
      }
    });
  }

  field.example.selectedIndex = 1;
  give(field.example.value);
}

// ------------------------------------------------------------------ the projector

/** Frames as they come, one a beat, and back again by a slider. */
function projector(find) {
  const [tokens, figure, player, slider, where, play] =
    [".tokens", ".big", ".player", ".slider", ".where", ".play"].map(find);
  let frames = [];
  let at = -1;
  let row = 0;
  let timer = null;

  function begin() {
    stop();
    [frames, at, row] = [[], -1, 0];
    tokens.replaceChildren();
    figure.replaceChildren();
    player.hidden = true;
  }

  function add({ label, rows }) {
    const before = frames.at(-1)?.rows ?? [];
    rows.forEach((one, n) => {
      if (!("svg" in one)) one.svg = before[n]?.svg ?? null;
      one.last = one.svg ?? before[n]?.last ?? null; // the last structure that could be drawn
    });
    frames.push({ label, rows });
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
    const frame = frames[n];
    const one = frame.rows[Math.min(row, frame.rows.length - 1)];
    showTokens(one);
    showStructure(one);
    slider.value = n;
    const said = `step ${n} of ${frames.length - 1}: ${frame.label}`;
    slider.setAttribute("aria-valuetext", `${said}, ${one.smiles}`);
    where.textContent = said;
    find(".current").textContent = one.smiles;
  }

  function showTokens({ tokens: words, changed, cut, end }) {
    while (tokens.children.length > words.length) tokens.lastChild.remove();
    while (tokens.children.length < words.length) tokens.append(element("li"));
    const [fresh, gaps] = [new Set(changed), new Set(cut)];
    words.forEach((word, n) => {
      const item = tokens.children[n];
      item.textContent = n >= end && word === "[EOS]" ? "·" : word;
      item.className = "";
      if (fresh.has(n)) {
        void item.offsetWidth; // so that it flashes again
        item.classList.add("changed", "flash");
      }
      item.classList.toggle("cut", gaps.has(n));
      item.classList.toggle("after", n >= end);
    });
  }

  function showStructure(one) {
    figure.classList.toggle("stale", one.svg === null && one.last !== null);
    if (figure.shown === one.last && one.last !== null && figure.firstChild) return;
    figure.shown = one.last;
    const nothing = element("span", { className: "nothing" }, "no structure yet: it does not parse");
    figure.replaceChildren(one.last ? drawing(one.last, `Structure of ${one.smiles}`) : nothing);
  }

  function follow(n, candidate) {
    if (!frames.length) return;
    row = n;
    const several = frames.at(-1).rows.length > 1;
    if (several) return render(at);
    const shown = frames.findLastIndex((frame) => frame.rows[0].smiles === candidate?.smiles);
    if (n > 0 && shown >= 0) {
      stop();
      render(shown);
    }
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
