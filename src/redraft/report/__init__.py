"""Stage 10: what a run looks like.

figures.py     noise, learning, re-drafting, molecules
molecules.py   files and drawn grids of molecules
repairs.py     repairs, one a line
tables.py      numbers as text
"""
