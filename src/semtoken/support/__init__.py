"""Small helpers for all packages, which know nothing of scores: arrays, checked arguments, texts, other packages.

arrays.py        arrays of log-probabilities and ids, checked and normalized; entropies of their rows
compiled.py      work of compiled loops shared among threads; their machine code
extras.py        other packages: optional ones, with the line that installs them, and those that plug in
garbage.py       fewer collections of garbage while there is none
html_elements.py cards and tables as HTML, in which every text is escaped
http_client.py   the one HTTP client of everything that asks a server
inputs.py        checks of arguments, with errors that name them
installation.py  the user's cache folder; versions, system and extras, for a report of a problem
plain_values.py  JSON text and the objects of clients, turned into plain values
questions.py     the question in whatever holds one: a request of any API, a saved line
splice.py        JSON text with values replaced, dropped or added, and every other character as it was
sse.py           server-sent events and lines of JSON, read as they come
text.py          texts and numbers as people may see them
thinking.py      where the thinking before an answer ends
untrusted.py     values in replies and files of others: each is of its kind, or an error says where it is not
"""
