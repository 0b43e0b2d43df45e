"""The card of a clusters folder: a README that tells people, and the index of the hub, what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.clustering.progress import size_histogram
from semtoken.support.text import one_line

CARD_CLUSTERS = 20
CARD_TOKENS = 12  # tokens shown of each of them


def write_card(
    *,
    signature: str,
    provenance: Mapping[str, Any],
    sizes: npt.NDArray[np.int64],
    largest: Sequence[Sequence[str]],
) -> str:
    """The text of the README that is saved beside clusters; `model` and `hub_id` of the provenance are used if there.
    `sizes` are the tokens in each cluster, and `largest` the texts of those of the largest clusters.
    """
    front = ["---", "library_name: semtoken", "tags:", "- semtoken", "- token-clusters", "- uncertainty"]
    if "hub_id" in provenance:
        front.append(f"base_model: {json.dumps(provenance['hub_id'])}")
    made_for = markdown_text(str(provenance.get("model", "a model that was not recorded")))
    return "\n".join(
        [
            *front,
            "---",
            "",
            "# Semantic token clusters",
            "",
            f"{len(sizes):,} clusters of the {sizes.sum():,} tokens of {made_for}, for scoring the uncertainty",
            "of answers by Semantic Token Clustering (Cao et al., EACL 2026).",
            "",
            f"Signature: `{signature}`",
            "",
            "```python",
            "from semtoken import TokenClusters",
            "",
            'clusters = TokenClusters.from_pretrained("path or id of this folder")',
            "```",
            "",
            "## Sizes",
            "",
            f"{np.mean(sizes == 1):.1%} of the clusters hold a single token.",
            "",
            "| Tokens in a cluster | Clusters |",
            "|---:|---:|",
            *(f"| {name} | {count:,} |" for name, count in size_histogram(sizes).items()),
            "",
            "## The largest clusters",
            "",
            "| Tokens | Some of them |",
            "|---:|:---|",
            *map(_row, largest),
            "",
        ]
    )


def _row(members: Sequence[str]) -> str:
    texts = dict.fromkeys(text.strip() for text in members)
    shown = [markdown_text(text) for text in texts if text][:CARD_TOKENS]
    return f"| {len(members):,} | {' · '.join(shown) or '(blank)'} |"


def markdown_text(text: str) -> str:
    """A text that a Markdown table shows as it is; unprintable characters as escapes."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+-.!|~&$" else c for c in one_line(text))
