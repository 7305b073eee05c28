"""What the stories tab asks for: words are hidden and filled in anew, or a whole text is revised.

Each answer is a film, and at its end the different texts that came of it, the likeliest first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from redraft.batches import collate
from redraft.config import check
from redraft.errors import UserError
from redraft.experiments.editing import CAT, LILY, MAX, SAM, TRAIN
from redraft.likelihood import Likelihoods
from redraft.model import Model, fixed
from redraft.tokenizers.base import EOS, MASK, SPECIALS
from redraft.web import forms
from redraft.web.desk import Job
from redraft.web.film import Film, Look, Row
from redraft.wording import Part, compared, filled, pieces, spoken, words

LOST = (
    "Once upon a time there was a little girl named Lily. Lily had a red ball. "
    "One day Lily took the red ball to the park. But soon the ball was gone, and Lily was very "
    "sad. Tom heard Lily cry and came to help. They found the red ball under the bed. "
    "Lily was very happy."
)
EXAMPLES = {
    "Lily and the red ball": LILY,
    "Tom and his dog": MAX,
    "Sam's blue car": SAM,
    "a pretty cat": CAT,
    "Ben's toy train": TRAIN,
    "a lost ball": LOST,
    "one sentence": "Tom had a red ball.",
}
Facts = dict[str, Any]


def examples(model: Model) -> dict[str, str]:
    """Those that the model takes."""
    return {name: text for name, text in EXAMPLES.items() if not remark(model, text)}


def first(model: Model, job: Job) -> None:
    infill(model, forms.Infill(model="first", text="Tom had a red ball.", n=1, hidden=[0]), job)


def remark(model: Model, text: str) -> str:
    """Why the model refuses a text; nothing where it does not."""
    try:
        ids_of(model, text)
    except UserError as error:
        return str(error)
    return ""


# ------------------------------------------------------------------ words


def read(model: Model, ask: forms.Read) -> Facts:
    """The words of a text, as often as one may hide them; those that are masks in it are hidden."""
    why = remark(model, ask.text)
    if why:
        return {"words": [], "remark": why}
    ids = content(model, ids_of(model, ask.text))
    said = pieces(model.tokenizer, ids)
    return {
        "words": [
            {
                "text": "".join(said[n] for n in word),
                "tokens": len(word),
                "masked": MASK in (ids[n] for n in word),
            }
            for word in words(said)
        ],
        "remark": "",
    }


def ids_of(model: Model, text: str) -> list[int]:
    """A text that the model takes, its end included; `[MASK]` and `[MASK:9]` are masks."""
    ids = model.tokenizer.template(text.strip())
    tokens, most = (n - len(model.tokenizer.ending) for n in (len(ids), model.longest))
    check(tokens <= most, f"this has {tokens} tokens, the model takes at most {most}")
    check(tokens > 0, "there is no word in it that the model knows")
    return ids


def content(model: Model, ids: list[int]) -> list[int]:
    return ids[: len(ids) - len(model.tokenizer.ending)]


# ------------------------------------------------------------------ step by step


def infill(model: Model, ask: forms.Infill, job: Job) -> None:
    """Hidden words drawn anew, in as many tokens as they had, given all the rest."""
    ids, places = holes(model, ask)
    film = Film(job, sight(model, places))
    film.show("hidden", [hide(ids, places)] * ask.n)
    x = collate([np.array(ids)] * ask.n, model.device)
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[:, places] = True
    generator = torch.Generator(model.device).manual_seed(fixed(ask.seed))
    model.sampler(**ask.options).infill(x, mask, generator, film.step)
    judge = Judge(model, job, places)
    stood = "" if MASK in ids else f" What stood there: {judge.percent(ids)} a token."
    finish(film, judge, lambda row: filled(shown(film.last[row]), places), stood)


def revise(model: Model, ask: forms.Rewrite, job: Job) -> None:
    ids = whole(model, ask.text)
    film = Film(job, sight(model))
    film.show("as given", [ids] * ask.n)
    before = spoken(shown(film.last[0]))
    items, options = [ask.text.strip()] * ask.n, {"seed": ask.seed, **ask.options}
    model.revise(items, ask.strength, callback=film.step, **options)
    judge = Judge(model, job)
    stood = f" The text as it was given: {judge.percent(ids)} a token."
    finish(film, judge, lambda row: compared(before, spoken(shown(film.last[row]))), stood)


def sample(model: Model, ask: forms.Sample, job: Job) -> None:
    film = Film(job, sight(model))
    model.sample(ask.n, seed=ask.seed, callback=film.step, **ask.options)
    finish(film, Judge(model, job), lambda row: [("same", film.last[row]["text"])])


def holes(model: Model, ask: forms.Infill) -> tuple[list[int], list[int]]:
    """The ids of a text, and the places in it that are to be filled: hidden words, and masks."""
    ids = ids_of(model, ask.text)
    all_words = words(pieces(model.tokenizer, content(model, ids)))
    last = len(all_words) - 1
    wrong = [n for n in ask.hidden if n > last]
    check(not wrong, f"the words of this text are counted from 0 to {last}, got {wrong[:1]}")
    places = {n for word in ask.hidden for n in all_words[word]}
    places |= {n for n, i in enumerate(ids) if i == MASK}
    check(bool(places), "nothing is hidden: choose the words to be drawn anew")
    return ids, sorted(places)


def whole(model: Model, text: str) -> list[int]:
    ids = ids_of(model, text)
    check(MASK not in ids, "a text with masks cannot be revised: fill them first")
    return ids


def hide(ids: Sequence[int], places: Iterable[int]) -> list[int]:
    hidden = set(places)
    return [MASK if n in hidden else i for n, i in enumerate(ids)]


def sight(model: Model, free: Sequence[int] = ()) -> Look:
    """A row as a text, token by token, and which of them are free to change where not all are."""

    def look(ids: list[int], known: Row) -> Row:
        said = pieces(model.tokenizer, ids)
        tokens = [SPECIALS[EOS] if i == EOS else piece for i, piece in zip(ids, said, strict=True)]
        return {"tokens": tokens, "text": model.tokenizer.decode(ids), "free": free}

    return look


# ------------------------------------------------------------------ what came of it


def finish(film: Film, judge: "Judge", parts: Callable[[int], list[Part]], stood: str = "") -> None:
    """Texts that differ, each with how often it was drawn and how likely it is, the best first."""
    rows: dict[str, list[int]] = {}
    for n, row in enumerate(film.last):
        rows.setdefault(row["text"], []).append(n)
    found = [
        {
            "text": text,
            "parts": parts(same[0]),
            "drawn": len(same),
            "row": same[0],
            "likelihood": judge.likelihood(film.ids[same[0]]),
        }
        for text, same in rows.items()
    ]
    found.sort(key=lambda one: -one["likelihood"])
    note = f"{len(film.last)} drawn, {len(found)} different.{stood}"
    film.job.say("done", candidates=found, note=note, against=judge.about)


def shown(row: Row) -> list[str]:
    """What the tokens of a row add to its text, up to its end."""
    return row["tokens"][: row["end"]]


class Judge:
    """Tells that it judges, and stops where nobody waits for it any more."""

    def __init__(self, model: Model, job: Job, places: Sequence[int] | None = None):
        self.likelihoods, self.job = Likelihoods(model.sampler(), places), job
        job.say("note", note="Judging how likely each is …")

    @property
    def about(self) -> str:
        whole = self.likelihoods.places is None
        return f"likelihood of {'the whole text' if whole else 'the new words, given the rest'}"

    def likelihood(self, ids: Sequence[int]) -> float:
        self.job.check()
        return self.likelihoods(ids)

    def percent(self, ids: Sequence[int]) -> str:
        return f"{100 * self.likelihood(ids):.2g} %"
