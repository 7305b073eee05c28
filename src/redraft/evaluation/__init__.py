"""Stage 9: the numbers, each with its 95 % interval.

statistics.py   intervals: bootstrap, subsampling, splits, seeds
molecules.py    validity, uniqueness, novelty, diversity, FCD
stories.py      perplexity under a judge, Distinct-n, entropy, copies
results.py      one file a run and experiment
"""
