"""Measures as a reader meets them: a title, what it means, and whether more of it is better."""

from collections.abc import Mapping
from typing import NamedTuple

from redraft.report.tables import in_percent, with_interval

SPACE = "\N{NO-BREAK SPACE}"


class Measure(NamedTuple):
    title: str
    meaning: str = ""
    better: str = ""
    """An arrow towards it."""
    percent: bool = False

    def head(self) -> str:
        unit = f",{SPACE}%" if self.percent else ""
        return self.title + unit + (SPACE + self.better if self.better else "")

    def value(self, value: float) -> str:
        return self.interval({"value": value, "low": value, "high": value})[0]

    def interval(self, metric: Mapping[str, float], sign: str = "") -> tuple[str, str]:
        """The number, and the ends of its interval.

        >>> Measure("valid", percent=True).interval({"value": 0.5, "low": 0.4, "high": 0.6})
        ('50.0', '40.0 to 60.0')
        """
        told = (in_percent if self.percent else with_interval)(metric, sign)
        value, _, ends = told.partition(" (")
        return value, ends.removesuffix(")")


UP, DOWN = "↑", "↓"

MEASURES = {
    "validity": Measure("valid", "parse in RDKit and are not empty", UP, True),
    "uniqueness": Measure("unique", "distinct molecules, of the valid ones", UP, True),
    "novelty": Measure("new", "not in the training data, of the distinct ones", UP, True),
    "diversity": Measure("diversity", "1 less the mean Tanimoto similarity of all pairs", UP),
    "fcd": Measure("FCD", "Fréchet ChemNet distance to unseen molecules", DOWN),
    "exact_recovery": Measure("the same", "what it was before has come back", UP, True),
    "similarity": Measure("Tanimoto", "of what came back to what it was; 0 where not valid", UP),
    "tanimoto": Measure("Tanimoto", "of what came back to what it was; 0 where not valid", UP),
    "tokens_kept": Measure("tokens kept", "tokens that the noise left as they were", "", True),
    "corrupted_parse": Measure("noised parse", "noised strings valid by chance", "", True),
    "corrupted_similarity": Measure("noised Tanimoto", "of those to what they were"),
    "repair_rate": Measure("repaired", "valid now, or other tokens than the corrupted", UP, True),
    "edit_distance": Measure("edits", "tokens that a repair has changed", DOWN),
    "judge_perplexity": Measure("perplexity", "of the stories under the judge", DOWN),
    "judge_perplexity_ratio": Measure("perplexity, ratio", "over that of the first", DOWN),
    "nll_per_character": Measure("nats a character", "under the judge", DOWN),
    "distinct_1": Measure(
        "Distinct-1", "distinct words over all words; the more stories, the less", UP
    ),
    "distinct_2": Measure("Distinct-2", "distinct pairs of words over all pairs; likewise", UP),
    "unigram_entropy": Measure("word entropy", "of all words, in nats; the more stories, the more"),
    "copied": Measure("copied", "share over 50 tokens in a row with a training story", DOWN, True),
    "bound_nats_per_token": Measure("bound, a token", "nats, on unseen sequences", DOWN),
    "bound_nats_per_char": Measure("bound, a character", "nats, on unseen stories", DOWN),
    "bound_nats_per_track": Measure("bound, a track", "nats, on the codes of unseen tracks", DOWN),
    "bound_nats_per_very_track": Measure(
        "bound, the very track", "nats, on unseen tracks, not on their codes", DOWN
    ),
    "exact_repair": Measure("exact repair", "the name that stood there came back", UP),
    "consistency": Measure("consistency", "occurrences that have the most common value", UP),
    "token_overlap": Measure("token overlap", "tokens of the span that came back in place", UP),
    "ndcg@3": Measure("NDCG@3", "of one draw, each true track counts once", UP),
    "ndcg@3_any": Measure("NDCG@3, any", "the paper's: a true track counts as often as told", UP),
    "hitrate@3": Measure("HitRate@3", "any of three guesses is among the three true tracks", UP),
    "ndcg@3_combined": Measure("NDCG@3, combined", "of what is drawn most often", UP),
    "hitrate@3_combined": Measure("HitRate@3, combined", "of what is drawn most often", UP),
    "hitrate@3_tracks": Measure("HitRate@3, tracks", "of the very tracks, not of their codes", UP),
    "hitrate@3_tracks_combined": Measure(
        "HitRate@3, tracks, combined", "of the very tracks, by what is drawn most often", UP
    ),
    "ndcg@3_mixed": Measure("NDCG@3, mixed", "what was played before votes, too", UP),
    "hitrate@3_mixed": Measure("HitRate@3, mixed", "what was played before votes, too", UP),
    "hitrate@3_self": Measure("HitRate@3, of itself", "how often one draw hits another"),
    "known_tracks": Measure("known", "codes that are drawn belong to a track", UP, True),
    "entropy_mean": Measure("row entropy", "mean over tokens of the rows of M at t = 1, in nats"),
    "entropy_min": Measure("least", "the least of them"),
    "entropy_share": Measure("of uniform's", "their mean over the largest possible", "", True),
}


def measure(name: str) -> Measure:
    """One that has no row above is told under its own name.

    >>> measure("validity@20").title, measure("place_smoothness@energy").title
    ('valid', 'place smoothness')
    """
    plain, _, level = name.partition("@")
    if plain == "spearman":
        time = f"t{SPACE}={SPACE}{level}"
        return Measure(f"Spearman, {time}", "of embedding cosine and transition probability")
    return MEASURES.get(name) or MEASURES.get(plain) or Measure(plain.replace("_", " "))
