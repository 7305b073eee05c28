"""Stories that are prepared once: chosen by hash, as ids, whole or not there."""

import gzip
import json
import random
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mistakes import message

from redraft.cli import main
from redraft.commands import Train
from redraft.config import DataConfig
from redraft.data import stories, wheels
from redraft.data.stories import Request, chosen
from redraft.domains import Dataset, everything, prepare, prepare_stories
from redraft.tokenizers import EOS, BPETokenizer

MADE, OTHERS = (everything(stories.synthetic(n, seed=n)) for n in (400, 60))
LONG = " ".join(MADE[:3])
LONGEST = 160
CONFIG = DataConfig(domain="stories", file="stories", max_length=LONGEST, long="drop")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, told: list[str]) -> str:
    path.write_bytes(gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in told).encode()))
    return str(path)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """Two files to learn from, which repeat themselves, and one to be judged by."""
    one = write(tmp_path / "one.jsonl.gz", [*MADE[:200], LONG, OTHERS[0]])
    two = write(tmp_path / "two.jsonl.gz", [*MADE[100:], MADE[0]])
    return Request((one, two), write(tmp_path / "real.jsonl.gz", OTHERS), origin="Made ones.")


def prepared(request: Request) -> stories.Prepared:
    return prepare_stories(request, 650, LONGEST)


def texts(data: Dataset, part: str) -> list[str]:
    return [data.tokenizer.decode(ids) for ids in getattr(data, part)]


# ------------------------------------------------------------------ what is chosen

some = st.lists(st.text("abc", max_size=3), max_size=30)


@given(some, st.integers(1, 9), some, st.randoms(use_true_random=False))
def test_the_choice_depends_on_the_stories_alone(told, n, but, rng):
    found, different = chosen(told, n, but)
    assert different == len(set(told) - set(but))
    assert len(found) == len(set(found)) == min(n, different)
    assert set(found) <= set(told) - set(but)
    assert chosen(rng.sample(told, len(told)), n, but) == (found, different)
    assert chosen(told, n + 1, but)[0][:n] == found


def test_the_choice_falls_into_all_parts_alike():
    """The hash that chooses is not that which decides parts: else all would be in one."""
    few, _ = chosen(map(str, range(20_000)), 1000)
    sizes = [len(part) / 1000 for part in stories.split(few)]
    assert sizes == pytest.approx([0.855, 0.045, 0.1], abs=0.03)


# ------------------------------------------------------------------ what is prepared


def test_prepared_stories_are_learned_from(request_: Request):
    found = prepared(request_)
    data = prepare(CONFIG, seed=0)
    known = {*texts(data, "train"), *texts(data, "held_out")}
    assert known == set(MADE)  # neither the long one nor the one for validation
    assert texts(data, "validation") == chosen(OTHERS, 99)[0]
    assert all(ids[-1] == EOS and ids.dtype == np.int32 for ids in data.train)
    assert data.train[0].tolist() == data.tokenizer.encode(texts(data, "train")[0])
    assert data.origin == found.origin and data.origin.startswith("Made ones: ")
    n = len(MADE)
    assert f"{n} to learn from, chosen by hash of {n + 1}, and {len(OTHERS)} for" in data.origin
    assert sum(own["long"] for own in found.counts.values()) == 1
    assert 0.02 * n < len(data.held_out) < 0.08 * n


def test_without_others_a_tenth_is_kept_for_validation(request_: Request):
    prepared(Request(request_.files))
    data = prepare(CONFIG, seed=0)
    told = [text for part in stories.PARTS for text in texts(data, part)]
    assert sorted(told) == sorted([*MADE, OTHERS[0]])
    assert 0.05 < len(data.validation) / len(told) < 0.16
    assert "one.jsonl.gz, two.jsonl.gz" in data.origin


def test_at_most_so_many_are_learned_from(request_: Request):
    found = prepared(Request(request_.files, request_.validation, most=300))
    data = prepare(CONFIG, seed=0)
    long = sum(found.counts[part]["long"] for part in ("train", "held_out"))
    assert len(data.train) + len(data.held_out) + long == 300


def test_shorter_ones_may_be_asked_for(request_: Request):
    prepared(request_)
    short = prepare(DataConfig(domain="stories", file="stories", max_length=80, long="drop"), 0)
    assert max(map(len, short.train)) <= 80 and "dropped as too long" in short.report
    cut = prepare(DataConfig(domain="stories", file="stories", max_length=40, long="cut"), 0)
    assert {len(ids) for ids in cut.train} == {40} and cut.train[0][-1] == EOS


def test_nothing_is_prepared_twice(request_: Request, monkeypatch, capsys):
    first = prepared(request_)
    monkeypatch.setattr(BPETokenizer, "fit", None)
    capsys.readouterr()
    assert prepared(request_) == first and not capsys.readouterr().err


def test_another_request_replaces_what_was_prepared(request_: Request):
    prepared(request_)
    prepared(Request(request_.files, request_.validation, origin="Others."))
    assert prepare(CONFIG, 0).origin.startswith("Others: ")
    write(Path(request_.files[0]), MADE[:300])  # the same name, other stories
    prepared(Request(request_.files, request_.validation, origin="Others."))
    assert f"hash of {len(MADE)}," in prepare(CONFIG, 0).origin


@pytest.mark.parametrize("name", [stories.IDS, stories.TOKENIZER, wheels.FACTS])
def test_what_was_damaged_is_not_learned_from(name: str, request_: Request, cache: Path):
    prepared(request_)
    path = cache / "stories" / name
    sound = path.read_bytes()
    path.write_bytes(sound[:-9])
    assert "no stories are prepared" in message(prepare, CONFIG, 0)
    prepared(request_)
    assert path.read_bytes() == sound


# ------------------------------------------------------------------ the hub


def test_tinystories_come_from_the_hub(tmp_path: Path, monkeypatch):
    asked = []

    def download(repository: str, name: str, repo_type: str) -> str:
        asked.append((repository, name, repo_type))
        own = OTHERS if "valid" in name else MADE
        (tmp_path / name).write_text("\n<|endoftext|>\n".join(own), encoding="utf-8")
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    found = prepared(Request())
    assert asked == [(stories.HUB, name, "dataset") for name in stories.FILES]
    assert "TinyStories (roneneldan/TinyStories on the Hugging Face hub" in found.origin
    data = prepare(CONFIG, 0)
    assert {*texts(data, "train"), *texts(data, "held_out")} == set(MADE)
    assert sorted(texts(data, "validation")) == sorted(OTHERS)
    assert prepared(Request()) == found and len(asked) == 2


def test_without_a_network_that_is_said(monkeypatch, cache: Path):
    def download(*_, **__):
        raise OSError("no route\nto the hub")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    said = message(prepared, Request())
    assert "no route to the hub" in said and "--file" in said
    assert not (cache / "stories").exists()


# ------------------------------------------------------------------ commands


def test_the_command_prepares_and_tells(request_: Request, capsys, monkeypatch):
    flags = ["--file", *request_.files, "--validation", str(request_.validation)]
    assert main(["data", "stories", *flags, "-n", "300", "--origin", "Made ones."]) == 0
    said = capsys.readouterr().out
    assert "Made ones: 300 to learn from" in said and "60 stories" in said
    assert len(prepare(CONFIG, 0).train) < 300


def test_a_name_says_its_domain():
    train = Train(data="stories", config=Train.default(["--data", "stories"]).config)
    assert train.resolved().data.domain == "stories"


def test_tokens_are_as_they_were_prepared(request_: Request):
    assert "redraft data stories" in message(prepare, CONFIG, 0)
    prepared(request_)
    small = DataConfig(domain="stories", file="stories", vocabulary=300)
    words = DataConfig(domain="stories", file="stories", tokenizer="words")
    assert "data.vocabulary 300" in message(prepare, small, 0)
    assert "data.tokenizer words" in message(prepare, words, 0)


def test_entities_must_be_single_tokens(tmp_path: Path, cache: Path):
    letters = ["".join(random.Random(i).choices("abcdef ", k=30)) for i in range(50)]
    said = message(prepared, Request((write(tmp_path / "a.jsonl.gz", letters),)))
    assert "Lily" in said and "entity swap" in said
    assert not (cache / "stories").exists()


BAD = {
    "no file": ["stories", "--file", "{tmp}/none.txt"],
    "no validation file": ["stories", "--file", "{tmp}/good.txt", "--validation", "{tmp}/no.txt"],
    "empty file": ["stories", "--file", "{tmp}/empty.txt"],
    "empty validation": ["stories", "--file", "{tmp}/good.txt", "--validation", "{tmp}/empty.txt"],
    "a folder": ["stories", "--file", "{tmp}"],
    "unknown format": ["stories", "--file", "{tmp}/story.pdf"],
    "no story a line": ["stories", "--file", "{tmp}/bad.jsonl"],
    "half a character": ["stories", "--file", "{tmp}/half.jsonl"],
    "torn": ["stories", "--file", "{tmp}/torn.jsonl.gz"],
    "too few": ["stories", "--file", "{tmp}/good.txt", "-n", "2"],
    "two distinct": ["stories", "--file", "{tmp}/two.txt"],
    "validation alone": ["stories", "--validation", "{tmp}/good.txt"],
    "two files of molecules": ["molecules", "--file", "{tmp}/good.txt", "{tmp}/two.txt"],
    "so many molecules": ["zinc250k", "-n", "5"],
    "a file of zinc": ["zinc250k", "--file", "{tmp}/good.txt"],
    "unknown": ["story"],
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_gets_one_sentence(case: str, tmp_path: Path, cache: Path, capsys):
    (tmp_path / "good.txt").write_text("One.\nTwo.\nThree.\n")
    (tmp_path / "two.txt").write_text("One.\nTwo.\n")
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "story.pdf").write_text("One.\n")
    (tmp_path / "bad.jsonl").write_text('{"story": "x"}\n')
    (tmp_path / "half.jsonl").write_text('{"text": "\\ud800"}\n')
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(b'{"text": "One."}\n' * 99)[:-9])
    assert main(["data", *(word.format(tmp=tmp_path) for word in BAD[case])]) == 2
    said = capsys.readouterr().err
    assert said.startswith("redraft: ") and len(said.splitlines()) == 1
    assert not (cache / "stories").exists()


def test_the_cache_must_be_writable(request_: Request, cache: Path):
    cache.write_text("no folder")
    assert "cannot be written" in message(prepared, request_)
    assert wheels.cache() == cache
