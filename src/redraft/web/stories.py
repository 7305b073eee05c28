"""What the stories tab asks for: words are hidden and filled in anew, or a whole text is revised.

Each answer is a film, and at its end the different texts that came of it, the likeliest first.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft.batches import collate
from redraft.config import check
from redraft.errors import UserError
from redraft.experiments.editing import CAT, LILY, MAX, SAM, TRAIN
from redraft.model import Model, fixed
from redraft.objective import corrupt, draw_times, ranges, token_losses
from redraft.tokenizers.base import EOS, MASK, SPECIALS, Tokenizer
from redraft.web import forms
from redraft.web.desk import Job
from redraft.web.film import Film, Look, Row

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
WORD = re.compile(r"[^\S\n]*(?:\n+|\w+(?:['’-]\w+)*|([^\w\s])\1*)")
"""With the space before it; a mark is a word, and so are line breaks."""
VIEWS, TURNS = 16, 8
"""How often a text is looked at in order to judge it: under noise, and with masks."""

Facts = dict[str, Any]
Part = tuple[str, str]
"""A piece of text, and what it is: same, new or gone."""


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


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, with the space before it.

    A letter of several tokens comes with the last of them; ends are silent, and begin anew.
    """
    found: list[str] = []
    for ends, run in groupby(ids, lambda i: i == EOS):
        own, before = list(run), ""
        whole = tokenizer.decode(own)
        for n in range(1, len(own) + 1):
            text = "" if ends else tokenizer.decode(own[:n])
            text = text if whole.startswith(text) else before
            found.append(text[len(before) :])
            before = text
    return found


def words(said: Sequence[str]) -> list[range]:
    """The tokens of each word, by what each token adds to the text.

    >>> words(["Tom", " ha", "d", " a", " ball", "."])
    [range(0, 1), range(1, 3), range(3, 4), range(4, 5), range(5, 6)]
    """
    starts = {0, *(word.start() for word in WORD.finditer("".join(said)))}
    first, at = [], 0
    for n, piece in enumerate(said):
        if at in starts:
            starts.remove(at)  # half a letter adds nothing, and begins no second word
            first.append(n)
        at += len(piece)
    return [range(*both) for both in pairwise([*first, len(said)])]


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
    filled = frozenset(places)

    def parts(row: int) -> list[Part]:
        said = shown(film.last[row])
        marked = groupby(range(len(said)), lambda n: "new" if n in filled else "same")
        return [(kind, "".join(said[n] for n in run)) for kind, run in marked]

    judge = Judge(model, job, places)
    stood = "" if MASK in ids else f" What stood there: {judge.percent(ids)} a token."
    finish(film, judge, parts, stood)


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


def spoken(said: Sequence[str]) -> list[str]:
    return ["".join(said[n] for n in word) for word in words(said)]


def compared(before: Sequence[str], after: Sequence[str]) -> list[Part]:
    """
    >>> compared(["Tom", " ran", "."], ["Tom", " sat", "."])
    [('same', 'Tom'), ('gone', ' ran'), ('new', ' sat'), ('same', '.')]
    """
    return list(_compared(before, after))


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for action, i, j, k, l in matcher.get_opcodes():
        if action == "equal":
            yield "same", "".join(after[k:l])
            continue
        if i < j:
            yield "gone", "".join(before[i:j])
        if k < l:
            yield "new", "".join(after[k:l])


class Judge:
    """How likely the model finds tokens at some places of a text, or at all, given the rest of it.

    By the bound on -log p of these tokens alone, with the same noise for every text; masks are
    better taken off in turns, since then the likelihood is exact.
    """

    def __init__(self, model: Model, job: Job, places: Sequence[int] | None = None):
        self.model, self.job, self.places = model, job, places
        blank = torch.full((1, 1), MASK, device=model.device)
        self.masks = int(model.trained.process.prior(blank)) == MASK
        job.say("note", note="Judging how likely each is …")

    @property
    def about(self) -> str:
        what = "the whole text" if self.places is None else "the new words, given the rest"
        return f"likelihood of {what}"

    @torch.no_grad()
    def likelihood(self, ids: Sequence[int]) -> float:
        """The geometric mean over tokens."""
        self.job.check()
        places = list(range(len(ids)) if self.places is None else self.places)
        nats = self.unmasked if self.masks else self.bound
        return float(torch.exp(-nats(list(ids), places) / len(places)))

    def percent(self, ids: Sequence[int]) -> str:
        return f"{100 * self.likelihood(ids):.2g} %"

    def bound(self, ids: list[int], places: list[int]) -> Tensor:
        """Views of the text, its places noised each at a time of its own."""
        process, denoiser = self.model.trained.process, self.model.trained.denoiser
        generator = torch.Generator(self.model.device).manual_seed(0)
        x0 = collate([np.array(ids)] * VIEWS, self.model.device)  # (VIEWS, L)
        times = draw_times(x0, ranges("joint", process.T), generator)
        draws = []
        for draw in corrupt(process, x0, times, generator):
            xt = x0.clone()
            xt[:, places] = draw.xt[:, places]
            draws.append(replace(draw, xt=xt))
        nats = process.prior_kl(x0) + token_losses(denoiser, process, x0, draws, padded=False)
        return nats[:, places].sum(-1).mean()

    def unmasked(self, ids: list[int], places: list[int]) -> Tensor:
        """Each turn sees what those before it have taken the masks off."""
        n, T = min(TURNS, len(places)), self.model.trained.process.T
        turns = [places[k::n] for k in range(n)]
        masked = [list(chain(*turns[k:])) for k in range(n)]
        x = collate([np.array(hide(ids, own)) for own in masked], self.model.device)  # (n, L)
        t = [max(1, round(T * len(own) / len(ids))) for own in masked]
        p = self.model.sampler().predict(x, torch.tensor(t, device=x.device), padded=False)
        taken = [(k, l, ids[l]) for k, turn in enumerate(turns) for l in turn]
        return -p[tuple(torch.tensor(taken, device=x.device).T)].log().sum()
