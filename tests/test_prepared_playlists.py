"""Playlists that are prepared once: windows of disjoint groups, tracks placed and coded."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import message

import redraft
from redraft import domains
from redraft.cli import main
from redraft.commands import Train
from redraft.config import DataConfig
from redraft.data import playlist_files, playlists, tracks, wheels
from redraft.data.playlist_files import AUDIO, Listening, Played, Track
from redraft.data.playlists import Request
from redraft.domains import prepare, prepare_playlists
from redraft.experiments.data import dataset_of
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.semantic_id import CODES

CONFIG = DataConfig(domain="playlists", file="playlists")
GENRES, EACH = 4, 60


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def described() -> list[dict]:
    """Tracks of four genres; the last twenty are never played, and the others partly known."""
    made = []
    for index in range(GENRES * EACH + 20):
        genre = index % GENRES
        track = {"index": index, "artist": f"artist {index % 40}", "title": f"song {index}"}
        track["tags"] = [f"genre {genre}"] if index % 3 else []
        track["audio"] = {"energy": 0.2 * genre, "tempo": 60.0 + index} if index % 2 else None
        made.append(track)
    return made


def played(n: int = 60, longest: int = 90) -> list[dict]:
    """Each plays tracks of one genre; two stations with several logs a day, and lists."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        length = int(rng.integers(4, longest))
        own = rng.integers(EACH, size=length) * GENRES + i % GENRES
        radio = {
            "kind": "radio",
            "group": f"fm{i % 2}",
            "start": f"2020-01-{i % 14 + 1:02} 0{i % 9}",
        }
        other = {"kind": "playlist", "group": f"list{i % 17}", "start": f"2020-01-{i % 28 + 1:02}"}
        made.append({**(radio if i % 3 else other), "tracks": own.tolist()})
    return made


def write(path: Path, rows: list[dict]) -> str:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return str(path)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    files = (
        write(tmp_path / "tracks.jsonl.gz", described()),
        write(tmp_path / "sequences.jsonl.gz", [*played(), {**played()[0], "tracks": [1, 2]}]),
    )
    return Request(files, origin="Made ones.")


# ------------------------------------------------------------------ windows


@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 60))
def test_windows_cover_all_but_the_end(n, length, stride):
    pieces = playlists.windows(np.arange(n), length, stride)
    assert {len(piece) for piece in pieces} == {min(n, length)}
    assert [piece[0] for piece in pieces] == list(range(0, len(pieces) * stride, stride))
    assert n - 1 - pieces[-1][-1] < stride


lengths = st.lists(st.integers(4, 130), min_size=8, max_size=30)


@settings(deadline=None, max_examples=30)
@given(lengths, st.integers(3, 9), st.integers(0, 99))
def test_no_validation_window_shares_a_play_with_training(lengths, groups, seed):
    """Every play is a track of its own here, and both stations and lists come back."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *lengths])
    rows = [
        {
            "kind": str(rng.choice(["radio", "playlist"])),
            "group": f"group {i % groups}",
            "start": f"2020-01-{rng.integers(1, 29):02} 0{rng.integers(9)}:00",
            "tracks": list(range(starts[i], starts[i + 1])),
        }
        for i in range(len(lengths))
    ]
    sequences = [Played(playlist_files._group(row), np.array(row["tracks"])) for row in rows]
    listening = Listening([Track(str(i)) for i in range(starts[-1])], sequences)
    order, parts = playlists.numbered(listening, sequences)
    plays = {
        part: {int(order[t]) for s in own for piece in playlists.windows(s.tracks) for t in piece}
        for part, own in parts.items()
    }
    assert all(plays.values())
    assert plays["train"].isdisjoint(plays["held_out"])
    assert plays["validation"].isdisjoint(plays["train"] | plays["held_out"])
    # Nor does a list of any day, or a station of the same day, stand on both sides.
    part_of = {play: part for part, own in plays.items() for play in own}
    where: dict[tuple, set[str]] = {}
    for row in rows:
        day = row["start"][:10] if row["kind"] == "radio" else None
        where.setdefault((row["group"], day), set()).add(part_of[row["tracks"][0]])
    assert all(len(found) == 1 for found in where.values())


def test_sequences_are_as_they_were_played(request_: Request):
    found = prepare_playlists(request_)
    known = found.catalogue().keys
    again = [
        [int(known[track]) for track in sequence]
        for part in playlists.PARTS
        for sequence in found.sequences(part)
    ]
    assert sorted(again) == sorted(row["tracks"] for row in played())
    plays = np.bincount(np.concatenate(found.sequences("train")), minlength=len(known))
    assert (np.diff(plays) <= 0).all()  # the most played come first


def test_windows_are_mixed_and_know_their_groups(request_: Request):
    found = prepare_playlists(request_)
    pieces, groups = found.windows("train")
    counts = found.counts["parts"]["train"]
    assert len(pieces) == len(groups) == counts["windows"]
    assert len(set(groups)) == counts["groups"] and (np.diff(groups) < 0).any()
    assert sum(len(piece) < 50 for piece in pieces) == counts["short"]
    whole = found.sequences("train")
    last = [10 * (len(playlists.windows(s)) - 1) + len(playlists.windows(s)[-1]) for s in whole]
    assert counts["left"] == sum(map(len, whole)) - sum(last) > 0


# ------------------------------------------------------------------ embeddings


def test_tracks_that_are_played_together_lie_together(request_: Request):
    found = prepare_playlists(request_)
    rows, source = found.embeddings()
    genre = np.array([int(key) for key in found.catalogue().keys]) % GENRES
    own = source == 0
    alike = rows[own] @ rows[own].T
    same = genre[own][:, None] == genre[own]
    np.fill_diagonal(alike, np.nan)
    assert np.nanmean(alike[same]) > np.nanmean(alike[~same]) + 0.1
    sane = tracks.Neighbours(**found.counts["neighbours"])
    assert sane.chance < sane.low < sane.share <= sane.high
    assert 0.15 < sane.chance < 0.35  # one genre of four
    assert "by chance" in str(sane)


@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 99))
def test_counts_are_shares_of_windows_that_hold_both(n, reach, seed):
    """By brute force: windows of reach + 1 tracks at every place, also over the ends."""
    rng = np.random.default_rng(seed)
    sequences = [rng.integers(n, size=rng.integers(2, 12)) for _ in range(3)]
    counts = np.zeros((n, n))
    for s in sequences:
        for start in range(-reach, len(s)):
            inside = range(max(start, 0), min(start + reach + 1, len(s)))
            for a in inside:
                for b in inside:
                    counts[s[a], s[b]] += (s[a] != s[b]) / (reach + 1)
    found = tracks.together(sequences, n, reach).toarray()
    np.testing.assert_allclose(found, counts, atol=1e-5)


def test_information_is_that_of_its_definition():
    counts = tracks.together([np.array([0, 1, 2, 0, 3, 1])], 4, 3)
    dense = counts.toarray()
    total = dense.sum(1)
    smooth = total**0.75 / (total**0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(dense / total[:, None] / smooth), 0)
    np.testing.assert_allclose(tracks.positive_information(counts).toarray(), expected, atol=1e-5)


def test_the_sparse_and_the_dense_decomposition_agree(monkeypatch):
    rng = np.random.default_rng(0)
    sequences = [rng.integers(30, size=40) for _ in range(9)]
    monkeypatch.setattr(tracks, "WIDTH", 8)
    sparse = tracks.embed(sequences, 31, 10)
    assert sparse.shape == (31, 8) and np.isnan(sparse[30]).all()  # which was never played
    monkeypatch.setattr(tracks, "WIDTH", 16)
    dense = tracks.unit(tracks.embed(sequences, 31, 10)[:30, :8])
    np.testing.assert_allclose(sparse[:30] @ sparse[:30].T, dense @ dense.T, atol=1e-4)


def test_missing_embeddings_come_from_artist_tags_or_name():
    known = [
        Track("a", artist="one", tags=("x",)),
        Track("b", artist="two", tags=("y",)),
        Track("c", artist="one"),
        Track("d", artist="three", tags=("x", "y")),
        Track("e", artist="three"),
        Track("f"),
    ]
    rows = np.full((6, 2), np.nan, np.float32)
    rows[0], rows[1] = (2, 0), (0, 2)
    found, source = tracks.filled(rows, tracks.Catalogue.of(known))
    assert [tracks.SOURCES[i] for i in source] == ["own", "own", "artist", "tags", *["random"] * 2]
    np.testing.assert_allclose(found[2], (2, 0))
    np.testing.assert_allclose(found[3], (2**0.5, 2**0.5), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2, rtol=1e-6)
    assert (found[4] != found[5]).all()
    assert (tracks.filled(rows, tracks.Catalogue.of(known))[0] == found).all()
    assert np.isnan(rows[2]).all()  # what was given stays as it was


def test_given_embeddings_are_those_of_their_tracks(request_: Request, tmp_path: Path):
    n = len(described())
    given = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    given[7] = np.nan
    np.save(tmp_path / "own.npy", given)
    found = prepare_playlists(Request(request_.files, embeddings=str(tmp_path / "own.npy")))
    rows, source = found.embeddings()
    places = np.array([int(key) for key in found.catalogue().keys])
    own = source == 0
    assert own.sum() == n - 1 and not own[places == 7]
    np.testing.assert_array_equal(rows[own], given[places[own]])


@pytest.mark.parametrize("scale", [1e6, 1e-9])
def test_given_embeddings_may_have_any_length(scale: float, request_: Request, tmp_path: Path):
    given = np.random.default_rng(0).normal(size=(len(described()), 5)).astype(np.float32)
    codes = []
    for name, own in (("plain", given), ("scaled", given * np.float32(scale))):
        np.save(tmp_path / f"{name}.npy", own)
        found = prepare_playlists(Request(request_.files, embeddings=str(tmp_path / f"{name}.npy")))
        places = [int(key) for key in found.catalogue().keys]
        np.testing.assert_array_equal(found.embeddings()[0], own[places])
        codes.append(found.codes("lsh"))
    np.testing.assert_array_equal(*codes)


def test_neighbours_are_asked_for_where_tags_can_be_shared():
    def sane(*known: Track) -> tracks.Neighbours | None:
        rows = np.eye(len(known), dtype=np.float32)
        return tracks.neighbours(rows, tracks.Catalogue.of(known), np.ones(len(known), bool))

    a, b = Track("a", "one", tags=("x",)), Track("b", "two", tags=("x",))
    assert sane(a, b) == sane(a, b)._replace(n=2, share=1.0, chance=1.0)  # pyright: ignore
    assert sane(a, Track("c", "one", tags=("x",))) is None  # there is no other artist
    assert sane(a, Track("c", "two", tags=("y",))) is None  # nor a tag in common


# ------------------------------------------------------------------ what is known of tracks


def test_features_are_between_0_and_1_and_missing_ones_stay_missing(request_: Request):
    prepare_playlists(request_)
    known = playlists.prepared().catalogue()
    energy, tempo, key = (known.audio[:, AUDIO.index(name)] for name in ("energy", "tempo", "key"))
    index = np.array([int(name) for name in known.keys])
    assert (np.isfinite(energy) == (index % 2 == 1)).all() and np.isnan(key).all()
    assert np.nanmin(tempo) == 0 and np.nanmax(tempo) == 1
    order = np.argsort(index)
    assert (np.diff(tempo[order][np.isfinite(tempo[order])]) >= 0).all()
    track = int(np.flatnonzero(index == 13)[0])
    assert known.name(track) == "artist 13 - song 13"
    assert known.find("13") == known.find("Artist 13 - Song 13") == known.find("song 13") == track
    assert "'song'" in message(known.find, "song")
    assert {known.styles[i] for i in known.tags[track].indices} == {"genre 1"}


def test_features_of_any_size_are_normalised():
    known = tracks.Catalogue.of([Track(str(i), audio={"tempo": 1e300 * i}) for i in range(3)])
    assert known.audio[:, AUDIO.index("tempo")].tolist() == [0, 0.5, 1]


def test_triplets_have_the_means_and_all_tags_of_their_tracks():
    known = tracks.Catalogue.of(
        [
            Track("a", audio={"energy": 0.0, "tempo": 1.0}, tags=("x",)),
            Track("b", audio={"energy": 1.0}, tags=("y", "x")),
            Track("c", audio={"energy": 0.0}),
            Track("d", tags=("z",)),
        ]
    )
    codes = np.array([[0, 1], [0, 1], [1, 1], [1, 0]])
    found = known.by_triplet(codes)
    audio = found.audio_of([(0, 1), (1, 1), (1, 0), (0, 0), (None, 1)])
    energy, tempo = AUDIO.index("energy"), AUDIO.index("tempo")
    assert audio.shape == (5, 13) and audio[0, energy] == pytest.approx(0.5, abs=0.02)
    assert audio[1, energy] == 0 and audio[1, tempo] == audio[0, tempo]  # the only one known
    assert np.isnan(audio[2:]).all() and np.isfinite(audio[:2]).all()
    assert found.tags_of([(0, 1), (1, 1), (0, 0)]) == {"x", "y"}
    assert found.tags_of([(0, 1), (1, 0), (0, 1)]) == {"x", "y", "z"}
    assert found.tags_of([]) == set()


def test_triplets_are_decoded_to_the_most_played(request_: Request):
    found = prepare_playlists(request_)
    tokenizer = SemanticIdTokenizer(found.codes("lsh"))
    plays = np.bincount(np.concatenate(found.sequences("train")), minlength=len(tokenizer.codes))
    shared = [t for t in map(tuple, tokenizer.codes.tolist()) if len(tokenizer.tracks(t)) > 1]
    assert shared
    for triplet in shared:
        assert (np.diff(plays[tokenizer.tracks(triplet)]) <= 0).all()


# ------------------------------------------------------------------ learned from


@pytest.mark.parametrize(
    ("codes", "shared", "size"), [("lsh", True, 131), ("kmeans", False, 387), ("ranked", True, 131)]
)
def test_prepared_playlists_are_learned_from(codes, shared, size, request_: Request):
    found = prepare_playlists(request_)
    data = prepare(DataConfig(domain="playlists", file="playlists", codes=codes, shared=shared), 0)
    assert len(data.tokenizer) == size and data.max_length == 150
    first = found.windows("validation")[0][0]
    assert data.validation[0].tolist() == data.tokenizer.encode(first)
    assert data.tokenizer.decode(data.validation[0]) == [
        tuple(found.codes(codes)[track]) for track in first
    ]
    assert data.origin == found.origin and data.origin.startswith("Made ones: ")
    assert "1 playlists of fewer than 4 tracks were left out" in data.origin


def test_synthetic_ones_may_have_codes_of_any_kind():
    made = [
        prepare(DataConfig(domain="playlists", synthetic=10, codes=kind), 0).tokenizer
        for kind in ("lsh", "kmeans", "ranked")
    ]
    assert all(len(tokenizer) == 131 for tokenizer in made)
    assert all(one != other for one, other in itertools.combinations(made, 2))


def test_the_shipped_model_learned_from_what_is_made_up_on_any_machine():
    """Which tracks are the nearest depends on no last digit."""
    model = redraft.load("playlists", "cpu")
    assert dataset_of(model.trained).tokenizer == model.tokenizer


def test_training_needs_only_a_part(request_: Request, cache: Path):
    whole = prepare_playlists(request_)
    data = prepare(CONFIG, 0)
    for name in playlists.FOR_EVALUATION:
        (cache / "playlists" / name).unlink()
    assert prepare(CONFIG, 0).report == data.report
    bare = playlists.prepared()
    assert "what is known of the tracks" in message(bare.catalogue)
    assert "what is known of the tracks" in message(bare.embeddings)
    assert str(prepare_playlists(request_)) == str(whole)
    assert playlists.prepared().catalogue().keys


def test_nothing_is_prepared_twice(request_: Request, monkeypatch, capsys):
    first = prepare_playlists(request_)
    monkeypatch.setattr(tracks, "embed", None)
    capsys.readouterr()
    assert prepare_playlists(request_) == first and not capsys.readouterr().err
    with pytest.raises(TypeError):
        prepare_playlists(Request(request_.files, origin="Others."))


def test_a_kind_of_codes_that_is_missing_is_made(request_: Request, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(domains, "CODES", ["lsh"])
        before = prepare_playlists(request_)
    assert before.kinds == ["lsh"]
    assert "ranked" in message(before.codes, "ranked")
    after = prepare_playlists(request_)
    assert set(after.kinds) == set(CODES)
    assert (after.codes("lsh") == before.codes("lsh")).all()


@pytest.mark.parametrize("name", [playlists.PLAYS, wheels.FACTS, tracks.KNOWN, tracks.WORDS])
def test_what_was_damaged_is_not_used(name: str, request_: Request, cache: Path):
    prepare_playlists(request_)
    path = cache / "playlists" / name
    sound = path.read_bytes()
    path.write_bytes(sound[:-9])
    if name in playlists.FOR_EVALUATION:
        assert "damaged" in message(playlists.prepared().catalogue)
    else:
        assert "no playlists are prepared" in message(prepare, CONFIG, 0)
    prepare_playlists(request_)
    assert path.read_bytes() == sound


# ------------------------------------------------------------------ other files


def mpd(path: Path, pids: range) -> str:
    """A slice in the format of the Million Playlist Dataset; tracks stand in no order."""
    rng = np.random.default_rng(pids.start)
    lists = []
    for pid in pids:
        rows = [
            {
                "pos": pos,
                "track_uri": f"spotify:track:{track:04}",
                "track_name": f"song {track}",
                "artist_name": f"artist {track % 7}",
                "duration_ms": 1000,
            }
            for pos, track in enumerate(rng.integers(40, size=12).tolist())
        ]
        lists.append({"pid": pid, "name": "mine", "tracks": rows[::-1]})
    path.write_text(json.dumps({"info": {}, "playlists": lists}))
    return str(path)


def test_slices_of_spotify(tmp_path: Path):
    files = [mpd(tmp_path / f"mpd.slice.{i}.json", range(i, i + 10)) for i in (0, 10)]
    found = playlist_files.read(files)
    first = json.loads(Path(files[1]).read_text())["playlists"][3]
    assert [played.group for played in found.sequences] == [str(i) for i in range(20)]
    names = [found.tracks[track].key for track in found.sequences[13].tracks]
    assert names == [row["track_uri"] for row in reversed(first["tracks"])]
    assert len({track.key for track in found.tracks}) == len(found.tracks)
    for track in found.tracks:
        number = int(track.key[-4:])
        assert (track.artist, track.title) == (f"artist {number % 7}", f"song {number}")


def test_features_of_a_table(tmp_path: Path, capsys):
    listening = playlist_files.read([mpd(tmp_path / "a.json", range(5))])
    some = listening.tracks[0].key
    path = tmp_path / "features.csv"
    path.write_text(
        f"id,energy,tempo,genres\n{some[14:]},0.5,?,\"['indie pop', 'rock']\"\nelse,1,2,x\nshort\n"
    )
    found = playlist_files.with_features(listening, str(path))
    share = 1 / len(found.tracks)
    assert f"matches {share:.1%} of the {len(found.tracks)} tracks" in capsys.readouterr().err
    assert found.tracks[0].audio == {"energy": 0.5}
    assert found.tracks[0].tags == ("indie pop", "rock")
    assert found.tracks[1:] == listening.tracks[1:]
    path.write_text(f"id,energy,tempo\n{some},n/a,1e300\n")
    known = playlist_files.with_features(found, str(path)).tracks[0].audio
    assert known == {"energy": 0.5, "tempo": 1e300}  # what is no number takes nothing away
    path.write_text("id,energy\nelse,1\n")
    said = message(playlist_files.with_features, listening, str(path))
    assert f"0 % of the {len(listening.tracks)} tracks" in said and "'else'" in said
    path.write_text("id,colour\nelse,1\n")
    assert "id, colour" in message(playlist_files.with_features, listening, str(path))


def test_features_belong_to_one_track(tmp_path: Path):
    """Names with colons are others; Spotify's prefix says nothing."""
    rows = [
        (s, p, ("A: Intro", "B: Intro", "spotify:track:7")[p % 3]) for s in "xyz" for p in range(4)
    ]
    (tmp_path / "plays.csv").write_text("".join(f"{s},{p},{i}\n" for s, p, i in rows))
    listening = playlist_files.read([str(tmp_path / "plays.csv")])
    told = ["item,energy,track_genre", "B: Intro,0.5,rock 'n' roll"]
    told += ["""7,0.7,"[""children's music"", 'pop']\""""]
    (tmp_path / "features.csv").write_text("\n".join(told))
    found = playlist_files.with_features(listening, str(tmp_path / "features.csv"))
    assert {track.key: dict(track.audio) for track in found.tracks} == {
        "A: Intro": {},
        "B: Intro": {"energy": 0.5},
        "spotify:track:7": {"energy": 0.7},
    }
    assert [track.tags for track in found.tracks] == [
        (),
        ("rock 'n' roll",),
        ("children's music", "pop"),
    ]


def test_names_can_be_printed(tmp_path: Path):
    """JSON may hold halves of characters, which no terminal takes."""
    row = {"index": 1, "artist": "\ud800", "title": "Café", "tags": ["\udfff"]}
    path = tmp_path / "a.jsonl"
    path.write_text(f'{json.dumps(row)}\n{{"group": "g", "tracks": [1]}}\n')
    (track,) = playlist_files.read([str(path)]).tracks
    assert (track.artist, track.title, track.tags) == ("?", "Café", ("?",))


HEADERS = {"": "abc", "sequence,position,item\n": "abc", "Item,sequence,x,Position\n": "ca-b"}


@pytest.mark.parametrize("header", HEADERS)
def test_a_plain_table(header: str, tmp_path: Path):
    rows = [("s", 2, "B, too"), ("t", 0, "A"), ("s", 10, "C"), ("s", 1, "A")]
    quoted = [{"a": s, "b": str(p), "c": f'"{i}"', "-": ""} for s, p, i in rows]
    lines = [",".join(row[column] for column in HEADERS[header]) for row in quoted]
    path = tmp_path / "plays.csv"
    path.write_text(header + "\n\n".join(lines) + "\n")
    found = playlist_files.read([str(path)])
    items = [track.key for track in found.tracks]
    assert {s.group: [items[t] for t in s.tracks] for s in found.sequences} == {
        "s": ["A", "B, too", "C"],
        "t": ["A"],
    }


# ------------------------------------------------------------------ commands


def test_the_command_prepares_and_tells(request_: Request, capsys):
    assert main(["data", "playlists", "--file", *request_.files, "--origin", "Made ones."]) == 0
    said = capsys.readouterr().out
    counts = playlists.prepared().counts
    for line in ("Made ones: ", "are rare", *(f"{kind} codes: " for kind in CODES), "by chance"):
        assert line in said
    assert counts["tracks"] == 260 and counts["unplayed"] >= 20 and counts["short"] == 1
    assert counts["heard"][0] == 130 and 0.3 < counts["heard"][1] < 0.7
    assert sum(n for n, _ in counts["sources"].values()) == 260
    assert sum(share for _, share in counts["sources"].values()) == pytest.approx(1)
    windows = [own["windows"] for own in counts["parts"].values()]
    assert f"{windows[0] + windows[1]} windows of at most 50 tracks to learn from" in said


@pytest.mark.parametrize("name", ["near.svg", "near.png"])
def test_the_command_draws_neighbours(name: str, request_: Request, tmp_path: Path, capsys):
    path = tmp_path / "new" / name
    assert main(["data", "playlists", "--file", *request_.files, "--draw", str(path)]) == 0
    assert f"drawn in: {path}\n" in capsys.readouterr().out
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")


def test_without_tags_there_is_nothing_to_draw(tmp_path: Path, capsys):
    (tmp_path / "plays.csv").write_text(table(9, 6, 10))
    flags = ["--file", str(tmp_path / "plays.csv"), "--draw", str(tmp_path / "near.svg")]
    assert main(["data", "playlists", *flags]) == 1
    out, err = capsys.readouterr()
    assert "too few tracks have tags in common" in out and "is not drawn" in err
    assert not (tmp_path / "near.svg").exists()


def test_a_name_says_its_domain():
    train = Train(data="playlists", config=Train.default(["--data", "playlists"]).config)
    assert train.resolved().data == CONFIG


def test_playlists_have_semantic_ids(request_: Request):
    assert "redraft data playlists" in message(prepare, CONFIG, 0)
    prepare_playlists(request_)
    words = DataConfig(domain="playlists", file="playlists", tokenizer="words")
    assert "tokenizer words" in message(prepare, words, 0)
    other = DataConfig(domain="playlists", file="mine.csv")
    assert "file mine.csv" in message(prepare, other, 0)


BAD = {
    "nothing": ([], "--file"),
    "no file": (["--file", "{tmp}/none.csv"], "there is no file"),
    "a folder": (["--file", "{tmp}"], "directory"),
    "empty": (["--file", "{tmp}/empty.csv"], "no playlists"),
    "torn": (["--file", "{tmp}/torn.jsonl.gz"], "no complete gzip"),
    "unknown format": (["--file", "{tmp}/list.m3u"], ".m3u"),
    "two formats": (["--file", "{tmp}/good.csv", "{tmp}/slice.json"], "one format"),
    "no row": (["--file", "{tmp}/bad.csv"], "line 2"),
    "no item": (["--file", "{tmp}/hole.csv"], "an item"),
    "no day": (["--file", "{tmp}/radio.jsonl"], "start"),
    "no object": (["--file", "{tmp}/bad.jsonl"], "line 1"),
    "unknown track": (["--file", "{tmp}/strange.jsonl"], "plays track 0"),
    "a fraction": (["--file", "{tmp}/fraction.jsonl"], "line 2"),
    "true": (["--file", "{tmp}/true.jsonl"], "line 2"),
    "endless": (["--file", "{tmp}/endless.jsonl"], "line 2"),
    "no list": (["--file", "{tmp}/text.jsonl"], "line 2"),
    "loud": (["--file", "{tmp}/loud.jsonl"], "numbers"),
    "tags": (["--file", "{tmp}/tags.jsonl"], "a list"),
    "nested": (["--file", "{tmp}/nested.jsonl"], "line 1"),
    "described again": (["--file", "{tmp}/again.jsonl"], "line 2 describes track 1 again"),
    "deep": (["--file", "{tmp}/deep.json"], "Million"),
    "no uri": (["--file", "{tmp}/uri.json"], "track_uri"),
    "pos twice": (["--file", "{tmp}/pos.json"], "of its own"),
    "position twice": (["--file", "{tmp}/twice.csv"], "line 55 is a second item at position 2"),
    "no sequence": (["--file", "{tmp}/nameless.csv"], "line 1"),
    "other columns": (["--file", "{tmp}/columns.csv"], "these three names"),
    "open quote": (["--file", "{tmp}/quote.csv"], "no row of a CSV"),
    "file twice": (["--file", "{tmp}/good.csv", "{tmp}/good.csv"], "counts once"),
    "no slice": (["--file", "{tmp}/slice.json"], "playlists"),
    "all short": (["--file", "{tmp}/short.csv"], "at least 4 tracks"),
    "two groups": (["--file", "{tmp}/two.csv"], "3 groups"),
    "one track": (["--file", "{tmp}/one.csv"], "no two different tracks"),
    "no features": (["--file", "{tmp}/good.csv", "--features", "{tmp}/other.csv"], "0 %"),
    "no header": (["--file", "{tmp}/good.csv", "--features", "{tmp}/good.csv"], "header"),
    "rows": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/rows.npy"], "(3, 2)"),
    "no numbers": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/nan.npy"], "finite"),
    "one not a number": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/some.npy"], "row 3"),
    "endless numbers": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/inf.npy"], "got inf"),
    "large numbers": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/big.npy"], "got 1e+30"),
    "no drawing": (["--file", "{tmp}/good.csv", "--draw", "{tmp}/near.pdf"], ".svg or .png"),
    "a folder to draw in": (["--file", "{tmp}/good.csv", "--draw", "{tmp}/a.svg"], "is a folder"),
    "pickled": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/object.npy"], "numbers"),
    "no npy": (["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/good.csv"], "npy"),
    "no such npy": (
        ["--file", "{tmp}/good.csv", "--embeddings", "{tmp}/no.npy"],
        "there is no file",
    ),
    "how many": (["--file", "{tmp}/good.csv", "-n", "5"], "--n is not for playlists"),
}


def table(sequences: int, length: int, items: int) -> str:
    rows = [(s, p, (s * 3 + p) % items) for s in range(sequences) for p in range(length)]
    return "".join(f"{s},{p},item {i}\n" for s, p, i in rows)


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_gets_one_sentence(case: str, tmp_path: Path, cache: Path, capsys):
    texts = {
        "good.csv": table(9, 6, 10),
        "empty.csv": "\n \n",
        "list.m3u": "a",
        "bad.csv": "s,1,a\ns,first,b\n",
        "hole.csv": "s,1,\n",
        "radio.jsonl": '{"kind": "radio", "group": "fm", "tracks": [0, 1]}\n',
        "bad.jsonl": '{"name": "x"}\n',
        "strange.jsonl": '{"index": 1}\n{"group": "g", "tracks": [1, 0]}\n',
        "fraction.jsonl": '{"index": 1}\n{"group": "g", "tracks": [1, 1.5]}\n',
        "true.jsonl": '{"index": 1}\n{"group": "g", "tracks": [true]}\n',
        "endless.jsonl": '{"index": 1}\n{"group": "g", "tracks": [Infinity]}\n',
        "text.jsonl": '{"index": 1}\n{"group": "g", "tracks": "1111"}\n',
        "loud.jsonl": f'{{"index": 1, "audio": {{"energy": {10**400}}}}}\n',
        "tags.jsonl": '{"index": 1, "tags": "rock"}\n',
        "nested.jsonl": "[" * 9999,
        "again.jsonl": '{"index": 1}\n{"index": 1}\n',
        "deep.json": "[" * 9999,
        "uri.json": '{"playlists": [{"tracks": [{"track_uri": null}]}]}',
        "pos.json": json.dumps({"playlists": [{"tracks": [{"pos": 0, "track_uri": "a"}] * 2}]}),
        "twice.csv": table(9, 6, 10) + "0,2,item 7\n",
        "nameless.csv": ",1,a\n",
        "columns.csv": "playlist,order,song\n" + table(9, 6, 10),
        "quote.csv": table(9, 6, 10) + 'x,1,"open\n' + table(9, 6, 10),
        "slice.json": '{"playlists": 3}',
        "short.csv": table(9, 3, 10),
        "two.csv": table(2, 6, 10),
        "one.csv": table(9, 6, 1),
        "other.csv": "id,energy\nx,1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(b"\n" * 99)[:-9])
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    np.save(tmp_path / "nan.npy", np.full((10, 2), np.nan))
    np.save(tmp_path / "object.npy", np.array([{}] * 10, object))
    for name, strange in (("some", np.nan), ("inf", np.inf), ("big", 1e30)):
        rows = np.ones((10, 2))
        rows[3, 1] = strange
        np.save(tmp_path / f"{name}.npy", rows)
    (tmp_path / "a.svg").mkdir()
    flags, word = BAD[case]
    assert main(["data", "playlists", *(flag.format(tmp=tmp_path) for flag in flags)]) == 2
    said = capsys.readouterr().err.removeprefix(
        "redraft: placing 1 tracks among each other, once\n"
    )
    assert said.startswith("redraft: ") and len(said.splitlines()) == 1 and word in said
    assert not (cache / "playlists").exists()


@pytest.mark.parametrize("name", ["stories", "zinc250k"])
def test_features_are_for_playlists(name: str, capsys):
    assert main(["data", name, "--features", "x.csv"]) == 2
    assert f"--features is not for {name}" in capsys.readouterr().err
