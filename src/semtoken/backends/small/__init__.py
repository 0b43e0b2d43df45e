"""The embedded model without torch, whose import alone takes ten times as long as an answer.

llama.py   the network itself, in NumPy
model.py   the backend: the network with its tokenizer

`semtoken ask` uses it where nothing but an answer is asked for. `semtoken.backends.transformers` can do more, and
`tests/backends/test_small.py` holds both to the same numbers.
"""
