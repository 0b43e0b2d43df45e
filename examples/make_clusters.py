"""Make the clusters of a model's tokens, look into them, save and load them.

    python examples/make_clusters.py MODEL N_CLUSTERS DIRECTORY

MODEL is a directory or hub id; only its tokenizer and its embedding matrices are read.
"""

from __future__ import annotations

import sys

import semtoken as st

model, n_clusters, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]

clusters = st.TokenClusters.from_model(model, n_clusters=n_clusters)
print(clusters)
print("the largest holds", clusters.sizes.max(), "tokens; alone are", (clusters.sizes == 1).sum())
print("with 'the':", clusters.members("the")[:10])

clusters.save_pretrained(directory)
again = st.TokenClusters.from_pretrained(directory)
print("saved and loaded:", (again.labels == clusters.labels).all())
