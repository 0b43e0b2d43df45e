"""The tokens of a model: their texts, what they are, and how a vocabulary is stored.

vocabulary.py   the tokens of a model and their texts
tokenizers.py   reads the tokens of a tokenizer of any library
packing.py      a vocabulary as arrays, for artifacts
stopwords.py    function words
"""
