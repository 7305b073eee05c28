"""The first minutes: generate, repair, fill in, train, re-draft, see what noise was learned."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np

from redraft.config import read_recipe
from redraft.data.corpus import encode
from redraft.data.molecules import bundled, canonical_or_none
from redraft.errors import UserError
from redraft.model import Model, load, train, training_config
from redraft.noise.semantic import SemanticProcess
from redraft.report import figures
from redraft.report.repairs import told
from redraft.sampler import Trace
from redraft.terminal import (
    Frames,
    TrainingDisplay,
    new_console,
    show_alternatives,
    show_changes,
    show_noise,
    show_revision,
)

SAMPLES = 500
SHOWN = 12
BROKEN = {
    "paracetamol": "CC(=O)Nc1ccc(O)cc",
    "aspirin": "CC(=O)Oc1cccccC(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c=O",
    "ibuprofen": "CC(C)Cc1ccc(C(C)C(=O)O)cc1)",
}
"""Each with one thing wrong."""
MISTAKEN = (
    "Once upon a time, there was a boy named Tom. He like to play with his red car every day. "
    "One day the car was lost and Tom was very happy. He looked under the bed and find the car."
)
"""With three."""
STORY = (
    "Once upon a time there was a little girl named Lily. Lily had a [MASK] ball. "
    "One day the ball rolled into the [MASK]. Lily was very [MASK]."
)


def quickstart(out: Path, seed: int = 0) -> None:
    """Everything in about a minute on two cores; figures and the model are left in `out`."""
    clear(out)
    shipped = load("molecules")
    generate(shipped, out, seed)
    repair(shipped, seed)
    stories = load("stories")
    fill_in(stories, seed)
    correct(stories, seed)
    model = learn(out, seed)
    try_out(model, seed)
    redraft(model, out, seed)
    draw_noise(model, out)
    say("Done", f"model and figures are in {out}/")
    for path in sorted(out.glob("*.png")):
        print(f"  {path}")
    print(f"next: redraft sample {out}/model -n 20, or redraft train --data my.txt")


def clear(out: Path) -> None:
    """Make room: an earlier quickstart is replaced, anything else is left alone."""
    broken_off = {path.name for path in out.glob("*")} <= {"molecules.png"}
    if not broken_off and not learned_here(out / "model"):
        raise UserError(f"{out} is not empty and no earlier quickstart; choose another --out")
    shutil.rmtree(out / "model", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)


def learned_here(run: Path) -> bool:
    """Whether it is a quickstart's model, of any seed and of an earlier recipe, too."""
    try:
        found, own = training_config(run), read_recipe("quickstart")
    except UserError:
        return False
    alike = (found.method, found.data) == (own.method, own.data)
    return alike and (run.parent / "molecules.png").exists()


def say(title: str, what: str) -> None:
    print(f"\n{title}: {what}", flush=True)


def generate(model: Model, out: Path, seed: int) -> None:
    say("Generating", f"{SHOWN} molecules from pure noise, by the model that comes with redraft")
    smiles, drawn = model.sample_valid(SHOWN, seed=seed)
    for s in smiles:
        print(f"  {s}")
    print(f"{len(smiles)} different and valid ones in {drawn} draws")
    figures.molecule_grid(smiles).save(out / "molecules.png")


def repair(model: Model, seed: int) -> None:
    """Well-known molecules with a typing error each, and what the model makes of them."""
    from rich.text import Text

    say("Repairing", "SMILES that do not parse, brought to the nearest molecules that do")
    console = new_console()
    for name, repaired in zip(BROKEN, model.repair(BROKEN.values(), seed=seed), strict=True):
        console.print(Text(f"  {name}: {repaired.given}"), soft_wrap=True)
        console.print(Text("    -> ") + told(repaired, model.tokenizer, console), soft_wrap=True)


def fill_in(model: Model, seed: int) -> None:
    say("Filling in", "hidden words of a story, by the other model that comes with redraft")
    print(f"  {STORY}")
    show_alternatives(
        model.alternatives(STORY, 5, seed=seed), model.template(STORY), model.tokenizer
    )


def correct(model: Model, seed: int) -> None:
    say("Correcting", "a story with three mistakes, taken for one with a little noise")
    (corrected,) = model.revise([MISTAKEN], noising=False, seed=seed)
    show_changes(MISTAKEN, corrected, model.tokenizer)


def learn(out: Path, seed: int) -> Model:
    """A small model of one's own, watched while it learns."""
    config = dataclasses.replace(read_recipe("quickstart"), seed=seed)
    say(
        "Training",
        "the denoiser learns to undo noise, the leader learns which noise teaches most",
    )
    with TrainingDisplay(config.train.steps, config.train.seconds, config.method) as display:
        model = train(config, out / "model", display.update)
    summary = model.trained.summary
    print(summary["data"])
    print(
        f"bound on molecules never seen: {summary['bound_start']:.2f} -> "
        f"{summary['bound_end']:.2f} nats per token"
    )
    return model


def try_out(model: Model, seed: int) -> None:
    say("Trying it out", f"{SAMPLES} molecules by this small model")
    smiles = model.sample(SAMPLES, seed=seed)
    valid = parsing(smiles)
    print(
        f"{len(valid)} of {SAMPLES} ({100 * len(valid) / SAMPLES:.0f} %) are valid molecules after "
        f"this short training, {len(set(valid))} of them different. Some valid ones:"
    )
    for s in list(dict.fromkeys(valid))[:5]:
        print(f"  {s}")


def parsing(smiles: list[str]) -> list[str]:
    """Those that RDKit accepts as molecules."""
    return [s for s in smiles if canonical_or_none(s) is not None]


def redraft(model: Model, out: Path, seed: int) -> None:
    """A well-known molecule noised and re-drafted, step by step; then many at once."""
    item = "CC(=O)Nc1ccccc1"
    say("Re-drafting", f"{item} (acetanilide) taken 40 % of the way to noise and back")
    frames = Trace()
    (result,) = model.revise([item], strength=0.4, seed=seed, callback=frames)
    clean = model.tokenizer.encode(item)
    show_revision(every(frames, 10), model.tokenizer, clean)
    print(f"result: {result}")
    figure = figures.revision_trace(frames, model.tokenizer.tokens, clean)
    figures.save(figure, out / "redraft.png")
    data = model.config.data
    unseen = encode(bundled().validation, model.tokenizer, data.max_length, data.long).items
    back = model.revise(unseen, strength=0.1, seed=seed)
    print(
        f"Of {len(back)} molecules never seen, taken 10 % of the way and back, "
        f"{100 * len(parsing(back)) / len(back):.0f} % are valid."
    )


def every(frames: Frames, most: int) -> Frames:
    """At most so many frames, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, most).round().astype(int))
    return [frames[i] for i in chosen]


def draw_noise(model: Model, out: Path) -> None:
    say("Learned noise", "what the leader replaces tokens by, against uniform noise, at t = T/2")
    process = model.trained.process
    assert isinstance(process, SemanticProcess)
    Q = process.Q.cpu().numpy()  # its diagonal does not count
    tokens, frequency = model.tokenizer.tokens, model.trained.tokens
    show_noise(Q[len(Q) // 2], tokens, frequency)
    figures.save(figures.noise_maps(Q, tokens, None, frequency), out / "noise.png")
    rows = [json.loads(line) for line in (out / "model/metrics.jsonl").open(encoding="utf-8")]
    figures.save(figures.learning_curves(rows), out / "learning.png")
