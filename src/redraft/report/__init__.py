"""Stage 10: what a run looks like.

figures.py     noise, learning, re-drafting, molecules, methods beside each other
molecules.py   files and drawn grids of molecules
animation.py   a sequence that is re-drafted before one's eyes
repairs.py     repairs, one a line
tables.py      numbers as text
page.py        all of it as one HTML file: runs.py reads, sections.py tells
"""
