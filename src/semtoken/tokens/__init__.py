"""The tokens of a model: their texts, what they are, and how a vocabulary is stored.

vocabulary.py    the tokens of a model and their texts, function words; the same as arrays, for artifacts
tokenizers.py    the tokens of a tokenizer of any library, and the characters that tokens spell
rules.py         which tokens may count as consistent with a chosen one: presets and switches
scored_token.py  the tokens of a scored answer, with their probabilities and what else was likely
"""
