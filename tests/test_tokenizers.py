"""Laws of the tokenizers: there and back, specials, masks, endings, storage."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistakes import message

from redraft import tokenizers
from redraft.data import lines, molecules, stories
from redraft.tokenizers import EOS, MASK, PAD, SPECIALS, TOKENIZERS, UnknownToken, semantic_id
from redraft.tokenizers.base import content
from redraft.tokenizers.bpe import BPETokenizer
from redraft.tokenizers.semantic_id import SemanticIdTokenizer
from redraft.tokenizers.smiles import SmilesTokenizer
from redraft.tokenizers.text import CharacterTokenizer, WordTokenizer

laws = settings(max_examples=50, deadline=None, derandomize=True)

SMILES = list(islice(lines.read(molecules.SAMPLE), 2000))
STORIES = list(stories.synthetic(300, seed=1).train)
EMBEDDINGS = np.random.default_rng(0).normal(size=(200, 80)).astype(np.float32)

ALL = {
    "smiles": SmilesTokenizer.fit(SMILES),
    "chars": CharacterTokenizer.fit(STORIES),
    "words": WordTokenizer.fit(STORIES),
    "bpe": BPETokenizer.fit(STORIES, size=650),
    "semantic-id": SemanticIdTokenizer.fit(EMBEDDINGS),
}
TEXTUAL = {"smiles": SMILES, "chars": STORIES, "words": STORIES, "bpe": STORIES}
every = pytest.mark.parametrize("name", ALL)
textual = pytest.mark.parametrize("name", TEXTUAL)


def test_every_tokenizer_is_in_the_table():
    assert set(ALL) == set(TOKENIZERS)


@every
def test_specials_come_first(name):
    assert (PAD, MASK, EOS) == (0, 1, 2)
    assert tuple(ALL[name].tokens[:3]) == SPECIALS
    assert len(ALL[name]) == len(ALL[name].tokens)


@every
def test_storage_is_complete(name):
    tokenizer = ALL[name]
    stored = json.loads(json.dumps(tokenizers.save(tokenizer)))
    loaded = tokenizers.load(stored)
    assert stored["name"] == name and type(loaded) is type(tokenizer)
    assert loaded == tokenizer and loaded.tokens == tokenizer.tokens
    item = [3, 1, 4] if name == "semantic-id" else TEXTUAL[name][0]
    assert loaded.encode(item) == tokenizer.encode(item)


@textual
def test_round_trip(name):
    tokenizer = ALL[name]
    for item in TEXTUAL[name]:
        ids = tokenizer.encode(item)
        assert ids[-1] == EOS and min(ids) >= EOS and max(ids) < len(tokenizer)
        assert tokenizer.decode(ids) == item


@textual
def test_decoding_cuts_at_the_first_eos_and_drops_padding(name):
    tokenizer, item = ALL[name], TEXTUAL[name][0]
    ids = tokenizer.encode(item)
    assert tokenizer.decode([PAD, *ids, *ids, PAD]) == item
    assert tokenizer.decode(np.array([*ids, PAD, PAD], np.int32)) == item
    assert tokenizer.decode([EOS]) == tokenizer.decode([]) == ""


@textual
def test_a_template_without_masks_is_the_text(name):
    for item in TEXTUAL[name][:20]:
        assert ALL[name].template(item) == ALL[name].encode(item)


@textual
@laws
@given(data=st.data())
def test_templates_mask_where_they_say(name, data):
    """Hide a run of any story's tokens, show it as text, and read that text again."""
    tokenizer = ALL[name]
    ids = tokenizer.encode(data.draw(st.sampled_from(TEXTUAL[name][:50])))
    start = data.draw(st.integers(0, len(ids) - 2))
    stop = data.draw(st.integers(start + 1, len(ids) - 1))
    ids[start:stop] = [MASK] * (stop - start)
    assert "[MASK]" in tokenizer.decode(ids)
    assert tokenizer.template(tokenizer.decode(ids)) == ids


def test_counted_masks():
    tokenizer = ALL["smiles"]
    ring = tokenizer.template("c1[MASK:3]c1[MASK]")
    assert [i == MASK for i in ring] == [False, False, *[True] * 3, False, False, True, False]
    assert tokenizer.decode(ring) == "c1[MASK][MASK][MASK]c1[MASK]"


@pytest.mark.parametrize("count", ["0", "10001", "9" * 5000, "-1", "", "many"])
@every
def test_impossible_counts_of_masks(name, count):
    assert "1 to 10000" in message(ALL[name].template, f"[MASK:{count}]")


@every
@laws
@given(length=st.integers(1, 40))
def test_cut_keeps_the_ending(name, length):
    tokenizer = ALL[name]
    item = list(range(30)) if name == "semantic-id" else "".join(TEXTUAL[name][:3])
    ids = tokenizer.encode(item)
    if length < tokenizer.width + len(tokenizer.ending):
        assert "at least" in message(tokenizer.cut, ids, length)
        return
    cut = tokenizer.cut(ids, length)
    assert length - tokenizer.width < len(cut) <= length
    assert content(cut) == content(ids)[: len(content(cut))]
    assert tuple(cut[len(content(cut)) :]) == tokenizer.ending
    assert tokenizer.cut(ids, len(ids)) == ids


@pytest.mark.parametrize("name", ["smiles", "chars", "words"])
def test_tables_do_not_depend_on_order(name):
    kind, items = type(ALL[name]), TEXTUAL[name]
    assert kind.fit(items) == kind.fit(items[::-1])
    assert kind.fit(items, size=5) == kind.fit(items[::-1], size=5)
    assert len(kind.fit(items, size=5)) == 3 + 5


@pytest.mark.parametrize("name", ["smiles", "chars", "words"])
def test_unknown_pieces_are_named(name):
    with pytest.raises(UnknownToken) as caught:
        ALL[name].encode("漢 " + TEXTUAL[name][0] * 9)
    assert "'漢'" in str(caught.value) and len(str(caught.value)) < 150


def test_small_or_doubtful_tables():
    assert "at least 3 valid tokens, got 2: [EOS], C" in message(SmilesTokenizer.fit, ["C", "CC"])
    assert "'C'" in message(SmilesTokenizer, ["C", "N", "C"])
    assert "'[MASK]'" in message(SmilesTokenizer.fit, ["CN[MASK]"])
    assert "at least 1" in message(WordTokenizer.fit, ["a b c"], size=-1)
    assert "'smile'" in message(tokenizers.load, {"name": "smile"})
    assert "Accepted" in message(tokenizers.load, {})


@laws
@given(st.text())
def test_smiles_split_loses_nothing(text):
    assert SmilesTokenizer.join(SmilesTokenizer.split(text)) == text


@laws
@given(st.text(st.characters(codec="utf-8") | st.sampled_from(" .,;:!?'\"()[]-ab"), max_size=40))
def test_words_survive_being_joined(text):
    words = WordTokenizer.split(text)
    assert WordTokenizer.split(WordTokenizer.join(words)) == words


def test_joined_words_read_well():
    text = 'Tom said, "I don\'t know (yet)." Then: silence; why? "Oh!" he said.'
    assert WordTokenizer.join(WordTokenizer.split(text)) == text


@laws
@given(st.text() | st.sampled_from(["[MASK]", "[EOS] [PAD]", " \r\n\t ", "\x00", "漢字 🙂é"]))
def test_bpe_is_exact_on_any_text(text):
    ids = ALL["bpe"].encode(text)
    assert ids[-1] == EOS and min(ids) >= EOS and EOS not in ids[:-1]
    assert ALL["bpe"].decode(ids) == text


def test_bpe_masks_carry_their_space():
    bpe = ALL["bpe"]
    whole, hidden = bpe.encode("Lily had a red ball."), bpe.template("Lily had a [MASK] ball.")
    assert [a for a, b in zip(whole, hidden, strict=True) if b == MASK] == bpe.ids(" red")
    assert bpe.decode(hidden) == "Lily had a [MASK] ball."
    assert bpe.template("[MASK] [MASK:2] ball") == [MASK] * 3 + bpe.encode(" ball")


def test_bpe_names_are_readable():
    bpe = ALL["bpe"]
    assert "␣ball" in bpe.tokens and "\\n" in bpe.tokens and "\\xff" in bpe.tokens
    assert not any(" " in token or token[0] == "Ġ" for token in bpe.tokens)
    assert all(token.isprintable() for token in bpe.tokens)


def test_bpe_learns_the_same_every_time():
    assert len(ALL["bpe"]) == 650
    assert BPETokenizer.fit(STORIES, size=650) == ALL["bpe"]
    assert BPETokenizer.fit(STORIES[::-1], size=650) == ALL["bpe"]
    assert "259" in message(BPETokenizer.fit, STORIES, size=100)
    assert "[PAD]" in message(BPETokenizer, _without_specials(ALL["bpe"].to_dict()))
    assert "UTF-8" in message(ALL["bpe"].encode, "\ud800")


def _without_specials(stored):
    stored["model"]["vocab"] = {k: v for k, v in stored["model"]["vocab"].items() if v > EOS}
    return stored


def test_single_tokens_are_checked():
    ALL["bpe"].require_single_tokens(["Lily", "Tom", "Max", "Sam", "Ben", "ball", "dog", "car"])
    complaint = message(ALL["bpe"].require_single_tokens, ["Lily", "Xylophonia"])
    assert "Xylophonia" in complaint and "Lily" not in complaint


shapes = st.tuples(
    *(st.integers(1, 4), st.integers(1, 8), st.booleans(), st.integers(0, 9)),
    st.sampled_from(["lsh", "kmeans", "ranked"]),
)


@laws
@given(shapes, st.lists(st.integers(0, 199), max_size=20))
def test_semantic_ids_there_and_back(shape, playlist):
    levels, bits, shared, _, _ = shape
    tokenizer = SemanticIdTokenizer.fit(EMBEDDINGS, *shape)
    assert len(tokenizer) == 3 + 2**bits * (1 if shared else levels)
    ids = tokenizer.encode(playlist)
    assert len(ids) == levels * len(playlist) and all(EOS < i < len(tokenizer) for i in ids)
    triplets = tokenizer.decode([*ids, PAD])
    assert triplets == [tuple(tokenizer.codes[track]) for track in playlist]
    for track, triplet in zip(playlist, triplets, strict=True):
        assert track in tokenizer.tracks(triplet)
    assert tokenizer.template(" ".join(map(str, playlist))) == ids
    again = SemanticIdTokenizer.from_dict(tokenizer.to_dict())
    assert again == tokenizer and (again.codes == tokenizer.codes).all()
    assert tokenizer == SemanticIdTokenizer.fit(EMBEDDINGS, *shape)


def test_the_papers_vocabulary():
    assert len(ALL["semantic-id"]) == 131
    assert len(SemanticIdTokenizer.fit(EMBEDDINGS, shared=False)) == 3 * 128 + 3


def test_near_tracks_share_more_bits_than_far_ones():
    rng = np.random.default_rng(3)
    near = EMBEDDINGS + 0.2 * rng.normal(size=EMBEDDINGS.shape)
    tokenizer = SemanticIdTokenizer.fit(np.concatenate([EMBEDDINGS, near]), bits=16)
    bits = tokenizer.codes[:, :, None] >> np.arange(16) & 1
    here, twin, other = bits[:200], bits[200:], np.roll(bits[:200], 1, 0)
    assert (here == twin).mean() > 0.9 and 0.4 < (here == other).mean() < 0.6


def test_codes_ignore_a_shift_of_all_embeddings():
    shifted = SemanticIdTokenizer.fit(EMBEDDINGS.astype(float) + 5)
    assert shifted == SemanticIdTokenizer.fit(EMBEDDINGS.astype(float))


@laws
@given(st.integers(1, 5), st.integers(0, 9))
def test_residual_codes_tell_more_with_every_level(bits, seed):
    """Means of tracks with the same codes lie the nearer to them, the more levels are asked."""
    codes = SemanticIdTokenizer.fit(EMBEDDINGS, 3, bits, seed=seed, kind="kmeans").codes
    rests = [((EMBEDDINGS - EMBEDDINGS.mean(0)) ** 2).sum()]
    for level in (1, 2, 3):
        _, group = np.unique(codes[:, :level], axis=0, return_inverse=True)
        same = group.reshape(-1, 1) == group.reshape(1, -1)
        means = same @ EMBEDDINGS / same.sum(1, keepdims=True)
        rests.append(((EMBEDDINGS - means) ** 2).sum())
    assert (np.diff(rests) < 0).all()


@laws
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 9))
def test_ranked_codes_tell_those_apart_that_k_means_does_not(levels, bits, seed):
    """The last code is how many tracks before have the same others, as far as codes go."""
    codes = SemanticIdTokenizer.fit(EMBEDDINGS, levels, bits, seed=seed, kind="ranked").codes
    alike = SemanticIdTokenizer.fit(EMBEDDINGS, levels, bits, seed=seed, kind="kmeans").codes
    assert (codes[:, :-1] == alike[:, :-1]).all()
    seen: Counter[tuple[int, ...]] = Counter()
    for *own, place in codes.tolist():
        assert place == min(seen[tuple(own)], 2**bits - 1)
        seen[tuple(own)] += 1


@laws
@given(st.integers(1, 12), st.integers(0, 9))
def test_centres_are_the_means_of_what_is_nearest_to_them(k, seed):
    rows = EMBEDDINGS[:60].astype(float)
    centres = semantic_id.k_means(rows, k, np.random.default_rng(seed))
    code = ((rows[:, None] - centres) ** 2).sum(-1).argmin(1)
    for used in set(code.tolist()):
        np.testing.assert_allclose(centres[used], rows[code == used].mean(0), atol=1e-9)


def test_centres_are_those_of_the_first_tracks(monkeypatch):
    monkeypatch.setattr(semantic_id, "SAMPLE", 1)
    codes = SemanticIdTokenizer.fit(EMBEDDINGS, levels=1, bits=3, kind="kmeans").codes
    assert sorted(codes[:8, 0]) == list(range(8))


def test_collisions_are_counted():
    tokenizer = SemanticIdTokenizer(np.array([[0, 1], [0, 1], [1, 1], [0, 0]]), bits=1)
    assert tokenizer.tracks((0, 1)) == [0, 1] and tokenizer.tracks((1, 0)) == []
    assert tuple(tokenizer.collisions()) == (4, 3, pytest.approx(4 / 3), 2)
    assert "3 distinct" in str(tokenizer.collisions())
    assert tokenizer.meant().tolist() == [0, 0, 2, 3]
    assert tokenizer.tracks((1, 0)) == [] and tuple(tokenizer.collisions())[1] == 3


def test_masked_tracks():
    tokenizer = ALL["semantic-id"]
    ids = tokenizer.template("5 [MASK:2] 7")
    assert ids == tokenizer.encode([5]) + [MASK] * 6 + tokenizer.encode([7])
    assert tokenizer.decode(ids)[1] == (None, None, None)
    assert tokenizer.tracks((None, None, None)) == []


def test_codes_of_another_level_are_no_codes():
    tokenizer = SemanticIdTokenizer.fit(EMBEDDINGS, shared=False)
    first, *rest = tokenizer.encode([5])
    assert tokenizer.decode([rest[0], rest[0], rest[1]])[0][0] is None
    assert tokenizer.decode([first, *rest, first]) == tokenizer.decode([first, *rest])


def test_mistakes_with_tracks_and_embeddings():
    tokenizer = ALL["semantic-id"]
    assert "0 to 199" in message(tokenizer.encode, [3, 200])
    assert "0 to 199" in message(tokenizer.encode, [-1])
    assert "'three'" in message(tokenizer.template, "three [MASK]")
    assert "(3,)" in message(SemanticIdTokenizer.fit, np.ones(3))
    assert "finite" in message(SemanticIdTokenizer.fit, np.full((3, 2), np.nan))
    assert "kmeans" in message(SemanticIdTokenizer.fit, EMBEDDINGS, kind="k-means")
    assert "0 levels" in message(SemanticIdTokenizer.fit, EMBEDDINGS, levels=0)
    assert "40 bits" in message(SemanticIdTokenizer.fit, EMBEDDINGS, bits=40)
    assert "from 0 to 1" in message(SemanticIdTokenizer, np.array([[2]]), bits=1)
    assert "matrix" in message(SemanticIdTokenizer, np.array([]), bits=1)
