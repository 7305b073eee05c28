"""What the molecules tab asks for: each answer is a film, and candidates at its end."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from redraft.data.molecules import canonical_or_none
from redraft.errors import UserError
from redraft.evaluation.molecules import similarity
from redraft.experiments.repair import break_one
from redraft.model import Model, fixed
from redraft.repair import Ids, Repaired, Repairer
from redraft.report.structure import structure
from redraft.sampler import Step
from redraft.tokenizers.base import EOS, UnknownToken, shorten, visible
from redraft.tokenizers.smiles import SmilesTokenizer
from redraft.web import forms
from redraft.web.desk import Job
from redraft.web.film import Film, Look, Row

EXAMPLES = {
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "ibuprofen": "CC(C)Cc1ccc([C@@H](C)C(=O)O)cc1",
    "celecoxib": "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1",
}
CLOSELY = 20
"""Candidates of a repair that are all shown, and how many are skipped between later ones."""
BEST = 6
"""Candidates told at the end of a repair."""

Facts = dict[str, Any]


def examples(model: Model) -> dict[str, str]:
    return EXAMPLES


def first(model: Model, job: Job) -> None:
    repair(model, forms.Repair(model="first", smiles="C1CC"), job)


# ------------------------------------------------------------------ at once


def look(model: Model, ask: forms.Look) -> Facts:
    """What a string is: its tokens, its structure where it parses, why the model refuses it."""
    seen: Facts = {"smiles": ask.smiles, "valid": False, "tokens": [], "svg": None, "remark": ""}
    try:
        check_length(model, ask.smiles)  # before any parser meets it
        svg = structure(ask.smiles)
        pieces = [visible(piece) for piece in SmilesTokenizer.split(ask.smiles)]
        seen |= {"valid": svg is not None, "tokens": pieces, "svg": svg}
        model.tokenizer.ids(ask.smiles)
    except UserError as error:
        seen["remark"] = str(error)
    return seen


def broken(model: Model, ask: forms.Break) -> Facts:
    """The molecule after one random edit that leaves no molecule."""
    check_length(model, ask.smiles)
    form = canonical_or_none(ask.smiles)
    if form is None:
        raise UserError("only what parses can be broken: this is no molecule as it is")
    known = model.tokenizer.tokens[EOS + 1 :]
    text = break_one(ask.smiles, known, 1, np.random.default_rng(ask.seed))
    if text is None:
        raise UserError(f"no single edit breaks {shorten(ask.smiles)}")
    return look(model, forms.Look(model=ask.model, smiles=text)) | {"original": ask.smiles}


def check_length(model: Model, smiles: str) -> None:
    tokens = len(SmilesTokenizer.split(smiles))
    most = model.longest - len(model.tokenizer.ending)
    if tokens > most:
        raise UserError(f"this has {tokens} tokens, the model takes at most {most}")


# ------------------------------------------------------------------ step by step


def sample(model: Model, ask: forms.Sample, job: Job) -> None:
    film = Film(job, sight(model))
    model.sample(ask.n, seed=ask.seed, callback=film.step, **ask.options)
    finish(job, film, None)


def revise(model: Model, ask: forms.Revise, job: Job) -> None:
    film = Film(job, sight(model))
    film.show("as given", [model.tokenizer.encode(ask.smiles)] * ask.n)
    items = [ask.smiles] * ask.n
    model.revise(items, ask.strength, seed=ask.seed, callback=film.step, **ask.options)
    finish(job, film, ask.smiles)


def sight(model: Model) -> Look:
    """A row as SMILES, and drawn where it parses; the page keeps a drawing that it has."""
    tokenizer = model.tokenizer

    def look(ids: list[int], known: Row) -> Row:
        smiles = tokenizer.decode(ids)
        return {
            "tokens": [visible(tokenizer.tokens[i]) for i in ids],
            "text": smiles,
            "svg": known["svg"] if known.get("text") == smiles else structure(smiles),
        }

    return look


def finish(job: Job, film: Film, given: str | None) -> None:
    """What the last frame holds, side by side."""
    found = [candidate(row["text"], row["svg"], given) for row in film.last]
    valid = sum(c["svg"] is not None for c in found)
    note = f"{valid} of {len(found)} candidates {'is' if valid == 1 else 'are'} valid."
    against = similar_to("what was given") if given and canonical_or_none(given) else ""
    job.say("done", candidates=found, note=note, against=against)


def similar_to(what: str) -> str:
    return f"similarity to {what} (Tanimoto)"


def candidate(smiles: str, svg: str | None, reference: str | None, **more: Any) -> Facts:
    """A result, and how similar it is to the reference, where both are molecules."""
    similar = None
    if svg is not None and reference is not None and canonical_or_none(reference) is not None:
        similar = similarity(smiles, reference)
    return {"text": smiles, "svg": svg, "similarity": similar, **more}


# ------------------------------------------------------------------ repair


def repair(model: Model, ask: forms.Repair, job: Job) -> None:
    """The search as it goes: what is put to the parser, and revisions where edits do not help."""
    search = Search(model, Film(job, sight(model)))
    eyes = {"canonical": search.canonical, "watch": search.revised}
    repairer = Watched(**vars(model.repairer()) | eyes)
    generator = torch.Generator(model.device).manual_seed(fixed(ask.seed))
    first = repairer.repair(ask.smiles, generator)
    if first.result is None:
        job.say("done", candidates=[], note=f"Not repaired: {first.remark}.", against="")
        return
    reference, against = ask.original, similar_to("the molecule before it was broken")
    if reference is None:
        reference, against = first.result, similar_to("the first candidate")
    found = [
        candidate(r.result, structure(r.result), reference, edits=r.edits, sure=r.sure)
        for r in repairer.ranked(first)
        if r.result is not None
    ]
    search.found(found[0]["text"])
    job.say("done", candidates=found, note=told(first), against=against)


def told(first: Repaired) -> str:
    if not first.edits:
        return "It is valid as it is: nothing to repair."
    return (
        f"Repaired with {first.edits} edit{'s' * (first.edits > 1)}, {100 * first.sure:.0f} % sure."
    )


class Search:
    """The eyes of a page on a repair: a parser and a callback that show what passes by."""

    def __init__(self, model: Model, film: Film):
        self.tokenizer, self.film, self.tried = model.tokenizer, film, 0

    def canonical(self, text: str) -> str | None:
        self.film.job.check()
        form = canonical_or_none(text)
        if form is not None or self.tried < CLOSELY or self.tried % CLOSELY == 0:
            label = f"candidate {self.tried}" if self.tried else "as given"
            self._show(f"{label}{', which parses' * (form is not None)}", text)
        self.tried += 1
        return form

    def found(self, text: str) -> None:
        self._show("the nearest and likeliest", text)

    def revised(self, step: Step) -> None:
        self.film.show(f"revision at t = {step.to}", [step.x[0].tolist()], fixed=True)

    def _show(self, label: str, text: str) -> None:
        try:
            self.film.show(label, [self.tokenizer.ids(text)], fixed=True)
        except UnknownToken:
            return  # the repair says so itself


@dataclass(frozen=True)
class Watched(Repairer):
    """A repairer that remembers among what it chose."""

    choice: dict[Ids, str] = field(default_factory=dict)

    def best(self, text: str, ids: Ids, found: Any) -> Repaired:
        self.choice.update(found)
        return super().best(text, ids, found)

    def ranked(self, first: Repaired) -> Iterator[Repaired]:
        """The first, then the best of the others, and so on; `sure` is of all of them."""
        yield first
        left, doubt, last = dict(self.choice), 1 - first.sure, first.result
        for _ in range(BEST - 1):
            form = canonical_or_none(last or "")
            left = {ids: other for ids, other in left.items() if other != form}
            if not left:
                return
            found = super().best(first.given, tuple(self.tokenizer.ids(first.given)), left)
            yield found._replace(sure=doubt * found.sure)
            doubt, last = doubt * (1 - found.sure), found.result
