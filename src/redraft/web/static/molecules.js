// A molecule is broken, repaired, revised or sampled, and one watches.

import { ask, drawing, element, later, percent } from "./page.js";
import { modelsOf, offer, settings, stage } from "./stage.js";

export function molecules(panel, known) {
  const models = modelsOf("molecules", panel, known);
  if (!models) return;
  const find = (selector) => panel.querySelector(selector);
  const field = find("form").elements;
  let original = null; // what was broken, and into what
  const { act, watch, say } = stage(panel, {
    lead: "Paste a molecule or choose one, break it, and press Repair.",
    title: "Candidates",
    draw: structure,
    card,
    buttons: { "Copy SMILES": smilesOf, "Copy CSV": csv },
  });

  // ---------------------------------------------------------------- what is given

  let looked = 0;
  async function look() {
    const smiles = field.smiles.value.replace(/\s+/g, "");
    const turn = ++looked;
    if (!smiles) return judge("", "");
    if (smiles.length > field.smiles.maxLength) return judge("too long", "bad");
    try {
      const seen = await ask("molecules/look", { model: field.model.value, smiles });
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

  field.smiles.addEventListener("input", later(look));
  field.model.addEventListener("change", look);

  // ---------------------------------------------------------------- what is asked

  const asks = {
    repair: (given) => ({
      ...given,
      seed: settings(field).seed,
      original: original?.broken === given.smiles ? original.whole : null,
    }),
    revise: (given) => ({ ...given, ...settings(field), strength: Number(field.strength.value) }),
    sample: ({ model }) => ({ model, ...settings(field) }),
  };
  const verbs = { repair: "Repairing", revise: "Revising", sample: "Sampling" };

  async function breakIt(given) {
    const seen = await ask("molecules/break", { ...given, seed: settings(field).seed });
    original = { whole: seen.original, broken: seen.smiles };
    field.smiles.value = seen.smiles;
    show(seen);
    say("Broken by one random edit. Repair it.");
  }

  function begin(action) {
    const given = { model: field.model.value, smiles: field.smiles.value.replace(/\s+/g, "") };
    if (action !== "sample" && !given.smiles) {
      field.smiles.focus();
      return say("Paste a SMILES, or choose an example.", true);
    }
    if (action === "break") return breakIt(given);
    return watch(`molecules/${action}`, asks[action](given), verbs[action]);
  }

  for (const button of panel.querySelectorAll("[data-do]")) {
    button.addEventListener("click", () => act(() => begin(button.dataset.do)));
  }

  // ---------------------------------------------------------------- what is seen

  /** The last structure that could be drawn, pale where the row no longer parses. */
  function structure(past) {
    const figure = find(".big");
    const drawn = past.findLast((row) => row.svg)?.svg ?? null;
    figure.classList.toggle("stale", drawn !== null && !past.at(-1).svg);
    if (drawn !== null && figure.shown === drawn && figure.firstChild) return;
    figure.shown = drawn;
    const nothing = element("span", { className: "nothing" }, "no structure yet: it does not parse");
    const made = drawn ? drawing(drawn, `Structure of ${past.at(-1).text}`) : nothing;
    figure.replaceChildren(...(past.length ? [made] : []));
  }

  function card(one) {
    const made = element("button", { type: "button", className: "candidate follow" });
    const drawn = element("span", { className: "drawing" });
    drawn.append(one.svg ? drawing(one.svg, "") : element("span", { className: "nothing" }, "does not parse"));
    const facts = [];
    if (one.similarity !== null) facts.push(`similarity ${one.similarity.toFixed(2)}`);
    if (one.edits !== undefined) facts.push(`${one.edits} edit${one.edits === 1 ? "" : "s"}`);
    if (one.sure !== undefined) facts.push(`${percent(one.sure)} of belief`);
    made.append(drawn, element("span", { className: "mono" }, one.text || "(empty)"));
    made.append(element("span", { className: "facts" }, facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · ")));
    return [made];
  }

  offer(field, models, (smiles) => {
    field.smiles.value = smiles;
    look();
  });
}

const smilesOf = (candidates) => candidates.map((one) => one.text).join("\n");
const cell = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
const csv = (candidates) => ["smiles,valid,similarity,edits,sure", ...candidates.map((one) => [
  cell(one.text), one.svg !== null, one.similarity ?? "", one.edits ?? "", one.sure ?? "",
].join(","))].join("\n");
