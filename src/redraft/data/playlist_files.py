"""Files of playlists: what was played after what, and what is known of the tracks.

.jsonl  objects with "index" are tracks, those with "tracks" sequences of such indices
.json   slices of the Spotify Million Playlist Dataset
.csv    rows of (sequence, position, item)

Each may be gzipped. What is known of the tracks may come in a CSV of its own.
"""

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redraft.config import check
from redraft.data import lines, wheels
from redraft.errors import UserError, unknown

AUDIO = (
    *("danceability", "energy", "key", "loudness", "mode", "speechiness", "acousticness"),
    *("instrumentalness", "liveness", "valence", "tempo", "duration_ms", "time_signature"),
)
"""What is known of how a track sounds, by the names that Spotify gave."""
KEYS = ("track_uri", "uri", "track_id", "id", "item", "index")
"""Columns by which a file of features may name its tracks."""
TAGS = ("tags", "genres", "genre", "track_genre")


@dataclass(frozen=True)
class Track:
    key: str
    """What files call it."""
    artist: str = ""
    title: str = ""
    audio: Mapping[str, float] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


class Played(NamedTuple):
    """A sequence of tracks, by their places in the list of tracks."""

    group: str
    """Sequences of one group are never both learned from and judged by."""
    tracks: np.ndarray


@dataclass(frozen=True)
class Listening:
    """What files hold."""

    tracks: list[Track]
    sequences: list[Played]


def read(files: Sequence[str]) -> Listening:
    """The tracks and sequences of files, which have one format."""
    kinds = {Path(file).name.lower().removesuffix(".gz").rpartition(".")[2] for file in files}
    for kind in sorted(kinds - set(FORMATS)):
        raise unknown("playlist format", f".{kind}", (f".{known}" for known in FORMATS))
    check(len(kinds) == 1, f"files of one format are needed, got {', '.join(sorted(kinds))}")
    found = FORMATS[kinds.pop()](files)
    if not any(len(sequence.tracks) for sequence in found.sequences):
        raise UserError(f"{', '.join(files)} holds no playlists, at least one sequence is needed")
    return found


class Places(dict[str, int]):
    """Places of tracks by their keys, in the order of their first mention."""

    def __missing__(self, key: str) -> int:
        self[key] = len(self)
        return self[key]


# ------------------------------------------------------------------ JSON lines


def read_json_lines(files: Sequence[str]) -> Listening:
    tracks: dict[int, Track] = {}
    found: list[tuple[str, str, list[int]]] = []  # where it stands, its group, its indices
    for path in files:
        for number, line in lines.numbered(path):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
                if "tracks" in row:
                    found.append((where, _group(row), [*map(_index, _list(row["tracks"]))]))
                    continue
                index, track = _index(row["index"]), _track(row)
            except BROKEN:
                raise UserError(
                    f'{where} must be a track, with "index" and, where they are known, numbers as '
                    '"audio" and a list of "tags", or a sequence, with "group", "tracks" and, on '
                    f'the radio, "start", got {line.strip()[:60]!r}'
                ) from None
            check(index not in tracks, f"{where} describes track {index} again")
            tracks[index] = track
    places = {index: place for place, index in enumerate(sorted(tracks))}
    for where, _, indices in found:
        for strange in (index for index in indices if index not in places):
            raise UserError(f"{where} plays track {strange}, which no line describes")
    sequences = [
        Played(group, np.array([places[index] for index in indices], np.int32))
        for _, group, indices in found
    ]
    return Listening([tracks[index] for index in places], sequences)


BROKEN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What goes wrong where JSON is none, or holds something else."""


def _index(value: Any) -> int:
    """1.5 and true are none."""
    if type(value) not in (int, str):
        raise TypeError
    return int(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _text(value: Any) -> str:
    """What can be printed: halves of characters, which JSON may hold, cannot."""
    return str(value or "").encode("utf-8", "replace").decode()


def _group(row: Mapping[str, Any]) -> str:
    """A station plays something new every day, whereas a list of the same name is much the same."""
    day = f" {row['start'][:10]}" if row.get("kind") == "radio" else ""
    return f"{row['group']}{day}"


def _track(row: Mapping[str, Any]) -> Track:
    audio = {name: float(v) for name, v in (row.get("audio") or {}).items() if v is not None}
    tags = tuple(_text(tag) for tag in _list(row.get("tags") or []))
    artist, title = (_text(row.get(name)) for name in ("artist", "title"))
    return Track(str(row["index"]), artist, title, audio, tags)


# ------------------------------------------------------------------ Spotify's million


def read_slices(files: Sequence[str]) -> Listening:
    places, tracks, sequences = Places(), [], []
    for path in files:
        for number, playlist in enumerate(_slice(path)):
            try:
                rows = {row.get("pos", i): row for i, row in enumerate(playlist["tracks"])}
                if len(rows) < len(playlist["tracks"]):
                    raise ValueError
                group = str(playlist.get("pid", f"{path} {number}"))
                described = [_spotify(rows[pos]) for pos in sorted(rows)]
            except BROKEN:
                raise UserError(
                    f'{path}: playlist {number} must have "tracks", each with a "track_uri" and a '
                    '"pos" of its own'
                ) from None
            played = np.array([places[track.key] for track in described], np.int32)
            sequences.append(Played(group, played))
            fresh = {track.key: track for track in described if places[track.key] >= len(tracks)}
            tracks.extend(fresh.values())
    return Listening(tracks, sequences)


def _spotify(row: Mapping[str, Any]) -> Track:
    artist, title = (_text(row.get(f"{name}_name")) for name in ("artist", "track"))
    if not (key := _text(row["track_uri"])):
        raise ValueError
    return Track(key, artist, title)


def _slice(path: str) -> list[Any]:
    text = "\n".join(line for _, line in lines.numbered(path))
    try:
        return _list(json.loads(text)["playlists"])
    except BROKEN:
        raise UserError(
            f'{path} must be a slice of the Million Playlist Dataset, with "playlists"'
        ) from None


# ------------------------------------------------------------------ tables

COLUMNS = ("sequence", "position", "item")


def read_tables(files: Sequence[str]) -> Listening:
    places = Places()
    found: dict[str, dict[int, int]] = defaultdict(dict)  # items by their positions
    for path in files:
        order = range(3)
        for number, row in _rows(path):
            if number == 1 and set(COLUMNS) <= set(names := [_plain(name) for name in row]):
                order = [names.index(column) for column in COLUMNS]
                continue
            try:
                sequence, position, item = (row[column].strip() for column in order)
                place = int(position)
                if not (sequence and item):
                    raise ValueError
            except (IndexError, ValueError):
                raise UserError(
                    f"{path}, line {number} must be a sequence, a position, which is a whole "
                    f"number, and an item, or a first line with these three names, got "
                    f"{','.join(row)[:60]!r}"
                ) from None
            check(
                place not in found[sequence],
                f"{path}, line {number} is a second item at position {place} of sequence "
                f"{sequence[:40]!r}",
            )
            found[sequence][place] = places[item]
    sequences = [
        Played(name, np.array([items[place] for place in sorted(items)], np.int32))
        for name, items in found.items()
    ]
    return Listening([Track(item, title=item) for item in places], sequences)


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number of the line where each ends."""
    reader = csv.reader((line for _, line in lines.numbered(path)), strict=True)
    try:
        for row in reader:
            if any(map(str.strip, row)):
                yield reader.line_num, row
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num} is no row of a CSV: {error}") from None


def _plain(name: str) -> str:
    return name.strip().lower()


FORMATS: dict[str, Callable[[Sequence[str]], Listening]] = {
    "jsonl": read_json_lines,
    "json": read_slices,
    "csv": read_tables,
}


# ------------------------------------------------------------------ features


def with_features(listening: Listening, path: str) -> Listening:
    """The same, with what a CSV says of the tracks; the header names its columns."""
    rows = _rows(path)
    names = [_plain(name) for name in next(rows, (0, []))[1]]
    column = next((names.index(key) for key in KEYS if key in names), None)
    known = [name for name in names if name in (*AUDIO, *TAGS)]
    if column is None or not known:
        raise UserError(
            f"{path} needs a header with one of {', '.join(KEYS)} and features such as "
            f"{', '.join(AUDIO[:2])} or tags, got {', '.join(names)[:80] or 'nothing'}"
        )
    described = {_name(row[column]): row for _, row in rows if len(row) > column}
    found = [described.get(_name(track.key)) for track in listening.tracks]
    if not any(found):
        first = next(iter(described), "nothing")
        raise UserError(
            f"{path} matches 0 % of the {len(found):,} tracks: it tells of {first[:40]!r} and "
            f"the like, they are called {listening.tracks[0].key[:40]!r} and the like"
        )
    matched = sum(row is not None for row in found)
    wheels.tell(f"{path} matches {matched / len(found):.1%} of the {len(found):,} tracks")
    tracks = [
        track if row is None else _described(track, dict(zip(names, row, strict=False)))
        for track, row in zip(listening.tracks, found, strict=True)
    ]
    return replace(listening, tracks=tracks)


def _name(key: str) -> str:
    """`spotify:track:ID` and `ID` are one track."""
    return key.strip().removeprefix("spotify:track:")


def _described(track: Track, row: Mapping[str, str]) -> Track:
    said = {name: _number(row.get(name, "")) for name in AUDIO}
    audio = {name: value for name, value in said.items() if math.isfinite(value)}
    tags = tuple(chain.from_iterable(words(row.get(name, "")) for name in TAGS))
    return replace(track, audio={**track.audio, **audio}, tags=tags or track.tags)


def words(text: str) -> list[str]:
    """
    >>> words("rock 'n' roll; pop"), words("['drum and bass', 'pop']")
    (["rock 'n' roll", 'pop'], ['drum and bass', 'pop'])
    """
    quoted = [word for _, word in re.findall(r"""(["'])(.+?)\1\s*(?=[],;|]|$)""", text)]
    return [word.strip() for word in quoted or re.split(r"[][;,|]", text) if word.strip()]


def _number(text: str) -> float:
    """What is no number is not known."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
