"""The two small encoders: they load, they keep what their cards say, and their training pairs are honest."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from semtoken.support.almanac import almanac_nli_path, almanac_sts_path

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FOLDERS = {"nli": almanac_nli_path(), "sts": almanac_sts_path()}
LABELS = ("contradiction", "neutral", "entailment")
both = pytest.mark.parametrize("task", ["nli", "sts"])

MISSING = "the training's libraries are not installed"


def figures(task: str) -> Any:
    return json.loads((FOLDERS[task] / "figures.json").read_text(encoding="utf-8"))


def held_out(task: str, names: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDERS[task] / "heldout.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row for row in rows if row["names"] == names]


@cache
def loaded(task: str) -> tuple[Any, Any]:
    """The encoder and its tokenizer, as plain transformers loads them."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(FOLDERS[task]).eval()
    return model, transformers.AutoTokenizer.from_pretrained(FOLDERS[task])


def logits(task: str, pairs: list[tuple[str, str]]) -> np.ndarray:
    """The numbers that plain transformers gives, without any code of this repository."""
    model, tokenizer = loaded(task)
    parts = []
    for start in range(0, len(pairs), 100):
        first, second = zip(*pairs[start : start + 100], strict=True)
        batch = tokenizer(list(first), list(second), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            parts.append(model(**batch).logits.float().numpy())
    return np.concatenate(parts)


@both
def test_folder_is_small_and_its_card_names_the_weights(task: str) -> None:
    weights = FOLDERS[task] / "model.safetensors"
    assert weights.stat().st_size < 3_000_000
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert digest in (FOLDERS[task] / "README.md").read_text(encoding="utf-8")
    assert digest == figures(task)["sha256"]


def test_nli_is_of_the_class_and_labels_that_peers_expect() -> None:
    config = transformers.AutoConfig.from_pretrained(FOLDERS["nli"])
    assert config.id2label == {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    assert config.label2id == {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
    model, _ = loaded("nli")
    assert isinstance(model, transformers.DebertaForSequenceClassification)
    assert model.dtype == torch.float32


@pytest.mark.parametrize("names", ["unseen", pytest.param("known", marks=pytest.mark.slow)])
def test_nli_keeps_its_held_out_accuracy(names: str) -> None:
    rows = held_out("nli", names)
    truth = np.array([LABELS.index(row["label"]) for row in rows])
    predicted = logits("nli", [(row["first"], row["second"]) for row in rows]).argmax(1)
    accuracy = (predicted == truth).mean()
    claim = figures("nli")[names]["all"]
    assert len(rows) == claim["of"]
    assert accuracy >= claim["low"]
    assert accuracy > np.bincount(truth).max() / len(truth) + 0.1
    card = (FOLDERS["nli"] / "README.md").read_text(encoding="utf-8")
    assert f"| all | {len(rows)} | {claim['accuracy']:.3f} |" in card


@pytest.mark.parametrize("names", ["unseen", pytest.param("known", marks=pytest.mark.slow)])
def test_sts_keeps_its_held_out_figures(names: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    rows = held_out("sts", names)
    targets = np.array([row["similarity"] for row in rows])
    similarity = 1 / (1 + np.exp(-logits("sts", [(row["first"], row["second"]) for row in rows])[:, 0]))
    claim = figures("sts")[names]
    assert stats.spearmanr(similarity, targets).statistic >= claim["spearman"] - 0.01
    assert np.abs(similarity - targets).mean() < 0.8 * np.abs(targets - np.median(targets)).mean()
    clear = (targets >= 0.9) | (targets <= 0.65)
    right = (similarity >= 0.7) == (targets >= 0.9)
    assert right[clear].mean() >= claim["all"]["low"]
    commonest = max((targets[clear] >= 0.9).mean(), (targets[clear] < 0.9).mean())
    assert right[clear].mean() > commonest + 0.1


@both
def test_case_and_white_space_do_not_count(task: str) -> None:
    plain, shouted = logits(task, [("Paris", "paris"), ("  PARIS\n", "Paris ")])
    np.testing.assert_allclose(plain, shouted, atol=1e-5)


def test_cross_encoder_applies_the_sigmoid_once() -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    pairs = [("France", "france"), ("France", "euro"), ("What is gold? metal", "What is gold? bird")]
    predicted = sentence_transformers.CrossEncoder(str(FOLDERS["sts"]), device="cpu").predict(pairs)
    np.testing.assert_allclose(predicted, 1 / (1 + np.exp(-logits("sts", pairs)[:, 0])), atol=1e-5)


# -- the builder of pairs ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds() -> Any:
    """Sixty countries and their capitals, each with two names, and a few opposites, divided into sets."""
    facts = pytest.importorskip("research.training.almanac.facts", reason=MISSING)
    things = pytest.importorskip("research.training.encoders.things", reason=MISSING)
    made = []
    for number in range(60):
        country = ((f"Land {number:02}x", 1.0), (f"Q{number:02}", 0.5))
        capital = ((f"Town {number:02}y", 1.0), (f"V{number:02}", 0.5))
        for relation, subject, answer in (("capital", country, capital), ("capital_of", capital, country)):
            made.append(facts.Fact(relation, subject, answer, facts.texts(answer), 60.0 - number, f"capital:{number}"))
    for number in range(40):
        word, opposite = ((f"big{number:02}", 1.0),), ((f"small{number:02}", 1.0),)
        made.append(facts.Fact("antonym", word, opposite, (opposite[0][0],), 1.0, f"antonym:{number}"))
    return things.make_worlds(made, {})


def training_pairs(worlds: Any, count: int, seed: int = 0) -> list[Any]:
    from research.training.encoders.pairs import make_pairs

    return make_pairs(worlds["train"], count, seed=seed)


def test_pairs_are_the_same_for_a_seed_and_differ_between_seeds(worlds: Any) -> None:
    assert training_pairs(copy.deepcopy(worlds), 300, 3) == training_pairs(worlds, 300, 3)
    assert training_pairs(worlds, 300, 3) != training_pairs(worlds, 300, 4)


def test_no_held_out_name_is_in_a_training_pair(worlds: Any) -> None:
    names = {
        split: {name for kind in world.things.values() for thing in kind for name in thing.names}
        for split, world in worlds.items()
    }
    assert min(len(names["test"]), len(names["dev"])) > 0
    assert not names["train"] & names["test"] and not names["train"] & names["dev"] and not names["dev"] & names["test"]
    trained = " ".join(f"{pair.first} {pair.second}" for pair in training_pairs(worlds, 2000)).lower()
    words = set("".join(c if c.isalnum() else " " for c in trained).split())
    held_out_words = {name.lower().split()[-1] for name in names["test"]}
    assert not words & held_out_words


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text.replace(".", "")))  # V05 may be written V.0.5.


def test_labels_follow_from_the_facts(worlds: Any) -> None:
    pairs = training_pairs(worlds, 3000)
    kinds = {pair.kind for pair in pairs}
    assert {"surface", "alias", "sibling", "opposite", "unrelated", "shorter"} <= kinds
    for pair in pairs:
        if pair.kind == "alias":  # both names of a thing carry its number, and so do both of the question's subject
            assert pair.label == "entailment"
            assert numbers(pair.first) == numbers(pair.second)
        if pair.kind == "opposite":
            assert pair.label == "contradiction"
            assert all(word in f"{pair.first} {pair.second}".lower() for word in ("big", "small"))
        assert 0 <= pair.similarity <= 1 and pair.label in LABELS


def test_removing_what_says_nothing_removes_nothing() -> None:
    pytest.importorskip("research.training.encoders.surface", reason=MISSING)
    from research.training.encoders.surface import is_filler, remove_piece

    rng = random.Random(0)
    for text in ("the Kyrgyz Republic.", "New York\n", "oxygen"):
        for _ in range(50):
            left, share = remove_piece(text, rng)
            letters = sum(c.isalpha() for c in text) - sum(c.isalpha() for c in left)
            assert 0 <= share <= 1 and (share > 0 or letters <= len("the"))
    assert is_filler(" the") and is_filler(".\n") and not is_filler("York")
