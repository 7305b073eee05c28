"""Playlists: rows of track indices, here made up.

Tracks lie around the centres of latent genres. A playlist walks from a track to one of its nearest
that it has not played yet, and now and then jumps to another genre.
"""

import numpy as np

from redraft.data.corpus import Corpus
from redraft.errors import UserError

WIDTH = 80
NEIGHBOURS = 64
JUMPS = 0.04


def synthetic(
    n: int, seed: int = 0, tracks: int = 2000, genres: int = 16, length: int = 50
) -> tuple[Corpus, np.ndarray]:
    """`n` synthetic playlists of `length` tracks, and the tracks' embeddings (tracks, 80)."""
    if not 1 <= length <= NEIGHBOURS < tracks:
        raise UserError(
            f"a playlist has 1 to {NEIGHBOURS} of more than {NEIGHBOURS} tracks, "
            f"got {length} of {tracks}"
        )
    if n < 3 or genres < 1:
        raise UserError(f"at least 3 playlists and 1 genre are needed, got {n} and {genres}")
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(genres, WIDTH))
    spread = rng.normal(scale=0.5, size=(tracks, WIDTH))
    embeddings = (centres[rng.integers(genres, size=tracks)] + spread).astype(np.float32)

    norms = (embeddings**2).sum(1)
    distances = norms[:, None] + norms - 2 * embeddings @ embeddings.T  # (tracks, tracks)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :NEIGHBOURS]

    rows = np.arange(n)
    track = rng.integers(tracks, size=n)
    playlists, played = [track], np.zeros((n, tracks), bool)
    for _ in range(length - 1):
        played[rows, track] = True
        offers = nearest[track]  # (n, NEIGHBOURS)
        # The nearer a track, the likelier it comes next.
        order = np.arange(NEIGHBOURS) + rng.exponential(8, size=offers.shape)
        order[played[rows[:, None], offers]] = np.inf
        far = rng.integers(tracks, size=n)
        jumps = (rng.random(n) < JUMPS) & ~played[rows, far]
        track = np.where(jumps, far, offers[rows, order.argmin(1)])
        playlists.append(track)

    origin = (
        f"{n} synthetic playlists of {length} tracks from {genres} latent genres (seed {seed}); "
        "no real track, listener or recording is in them, and they are free to use."
    )
    return Corpus.of(np.stack(playlists, 1).tolist(), origin), embeddings
