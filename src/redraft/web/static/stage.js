// What every tab with a film has: one computation at a time, watched, and its candidates.

import { element, fill, listen } from "./page.js";
import { projector } from "./projector.js";

const NONE = {
  molecules: "No model of molecules is served: redraft serve molecules shows the one that comes with the package.",
  stories: "No model of stories is served: redraft serve stories shows the one that comes with the package.",
  playlists: "No model of playlists is served: redraft serve playlists shows the one that comes with the package.",
};

/** The models of a domain that can be shown, or null and one sentence in place of the panel. */
export function modelsOf(domain, panel, known) {
  const models = known.models.filter((model) => model.domain === domain);
  const shown = models.filter((model) => !model.trouble);
  if (shown.length) return shown;
  const why = models.length ? `${models[0].name} cannot be shown: ${models[0].trouble}.` : NONE[domain];
  panel.replaceChildren(element("p", { className: "card absent" }, why));
  return null;
}

/** The form's models and examples; `give` takes a chosen example. */
export function offer(field, models, give) {
  function examples() {
    const { examples: known } = models.find((model) => model.name === field.model.value);
    const options = Object.entries(known).map(([name, value]) => element("option", { value }, name));
    field.example.replaceChildren(element("option", { value: "" }, "choose …"), ...options);
    field.example.disabled = !options.length;
    return options;
  }
  fill(field.model, models.map((model) => model.name));
  field.model.addEventListener("change", examples);
  field.example.addEventListener("change", () => {
    if (field.example.value) give(field.example.value);
  });
  if (examples().length) {
    field.example.selectedIndex = 1;
    give(field.example.value);
  }
}

/** What the fields under "How to draw" say. */
export function settings(field) {
  const number = (name) => (field[name].value === "" ? null : Number(field[name].value));
  return {
    n: Number(field.n.value),
    steps: number("steps"),
    temperature: number("temperature") ?? 1,
    renew: number("renew") ?? 0,
    seed: number("seed"),
  };
}

/**
 * lead     what to do, while nothing is shown
 * title    of the candidates
 * draw     see projector.js
 * card     the element of a candidate; what is `.follow` in it shows that one's steps
 * buttons  what to do with all candidates and the chosen one; a text that comes of it is copied
 */
export function stage(panel, { lead, title, draw, card, buttons }) {
  const find = (selector) => panel.querySelector(selector);
  const film = projector(find, draw);
  let busy = false; // buttons keep the focus, and do nothing
  let running = null; // the AbortController of a computation
  let candidates = [];
  let chosen = 0;

  function say(words, bad = false) {
    find(".status").textContent = words;
    find(".status").classList.toggle("bad", bad);
  }

  function lock(on) {
    busy = on;
    for (const button of panel.querySelectorAll("[data-do]")) button.setAttribute("aria-disabled", on);
  }

  /** Does one thing at a time, and says what went wrong. */
  async function act(work) {
    if (busy) return;
    lock(true);
    try {
      await work();
    } catch (error) {
      const cancelled = error.name === "AbortError";
      say(cancelled ? "Cancelled." : error.message, !cancelled);
    } finally {
      running = null;
      find(".cancel").hidden = true;
      lock(false);
    }
  }

  async function watch(path, asked, verb) {
    running = new AbortController();
    find(".cancel").hidden = false;
    find(".results").hidden = true;
    film.begin();
    say(`${verb} …`);
    for await (const event of listen(path, asked, running.signal)) {
      if (event.kind === "waiting" && event.ahead > 0) {
        say(`Waiting: ${event.ahead} before you, about ${event.seconds} s.`);
      } else if (event.kind === "frame") film.add(event);
      else if (event.kind === "error") throw new Error(event.message);
      else if (event.kind === "note") say(event.note);
      else if (event.kind === "done") {
        say(event.note);
        present(event);
      }
    }
  }

  function present({ candidates: found, against }) {
    candidates = found;
    find(".results").hidden = !found.length;
    find(".against").textContent = against ?? "";
    find(".candidates").replaceChildren(...found.map((one, n) => {
      const made = element("li", {}, ...card(one, n));
      made.querySelector(".follow").addEventListener("click", () => follow(n, true));
      return made;
    }));
    if (found.length) follow(0, false);
  }

  function follow(n, jump) {
    chosen = n;
    panel.querySelectorAll(".follow").forEach((made, k) => made.setAttribute("aria-pressed", k === n));
    film.follow({ row: n, ...candidates[n] }, jump);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(`${text}\n`);
      say("Copied.");
    } catch {
      say("This browser does not let a page copy here.", true);
    }
  }

  find(".results h2").textContent = title;
  find(".buttons").append(...Object.entries(buttons).map(([words, work]) => {
    const made = element("button", { type: "button" }, words);
    made.addEventListener("click", () => {
      const text = work(candidates, candidates[chosen]);
      if (text !== undefined) copy(text);
    });
    return made;
  }));
  find(".cancel").addEventListener("click", () => running?.abort());
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });
  find("form").addEventListener("submit", (event) => event.preventDefault());
  const { strength, strengthShown } = find("form").elements;
  strength.addEventListener("input", () => {
    strengthShown.value = Number(strength.value).toFixed(2);
  });
  say(lead);
  return { act, watch, say };
}
