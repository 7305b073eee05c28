"""Every figure by its name; each function returns a matplotlib `Figure` or a picture.

style.py           colours, fonts, one look a method, saving
noise_maps.py      what the noise puts in a token's place
noise_scatter.py   the same against embeddings
learning.py        one run over time
trace.py           a sequence while it is re-drafted
grid.py            drawn molecules
comparisons.py     several methods in one figure
stories.py         the same, of stories
playlists.py       and of playlists
"""

from redraft.report.grid import CELL, molecule_grid
from redraft.report.learning import learning_curves
from redraft.report.noise_maps import noise_maps
from redraft.report.style import save
from redraft.report.trace import revision_trace

__all__ = ["CELL", "learning_curves", "molecule_grid", "noise_maps", "revision_trace", "save"]
