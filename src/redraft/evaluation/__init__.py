"""Stage 9: the numbers, each with its 95 % interval.

statistics.py   intervals: bootstrap, subsampling, splits, seeds
molecules.py    validity, uniqueness, novelty, diversity, FCD
stories.py      perplexity under a judge, Distinct-n, entropy, copies
judge.py        a language model that tells how likely texts are
copies.py       long runs that stand in training data, too
playlists.py    next tracks, smoothness, three corruptions
results.py      one file a run and experiment
"""
