"""Folders of files that are whole or not there, and say so when they were damaged.

A folder is written aside, sealed with a manifest (size and SHA-256 of every file), and renamed into
place. Tensors go into safetensors files of at most 15 MB, so that they pass through narrow pipes.
Nothing is ever unpickled.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from redraft.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
SHARD = 15_000_000
"""Largest file of tensors in bytes."""


# ------------------------------------------------------------------ whole folders


@contextmanager
def written(folder: Path) -> Iterator[Path]:
    """A folder to write into, which appears under its new name whole, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        seal(aside)
        aside.rename(folder)
        settle(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def seal(folder: Path) -> None:
    """Write the manifest, last of all, and bring everything to the disk."""
    files = {}
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST):
        files[path.name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
        settle(path)
    write_json(folder / MANIFEST, {"files": files})
    settle(folder / MANIFEST)
    settle(folder)


class Sealed:
    """A folder whose files are what they were when it was sealed; no others can be read from it."""

    def __init__(self, folder: Path):
        self.folder = folder
        manifest = read_json(folder / MANIFEST)
        files = manifest.get("files") if isinstance(manifest, dict) else None
        if not isinstance(files, dict):
            raise UserError(f"{folder / MANIFEST} is damaged: it lists no files")
        for name, facts in files.items():
            self._check(name, facts if isinstance(facts, dict) else {})
        self.names = set(files)

    def _check(self, name: str, facts: dict[str, Any]) -> None:
        if not re.fullmatch(r"\w[\w.-]{0,99}", name, re.ASCII):
            raise UserError(f"{self.folder / MANIFEST} is damaged: {name[:60]!r} is no file name")
        path, size = self.folder / name, facts.get("bytes")
        if not path.is_file():
            raise UserError(f"{self.folder} is incomplete: it holds no {name}")
        if path.stat().st_size != size:
            raise UserError(f"{path} is damaged: {path.stat().st_size} bytes, not {size!r}")
        if digest(path) != facts.get("sha256"):
            raise UserError(f"{path} is damaged: it is not what was written (SHA-256 differs)")

    def path(self, name: str) -> Path:
        if name not in self.names:
            raise UserError(f"{self.folder} is incomplete: its manifest lists no {name[:100]!r}")
        return self.folder / name

    def json(self, name: str) -> Any:
        return read_json(self.path(name))

    def tensors(self, stem: str) -> "dict[str, Tensor]":
        """What `write_tensors` wrote."""
        import torch

        single, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
        if index not in self.names:
            return parse(self.path(single))
        with explained(self.path(index)):
            entries = self.json(index)
            files = {file for entry in entries.values() for file in entry["files"]}
            shards = {file: parse(self.path(file)) for file in sorted(files)}
            return {
                name: torch.cat([shards[file][name] for file in entry["files"]]).reshape(
                    entry["shape"]
                )
                for name, entry in entries.items()
            }


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Whatever goes wrong while a file's content is understood is told in a sentence about it."""
    try:
        yield
    except UserError as error:
        text = str(error)
        raise UserError(text if str(path) in text else f"{path}: {text}") from None
    except Exception as error:  # libraries raise all kinds on content that is not theirs
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{path} is damaged or foreign: {type(error).__name__} {reason}") from None


def publish(source: Path, folder: Path) -> None:
    """Copy a sealed folder's files into another one: all aside, then into place, the manifest last.

    Where there is no room for them, the other folder stays as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in source.iterdir() if path.name != MANIFEST)
    asides = {name: folder / f".{name}.new" for name in [*names, MANIFEST]}
    try:
        for name, aside in asides.items():
            shutil.copyfile(source / name, aside)
        for name, aside in asides.items():
            os.replace(aside, folder / name)
    finally:
        for aside in asides.values():
            aside.unlink(missing_ok=True)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def settle(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------ files


def put(path: Path, content: bytes) -> None:
    """A file that is whole, or as it was."""
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}")
    if not path.is_file():
        raise UserError(f"{path.parent} holds no model: there is no {path.name}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())[:100]}") from None


def write_tensors(
    folder: Path, stem: str, tensors: "dict[str, Tensor]", limit: int = SHARD
) -> None:
    """STEM.safetensors, or several STEM-00001-of-00003.safetensors with an index.

    A tensor that alone is over the limit is cut along its flattened length.
    """
    from safetensors.torch import save

    shards: list[dict[str, Tensor]] = [{}]
    shapes, room = {}, limit
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        shapes[name] = list(tensor.shape)
        pieces = flat.split(max(limit // flat.element_size(), 1)) if flat.numel() else [flat]
        for piece in pieces:
            if piece.nbytes > room and shards[-1]:
                shards.append({})
                room = limit
            shards[-1][name] = piece.clone()
            room -= piece.nbytes
    if len(shards) == 1:
        whole = {name: tensor.reshape(shapes[name]) for name, tensor in shards[0].items()}
        (folder / f"{stem}.safetensors").write_bytes(save(whole))
        return
    names = [f"{stem}-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    files: dict[str, list[str]] = {}
    for name, shard in zip(names, shards, strict=True):
        (folder / name).write_bytes(save(shard))
        for key in shard:
            files.setdefault(key, []).append(name)
    index = {key: {"shape": shapes[key], "files": files[key]} for key in tensors}
    write_json(folder / f"{stem}.safetensors.index.json", index)


def parse(path: Path) -> "dict[str, Tensor]":
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path} is no safetensors file: {reason}") from None


def require_same(
    got: "dict[str, dict[str, Tensor]]", wanted: "dict[str, dict[str, Tensor]]"
) -> None:
    """Parts with just the same tensors, each of just the same shape and kind."""
    for part in sorted(got.keys() | wanted.keys()):
        have, want = got.get(part, {}), wanted.get(part, {})  # a part may hold nothing
        for name in sorted(have.keys() | want.keys()):
            a, b = (describe(tensors.get(name)) for tensors in (have, want))
            if a != b:
                raise UserError(
                    f"tensors and config.json do not fit: {part[:40]}/{name[:80]} is {a}, not {b}"
                )


def describe(tensor: "Tensor | None") -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


# ------------------------------------------------------------------ one at a time


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder alone; the lock goes with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is training in {folder}") from None
        yield
