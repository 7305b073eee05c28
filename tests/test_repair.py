"""Repair: valid results only, near what was given, and honest about the rest."""

import gzip
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from string import ascii_letters, ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import redraft
from redraft.cli import main
from redraft.commands.drawing import names_file, smiles_of
from redraft.data.molecules import canonical_or_none
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.uniform import UniformProcess
from redraft.repair import Repairer, distance, edits_of
from redraft.sampler import Sampler
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.tokenizers.text import CharacterTokenizer

TOKENIZER = CharacterTokenizer(sorted("()ab"))
V, T = len(TOKENIZER), 6


def balanced(text: str) -> str | None:
    """A grammar: brackets close, and something stands between them; b is written for a."""
    depth = 0
    for character, following in zip(text, text[1:] + " ", strict=False):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0 or character + following == "()" or character not in "()ab":
            return None
    return text.replace("b", "a") if depth == 0 and text else None


@dataclass
class Loves:
    """A denoiser that believes in one sequence, or in nothing particular."""

    wanted: str = ""
    weight: float = 3.0
    timeless: bool = False
    recall: None = None
    infills: bool = False

    def __call__(self, x: Tensor, t: Tensor, *_: Any) -> Tensor:
        logits = torch.zeros(*x.shape, V)
        for l, i in enumerate(TOKENIZER.encode(self.wanted)[: x.shape[1]] if self.wanted else []):
            logits[:, l, i] += self.weight
        logits[..., [PAD, MASK]] = -torch.inf
        return logits


def make(wanted: str = "", masks: bool = False, longest: int = 12, **options) -> Repairer:
    bar = alpha_bar("linear", T)
    process = AbsorbingProcess(V, bar) if masks else UniformProcess(V, steps(bar))
    sampler = Sampler(Loves(wanted), process)  # pyright: ignore[reportArgumentType]
    return Repairer(sampler, TOKENIZER, balanced, longest, **options)


texts = st.text("()ab", min_size=1, max_size=9)


@settings(max_examples=60)
@given(text=texts, masks=st.booleans())
def test_results_are_valid_near_and_honest(text, masks):
    found = make(masks=masks).repair(text, torch.Generator().manual_seed(0))
    assert found.given == text
    assert 0 <= found.sure <= 1 + 1e-9
    if balanced(text) is not None:
        assert found.status == "valid" and found.result == text and found.edits == 0
    elif found.result is None:
        assert found.status == "not repaired" and found.remark
    else:
        assert found.status == "repaired"
        assert balanced(found.result) is not None
        assert found.edits == distance(text, found.result) >= 1


def near(text: str) -> set[str]:
    """All sequences one edit away, by brute force."""
    found = {text[:l] + v + text[l + 1 :] for l in range(len(text)) for v in ("", *"()ab")}
    found |= {text[:l] + v + text[l:] for l in range(len(text) + 1) for v in "()ab"}
    return found - {text}


def possible(texts: Iterable[str]) -> set[str]:
    return {text for text in texts if balanced(text) is not None}


@settings(max_examples=60)
@given(text=texts)
def test_what_is_one_edit_away_is_found(text):
    if balanced(text) is None and possible(near(text)):
        found = make(parsed=1).repair(text)
        assert found.edits == 1 and found.result in possible(near(text))


@settings(max_examples=60)
@given(text=st.text("()", min_size=1, max_size=5))
def test_what_is_two_edits_away_is_found_where_one_does_not_do(text):
    twice = possible(other for once in near(text) for other in near(once))
    found = make(starts=1000, pairs=100_000, strengths=()).repair(text)
    if balanced(text) is None and not possible(near(text)):
        assert found.result in twice if twice else found.result is None
        assert found.edits == 2 * bool(twice)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("wanted", ["(ab)", "(ba)"])
def test_of_two_edits_the_likeliest_are_taken(wanted, masks):
    broken = "((" + wanted[2]  # needs a token and a bracket
    assert not possible(near(broken))
    found = make(wanted, masks).repair(broken)
    assert (found.result, found.edits) == (wanted, 2)


@settings(max_examples=40)
@given(data=st.data(), ids=st.lists(st.integers(EOS + 1, V - 1), max_size=5).map(tuple))
def test_edits_are_all_there_once_and_the_most_plausible_first(data, ids):
    flat = data.draw(st.permutations(range((2 * len(ids) + 1) * V)))
    scores = np.array(flat, float).reshape(-1, V)
    scores[:, [PAD, MASK]] = -np.inf
    edits = list(edits_of({ids: 0.5}, [scores]))
    assert {TOKENIZER.decode(edit) for edit, _ in edits} == near(TOKENIZER.decode(ids))
    assert len(edits) == len(dict(edits))
    assert [score for _, score in edits] == sorted((score for _, score in edits), reverse=True)


def test_the_parser_is_asked_once_for_each_and_only_as_often_as_needed():
    asked: list[str] = []

    def parser(text: str) -> str | None:
        asked.append(text)
        return balanced(text)

    repairer = replace(make("(ab)"), canonical=parser, parsed=10)
    assert repairer.repair("(ab").result == "(ab)"
    assert len(asked) == 1 + 10  # what was given, and the most plausible edits
    asked.clear()
    repairer.repair("((b")
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("wanted", ["(ab)", "(ba)", "(aa)", "(bb)"])
def test_of_equally_near_ones_the_likeliest_is_taken(wanted, masks):
    broken = "(" + wanted[1:3]  # its closing bracket is missing
    found = make(wanted, masks).repair(broken)
    assert found.result == wanted
    assert found.edits == 1
    assert found.sure > 0.5


def test_candidates_that_are_one_molecule_are_counted_together():
    """b is written for a: (ab) and (aa) are the same thing."""
    plain = make().repair("(ab")
    assert plain.result is not None
    same = [c for c in ("(ab)", "a(b)", "ab") if balanced(c) == balanced(plain.result)]
    assert same and plain.sure > 1 / 40


def test_where_two_edits_are_not_enough_revisions_are_tried():
    broken, wanted = "((((", "(aa)"
    found = make(wanted, drafts=64).repair(broken, torch.Generator().manual_seed(0))
    assert found.result is not None and found.edits >= 3
    assert balanced(found.result) is not None


def test_what_cannot_be_repaired_says_why():
    hopeless = Repairer(make().sampler, TOKENIZER, lambda _: None, longest=12)
    found = hopeless.repair("(a")
    assert (found.result, found.status) == (None, "not repaired")
    assert "no valid" in found.remark
    for text, said in (("", "empty"), ("  ", "empty"), ("(x", "'x'"), ("(" * 12, "12 tokens")):
        found = make().repair(text)
        assert found.result is None and said in found.remark, text


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("text", ["(ab(", "(((", "(a"])
def test_the_denoiser_never_sees_more_than_it_takes(text, masks, monkeypatch):
    seen: list[int] = []
    believe = Loves.__call__

    def watched(self, x, *others):
        seen.append(x.shape[1])
        return believe(self, x, *others)

    monkeypatch.setattr(Loves, "__call__", watched)
    found = make(masks=masks, longest=5).repair(text, torch.Generator().manual_seed(0))
    assert found.result is not None and len(found.result) <= 4
    assert max(seen) <= 5


def test_the_same_seed_gives_the_same_repair():
    results = [make().repair("((((", torch.Generator().manual_seed(3)) for _ in range(2)]
    assert results[0] == results[1]


@given(a=st.text("abc", max_size=7), b=st.text("abc", max_size=7), c=st.text("abc", max_size=7))
def test_distance_is_a_distance(a, b, c):
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)
    assert abs(len(a) - len(b)) <= distance(a, b) <= max(len(a), len(b))


# The command, with a model that has learned next to nothing

LINES = Path(__file__).parent / "data" / "format-1"


@pytest.fixture
def run(molecules: Path, capsys):
    def call(*flags: str) -> tuple[int, str, str]:
        code = main(["repair", "--model", str(molecules), "--seed", "0", *flags])
        return code, *capsys.readouterr()

    return call


def test_files_and_smiles_come_out_as_a_table(run, tmp_path: Path):
    file = tmp_path / "broken.smi"
    file.write_text("CCO\nCC(C\n\nC{C\n", encoding="utf-8")
    code, out, err = run(str(file), "C1CC")
    assert code == 0
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert header == ["result", "status", "edits", "sure", "given", "remark"]
    assert [row[4] for row in rows] == ["CCO", "CC(C", "", "C{C", "C1CC"]
    assert rows[0][:3] == ["CCO", "valid", "0"]
    for result, status, edits, sure, _, remark in rows:
        assert (canonical_or_none(result) is not None) == (status != "not repaired")
        assert (result == "") == bool(remark)
        assert 0 <= float(sure) <= 1 and int(edits) >= 0
    assert "5 lines" in err


def test_smiles_alone_are_valid_and_the_rest_is_told(run, tmp_path: Path):
    file = tmp_path / "broken.smi"
    file.write_text("CCO\nC{C\nCC(C\n", encoding="utf-8")
    code, out, err = run(str(file), "--format", "smiles")
    assert code == 0
    assert all(canonical_or_none(line) is not None for line in out.splitlines())
    assert out.startswith("CCO\n")
    assert "not repaired: 'C{C'" in err


def test_json_is_one_object_a_line(run):
    code, out, _ = run("CC(C", "--format", "json")
    assert code == 0
    row = json.loads(out)
    assert row["given"] == "CC(C" and row["status"] in ("repaired", "not repaired")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["missing.smi"], "there is no file missing.smi"),
        (["CCO", "missing.sdf"], "there is no file missing.sdf"),
        (["missing.json"], "there is no file missing.json"),
        (["missing.csv.gz"], "there is no file missing.csv.gz"),
        (["CC", "--model", "nowhere"], "nowhere"),
        (["CC", "--drafts", "0"], "got 0"),
        (["CC", "--format", "xml"], "xml"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(run, flags, said):
    code, out, err = run(*flags)
    assert (code, out) == (2, "")
    assert said in err and len(err.strip().splitlines()) == 1


TABLES = {
    "a.smi": b"c1ccccc benzene\nCCO\tethanol\n\nC{C x\n",
    "a.csv": b'\xef\xbb\xbfSMILES,activity\r\n"c1ccccc",1\r\nCCO,2\r\n,3\r\nC{C,4\r\n',
    "a.csv.gz": gzip.compress(b"smiles,activity\nc1ccccc,1\nCCO,2\n\nC{C,4\n"),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_first_column_is_repaired(name, run, tmp_path: Path):
    file = tmp_path / name
    file.write_bytes(TABLES[name])
    code, out, _ = run(str(file), "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["given"] for row in rows] == ["c1ccccc", "CCO", "", "C{C"]
    assert rows[1]["result"] == "CCO"


@pytest.mark.parametrize("text", ["CCO", " CCO ", "CCO ethanol", "CCO\tethanol", '"CCO",1', ""])
def test_an_argument_is_read_as_a_line_of_a_file_is(text: str, tmp_path: Path):
    (tmp_path / "a.smi").write_text(f"{text}\n", encoding="utf-8")
    assert list(smiles_of(text)) == list(smiles_of(str(tmp_path / "a.smi")))


def test_where_nothing_could_be_repaired_the_exit_code_says_so(run):
    code, out, err = run("C{C", "CX", "--format", "smiles")
    assert (code, out) == (1, "") and err.endswith("redraft: nothing could be repaired\n")
    code, out, err = run("C{C", "CCO", "--format", "smiles")
    assert (code, out) == (0, "CCO\n") and "redraft:" not in err


def pipe(monkeypatch, content: bytes | None) -> None:
    stream = None if content is None else io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr("sys.stdin", stream)


def test_standard_input_is_read_as_files_are(run, monkeypatch):
    pipe(monkeypatch, TABLES["a.csv"])
    code, out, _ = run("--format", "smiles")
    assert code == 0 and "CCO" in out.splitlines()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "pipe some in"),
        (b"", "standard input holds no SMILES"),
        (b"smiles\n", "standard input holds no SMILES"),
    ],
)
def test_a_pipe_without_smiles_is_told(content, said, run, monkeypatch):
    pipe(monkeypatch, content)
    code, out, err = run()
    assert (code, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.smi", b"", "holds no SMILES"),
        ("a.smi.gz", b"CCO\n", "no complete gzip"),
        ("a.sdf", b"CCO\n", ".smi, .smiles, .csv"),
        ("a.SDF.gz", b"CCO\n", ".smi, .smiles, .csv"),
    ],
)
def test_files_that_cannot_be_repaired(name, content, said, run, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    code, out, err = run(str(tmp_path / name))
    assert (code, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1


def test_no_salt_is_taken_for_a_file():
    endings = [*product(ascii_lowercase, repeat=3), *product(ascii_letters, repeat=2)]
    named = [text for text in map("CC.{}".format, map("".join, endings)) if names_file(text)]
    assert len(named) > 10_000  # most are no SMILES
    assert not [text for text in named if canonical_or_none(text) is not None]
    for text in ("CC(=O)O.Cl", "CC.CCN", "C.[Na+].OCC", "CC.CL", "cc.br", "C(C.c1ccccc1", "CC.Na"):
        assert smiles_of(text) == [text]


def test_a_file_is_read_as_it_is_repaired(tmp_path: Path):
    file = tmp_path / "long.smi"
    file.write_bytes(b"CCO\n" + b"C" * 10**6 + b"\nCCN\n")
    texts = iter(smiles_of(str(file)))
    assert next(texts) == "CCO" and len(next(texts)) == 10**6
    file.unlink()  # which is open
    assert next(texts) == "CCN"


@pytest.mark.parametrize("piped", [False, True])
def test_a_line_that_is_no_text_stops_nothing(piped, run, monkeypatch, tmp_path: Path):
    content = b"CCO\n\x89PNG\xff\nCCN\n"
    (tmp_path / "a.smi").write_bytes(content)
    pipe(monkeypatch, content)
    code, out, _ = run(*([] if piped else [str(tmp_path / "a.smi")]))
    states = [line.split("\t")[1] for line in out.splitlines()[1:]]
    assert code == 0 and states == ["valid", "not repaired", "valid"]


def test_lines_are_read_as_they_are_repaired(molecules):
    """A stream is never held as a whole: the second line is asked for after the first is done."""
    asked: list[int] = []

    def lines():
        for number in range(3):
            asked.append(number)
            yield "CCO"

    repairs = redraft.load(molecules, "cpu").repair(lines(), seed=0)
    assert next(repairs).status == "valid" and asked == [0]
    assert next(repairs).status == "valid" and asked == [0, 1]


def test_only_what_has_a_grammar_is_repaired(molecules):
    with pytest.raises(redraft.UserError, match="this model knows lines"):
        redraft.load(LINES, "cpu").repair(["CC("])
    with pytest.raises(redraft.UserError, match="single string"):
        redraft.load(molecules, "cpu").repair("CC(")
