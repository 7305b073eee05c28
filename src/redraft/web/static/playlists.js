// A playlist is continued, or some of its tracks are redrafted, and one watches.

import { ask, element, later, percent } from "./page.js";
import { picker } from "./picker.js";
import { modelsOf, offer, settings, stage } from "./stage.js";

const LEAST = 4; // tracks, as everywhere in the package

export function playlists(panel, known) {
  const models = modelsOf("playlists", panel, known);
  if (!models) return;
  const find = (selector) => panel.querySelector(selector);
  const field = find("form").elements;
  let tracks = []; // with their numbers, artists and titles
  const options = picker(find(".playlist"), () => {});
  find(".tokens").classList.add("lines");
  find(".candidates").classList.add("texts", "rows");
  find(".big").remove();
  [field.strength.value, field.strengthShown.value, field.temperature.value] = [1, "1.00", 0.7];
  const { act, watch, say } = stage(panel, {
    lead: "Continue the playlist, or mark tracks and press Redraft.",
    title: "Proposals",
    card,
    buttons: {
      "Take the best": take,
      "Copy playlist": () => tracks.map(nameOf).join("\n"),
    },
  });

  // ---------------------------------------------------------------- the playlist

  const nameOf = ({ artist, title }) => [artist, title].filter(Boolean).join(" - ");
  const label = ({ artist, title }) => [
    element("span", {}, title), element("span", { className: "artist" }, artist)];

  function show(list, marks = []) {
    tracks = list;
    const made = tracks.map((track) => element("div", {}, element("span", {}, ...label(track))));
    find(".playlist").replaceChildren(...made);
    options.fill(made, made.map((_, n) => Boolean(marks[n])));
  }

  const add = (track) => show([...tracks, track], options.marks());

  let turn = 0;
  async function search() {
    const mine = ++turn;
    const text = field.search.value.trim();
    try {
      const asked = { model: field.model.value, text };
      const seen = text ? await ask("playlists/search", asked) : { tracks: [] };
      if (mine === turn) offerTracks(seen.tracks, text && !seen.tracks.length ? "No track is called so." : "");
    } catch (error) {
      if (mine === turn) offerTracks([], error.message);
    }
  }

  function offerTracks(list, remark) {
    find(".verdict").textContent = remark;
    find(".found").hidden = !list.length;
    find(".found").replaceChildren(...list.map((track) => {
      const made = element("button", { type: "button" }, ...label(track));
      made.addEventListener("click", () => {
        add(track);
        say(`Added: ${nameOf(track)}.`);
      });
      return element("li", {}, made);
    }));
  }

  async function give(text) {
    try {
      const asked = { model: field.model.value, tracks: text.split(" ").map(Number) };
      show((await ask("playlists/look", asked)).tracks);
    } catch (error) {
      say(error.message, true);
    }
  }

  field.search.addEventListener("input", later(search));
  field.search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") find(".found button")?.click();
  });
  field.model.addEventListener("change", () => {
    show([]);
    offerTracks([], "");
  });

  // ---------------------------------------------------------------- what is asked

  const marked = () => tracks.map((_, n) => n).filter((n) => options.marks()[n]);
  const asks = {
    continue: (given) => given,
    redraft: (given) => ({
      ...given,
      at: marked().map((n) => n + 1),
      strength: Number(field.strength.value),
    }),
  };
  const edits = {
    remove: () => tracks.filter((_, n) => !options.marks()[n]),
    clear: () => [],
  };
  const verbs = { continue: "Continuing", redraft: "Redrafting" };

  function begin(action) {
    if (action in edits) return show(edits[action]());
    if (tracks.length < LEAST) return say(`A playlist of at least ${LEAST} tracks is needed.`, true);
    const given = {
      model: field.model.value,
      tracks: tracks.map(({ track }) => track),
      draws: Number(field.draws.value),
      ...settings(field),
    };
    return watch(`playlists/${action}`, asks[action](given), verbs[action]);
  }

  for (const button of panel.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => act(() => begin(button.dataset.do)));
  }

  // ---------------------------------------------------------------- what came of it

  /** Into the playlist: at its place, or behind it. */
  function put(one) {
    if (one.place === null) return add(one);
    show(tracks.map((track, n) => (n === one.place ? one : track)), options.marks());
  }

  /** The first of every place; or as many as were to come. */
  function take(candidates) {
    const places = new Set();
    const best = candidates.filter(({ place }) => place !== null && !places.has(place) && places.add(place));
    for (const one of best.length ? best : candidates.slice(0, Number(field.n.value))) put(one);
    say("Taken.");
  }

  function card(one, n) {
    const before = one.place === null ? [] : [element("del", {}, `${one.place + 1}  ${nameOf(tracks[one.place])}`), "\n"];
    const text = element("p", { className: "text" }, ...before, ...label(one));
    const share = element("progress", { max: 1, value: one.share, "aria-hidden": "true" });
    const facts = [`${percent(one.share)} of draws`];
    if (one.sharing > 1) facts.push(`one of ${one.sharing} tracks with its codes`);
    const named = (verb) => ({ type: "button", "aria-label": `${verb} ${nameOf(one)}`, title: `${n + 1}` });
    const steps = element("button", { ...named("Steps to"), className: "follow" }, "Steps");
    const taken = element("button", named("Take it:"), "Take it");
    taken.addEventListener("click", () => {
      put(one);
      say(`Taken: ${nameOf(one)}.`);
    });
    const foot = element("p", { className: "foot" },
      element("span", { className: "facts" }, facts.join(" · ")), steps, taken);
    return [text, share, foot];
  }

  offer(field, models, give);
}
