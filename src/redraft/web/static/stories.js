// Words of a story are hidden and filled in anew, or all of it is revised, and one watches.

import { ask, element, later, percent } from "./page.js";
import { picker } from "./picker.js";
import { modelsOf, offer, settings, stage } from "./stage.js";

export function stories(panel, known) {
  const models = modelsOf("stories", panel, known);
  if (!models) return;
  const find = (selector) => panel.querySelector(selector);
  const field = find("form").elements;
  let words = []; // of the text, as the model reads them
  let trouble = ""; // why it does not
  const options = picker(find(".words"), count);
  find(".tokens").classList.add("prose");
  find(".candidates").classList.add("texts");
  find(".big").remove();
  const { act, watch, say } = stage(panel, {
    lead: "Hide some words, and press Infill.",
    title: "Alternatives",
    card,
    buttons: {
      "Copy text": (_, chosen) => chosen.text,
      "Copy all": (candidates) => candidates.map((one) => one.text).join("\n\n"),
    },
  });

  // ---------------------------------------------------------------- the words

  const breaks = (word) => !word.text.trim() && !word.masked;

  let turn = 0;
  async function read() {
    const mine = ++turn;
    const text = field.text.value;
    if (!text.trim()) return show([], "");
    if (text.length > field.text.maxLength) return show([], "too long");
    try {
      const seen = await ask("stories/read", { model: field.model.value, text });
      if (mine === turn) show(seen.words, seen.remark);
    } catch (error) {
      if (mine === turn) show([], error.message);
    }
  }

  /** What was hidden stays so in the words before and after an edit. */
  function kept(fresh) {
    const hidden = hiddenWords();
    const same = (a, b) => a?.text === b?.text;
    const shorter = Math.min(words.length, fresh.length);
    let start = 0;
    while (start < shorter && same(words[start], fresh[start])) start += 1;
    let end = 0;
    while (end < shorter - start && same(words.at(-1 - end), fresh.at(-1 - end))) end += 1;
    const [by, after] = [fresh.length - words.length, fresh.length - end];
    return fresh.map((word, n) => word.masked
      || (n < start && hidden.has(n)) || (n >= after && hidden.has(n - by)));
  }

  function show(fresh, remark) {
    trouble = remark;
    find(".verdict").textContent = remark;
    find(".verdict").classList.toggle("bad", Boolean(remark));
    const hidden = kept(fresh);
    words = fresh;
    const made = words.map((word) => (breaks(word) ? element("br") : option(word)));
    find(".words").replaceChildren(...made.flatMap((one, n) => (/^[^\S\n]/.test(words[n].text) ? [" ", one] : [one])));
    options.fill(made.filter((_, n) => !breaks(words[n])), hidden.filter((_, n) => !breaks(words[n])));
  }

  function option(word) {
    const shown = word.masked ? "▁▁▁" : word.text.trim();
    return element("span", { "aria-label": word.masked ? "a mask" : shown }, shown);
  }

  /** Numbers of hidden words; a line break is hidden with both its neighbours. */
  function hiddenWords() {
    const marked = options.marks();
    const numbers = words.map((_, n) => n).filter((n) => !breaks(words[n]));
    const hidden = new Set(numbers.filter((_, k) => marked[k]));
    words.forEach((word, n) => {
      if (breaks(word) && hidden.has(n - 1) && hidden.has(n + 1)) hidden.add(n);
    });
    return hidden;
  }

  function count() {
    const tokens = [...hiddenWords()].reduce((sum, n) => sum + words[n].tokens, 0);
    const n = options.marks().filter(Boolean).length;
    const plural = (k, word) => `${k} ${word}${k === 1 ? "" : "s"}`;
    find(".hidden-words").textContent = n ? `${plural(n, "word")} hidden, ${plural(tokens, "token")} to draw.` : "";
  }

  field.text.addEventListener("input", later(read));
  field.model.addEventListener("change", read);

  // ---------------------------------------------------------------- what is asked

  const asks = {
    infill: (given) => ({ ...given, hidden: [...hiddenWords()] }),
    revise: (given) => ({ ...given, strength: Number(field.strength.value) }),
    sample: ({ text, ...rest }) => rest,
  };
  const verbs = { infill: "Filling in", revise: "Revising", sample: "Writing" };

  function begin(action) {
    if (action === "clear") return options.mark([]);
    const given = { model: field.model.value, text: field.text.value, ...settings(field) };
    if (action !== "sample" && !given.text.trim()) {
      field.text.focus();
      return say("Write a story, or choose an example.", true);
    }
    if (action !== "sample" && trouble) return say(trouble, true);
    if (action === "infill" && !hiddenWords().size) {
      return say("Hide some words first: click them, or drag across several.", true);
    }
    return watch(`stories/${action}`, asks[action](given), verbs[action]);
  }

  for (const button of panel.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => act(() => begin(button.dataset.do)));
  }

  // ---------------------------------------------------------------- what came of it

  const marked = { new: "ins", gone: "del", same: "span" };

  function card(one, n) {
    const text = element("p", { className: "text" },
      ...one.parts.map(([kind, words]) => element(marked[kind], {}, words)));
    const facts = [`${percent(one.likelihood)} a token`];
    if (one.drawn > 1) facts.push(`drawn ${one.drawn} times`);
    const named = (label) => ({ type: "button", "aria-label": `${label} ${n + 1}` });
    const steps = element("button", { ...named("Steps of alternative"), className: "follow" }, "Steps");
    const take = element("button", named("Take it: alternative"), "Take it");
    take.addEventListener("click", () => {
      give(one.text);
      say("Taken: hide words of it, or revise it.");
    });
    const foot = element("p", { className: "foot" },
      element("span", { className: "facts" }, facts.join(" · ")), steps, take);
    return [text, foot];
  }

  function give(text) {
    field.text.value = text;
    return read();
  }

  offer(field, models, give);
}
