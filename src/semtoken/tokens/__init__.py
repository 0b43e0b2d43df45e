"""The tokens of a model: their texts, what they are, and how a vocabulary is stored.

vocabulary.py   the tokens of a model and their texts
tokenizers.py   reads the tokens of a tokenizer of any library
packing.py      a vocabulary as arrays, for artifacts
scored.py      the tokens of a scored answer, with their probabilities and what else was likely
stopwords.py    function words
"""
