"""The stories tab's server: words and their tokens, holes and what fills them, diffs, mistakes."""

import gc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import events, film, post, refusal, story_model, visiting

from redraft import wording
from redraft.data.stories import synthetic
from redraft.model import Model
from redraft.tokenizers.base import EOS, MASK
from redraft.tokenizers.bpe import BPETokenizer
from redraft.tokenizers.text import CharacterTokenizer, WordTokenizer
from redraft.web import stories
from redraft.web.desk import Job
from redraft.web.film import Film
from redraft.web.forms import Infill
from redraft.web.shelf import Served

TEXT = 'Lily had a red ball.\n\n"Oh no!" said Lily.'
WORDS = ["Lily", " had", " a", " red", " ball", ".", "\n\n", '"', "Oh", " no", "!", '"', " said",
         " Lily", "."]  # fmt: skip
RED, NO = 3, 9
MADE = sorted(synthetic(300).train)
TOKENIZERS = {
    "bpe": BPETokenizer.fit(MADE, 400),
    "words": WordTokenizer.fit([*MADE, TEXT]),
    "chars": CharacterTokenizer.fit([*MADE, TEXT]),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    return story_model(tmp_path_factory.mktemp("runs") / "stories", "vsdd")


@pytest.fixture
def client(model: Model):
    with visiting({"tiny": Served.of(model)}) as client:
        yield client


# ------------------------------------------------------------------ words


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_are_those_of_a_reader(name: str):
    tokenizer = TOKENIZERS[name]
    found = wording.spoken(wording.pieces(tokenizer, tokenizer.ids(TEXT)))
    words = [word.strip(" ") for word in found]
    assert "".join(words).replace("\n\n", "") == TEXT.replace("\n\n", "").replace(" ", "")
    assert {"Lily", "had", "a", "red", "ball", "Oh", "no", "said"} <= {*words}


@pytest.mark.parametrize("name", ["bpe", "chars"])
@given(data=st.data())
def test_pieces_make_up_the_text_and_words_the_pieces(name: str, data: st.DataObject):
    tokenizer = TOKENIZERS[name]
    known = st.characters(codec="utf-8") if name == "bpe" else st.sampled_from(tokenizer.tokens[3:])
    text = data.draw(st.text(known, min_size=1))
    ids = tokenizer.ids(text)
    said = wording.pieces(tokenizer, ids)
    assert "".join(said) == text == tokenizer.decode(ids)
    ranges = wording.words(said)
    assert [n for word in ranges for n in word] == list(range(len(ids)))
    assert all(ranges) and len(said) == len(ids)


@given(ids=st.lists(st.integers(MASK, 399), max_size=12))
def test_noise_has_pieces_too(ids: list[int]):
    """Any tokens whatever, with ends and masks among them."""
    tokenizer = TOKENIZERS["bpe"]
    said = wording.pieces(tokenizer, ids)
    end = ids.index(EOS) if EOS in ids else len(ids)
    assert len(said) == len(ids) and "".join(said[:end]) == tokenizer.decode(ids)


def test_a_letter_of_several_tokens_is_in_one_word():
    tokenizer = TOKENIZERS["bpe"]
    said = wording.pieces(tokenizer, tokenizer.ids("a ☃☃ b"))
    assert wording.spoken(said) == ["a", " ☃☃", " b"]


def test_a_text_is_read_as_words(client):
    seen = post(client, "stories/read", text=f"  {TEXT}\n").json()
    assert [word["text"] for word in seen["words"]] == WORDS and seen["remark"] == ""
    assert not any(word["masked"] for word in seen["words"])


def test_masks_in_a_text_are_hidden_words(client):
    seen = post(client, "stories/read", text="Lily had [MASK:2] ball.").json()
    assert [word["masked"] for word in seen["words"]] == [False, False, True, True, False, False]


def test_a_text_that_the_model_does_not_take_is_told(client):
    seen = post(client, "stories/read", text="word " * 700).json()
    assert seen["words"] == [] and "tokens, the model takes at most" in seen["remark"]
    assert "[MASK:n]" in post(client, "stories/read", text="a [MASK:x]").json()["remark"]


def test_examples_are_those_that_fit(tmp_path, client):
    [told] = client.get("/api/models").json()["models"]
    assert told["examples"] == stories.EXAMPLES
    short = story_model(tmp_path / "short", "mdlm", max_length=12, long="cut")
    assert list(stories.examples(short)) == ["one sentence"]


# ------------------------------------------------------------------ infilling


def test_holes_are_filled_and_nothing_else_changes(client):
    frames, end = film(post(client, "stories/infill", text=TEXT, hidden=[RED, NO], n=3, seed=1))
    assert len(frames) == 1 + 5  # with holes, and five steps
    [places] = {tuple(row["free"]) for frame in frames for row in frame["rows"]}
    assert {tuple(row["masked"]) for row in frames[0]["rows"]} == {places}
    for before, after in pairwise(frames):
        for old, new in zip(before["rows"], after["rows"], strict=True):
            pairs = zip(old["tokens"], new["tokens"], strict=True)
            assert {*new["changed"]} <= {*places}
            assert {n for n, (a, b) in enumerate(pairs) if a != b} <= {*new["changed"]}
    for one in end["candidates"]:
        assert one["text"] == frames[-1]["rows"][one["row"]]["text"]
        kept = [text for kind, text in one["parts"] if kind == "same"]
        assert kept[0] == "Lily had a" and one["text"] == "".join(t for _, t in one["parts"])
    assert sum(one["drawn"] for one in end["candidates"]) == 3
    assert "3 drawn" in end["note"] and "What stood there" in end["note"]


def test_alternatives_differ_and_the_likeliest_comes_first(client):
    _, end = film(post(client, "stories/infill", text=TEXT, hidden=[RED], n=6, temperature=0))
    texts = [one["text"] for one in end["candidates"]]
    likely = [one["likelihood"] for one in end["candidates"]]
    assert len(texts) == len({*texts}) and likely == sorted(likely, reverse=True)
    assert all(0 < p <= 1 for p in likely)


def test_masks_of_the_text_are_filled_as_well(client):
    frames, end = film(post(client, "stories/infill", text="Lily had a [MASK] ball.", n=1))
    assert len(frames[0]["rows"][0]["masked"]) == 1
    assert "What stood there" not in end["note"]


def test_the_same_seed_fills_the_same(client):
    ask = {"text": TEXT, "hidden": [RED], "seed": 5}
    first, second = (film(post(client, "stories/infill", **ask)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("method", ["mdlm", "fldd"])
def test_any_noise_is_served(method: str, tmp_path):
    with visiting({"tiny": Served.of(story_model(tmp_path / "run", method))}) as client:
        for path, form in (
            ("infill", {"text": TEXT, "hidden": [RED, NO]}),
            ("revise", {"text": TEXT, "strength": 0.5}),
            ("sample", {}),
        ):
            frames, end = film(post(client, f"stories/{path}", n=2, **form))
            assert frames and end["candidates"]


@pytest.mark.parametrize("name", ["words", "chars"])
def test_any_tokens_are_served(name: str, tmp_path):
    run = story_model(tmp_path / "run", "d3pm-uniform", tokenizer=name, max_length=None)
    with visiting({"tiny": Served.of(run)}) as client:
        text = MADE[0].split(".")[0] + "."
        seen = post(client, "stories/read", text=text).json()
        assert "".join(word["text"] for word in seen["words"]) == text
        _, end = film(post(client, "stories/infill", text=text, hidden=[1], n=2))
        assert end["candidates"]


def test_who_leaves_ends_the_drawing(model: Model):
    heard: list[Any] = []

    def tell(event: Any) -> None:
        heard.append(event)
        if len(heard) == 2:
            job.withdrawn.set()

    ask = Infill(model="tiny", text=TEXT, hidden=[RED])
    job = Job(lambda job: stories.infill(model, ask, job), tell)
    job.run()
    assert [event and event["kind"] for event in heard] == ["frame", "frame", None]


# ------------------------------------------------------------------ revising


def test_a_revision_is_a_diff(client):
    frames, end = film(post(client, "stories/revise", text=TEXT, strength=0.6, n=3, seed=2))
    assert len(frames) == 1 + 3 and {row["text"] for row in frames[0]["rows"]} == {TEXT}
    for one in end["candidates"]:
        before, after = (
            "".join(text for kind, text in one["parts"] if kind != other)
            for other in ("new", "gone")
        )
        assert (before, after) == (TEXT, one["text"])
    assert any(kind == "new" for one in end["candidates"] for kind, _ in one["parts"])


def test_new_stories_are_told(client):
    frames, end = film(post(client, "stories/sample", n=2, seed=0))
    assert len(frames) == 5
    assert {one["text"] for one in end["candidates"]} == {r["text"] for r in frames[-1]["rows"]}


def test_nothing_of_a_request_is_kept(model: Model):
    with visiting({"tiny": Served.of(model)}) as client:
        for seed in range(3):
            film(post(client, "stories/infill", text=TEXT, hidden=[RED], seed=seed))
            film(post(client, "stories/revise", text=TEXT, seed=seed))
    gc.collect()
    kinds = (Job, Film, stories.Judge)
    assert not [x for x in gc.get_objects() if type(x) in kinds]


# ------------------------------------------------------------------ hostile input

HOSTILE = {
    "long": ("read", {"text": "a" * 4001}),
    "empty": ("read", {"text": ""}),
    "spaces": ("read", {"text": " \n\t "}),
    "a number": ("read", {"text": 3}),
    "a list": ("infill", {"text": ["a"], "hidden": [0]}),
    "no text": ("infill", {"hidden": [0]}),
    "unknown field": ("read", {"text": "a", "path": "/etc/passwd"}),
    "unknown model": ("read", {"text": "a", "model": "../../etc/passwd"}),
    "nothing hidden": ("infill", {"text": TEXT}),
    "no such word": ("infill", {"text": TEXT, "hidden": [99]}),
    "a word before the first": ("infill", {"text": TEXT, "hidden": [-1]}),
    "a word as text": ("infill", {"text": TEXT, "hidden": ["1"]}),
    "a word and a half": ("infill", {"text": TEXT, "hidden": [1.5]}),
    "truth for a word": ("infill", {"text": TEXT, "hidden": [True]}),
    "words as an object": ("infill", {"text": TEXT, "hidden": {"0": 1}}),
    "very many words": ("infill", {"text": TEXT, "hidden": [0] * 4001}),
    "too many tokens": ("infill", {"text": "word " * 700, "hidden": [0]}),
    "too many masks": ("infill", {"text": "[MASK:9999]" * 300, "hidden": []}),
    "no number of masks": ("infill", {"text": "[MASK:0]"}),
    "too many to revise": ("revise", {"text": "word " * 700}),
    "masks to revise": ("revise", {"text": "a [MASK] ball"}),
    "no strength": ("revise", {"text": TEXT, "strength": 0}),
    "n too large": ("sample", {"n": 7}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_input_gets_one_sentence(case: str, client):
    path, form = HOSTILE[case]
    assert "passwd" not in refusal(post(client, f"stories/{path}", **form))


def test_half_a_letter_is_no_text(client):
    body = rb'{"model": "tiny", "text": "\ud800"}'
    kind = {"content-type": "application/json"}
    refusal(client.post("/api/stories/read", content=body, headers=kind))


SCRIPTS = ["<script>alert(1)</script>", "</textarea><img src=x onerror=alert(1)>", "a\0b\x1b[0m"]


@pytest.mark.parametrize("text", SCRIPTS)
def test_scripts_are_text_as_any_other(text: str, client):
    seen = post(client, "stories/read", text=text).json()
    assert "".join(word["text"] for word in seen["words"]) == text
    _, end = film(post(client, "stories/revise", text=text, n=1))
    assert end["candidates"]


def test_steps_beyond_the_model_are_told_in_the_stream(client):
    last = events(post(client, "stories/infill", text=TEXT, hidden=[0], steps=6))[-1]
    assert last["kind"] == "error" and "1..5" in last["message"]


def test_models_of_other_domains_are_told(model: Model, client):
    said = refusal(post(client, "molecules/look", smiles="C"))
    assert "knows stories, not molecules" in said
