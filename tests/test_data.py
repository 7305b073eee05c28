"""Laws of the data stage: parts, policies, readers, and makers of synthetic data."""

import gzip
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import message

from redraft.data import corpus, lines, molecules, playlists, stories
from redraft.data.corpus import Corpus, encode, split
from redraft.tokenizers import EOS, BPETokenizer, SemanticIdTokenizer, SmilesTokenizer

laws = settings(max_examples=50, deadline=None, derandomize=True)
items = st.lists(st.text(max_size=5), min_size=3, max_size=60).filter(lambda xs: len(set(xs)) > 2)


@pytest.fixture(scope="module")
def bundled() -> Corpus:
    return molecules.bundled()


@laws
@given(items, st.randoms(use_true_random=False))
def test_parts_never_depend_on_order(xs, rng):
    shuffled = rng.sample(xs, len(xs))
    assert split(xs) == split(shuffled)


@laws
@given(items)
def test_parts_are_a_partition(xs):
    parts = split(xs)
    assert all(parts)
    assert sorted(x for part in parts for x in part) == sorted(xs)
    assert sum(len(set(part)) for part in parts) == len(set(xs))


def test_sizes_of_the_parts():
    train, held_out, validation = split(map(str, range(20_000)))
    assert len(validation) / 20_000 == pytest.approx(0.1, abs=0.01)
    assert len(held_out) / (len(train) + len(held_out)) == pytest.approx(0.05, abs=0.005)


def test_a_part_grows_with_the_items():
    """An item that is in validation stays there when others join."""
    few, many = split(map(str, range(2000))), split(map(str, range(4000)))
    assert all(set(a) <= set(b) for a, b in zip(few, many, strict=True))


def test_items_with_one_key_stay_together():
    parts = split(range(100), key=lambda i: str(i // 10))
    assert [{i // 10 for i in part} & {j // 10 for j in parts[0]} for part in parts[1:]] == [
        set()
    ] * 2


def test_too_few_items():
    assert "at least 3 distinct items, got 2" in message(split, ["a", "b", "a"])
    assert "got 0" in message(split, [])


TABLE = SmilesTokenizer(["C", "N"])


def test_encode_keeps_what_it_can():
    encoded = encode(["CCN", "CO", "CCCC"], TABLE, max_length=4, long="drop", unknown="drop")
    assert encoded.items == ["CCN"]
    assert [ids.tolist() for ids in encoded.sequences] == [TABLE.encode("CCN")]
    assert encoded.sequences[0].dtype == np.int32
    report = encoded.report
    assert (report.n, report.dropped_unknown, report.dropped_long, report.cut_long) == (3, 1, 1, 0)
    assert str(report) == ("1 of 3 items kept, 1 dropped for unknown tokens, 1 dropped as too long")


@laws
@given(st.lists(st.text("CNO", max_size=9), min_size=1, max_size=9), st.integers(2, 9))
def test_every_item_is_accounted_for(xs, max_length):
    known = [x for x in xs if "O" not in x]
    if not known:
        assert "nothing" in message(encode, xs, TABLE, max_length, "cut", "drop")
        return
    encoded = encode(xs, TABLE, max_length, long="cut", unknown="drop")
    assert encoded.items == known and encoded.report.dropped_unknown == len(xs) - len(known)
    assert encoded.report.cut_long == sum(len(x) + 1 > max_length for x in known)
    assert all(len(ids) <= max_length and ids[-1] == EOS for ids in encoded.sequences)


def test_encode_complains_in_one_sentence():
    complaint = message(encode, ["CC", "CO", "O"], TABLE)
    assert complaint.startswith("2 of 3 items") and "item 2" in complaint and "'O'" in complaint
    complaint = message(encode, ["C", "CCC", "CCCC"], TABLE, max_length=2)
    assert complaint.startswith("2 of 3 items") and "item 2, 'CCC', with 4" in complaint
    assert "nothing is left" in message(encode, ["CCC"], TABLE, max_length=2, long="drop")
    assert "nothing is left" in message(encode, [], TABLE)
    assert "error, drop, cut" in message(encode, ["C"], TABLE, long="cuts")
    assert "error, drop" in message(encode, ["C"], TABLE, unknown="cut")
    assert "at least 2" in message(encode, ["CC"], TABLE, max_length=1, long="cut")


def test_playlists_are_cut_at_whole_tracks():
    made, embeddings = playlists.synthetic(5, seed=0)
    tokenizer = SemanticIdTokenizer.fit(embeddings)
    encoded = encode(made.train, tokenizer, max_length=31, long="cut")
    assert {len(ids) for ids in encoded.sequences} == {30}


def test_lines_tolerate_what_editors_leave(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffeins\r\n\r\n  \nzwei é\n".encode())
    assert lines.read(path) == lines.read(str(path)) == ["eins", "zwei é"]
    packed = tmp_path / "mine.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert lines.read(packed) == lines.read(path)


def test_files_that_cannot_be_read(tmp_path):
    empty, latin, false, torn = (tmp_path / name for name in ("a.txt", "b.txt", "c.gz", "d.gz"))
    empty.write_text(" \n\n")
    latin.write_bytes("gut\nschön\n".encode("latin-1"))
    false.write_text("plain")
    torn.write_bytes(gzip.compress(random.Random(0).randbytes(10_000))[:5000])
    assert "no file" in message(lines.read, tmp_path / "none.txt")
    assert "folder" in message(lines.read, tmp_path)
    assert "no sequences" in message(lines.read, empty)
    assert "line 2" in message(lines.read, latin)
    assert "gzip" in message(lines.read, false)
    assert "gzip" in message(lines.read, torn) or "UTF-8" in message(lines.read, torn)
    for read in (molecules.read, stories.read):
        assert "no file" in message(read, tmp_path / "none.txt")
        assert "no sequences" in message(read, empty)


@pytest.mark.parametrize(
    "text",
    [
        "CCO\nc1ccccc1\n",
        "smiles\nCCO\nc1ccccc1\n",
        "SMILES,SPLIT\nCCO,train\nc1ccccc1,test\n",
        "CCO ethanol\nc1ccccc1\tbenzene\n",
        'smiles,logP\n"CCO\n",1.5\n"c1ccccc1\n",2.5\n',
    ],
)
def test_smiles_files(tmp_path, text):
    path = tmp_path / "some.smi"
    path.write_text(text)
    assert molecules.read(path) == ["CCO", "c1ccccc1"]


def test_a_header_alone_is_no_molecule(tmp_path):
    (tmp_path / "some.csv").write_text("smiles,logP\n")
    assert "no sequences" in message(molecules.read, tmp_path / "some.csv")


def test_canonical_form():
    assert molecules.canonical("OCC") == molecules.canonical("C(O)C") == "CCO"
    assert "'c1ccccc'" in message(molecules.canonical, "c1ccccc")
    message(molecules.canonical, "")


def test_bundled_molecules(bundled):
    everything = [*bundled.train, *bundled.held_out, *bundled.validation]
    assert len(everything) == len(set(everything)) > 20_000
    assert max(len(SmilesTokenizer.split(smiles)) for smiles in everything) <= 28
    for smiles in bundled.train[:1000]:
        assert molecules.canonical(smiles) == smiles
    assert "MIT" in bundled.origin


def test_the_stage_needs_neither_torch_nor_rdkit():
    code = (
        "import sys, redraft.tokenizers; from redraft.data import molecules, playlists, stories; "
        "molecules.bundled(); print({'torch', 'rdkit', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


STORIES = ["One day.\nTwo days.", "Lily had a ball."]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "One day.\nTwo days.\n<|endoftext|>\nLily had a ball.\n<|endoftext|>\n"),
        ("a.jsonl", '{"text": "One day.\\nTwo days."}\n\n{"text": "Lily had a ball.", "n": 1}\n'),
    ],
)
def test_story_files(tmp_path, name, text, packed):
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert stories.read(path) == STORIES


def test_one_story_a_line(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n")
    assert stories.read(tmp_path / "a.txt") == ["One.", "Two."]


@pytest.mark.parametrize("line", ["{", "[1]", "3", '{"story": "x"}', '{"text": 3}'])
def test_bad_story_files(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    assert "line 2" in message(stories.read, path)
    assert ".jsonl" in message(stories.read, tmp_path / "a.parquet")


def parts(made: Corpus) -> list:
    return [*made.train, *made.held_out, *made.validation]


@laws
@given(st.integers(3, 300), st.integers(0, 5))
def test_synthetic_stories(n, seed):
    made = stories.synthetic(n, seed)
    assert made == stories.synthetic(n, seed) != stories.synthetic(n, seed + 1)
    assert len(set(parts(made))) == n and "synthetic" in made.origin
    assert not any("{" in story or "  " in story for story in parts(made))


def test_variety_of_stories():
    assert stories.VARIETY > 1_000_000
    made = parts(stories.synthetic(20_000, seed=0))
    assert len(made) == 20_000
    # Every story names its child and its thing again.
    assert all(
        any(story.count(name) > 2 for name in stories.GIRLS + stories.BOYS)
        and any(story.count(thing) > 1 for thing in stories.TOYS + stories.PETS)
        for story in made
    )
    bpe = BPETokenizer.fit(made[:2000])
    bpe.require_single_tokens(["Lily", "Tom", "Max", "ball", "dog", "train", "red"])
    message(stories.synthetic, 2)
    message(stories.synthetic, 10**30)


def test_synthetic_playlists():
    made, embeddings = playlists.synthetic(50, seed=3)
    again, same = playlists.synthetic(50, seed=3)
    assert made == again and (embeddings == same).all()
    assert made != playlists.synthetic(50, seed=4)[0] and "synthetic" in made.origin
    assert embeddings.shape == (2000, 80) and embeddings.dtype == np.float32
    rows = np.array(parts(made))
    assert rows.shape == (50, 50) and rows.min() >= 0 and rows.max() < 2000
    assert all(len(set(row)) == 50 for row in rows.tolist())
    # A step is much shorter than the way between any two tracks.
    steps = np.linalg.norm(np.diff(embeddings[rows], axis=1), axis=-1).mean()
    strangers = np.linalg.norm(embeddings[:1000] - embeddings[1000:], axis=-1).mean()
    assert steps < 0.7 * strangers


def test_impossible_playlists():
    assert "got 100 of 2000" in message(playlists.synthetic, 5, length=100)
    assert "got 50 of 20" in message(playlists.synthetic, 5, tracks=20)
    assert "got 2 and" in message(playlists.synthetic, 2)


def test_the_parts_have_names():
    made = Corpus.of("abcdefghij", "Ten letters, free to use.")
    assert (made.train, made.held_out, made.validation) == corpus.split("abcdefghij")
    assert made.origin == "Ten letters, free to use."
