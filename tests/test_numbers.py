"""Numbers that nothing can be computed with are refused before anything is done."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mistakes import message

from redraft.cli import main
from redraft.commands import COMMANDS
from redraft.commands.playlist import Continue, Repair
from redraft.config import Config, read_recipe

WORDS = {
    "quickstart": ["quickstart", "--out", "{out}"],
    "data": ["data", "stories", "--file", "{out}"],
    "sample": ["sample", "nowhere"],
    "infill": ["infill", "a[MASK]", "--model", "nowhere"],
    "revise": ["revise", "a", "--model", "nowhere"],
    "repair": ["repair", "C(", "--model", "nowhere"],
    "playlist continue": ["playlist", "continue", "nowhere", "--model", "nowhere"],
    "playlist repair": ["playlist", "repair", "nowhere", "--model", "nowhere"],
    "evaluate": ["evaluate", "nowhere", "--out", "{out}"],
    "noise": ["noise", "nowhere", "--out", "{out}"],
    "compare": ["compare", "tiny/mdlm", "--out", "{out}"],
    "report": ["report", "nowhere", "--out", "{out}"],
    "serve": ["serve", "nowhere"],
    "bench": ["bench", "kernel", "--out", "{out}"],
}
FLAGS: dict[str, Any] = COMMANDS | {"playlist continue": Continue, "playlist repair": Repair}
BAD: dict[type, list[Any]] = {
    int: [10**18, 10**20, -(10**20)],
    float: [math.nan, math.inf, -math.inf, 1e308],
}


def kind_of(hint: Any) -> type | None:
    """int or float, if that is what a field is of."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType, tuple):
        return next(filter(None, map(kind_of, options)), None)
    return hint if hint in BAD else None


def numbers(kind: type) -> Iterator[tuple[str, type]]:
    """Names of all numbers of a dataclass, with dots, and what they are."""
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from ((f"{name}.{inner}", own) for inner, own in numbers(hint))
        elif (own := kind_of(hint)) is not None:
            yield name, own


CASES = [(word, name, kind) for word in WORDS for name, kind in numbers(FLAGS[word])]


@pytest.mark.parametrize(("word", "name", "kind"), CASES)
def test_commands_refuse_them(word, name, kind, tmp_path: Path, capsys):
    words = [part.format(out=tmp_path / "out") for part in WORDS[word]]
    bad = BAD[kind][1]
    assert main([*words, f"--{name.replace('_', '-')}", str(bad)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"redraft: {name} must be ") and said.endswith(f"got {bad}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags", [("--train.steps", "9" * 20), ("--train.seconds", "inf"), ("--optimizer.lr", "1e308")]
)
def test_so_does_training(flags, tmp_path: Path, capsys):
    assert main(["train", "tiny/mdlm", "--out", str(tmp_path / "out"), *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"redraft: {flags[0][2:]} must be ") and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "kind"), list(numbers(Config)))
def test_so_do_configs(name: str, kind: type):
    *sections, last = name.split(".")
    pair = last in ("betas", "temperature")
    for bad in BAD[kind]:
        if last == "seed" and bad == 10**18:
            continue  # which is one
        value: Any = [0.5, bad] if pair else bad
        for section in (last, *reversed(sections)):
            value = {section: value}
        said = message(Config.from_dict, value)
        assert last in said and "must be" in said and str(bad) in said


def test_what_is_made_in_python_is_refused_alike():
    config = read_recipe("tiny/vsdd")
    endless = dataclasses.replace(config.train, seconds=math.inf)
    said = message(dataclasses.replace, config, train=endless)
    assert said == "train.seconds must be a finite number of at most 18 digits, got inf"


@pytest.mark.parametrize(
    ("toml", "names"),
    [
        ("[train]\nseconds = 1" + "0" * 400, "train.seconds must be a finite number"),
        ("[optimizer]\nlr = nan", "optimizer.lr must be a finite number"),
        ("[optimizer]\nlr = 1e400", "optimizer.lr must be a finite number"),
        ("[noise]\nT = 99999999999999999999", "noise.T must be a finite number"),
        ("[noise]\nrank = 513", "noise.rank must be at most denoiser.width, got 513 and 512"),
        ("[denoiser]\nlayers = 1001", "denoiser.layers must be from 1 to 1000, got 1001"),
        ("seed = 9223372036854775808", "seed must be from 0 to 2^63 - 1"),
        ("seed = 1" + "0" * 5000, "is not a TOML file"),
    ],
)
def test_a_recipe_says_which_number_it_is(toml: str, names: str, tmp_path: Path, capsys):
    (tmp_path / "bad.toml").write_text(toml, encoding="utf-8")
    assert main(["train", str(tmp_path / "bad.toml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert names in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "flags", [("--vocabulary", "9" * 9, "--length", "5"), ("--length", "9" * 9)]
)
def test_random_tokens_have_limits(flags, tmp_path: Path, capsys):
    words = ["bench", "kernel", "--vocabulary", "9", *flags, "--out", str(tmp_path)]
    assert main(words) == 2
    assert f"got {'9' * 9}" in capsys.readouterr().err
