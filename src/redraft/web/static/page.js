// The tabs, and what they share: their parts, asking the server, small elements.

import { molecules } from "./molecules.js";
import { noise } from "./noise.js";
import { playlists } from "./playlists.js";
import { stories } from "./stories.js";

const TABS = { molecules, stories, playlists, noise }; // a new tab is a row here, a button and a section in index.html

async function begin() {
  const known = await ask("models");
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const started = new Set();

  function choose(name, focus = false) {
    for (const tab of tabs) {
      const chosen = tab.getAttribute("aria-controls") === name;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) tab.focus();
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (!started.has(name)) TABS[name](furnished(name), known);
    started.add(name);
  }

  tabs.forEach((tab, n) => {
    tab.addEventListener("click", () => { location.hash = tab.getAttribute("aria-controls"); });
    tab.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1, Home: -n, End: tabs.length - 1 - n }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      const next = tabs[(n + by + tabs.length) % tabs.length].getAttribute("aria-controls");
      choose(next, true);
      history.replaceState(null, "", `#${next}`);
    });
  });
  const served = Object.keys(TABS).find((name) => known.models.some((model) => model.domain === name));
  const named = () => (location.hash.slice(1) in TABS ? location.hash.slice(1) : served ?? "noise");
  addEventListener("hashchange", () => choose(named()));
  choose(named());
}

/** A panel with the parts that it shares with others, in words of its own. */
function furnished(name) {
  const panel = document.getElementById(name);
  for (const place of panel.querySelectorAll("[data-part]")) {
    const part = document.getElementById(`part-${place.dataset.part}`).content.cloneNode(true);
    for (const word of part.querySelectorAll("[data-word]")) {
      word.textContent = place.dataset[word.dataset.word] ?? word.textContent;
    }
    place.replaceWith(part);
  }
  return panel;
}

// ------------------------------------------------------------------ the server

async function request(path, body, signal) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const answer = await fetch(`api/${path}`, { ...options, signal });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error ?? "the server did not understand");
  }
  return answer;
}

export async function ask(path, body, signal) {
  return (await request(path, body, signal)).json();
}

/** Events of a computation as they come; leaving the loop, or aborting, ends the computation. */
export async function* listen(path, body, signal) {
  const reader = (await request(path, body, signal)).body
    .pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
  }
}

// ------------------------------------------------------------------ small things

export function element(tag, facts = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** The server's own SVG, read as such: nothing of it can be a script of this page. Without a label
 *  it only adorns. */
export function drawing(svg, label) {
  const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  const made = document.importNode(parsed, true);
  if (label) made.setAttribute("aria-label", label);
  made.setAttribute(...(label ? ["role", "img"] : ["aria-hidden", "true"]));
  return made;
}

export function fill(select, names) {
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
}

/** A function that waits until nobody has called it for a moment. */
export function later(work, pause = 250) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, pause);
  };
}

export function percent(share) {
  if (share < 0.001) return "under 0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

begin().catch((error) => {
  document.getElementById("main").prepend(element("p", { className: "problem" }, error.message));
});
