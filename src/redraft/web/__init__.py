"""A local page over trained models, where one watches a sequence being re-drafted.

forms.py       what a request may say
desk.py        one computation at a time, in the order of asking
stream.py      a computation as it goes, over one connection
film.py        its steps, and what changed in each
molecules.py   repair, revise and sample, told step by step
stories.py     hidden words filled in, a text revised
playlists.py   tracks by name, continued or redrafted
noise.py       the learned substitutions at any t
shelf.py       the models of the page, and where they are asked
guard.py       whom the page answers, and how
app.py         paths to functions
server.py      the address, and the process behind it
static/        the page itself: no build step, nothing from elsewhere
"""
