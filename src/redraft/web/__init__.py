"""A local page over trained models, where one watches a sequence being re-drafted.

forms.py       what a request may say
desk.py        one computation at a time, in the order of asking
structure.py   a molecule as clean SVG
film.py        the steps of a computation, and what changed in each
molecules.py   repair, revise and sample, told step by step
noise.py       the learned substitutions at any t
guard.py       whom the page answers, and how
app.py         paths to functions
server.py      the address, and the process behind it
static/        the page itself: no build step, nothing from elsewhere
"""
