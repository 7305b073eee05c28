"""Stories: what is drawn from a model of them, and what is measured of it.

samples.jsonl              new stories
samples-5.jsonl            by 5 reverse steps, and so on; not where the noise is not Markov
renewed-50.jsonl           with the last 50 % of the steps renewed, and so on; as above
cooled-80.jsonl            at a temperature of 0.8, and so on; as above
bound.jsonl                the exact bound on unseen ones
entity-swap.jsonl          every trial of editing the paper's stories
span-removal.jsonl
entity-swap-large.jsonl    and of editing unseen ones
span-removal-large.jsonl

Drawing needs no judge. Beside the perplexity of what was drawn stands that of as many unseen
stories, as they are and with their words shuffled: the scale on which a judge is to be read. Those
held out of training say how good, and how varied, a model can be that learns them perfectly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from redraft.config import check
from redraft.data.stories import read
from redraft.domains import Dataset
from redraft.errors import UserError
from redraft.evaluation import results, statistics, stories
from redraft.evaluation.judge import Judge, Judging, Likelihood, judge_at_hand, refuse_folder
from redraft.evaluation.statistics import Estimate
from redraft.experiments import domain, editing, noise, sweeps
from redraft.experiments.bounds import Bound, bounds
from redraft.experiments.data import dataset_of, held_out, unseen
from redraft.experiments.domain import PLAIN, Asked, keep_rows, read_rows
from redraft.experiments.editing import Draft
from redraft.experiments.sweeps import RENEWAL, STEPS, TEMPERATURE, Form, Sweep
from redraft.model import Model
from redraft.sampler import Callback

BOUND = "bound.jsonl"
SWEEPS = (STEPS, RENEWAL, TEMPERATURE)


def keep_texts(path: Path, n: int, make: Callable[[], list[str]]) -> None:
    keep_rows(path, n, lambda: [{"text": text} for text in make()])


def read_texts(path: Path) -> list[str]:
    return [row["text"] for row in read_rows(path)]


FORM = Form(".jsonl", keep_texts, read_texts)


@dataclass(frozen=True)
class Amounts(sweeps.Amounts):
    samples: int = 1_000
    """New stories."""
    redrafts: int = editing.LARGE
    """Unseen stories in the large forms of editing."""
    bound: int = 500
    """Unseen stories on which the exact bound is computed."""
    fewer: int = 200
    """New stories by each number of fewer steps."""
    renewed: int = 200
    """With each share of the steps renewed."""
    cooled: int = 200
    """At each temperature below 1."""

    def __str__(self) -> str:
        return (
            f"{self.samples:,} samples, {self.by(STEPS):,} by fewer steps, "
            f"{self.by(RENEWAL):,} renewed, {self.by(TEMPERATURE):,} cooled, "
            f"{self.redrafts:,} stories edited, the bound on {self.bound:,}"
        )


@dataclass(frozen=True)
class Drawn(sweeps.Drawn):
    amounts: Amounts
    form = FORM

    def bounds(self) -> list[Bound]:
        return [Bound(**row) for row in self.rows(BOUND)]

    def drafts(self, experiment: str) -> list[Draft]:
        return [Draft(**row) for row in self.rows(f"{experiment}.jsonl")]


def draw(model: Model, folder: Path, amounts: Amounts, callback: Callback | None = None) -> None:
    seed, data = model.config.seed, dataset_of(model.trained)

    def drafts(name: str) -> list[Draft]:
        return editing.draw(model, name, unseen(data), amounts.redrafts, seed, callback)

    sweeps.draw(model, folder, amounts, FORM, SWEEPS, callback)
    for name, experiment in editing.EXPERIMENTS.items():
        n = experiment.drafts(amounts.redrafts)
        keep_rows(folder / f"{name}.jsonl", n, partial(drafts, name))
    chosen = data.validation[: amounts.bound]
    keep_rows(folder / BOUND, len(chosen), partial(bounds, model, chosen, seed))


# ------------------------------------------------------------------ of what was drawn


@dataclass(frozen=True)
class Measured:
    """Numbers of one model."""

    results: list[dict[str, Any]]
    judged: list[Likelihood]
    """Samples, by the judge."""
    bounds: list[Bound]
    drafts: dict[str, list[Draft]]
    """By experiment."""

    def less(self, first: "Measured", seed: int) -> dict[str, dict[str, Estimate]]:
        """Samples have nothing in common; bounds and edits have their stories."""
        generation = stories.apart(self.judged, first.judged, seed)
        generation |= bound_lead(self.bounds, first.bounds, seed)
        edits = {
            name: editing.lead(name, own, first.drafts[name], seed)
            for name, own in self.drafts.items()
        }
        return {"generation": generation, **edits}


def measuring(out: Path, asked: Asked) -> Callable[[Drawn], Measured]:
    try:
        judge = judge_of(asked)
    except UserError as error:
        raise UserError(
            f"{error}; {out} holds all that was drawn, run the same command on it with a judge"
        ) from None
    return partial(numbers, judge=judge, judging=asked.judging)


def judge_of(asked: Asked) -> Judge:
    return Judge.load(asked.judge or judge_at_hand())


def numbers(own: Drawn, judge: Judge, judging: Judging | None = None) -> Measured:
    """All experiments on what was drawn from one model."""
    seed, data, samples = own.config.seed, dataset_of(own), own.samples()
    drafts = {name: own.drafts(name) for name in editing.EXPERIMENTS}
    found = [generation(own, data, samples, own.bounds(), judge, seed, judging)]
    found += [editing.result(own, name, rows, seed) for name, rows in drafts.items()]
    for sweep in SWEEPS:
        if by := own.by(sweep):
            found.append(swept(own, sweep, by, data, judge, seed, judging))
    if kernel := own.kernel():
        found.append(noise.result(own, kernel, seed))
    return Measured(found, judge.nll(samples), own.bounds(), drafts)


def generation(
    run: results.Run,
    data: Dataset,
    samples: Sequence[str],
    bound: Sequence[Bound],
    judge: Judge,
    seed: int = 0,
    judging: Judging | None = None,
) -> dict[str, Any]:
    """All measures of new stories, with those of unseen ones beside them."""
    encode = data.tokenizer.encode
    metrics = stories.generation(samples, data.train, encode, judge, seed, judging)
    texts = unseen(data, len(samples))
    scale = stories.scale(judge, texts, seed, judging)
    scale["real"] |= stories.variety(texts, seed)
    alike = held_out(data, len(texts))
    if len(alike) == len(texts):  # variety depends on how many there are
        scale["held-out"] = stories.quality(alike, judge, seed, judging)
    beside = {
        end: {name: estimate.to_dict() for name, estimate in own.items()}
        for end, own in scale.items()
    }
    return results.result(
        run,
        "generation",
        len(samples),
        metrics | bound_measures(bound, seed),
        judge=judge.id,
        bound_n=len(bound),
        scale={"n": len(texts), **beside},
    )


def swept(
    run: results.Run,
    sweep: Sweep,
    samples: Mapping[int, Sequence[str]],
    data: Dataset,
    judge: Judge,
    seed: int = 0,
    judging: Judging | None = None,
) -> dict[str, Any]:
    """All measures by each setting, with those of as many unseen stories beside them."""
    measure = partial(stories.quality, judge=judge, seed=seed, callback=judging)
    texts = unseen(data, min(map(len, samples.values())))
    real = {name: estimate.to_dict() for name, estimate in measure(texts).items()}
    scale = {"n": len(texts), "real": real}
    return sweep.result(run, samples, measure, judge=judge.id, scale=scale)


def bound_measures(bound: Sequence[Bound], seed: int = 0) -> dict[str, Estimate]:
    nats = [own.nats for own in bound]
    return {
        name: statistics.bootstrap_ratio(nats, [getattr(own, column) for own in bound], seed)
        for name, column in BOUNDS.items()
    }


def bound_lead(a: Sequence[Bound], b: Sequence[Bound], seed: int = 0) -> dict[str, Estimate]:
    """Measures of a less those of b, paired by story; none where the stories differ."""
    if [sizes(own) for own in a] != [sizes(own) for own in b]:
        return {}
    found = {}
    for name, column in BOUNDS.items():
        counts = [getattr(own, column) for own in a]
        ours, theirs = (np.array([own.nats for own in rows]) / counts for rows in (a, b))
        found[name] = statistics.paired_difference(ours, theirs, seed, weights=counts)
    return found


BOUNDS = {"bound_nats_per_token": "tokens", "bound_nats_per_char": "characters"}


def sizes(own: Bound) -> tuple[int, int]:
    return own.tokens, own.characters


# ------------------------------------------------------------------ of a model


def measure_generation(model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    judge = judge_of(asked)
    if asked.samples is not None:
        samples = read(asked.samples)
    else:
        n = asked.n or Amounts.samples
        options = PLAIN | asked.options
        samples = model.sample(n, seed=asked.seed, callback=asked.callback, **options)
    bound = bounds(model, data.validation[: Amounts.bound], asked.seed)
    return generation(model.trained, data, samples, bound, judge, asked.seed, asked.judging)


def measure_sweep(sweep: Sweep, model: Model, data: Dataset, asked: Asked) -> dict[str, Any]:
    judge = judge_of(asked)
    samples = sweep.draw(model, asked.n or Amounts.fewer, asked.seed, asked.callback)
    return swept(model.trained, sweep, samples, data, judge, asked.seed, asked.judging)


def measure_editing(model: Model, data: Dataset, asked: Asked, experiment: str) -> dict[str, Any]:
    once = editing.EXPERIMENTS[experiment].trials == 1
    check(asked.n is None or once, f"-n is not for {experiment}: its stories are the paper's")
    n = asked.n or Amounts.redrafts
    drafts = editing.draw(model, experiment, unseen(data), n, asked.seed, asked.callback)
    return editing.result(model.trained, experiment, drafts, asked.seed)


def check_asked(asked: Asked) -> None:
    check(not asked.fcd, "--fcd is for molecules, this is about stories")
    if asked.judge is not None:
        refuse_folder(asked.judge)


STORIES = domain.Domain(
    Drawn,
    Amounts,
    check_asked,
    draw,
    measuring,
    {"generation": measure_generation}
    | {sweep.experiment: partial(measure_sweep, sweep) for sweep in SWEEPS}
    | {name: partial(measure_editing, experiment=name) for name in editing.EXPERIMENTS},
)
