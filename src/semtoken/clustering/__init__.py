"""The tokens of a model, and which of them mean the same.

vocabulary.py      `Vocabulary`: the tokens, their texts and what they are; tokenizers.py reads it from a tokenizer, and
                   model_vocabulary.py finds that of a model; packed_vocabulary.py is its form in files
function_words.py  English function words
tables.py          token tables of models, which are clustered; matrices.py reads what they are made of
token_clusters.py  `TokenClusters`: a partition of a vocabulary, made, saved with its card (card.py), loaded
cache.py           clusters made on this machine, by model and settings
partition.py       `cluster_tokens`, `cluster_table`: rows in, labels out, exactly and at the size of real vocabularies

Behind `cluster_table`, to read in this order: rows.py (the table), agglomerative.py, its engines
complete_linkage.py, single_linkage.py and rounds.py, near.py, exact_gaps.py, tiles.py and merges.py; kmeans.py;
memory.py and progress.py; _loops.py, compiled.
"""
