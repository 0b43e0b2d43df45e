"""Small helpers that every room uses and that know nothing of scores: arrays, checked arguments, texts, extras.

arrays.py        arrays of log-probabilities and ids, checked and normalised
cache_folder.py  where semtoken keeps what it has made or fetched for this user
extras.py        optional packages, with the line that installs them
html_elements.py HTML elements for the cards of notebooks, all text escaped
inputs.py        checks of arguments, with errors that name them
installation.py  versions, system and extras, for a report of a problem
quiet.py         silences the libraries underneath
text.py          texts and numbers as people may see them
"""
