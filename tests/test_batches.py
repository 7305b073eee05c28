"""Batches: a pure function of (seed, step), fair to every sequence, almost without padding."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from redraft.batches import Batches, Kinds, collate
from redraft.tokenizers.base import EOS, PAD


def numbered(lengths: list[int]) -> list[np.ndarray]:
    """Sequence i is `length` times the token EOS + i, so that a batch tells whom it holds."""
    return [np.full(length, EOS + i) for i, length in enumerate(lengths)]


def members(x0: torch.Tensor) -> list[int]:
    """The numbers of the sequences in a batch."""
    return (x0[:, 0] - EOS).tolist()


some_lengths = st.lists(st.integers(1, 12), min_size=1, max_size=30)
many_lengths = st.lists(st.integers(1, 12), min_size=12, max_size=12)  # 12 divides well
sizes = st.integers(1, 8)
divisors = st.sampled_from([1, 2, 3, 4, 6, 12])
seeds = st.integers(0, 5)


@given(some_lengths, sizes, seeds, st.lists(st.integers(0, 60), min_size=1, max_size=12))
def test_a_batch_depends_on_seed_and_step_alone(lengths, size, seed, visits):
    sequences = numbered(lengths)
    stream = Batches(sequences, size, seed)
    in_order = [stream[step] for step in range(max(visits) + 1)]
    jumping = Batches(sequences, size, seed)
    for step in visits:
        batch = jumping[step]
        assert torch.equal(batch.x0, in_order[step].x0)
        assert (batch.padded, batch.weight) == (in_order[step].padded, in_order[step].weight)


@given(some_lengths, sizes, seeds, st.integers(0, 3))
def test_an_epoch_sees_every_sequence_at_most_once_and_all_but_the_remainder(
    lengths, size, seed, epoch
):
    batches = Batches(numbered(lengths), size, seed)
    steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
    seen = [i for step in steps for i in members(batches[step].x0)]
    assert len(seen) == len(set(seen))
    assert len(seen) == len(lengths) - len(lengths) % min(size, len(lengths))


@given(some_lengths, sizes, seeds)
def test_sequences_are_whole_and_padded_on_the_right(lengths, size, seed):
    batches = Batches(numbered(lengths), size, seed)
    for step in range(batches.per_epoch):
        x0 = batches[step].x0
        for row, i in zip(x0, members(x0), strict=True):
            expected = [EOS + i] * lengths[i] + [PAD] * (x0.shape[1] - lengths[i])
            assert row.tolist() == expected


@given(some_lengths, sizes, seeds)
def test_padded_tells_whether_there_is_padding(lengths, size, seed):
    batches = Batches(numbered(lengths), size, seed)
    for step in range(batches.per_epoch):
        assert batches[step].padded == bool((batches[step].x0 == PAD).any())


@given(many_lengths, sizes, seeds)
def test_lengths_of_the_batches_of_an_epoch_do_not_overlap(lengths, size, seed):
    """Sorted by their shortest, no batch starts before the last one ended: the least padding."""
    batches = Batches(numbered(lengths), size, seed)
    spans = []
    for step in range(batches.per_epoch):
        own = [lengths[i] for i in members(batches[step].x0)]
        spans.append((min(own), max(own)))
    spans.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


@given(many_lengths, divisors, seeds)
def test_weights_average_to_one_over_an_epoch_that_holds_everything(lengths, size, seed):
    batches = Batches(numbered(lengths), size, seed)
    weights = [float(batches[step].weight) for step in range(batches.per_epoch)]
    assert np.mean(weights) == pytest.approx(1)


@given(many_lengths, divisors, seeds)
def test_weighted_token_means_are_the_mean_over_all_tokens(lengths, size, seed):
    """Why there are weights: sum_b weight_b mean_b(loss) = mean over the epoch's tokens."""
    batches = Batches(numbered(lengths), size, seed)
    loss_of = np.random.default_rng(0).normal(size=len(lengths))  # of every token of sequence i
    terms = []
    for step in range(batches.per_epoch):
        own = members(batches[step].x0)
        tokens = np.array([lengths[i] for i in own])
        terms.append(batches[step].weight * (tokens * loss_of[own]).sum() / tokens.sum())
    overall = (np.array(lengths) * loss_of).sum() / sum(lengths)
    assert np.mean(terms) == pytest.approx(overall)


def test_epochs_and_seeds_differ_in_order():
    sequences = numbered([4] * 32)
    batches, other = Batches(sequences, 8, seed=0), Batches(sequences, 8, seed=1)
    assert not torch.equal(batches[0].x0, batches[batches.per_epoch].x0)
    assert not torch.equal(batches[0].x0, other[0].x0)


def test_lengths_come_in_no_fixed_order():
    """Batches are shuffled after sorting: the first is not always the shortest."""
    batches = Batches(numbered(list(range(1, 17))), 4, seed=0)
    firsts = {batches[epoch * batches.per_epoch].x0.shape[1] for epoch in range(12)}
    assert len(firsts) > 1


def test_collate_pads_to_the_longest():
    x = collate([np.array([5, 6, 2]), np.array([7])])
    assert x.dtype == torch.long
    assert x.tolist() == [[5, 6, 2], [7, PAD, PAD]]


@given(some_lengths, sizes, seeds)
def test_there_is_one_batch_of_each_kind(lengths, size, seed):
    batches = Batches(numbered(lengths), size, seed)
    epoch = [batches[step] for step in range(batches.per_epoch)]
    kinds = Kinds(batches)
    first, second = (
        [kinds[turn * kinds.per_epoch + i] for i in range(kinds.per_epoch)] for turn in (0, 1)
    )
    found = [(batch.x0.shape[1], batch.padded) for batch in first]
    assert len(found) == len(set(found))
    assert set(found) == {(batch.x0.shape[1], batch.padded) for batch in epoch}
    assert all(torch.equal(a.x0, b.x0) for a, b in zip(first, second, strict=True))
