"""Where the two small encoders lie that stand in for large ones: `almanac-nli` and `almanac-sts`.

Both know only the almanac's kinds of facts; their model cards (README.md in the folders) and docs/encoders.md say what
they are good for.

>>> from semtoken.almanac.encoders import almanac_nli_path
>>> (almanac_nli_path() / "config.json").is_file()
True
"""

from __future__ import annotations

from pathlib import Path

from semtoken.almanac import embedded_folder

__all__ = ["almanac_nli_path", "almanac_sts_path"]


def almanac_nli_path() -> Path:
    """The folder of the embedded NLI model.

    `AutoModelForSequenceClassification.from_pretrained` and `AutoTokenizer.from_pretrained` load it. Three labels, read
    them from the configuration: CONTRADICTION, NEUTRAL, ENTAILMENT.
    """
    return embedded_folder("nli")


def almanac_sts_path() -> Path:
    """The folder of the embedded cross-encoder for similarity.

    `sentence_transformers.CrossEncoder` loads it and gives similarities in [0, 1]. With transformers alone the one
    logit needs a sigmoid.
    """
    return embedded_folder("sts")
