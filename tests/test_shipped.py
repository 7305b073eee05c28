"""The models of stories and playlists that come with the package, as a person meets them."""

from pathlib import Path

import pytest
from torch import Tensor

import redraft
from redraft.cli import main
from redraft.data.stories import ENTITIES
from redraft.experiments.editing import LILY
from redraft.model import SHIPPED, Model
from redraft.tokenizers.base import EOS


@pytest.fixture(scope="module")
def stories() -> Model:
    return redraft.load("stories", "cpu")


@pytest.mark.parametrize(
    ("name", "most"), [("molecules", 12e6), ("stories", 16e6), ("playlists", 2e6)]
)
def test_they_are_small(name: str, most: float):
    assert sum(path.stat().st_size for path in (SHIPPED / name).iterdir()) <= most


def test_entities_are_single_tokens(stories: Model):
    for word in ENTITIES:
        assert len(stories.tokenizer.encode(f" {word}")) == 2  # with the end


def test_a_word_that_the_story_tells_is_found(stories: Model):
    text = LILY.replace("Lily", "[MASK]", 2).replace("[MASK]", "Lily", 1)
    found = stories.infill(text, n=8, seed=0)
    assert sum(one == LILY for one in found) >= 6


def test_a_sentence_is_filled_without_naming_a_model(capsys):
    assert main(["infill", "Lily had a [MASK] ball.", "-n", "4", "--seed", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("Lily had a ") and line.endswith(" ball.") for line in lines)


def test_the_end_of_a_revised_text_stays_where_it_is(stories: Model):
    seen: list[Tensor] = []
    stories.revise(["Tom had a dog."] * 8, 0.6, seed=0, callback=lambda step: seen.append(step.x))
    assert seen and all((x[:, -1] == EOS).all() for x in seen)


@pytest.mark.parametrize("word", ["infill", "revise"])
def test_too_long_a_story_is_told_its_length(word, capsys):
    assert main([word, "Tom had a [MASK]. " * 60]) == 2
    said = capsys.readouterr().err
    assert "tokens, this model takes at most 256" in said and len(said.splitlines()) == 1


def test_text_without_a_mask_is_told_so(capsys):
    assert main(["infill", "Lily had a ball."]) == 2
    assert "[MASK]" in capsys.readouterr().err


def test_a_playlist_goes_on_with_bands_of_its_genre(tmp_path: Path, capsys):
    file = tmp_path / "mine.txt"
    file.write_text("Hollow Pocket\nQuiet Machine\nSunday Orchard\nLonely Pocket\n")  # by Lanterns
    assert main(["playlist", "continue", str(file), "--model", "playlists", "--seed", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and sum("Lanterns - " in line for line in lines) >= 2
