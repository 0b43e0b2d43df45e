"""Cards of the models, clusters and question sets that ship: the hub's own parser reads them, licenses are named."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import DatasetCard, ModelCard

from semtoken.clustering.token_clusters import TokenClusters
from semtoken.support.almanac import load_questions
from tests.rows import each

SOURCE = Path(__file__).parents[2] / "src" / "semtoken"
QUESTIONS = SOURCE / "support" / "almanac" / "questions"
FOLDERS = sorted({path.parent for ending in ("*.safetensors", "*.jsonl.gz") for path in SOURCE.rglob(ending)})
"""Whatever holds weights, clusters or questions."""


@each("folder", FOLDERS)
def test_a_folder_that_ships_has_a_card_that_the_hub_can_read(folder: Path) -> None:
    kind = DatasetCard if folder == QUESTIONS else ModelCard
    card = kind((folder / "README.md").read_text("utf-8"))  # raises where the front matter is not valid
    data = card.data.to_dict()
    assert data["license"] and card.text.lstrip().startswith("# ")
    if data["license"] == "other":  # the hub then asks for both
        assert data["license_name"] and data["license_link"].startswith("https://")
    if folder == QUESTIONS:
        assert data["size_categories"] == ["1K<n<10K"] and data["task_categories"] == ["question-answering"]
    else:
        assert data["library_name"] in ("semtoken", "transformers")


def test_the_card_of_the_questions_counts_them() -> None:
    text = (QUESTIONS / "README.md").read_text("utf-8")
    dev, test = load_questions("dev"), load_questions("test")
    assert f"{len(test):,} for reported figures" in text and f"\n{len(dev)} for choosing" in text
    assert f"one of {len({one.relation for one in dev + test})}:" in text
    assert "WordNet 3.0 Copyright 2006" in text  # its license asks for the notice on all copies


def test_the_cards_of_clusters_count_them() -> None:
    for place in ("almanac/clusters", "checkpoints/clusters/smollm2"):
        folder = SOURCE / "support" / place
        clusters = TokenClusters.from_pretrained(folder)
        said = f"{clusters.n_clusters:,} clusters of the {clusters.vocabulary.size:,} tokens"
        assert said in (folder / "README.md").read_text("utf-8")
