"""Stage 10: what a run looks like.

figures.py     noise, learning, re-drafting, molecules, methods beside each other
molecules.py   files and drawn grids of molecules
repairs.py     repairs, one a line
tables.py      numbers as text
"""
