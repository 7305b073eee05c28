"""Names of made-up tracks: every genre has its own kind of band, so that one sees where one is."""

from redraft.data.playlist_files import Track
from redraft.data.playlists import genres_of


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


BANDS = words(
    "Owls Foxes Engines Queens Stones Herons Lanterns Palms "
    "Hammers Parrots Mirrors Wagons Needles Roses Clouds Kings"
)
"""One for each genre."""
COLOURS = words("Red Blue Green Golden Silver Black White Grey Purple Copper Amber Crimson")
MOODS = words(
    "Slow Quiet Broken Late Early Lost Sweet Bitter Distant Hidden Endless Little Wild Gentle "
    "Burning Frozen Hollow Open Paper Electric Sleepy Restless Lonely Happy Empty Second Last "
    "First Northern Southern Eastern Western Summer Winter Autumn Spring Morning Evening Midnight "
    "Sunday Foreign Secret Velvet Iron Glass Wooden Stolen Borrowed Simple Crooked"
)
THINGS = words(
    "River Train Window Garden Letter Harbour Mountain Street Shadow Island Bridge Kitchen Mirror "
    "Station Forest Desert Ocean Castle Tower Village Candle Feather Ladder Machine Market Meadow "
    "Lighthouse Orchard Painter Piano Planet Pocket Question Rain Road Sailor Song Stranger "
    "Tomorrow Waltz"
)


def named(n: int, seed: int) -> list[Track]:
    """Tracks 0..n-1 of the synthetic playlists of a seed.

    >>> for track in named(2000, seed=0)[:2]:
    ...     print(f"{track.artist} - {track.title}")
    The Red Herons - Slow River
    The Blue Queens - Quiet River
    """
    return [Track(str(i), artist(i, genre), title(i)) for i, genre in enumerate(genres_of(n, seed))]


def artist(i: int, genre: int) -> str:
    return f"The {COLOURS[i % len(COLOURS)]} {BANDS[genre % len(BANDS)]}"


def title(i: int) -> str:
    """No two are the same."""
    again, rest = divmod(i, len(MOODS) * len(THINGS))
    mood, thing = MOODS[rest % len(MOODS)], THINGS[rest // len(MOODS)]
    return f"{mood} {thing}{f' {again + 1}' if again else ''}"
