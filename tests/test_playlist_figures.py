"""Figures of playlists show what results and prepared tracks say."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from redraft.data import playlists as data
from redraft.data import tracks
from redraft.data.tracks import Neighbours
from redraft.domains import prepare_playlists
from redraft.evaluation.playlists import CORRUPTIONS
from redraft.report import playlists
from redraft.report.style import look


def metric(value: float, margin: float = 0.02) -> dict[str, float]:
    return {"value": value, "low": value - margin, "high": value + margin}


def told(hits: float) -> dict[str, Any]:
    """By one draw; the vote has half as much again."""
    plain = {"hitrate@3": metric(hits), "ndcg@3": metric(hits / 2)}
    return plain | {f"{name}_combined": metric(1.5 * own["value"]) for name, own in plain.items()}


def continued(method: str, hits: float, seed: int = 0) -> dict[str, Any]:
    simple = {"hitrate@3": metric(0.12), "ndcg@3": metric(0.05)}
    found = {"method": method, "seed": seed, "draws": 20, "metrics": told(hits)}
    return found | {"baselines": {"popularity": simple}}


def repaired(method: str, back: float) -> dict[str, Any]:
    def measures(back: float, k: int) -> dict[str, Any]:
        values = {"original": 0.9, "corrupted": 0.85, "repaired": 0.85 + back / 10}
        smooth = {f"smoothness_{state}": value for state, value in values.items()}
        return {name: metric(value + k / 100) for name, value in smooth.items()} | {
            "exact_recovery": metric(back + k / 100)
        }

    def everywhere(back: float) -> dict[str, Any]:
        return {
            f"{name}@{corruption}": own
            for k, corruption in enumerate(CORRUPTIONS)
            for name, own in measures(back, k).items()
        }

    baselines = {"random": everywhere(0.01)}
    return {"method": method, "seed": 0, "metrics": everywhere(back), "baselines": baselines}


def marks(ax: Axes) -> list[tuple[float, float, tuple[float, float], str, bool]]:
    """Of every mark its place, the ends of its interval, its marker, and whether it is hollow."""
    found = []
    for container in ax.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (along, _) = container.lines
        ((x, y),) = np.array(line.get_xydata())
        ((low, _), (high, _)) = along.get_segments()[0]  # pyright: ignore
        hollow = line.get_markerfacecolor() == "white"
        found.append((x, y, (low, high), line.get_marker(), hollow))
    return found


def other_lines(ax: Axes) -> list[float]:
    """Where lines begin that belong to no mark with an interval."""
    inside = [c.lines for c in ax.containers if isinstance(c, ErrorbarContainer)]
    known = {id(part) for line, caps, _ in inside for part in (line, *caps)}
    return [np.array(line.get_xdata())[0] for line in ax.lines if id(line) not in known]


def rows(ax: Axes) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


# ------------------------------------------------------------------ next tracks


def test_next_tracks_by_one_draw_and_by_the_vote():
    results = [continued("mdlm", 0.1), continued("vsdd", 0.2), continued("vsdd", 0.22, seed=1)]
    figure = playlists.next_tracks(results)
    hits, ndcg = figure.axes
    assert rows(hits) == ["MDLM", "most played", "VSDD"]
    found = marks(hits)
    own = sorted((x, hollow) for x, y, _, marker, hollow in found if marker == look("vsdd").marker)
    assert [hollow for _, hollow in own] == [False, False, True, True]
    np.testing.assert_allclose([x for x, _ in own], [0.2, 0.22, 0.3, 0.33])
    heights = {y for _, y, _, marker, _ in found if marker == look("vsdd").marker}
    assert len(heights) == 2 and all(abs(height - 2) < 0.5 for height in heights)
    (simple,) = [mark for mark in found if mark[1] == 1]
    assert simple[0] == 0.12 and not simple[-1]
    np.testing.assert_allclose(simple[2], (0.1, 0.14))
    assert {round(x, 3) for x, *_ in marks(ndcg)} == {0.05, 0.1, 0.11, 0.15, 0.165, 0.075}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one draw", "the vote of 20 draws"]


# ------------------------------------------------------------------ repair


def test_repair_has_a_column_for_each_corruption():
    figure = playlists.repair([repaired("vsdd", 0.3), repaired("mdlm", 0.2)])
    above, below = figure.axes[: len(CORRUPTIONS)], figure.axes[len(CORRUPTIONS) :]
    assert [ax.get_title("left") for ax in above] == [*CORRUPTIONS]
    assert rows(above[0]) == rows(below[0]) == ["random track", "MDLM", "VSDD"]
    for k, (sound, back) in enumerate(zip(above, below, strict=True)):
        recovered = [x for x, *_ in sorted(marks(back), key=lambda mark: mark[1])]
        np.testing.assert_allclose(recovered, np.array([0.01, 0.2, 0.3]) + k / 100)
        smooth = [x for x, *_ in sorted(marks(sound), key=lambda mark: mark[1])]
        np.testing.assert_allclose(smooth, np.array([0.851, 0.87, 0.88]) + k / 100)
        np.testing.assert_allclose(other_lines(sound), np.array([0.9, 0.85]) + k / 100)


# ------------------------------------------------------------------ neighbours


def test_neighbours_stand_beside_chance():
    found = {
        "all tracks": Neighbours(2000, 0.45, 0.43, 0.47, 0.125),
        "rare": Neighbours(90, 0.4, 0.3, 0.5, 0.1),
    }
    (ax,) = playlists.neighbours(found).axes
    assert rows(ax) == ["rare", "all tracks"]
    assert [(x, y) for x, y, *_ in marks(ax)] == [(0.4, 0), (0.45, 1)]
    np.testing.assert_allclose([ends for _, _, ends, *_ in marks(ax)], [(0.3, 0.5), (0.43, 0.47)])
    assert other_lines(ax) == [0.1, 0.125]
    assert [text.get_text() for text in ax.texts] == [
        "40.0 (30.0 to 50.0), 4.0x chance",
        "45.0 (43.0 to 47.0), 3.6x chance",
    ]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch) -> data.Prepared:
    """Tracks of which the first are played most, with a tag each."""
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    made: list[dict] = [
        {"index": i, "artist": f"artist {i}", "title": str(i), "tags": [f"genre {i % 4}"]}
        for i in range(60)
    ]
    for i in range(60):
        own = (60 * rng.random(60) ** 4).astype(int)
        made.append({"kind": "playlist", "group": f"list {i}", "tracks": own.tolist()})
    file = tmp_path / "made.jsonl.gz"
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in made).encode()))
    return prepare_playlists(data.Request((str(file),)))


def test_tracks_are_asked_among_those_that_are_played_as_often(prepared, monkeypatch):
    found = playlists.sanity(prepared)
    first, *others = found
    assert first == "all tracks" and found[first]._asdict() == prepared.counts["neighbours"]
    # None is rarer, and no two of the most played have a tag in common.
    assert others == ["5 to 19 plays", "20 to 99 plays"]
    assert rows(*playlists.neighbours(found).axes) == [*reversed(found)]
    asked = []
    monkeypatch.setattr(tracks, "neighbours", lambda rows, catalogue, own: asked.append(own))
    assert [*playlists.sanity(prepared)] == ["all tracks"]
    _, source = prepared.embeddings()
    np.testing.assert_array_equal(np.sum(asked, 0), source == 0)  # each that has plays, once
    plays = np.bincount(np.concatenate(prepared.sequences("train")), minlength=60)
    assert plays[asked[1]].min() >= 5 and plays[asked[1]].max() <= 19
