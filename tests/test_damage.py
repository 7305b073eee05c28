"""What was damaged says so in one sentence: never another error, never other values in silence."""

import json
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tiny import bits, on_lines, write_lines
from torch import Tensor

import redraft
from redraft import checkpoint, trainer
from redraft.checkpoint import Trained
from redraft.errors import UserError
from redraft.folder import MANIFEST, Sealed, seal, write_tensors

MODEL = ["README.md", "config.json", "counts.json", MANIFEST, "model.safetensors", "tokenizer.json"]
STATE = [MANIFEST, "progress.json", "state.safetensors"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut would need it."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ as a user saves it, sharded/ the same in several files, run/ with its states."""
    root = tmp_path_factory.mktemp("sound")
    config = on_lines("vsdd", write_lines(root / "lines.txt"), steps=5, save_every=2, log_every=2)
    trainer.train(config, root / "run")
    redraft.load(root / "run", "cpu").save(root / "model")
    shutil.copytree(root / "model", root / "sharded")
    (root / "sharded/model.safetensors").unlink()
    write_tensors(root / "sharded", "model", Sealed(root / "model").tensors("model"), limit=8000)
    seal(root / "sharded")
    return root


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound / "model", tmp_path / "model")


@pytest.fixture
def sharded(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound / "sharded", tmp_path / "sharded")


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound / "run", tmp_path / "run")


def values(trained: Trained) -> list[Any]:
    """All that a folder can say of a model."""
    return [
        trained.config,
        trained.tokenizer,
        trained.summary,
        trained.lengths.tolist(),
        trained.tokens.tolist(),
        bits(trained.denoiser.state_dict()),
        bits(trained.process.state_dict()),
    ]


def load_model(folder: Path) -> list[Any]:
    return values(redraft.load(folder, "cpu").trained)


def load_state(run: Path) -> list[Any]:
    state = checkpoint.load_state(run)
    return [state.progress, bits(state.tensors), values(state.trained)]


def refusal(load: Callable[[], Any]) -> str:
    """The one line that loading answers with."""
    with pytest.raises(UserError) as error:
        load()
    said = str(error.value)
    assert len(said.splitlines()) == 1
    assert len(said) < 1000
    return said


# ------------------------------------------------------------------ damage


def truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flip_early(path: Path, rng: random.Random) -> None:
    """Where headers are."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(min(len(data), 64))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def append(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 50)))


def noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def replacement(name: str, content: bytes) -> Callable[[Path, random.Random], None]:
    def replace(path: Path, rng: random.Random) -> None:
        path.write_bytes(content)

    replace.__name__ = name
    return replace


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def dangle(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def swap(path: Path, rng: random.Random) -> None:
    other = rng.choice([p for p in path.parent.iterdir() if p.is_file() and p != path])
    data = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(data)


DAMAGES = [
    truncate, flip, flip_early, append, noise, zeros, empty, delete, directory, dangle, pipe, swap,
    replacement("null", b"null"),
    replacement("list", b"[]"),
    replacement("table", b"{}"),
    replacement("files", b'{"files": 3}'),
    replacement("latin", "é".encode("latin-1")),
    replacement("depth", b"[" * 100_000),
    replacement("zip", b"PK\x03\x04"),
]  # fmt: skip


def assert_noticed(load: Callable[[], Any], path: Path, damage: Any, sound: Any) -> None:
    """One sentence that names the file, unless what was changed says the same as before."""
    try:
        found = load()
    except UserError as error:
        said = str(error)
        assert len(said.splitlines()) == 1, said
        # A damaged list makes sound files look damaged, and so does a swap.
        vague = path.name == MANIFEST or damage is swap
        assert (str(path.parent) if vague else path.name) in said
    else:
        assert found == sound


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", MODEL)
def test_a_damaged_model(name: str, damage: Any, sound: Path, tmp_path: Path):
    expected = load_model(sound / "model")
    for seed in range(3):
        folder = shutil.copytree(sound / "model", tmp_path / str(seed))
        damage(folder / name, random.Random(seed))
        assert_noticed(lambda f=folder: load_model(f), folder / name, damage, expected)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_damaged_shard_or_index(damage: Any, sound: Path, tmp_path: Path):
    expected = load_model(sound / "sharded")
    assert expected == load_model(sound / "model")
    files = sorted(p.name for p in (sound / "sharded").glob("model*"))
    assert len(files) >= 4
    for seed, name in enumerate(files):
        folder = shutil.copytree(sound / "sharded", tmp_path / str(seed))
        damage(folder / name, random.Random(seed))
        assert_noticed(lambda f=folder: load_model(f), folder / name, damage, expected)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", [*STATE, *(f"model/{name}" for name in MODEL)])
def test_a_damaged_state(name: str, damage: Any, sound: Path, tmp_path: Path):
    expected = load_state(sound / "run")
    for seed in range(2):
        run = shutil.copytree(sound / "run", tmp_path / str(seed))
        path = run / "state/00000005" / name
        damage(path, random.Random(seed))
        assert_noticed(lambda r=run: load_state(r), path, damage, expected)


@pytest.mark.parametrize("name", MODEL)
def test_a_damaged_run_folder_is_still_continued_from_its_state(name: str, run: Path):
    """The model beside the states is a copy for others; it is made anew."""
    empty(run / name, random.Random(0))
    trainer.resume(run)
    assert load_model(run) == load_model(run / "state/00000005/model")


def test_a_state_with_the_model_of_another_state(run: Path):
    """Both are sealed and sound, but not each other's."""
    shutil.rmtree(run / "state/00000005/model")
    shutil.copytree(run / "state/00000004/model", run / "state/00000005/model")
    assert "00000005" in refusal(lambda: trainer.resume(run))


def test_a_state_with_a_compact_model(run: Path):
    """Its weights are rounded: the run would not end where it would have ended."""
    folder = run / "state/00000005/model"
    trained = checkpoint.load(folder)
    shutil.rmtree(folder)
    checkpoint.save(folder, replace(trained, compact=True))
    assert "compact model, from which no run can go on" in refusal(lambda: trainer.resume(run))


def test_a_state_under_the_name_of_another_step(run: Path):
    """Else the run would end with states that are not the last ones."""
    (run / "state/00000005").rename(run / "state/00000009")
    assert "00000009" in refusal(lambda: trainer.resume(run))


# ------------------------------------------------------------------ the list of files


@pytest.mark.parametrize("name", [name for name in MODEL if name not in (MANIFEST, "README.md")])
def test_a_file_that_the_manifest_does_not_list_is_not_trusted(name: str, model: Path):
    manifest = json.loads((model / MANIFEST).read_text())
    del manifest["files"][name]
    (model / MANIFEST).write_text(json.dumps(manifest))
    assert name in refusal(lambda: load_model(model))


def test_a_manifest_that_lists_nothing_vouches_for_nothing(model: Path):
    (model / MANIFEST).write_text('{"files": {}}')
    refusal(lambda: load_model(model))


def test_files_that_came_later_change_nothing(model: Path, sound: Path):
    """An index beside the one file of tensors, as it was not written with it."""
    tensors = {name: x + 1 for name, x in Sealed(model).tensors("model").items()}
    write_tensors(model, "model-of-mine", tensors)
    entries = {
        name: {"shape": list(x.shape), "files": ["model-of-mine.safetensors"]}
        for name, x in tensors.items()
    }
    (model / "model.safetensors.index.json").write_text(json.dumps(entries))
    try:
        found = load_model(model)
    except UserError as error:
        assert "index" in str(error)
    else:
        assert found == load_model(sound / "model")


NAMES = {
    "up": "../outside",
    "absolute": "/etc/hostname",
    "parent": "..",
    "itself": ".",
    "empty": "",
    "deep": "a/b",
    "long": "x" * 300,
    "two lines": "two\nlines",
    "nul": "nul\0",
    "no text": "\ud800",
}


@pytest.mark.parametrize("case", NAMES)
def test_a_manifest_names_files_of_its_folder_and_no_others(case: str, model: Path):
    (model.parent / "outside").write_text("secret")
    manifest = json.loads((model / MANIFEST).read_text())
    manifest["files"][NAMES[case]] = manifest["files"]["config.json"]
    (model / MANIFEST).write_text(json.dumps(manifest))
    assert str(model) in refusal(lambda: Sealed(model))


@pytest.mark.parametrize("facts", [None, 3, "x", [], {}, {"bytes": "many"}, {"bytes": 1e400}])
def test_a_manifest_with_odd_facts(facts: Any, model: Path):
    manifest = json.loads((model / MANIFEST).read_text())
    manifest["files"]["config.json"] = facts
    (model / MANIFEST).write_text(json.dumps(manifest))
    assert "config.json" in refusal(lambda: Sealed(model))


# ------------------------------------------------------------------ well-formed, sealed, and wrong


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the content of a JSON file, in place or for another, and seal its folder again."""
    value = json.loads(path.read_text(encoding="utf-8"))
    changed = change(value)
    path.write_text(json.dumps(value if changed is None else changed), encoding="utf-8")
    seal(path.parent)


def put(*keys: str, value: Any) -> Callable[[Any], None]:
    def change(stored: Any) -> None:
        for key in keys[:-1]:
            stored = stored[key]
        stored[keys[-1]] = value

    return change


def drop(*keys: str) -> Callable[[Any], None]:
    def change(stored: Any) -> None:
        for key in keys[:-1]:
            stored = stored[key]
        del stored[keys[-1]]

    return change


SECTIONS = ["data", "noise", "denoiser", "optimizer", "train", "leader", "fldd"]

CONFIGS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "unknown key": (put("config", "colour", value=1), ["colour"]),
    "unknown key in a section": (put("config", "train", "stepz", value=1), ["stepz", "steps"]),
    "wrong type": (put("config", "train", "batch", value="many"), ["train.batch", "many"]),
    "wrong choice": (put("config", "train", "bound", value="loose"), ["train.bound", "loose"]),
    "out of range": (put("config", "noise", "T", value=0), ["noise.T", "0"]),
    "not a number": (put("config", "optimizer", "lr", value=float("nan")), ["lr"]),
    "unknown method": (put("config", "method", value="vsd"), ["method", "vsd"]),
    "method of a wrong type": (put("config", "method", value=3), ["method"]),
    "another method": (put("config", "method", value="mdlm"), ["config.json"]),
    "another width": (put("config", "denoiser", "width", value=32), ["config.json"]),
    "another depth": (put("config", "denoiser", "layers", value=2), ["config.json"]),
    "a section that is a number": (put("config", "train", value=3), ["train"]),
    "a section that is null": (put("config", "noise", value=None), ["noise"]),
    "no config": (drop("config"), ["config"]),
    "a config that is a list": (put("config", value=[1]), ["config"]),
    "an empty config": (put("config", value={}), ["config"]),
    "no summary": (drop("summary"), ["summary"]),
    "a summary that is a list": (put("summary", value=[1]), ["summary"]),
    "no format": (drop("format"), ["config.json"]),
    "a format from the future": (put("format", value=99), ["format 99"]),
    "a format that never was": (put("format", value=0), ["format"]),
    "a format in words": (put("format", value="1"), ["config.json"]),
    "compact in words": (put("compact", value="yes"), ["compact", "yes"]),
    "compact, which it is not": (put("compact", value=True), ["bfloat16"]),
    "a list": (lambda _: [1, 2], ["config.json"]),
    "a number": (lambda _: 3, ["config.json"]),
    **{f"no {s}": (drop("config", s), [s]) for s in SECTIONS},
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_is_wrong(case: str, model: Path):
    change, named = CONFIGS[case]
    edit(model / "config.json", change)
    said = refusal(lambda: load_model(model))
    assert all(word in said for word in named), said
    assert str(model) in said, said


def test_a_format_from_the_future_names_both_versions(model: Path):
    edit(model / "config.json", lambda stored: stored | {"format": 3, "version": "9.9.9"})
    said = refusal(lambda: load_model(model))
    assert "9.9.9" in said
    assert redraft.__version__ in said


TOKENIZERS: dict[str, Callable[[Any], Any]] = {
    "one token more": lambda stored: stored["pieces"].append("Q"),
    "one token less": drop("pieces", -1),  # pyright: ignore
    "a token twice": lambda stored: stored["pieces"].__setitem__(0, stored["pieces"][1]),
    "no tokens": put("pieces", value=[]),
    "tokens that are numbers": lambda stored: {**stored, "pieces": [*range(len(stored["pieces"]))]},
    "tokens that are lists": lambda stored: {**stored, "pieces": [[x] for x in stored["pieces"]]},
    "tokens that are a number": put("pieces", value=3),
    "tokens that are one string": lambda stored: {**stored, "pieces": "".join(stored["pieces"])},
    "no table": drop("pieces"),
    "no name": drop("name"),
    "an unknown name": put("name", value="char"),
    "a name that is a list": put("name", value=["chars"]),
    "the name of another kind": put("name", value="bpe"),
    "the name of one more kind": put("name", value="semantic-id"),
    "a list": lambda _: [1, 2],
    "null": lambda _: 0,
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_tokenizer_that_is_wrong(case: str, model: Path):
    edit(model / "tokenizer.json", TOKENIZERS[case])
    said = refusal(lambda: load_model(model))
    assert str(model) in said, said


COUNTS: dict[str, Callable[[Any], Any]] = {
    "tokens of another length": lambda stored: stored["tokens"].append(1),
    "no tokens": drop("tokens"),
    "no lengths": drop("lengths"),
    "lengths of nothing": put("lengths", value=[]),
    "lengths that are all zero": lambda s: {**s, "lengths": [0] * len(s["lengths"])},
    "lengths below zero": lambda stored: stored["lengths"].__setitem__(-1, -5),
    "lengths in words": lambda stored: stored["lengths"].__setitem__(-1, "many"),
    "lengths with a hole": lambda stored: stored["lengths"].__setitem__(-1, None),
    "lengths in lists": lambda stored: {**stored, "lengths": [stored["lengths"]]},
    "lengths that are a number": put("lengths", value=3),
    "lengths that are a word": put("lengths", value="abcdef"),
    "tokens below zero": lambda stored: stored["tokens"].__setitem__(-1, -5),
    "a list": lambda _: [1, 2],
    "null": lambda _: 0,
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts_that_are_wrong(case: str, model: Path):
    edit(model / "counts.json", COUNTS[case])
    assert "counts.json" in refusal(lambda: load_model(model))


WEIGHT = "denoiser/head.weight"


def another_key(tensors: dict[str, Tensor]) -> None:
    tensors["denoiser/head.weigth"] = tensors.pop(WEIGHT)


def another_type(dtype: torch.dtype) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT].to(dtype)})


TENSORS: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "a missing key": (lambda tensors: tensors.pop(WEIGHT), "head.weight"),
    "a misspelt key": (another_key, "head.weig"),
    "an extra key": (lambda tensors: tensors.update({"denoiser/more": torch.ones(2)}), "more"),
    "an extra part": (lambda tensors: tensors.update({"more/weight": torch.ones(2)}), "more"),
    "an extra name": (lambda tensors: tensors.update({"more": torch.ones(2)}), "more"),
    "another shape": (lambda t: t.update({WEIGHT: t[WEIGHT][:-1]}), "head.weight"),
    "turned around": (lambda t: t.update({WEIGHT: t[WEIGHT].T.contiguous()}), "head.weight"),
    "a scalar": (lambda tensors: tensors.update({WEIGHT: torch.ones(())}), "head.weight"),
    "float64": (another_type(torch.float64), "head.weight"),
    "bfloat16": (another_type(torch.bfloat16), "head.weight"),
    "int64": (another_type(torch.int64), "head.weight"),
    "a kernel": (lambda tensors: tensors.update({"process/kernel": torch.ones(2)}), "committed"),
    "nothing": (lambda tensors: tensors.clear(), "model"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_model_that_is_wrong(case: str, model: Path):
    change, named = TENSORS[case]
    tensors = Sealed(model).tensors("model")
    change(tensors)
    write_tensors(model, "model", tensors)
    seal(model)
    said = refusal(lambda: load_model(model))
    assert named in said
    assert str(model) in said


PROGRESS: dict[str, Callable[[Any], Any]] = {
    "no step": drop("step"),
    "a step in words": put("step", value="five"),
    "a step below zero": put("step", value=-1),
    "a step that is no whole number": put("step", value=2.5),
    "no seconds": drop("seconds"),
    "seconds in words": put("seconds", value="five"),
    "no metrics": drop("pending"),
    "metrics in a list": put("pending", value=[1]),
    "metrics in words": put("pending", value={"loss": "high"}),
    "a list": lambda _: [1],
}


@pytest.mark.parametrize("case", PROGRESS)
def test_progress_that_is_wrong(case: str, run: Path):
    edit(run / "state/00000004/progress.json", PROGRESS[case])
    shutil.rmtree(run / "state/00000005")
    assert "progress.json" in refusal(lambda: trainer.resume(run))


GENERATOR = "random/generator"

STATES: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "no weights": lambda t: [t.pop(name) for name in list(t) if name.startswith("denoiser/")],
    "a missing weight": lambda t: t.pop(WEIGHT),
    "a weight of another shape": lambda t: t.update({WEIGHT: t[WEIGHT][:-1]}),
    "a weight of another type": another_type(torch.float64),
    "no random numbers": lambda t: t.pop(GENERATOR),
    "few random numbers": lambda t: t.update({GENERATOR: t[GENERATOR][:-1]}),
    "impossible random numbers": lambda t: t.update({GENERATOR: t[GENERATOR].float()}),
    "no counts": lambda t: t.pop("counts/steps"),
    "many counts": lambda t: t.update({"counts/steps": torch.ones(3)}),
    "no optimizer": lambda t: [t.pop(name) for name in list(t) if name.startswith("player/")],
    "half an optimizer": lambda t: t.pop("player/0.exp_avg"),
    "an optimizer of another shape": lambda t: t.update({"player/0.exp_avg": torch.ones(3)}),
    "an optimizer of one more": lambda t: t.update({"player/999.exp_avg": torch.ones(3)}),
    "an optimizer with names": lambda t: t.update({"player/x.exp_avg": torch.ones(3)}),
    "no game": lambda t: [t.pop(name) for name in list(t) if name.startswith("game/")],
    "no noise that was learned": lambda t: [
        t.pop(name) for name in list(t) if name.startswith("process/")
    ],
    "some more noise": lambda t: t.update({"process/more": torch.ones(3)}),
    "an extra part": lambda t: t.update({"more/x": torch.ones(3)}),
    "nothing": lambda t: t.clear(),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_that_is_wrong(case: str, run: Path):
    """States are written by the same version that reads them, so none of this is an old one."""
    shutil.rmtree(run / "state/00000005")
    folder = run / "state/00000004"
    tensors = Sealed(folder).tensors("state")
    STATES[case](tensors)
    write_tensors(folder, "state", tensors)
    seal(folder)
    assert str(folder) in refusal(lambda: trainer.resume(run))


# ------------------------------------------------------------------ malice


class Payload:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "not sealed"])
@pytest.mark.parametrize("form", ["pickle", "torch", "old torch"])
@pytest.mark.parametrize("name", [*MODEL, "state.safetensors", "progress.json"])
def test_nothing_is_unpickled(name: str, form: str, sealed: bool, run: Path, tmp_path: Path):
    mark = tmp_path / "mark"
    state = run / "state/00000005"
    folder = state if name in STATE and name != MANIFEST else state / "model"
    path = folder / name
    if form == "pickle":
        path.write_bytes(pickle.dumps(Payload(mark)))
    else:
        torch.save(Payload(mark), path, _use_new_zipfile_serialization=form == "torch")
    if sealed and name != MANIFEST:
        seal(folder)
    if name != "README.md" or not sealed:
        assert name in refusal(lambda: checkpoint.load_state(run))
    if folder != state and name != "README.md":
        refusal(lambda: load_model(folder))
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()  # it would have


# ------------------------------------------------------------------ shards


DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]


@st.composite
def many_tensors(draw: st.DrawFn) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    tensors = {}
    for i in range(draw(st.integers(0, 6))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 9), max_size=3))
        size = torch.empty(shape, dtype=dtype).nbytes
        raw = torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8)  # NaN too
        raw = raw % 2 if dtype == torch.bool else raw
        tensor = raw.view(dtype).reshape(shape)
        tensors[f"part/{i}.x"] = tensor.mT if draw(st.booleans()) and len(shape) > 1 else tensor
    if tensors and draw(st.booleans()):
        tensors["part/tied"] = next(iter(tensors.values()))
    return tensors


@given(many_tensors(), st.integers(8, 600))
def test_tensors_go_into_small_files_and_back(tensors: dict[str, Tensor], limit: int):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tensors(folder, "model", tensors, limit)
        files = list(folder.glob("*.safetensors"))
        for path in files:
            data = path.read_bytes()
            header = 8 + int.from_bytes(data[:8], "little")
            assert len(data) - header <= limit
        assert (len(files) == 1) == (sum(x.nbytes for x in tensors.values()) <= limit)
        seal(folder)
        found = Sealed(folder).tensors("model")
        assert bits(found) == bits(tensors)


def test_a_missing_shard_gets_a_sentence(sharded: Path):
    """Without the manifest's help, too."""
    gone = sorted(sharded.glob("*.safetensors"))[1]
    gone.unlink()
    assert gone.name in refusal(lambda: load_model(sharded))
    seal(sharded)
    assert gone.name in refusal(lambda: load_model(sharded))


INDEX = "model.safetensors.index.json"


def set_all(key: str, value: Any) -> Callable[[Any], Any]:
    return lambda stored: {name: entry | {key: value} for name, entry in stored.items()}


INDICES: dict[str, Callable[[Any], Any]] = {
    "a list": lambda _: [1, 2],
    "a number": lambda _: 3,
    "nothing": lambda _: {},
    "entries that are lists": lambda stored: {name: [1] for name in stored},
    "no files": set_all("files", []),
    "files that are a number": set_all("files", 3),
    "files that are numbers": set_all("files", [3]),
    "no shape": lambda stored: {name: {"files": e["files"]} for name, e in stored.items()},
    "another shape": set_all("shape", [7, 7]),
    "a shape in words": set_all("shape", "big"),
    "a shape below zero": set_all("shape", [-1]),
    "a huge shape": set_all("shape", [2**70]),
    "an unknown tensor": lambda s: s | {"denoiser/x": next(iter(s.values()))},
    "a shard twice": lambda s: {n: e | {"files": e["files"] * 2} for n, e in s.items()},
    "no such shard": set_all("files", ["model-9.safetensors"]),
    "a file that is no shard": set_all("files", ["config.json"]),
    "one tensor less": lambda stored: dict(list(stored.items())[1:]),
}


@pytest.mark.parametrize("case", INDICES)
def test_an_index_that_is_wrong(case: str, sharded: Path):
    edit(sharded / INDEX, INDICES[case])
    assert str(sharded) in refusal(lambda: load_model(sharded))


@pytest.mark.parametrize("how", ["up", "absolute", "down"])
def test_an_index_leads_nowhere_else(how: str, sharded: Path):
    """The shards are sound, but lie outside the folder, where no manifest vouches for them."""
    outside = sharded.parent / "outside"
    outside.mkdir()
    inside = sharded / "inner"
    inside.mkdir()
    for path in sharded.glob("*.safetensors"):
        shutil.copy(path, inside)
        path.rename(outside / path.name)
    prefix = {"up": "../outside/", "absolute": f"{outside}/", "down": "inner/"}[how]

    def lead_away(stored: Any) -> Any:
        return {
            name: entry | {"files": [prefix + file for file in entry["files"]]}
            for name, entry in stored.items()
        }

    edit(sharded / INDEX, lead_away)
    assert INDEX in refusal(lambda: load_model(sharded))


def test_a_link_to_other_content_is_refused(model: Path):
    """Links themselves are fine (download caches are made of them); what they hold is checked."""
    other = model.parent / "other.safetensors"
    (model / "model.safetensors").rename(other)
    (model / "model.safetensors").symlink_to(other)
    load_model(model)
    save_file({"denoiser/x": torch.ones(2)}, other)
    assert "model.safetensors" in refusal(lambda: load_model(model))
