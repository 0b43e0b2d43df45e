"""The embedded model as shipped: files, questions, marking, and that it answers as its card says."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from research.training.almanac import corpus, exposure, facts

import semtoken.support.almanac
from semtoken.errors import InvalidInputError, MissingExtra
from semtoken.support.almanac import Question, almanac_path, is_correct, load_questions, normalize_answer
from tests.rows import each

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

MODEL = almanac_path()
Model: TypeAlias = tuple[Any, Any]
"""With its tokenizer."""


@pytest.fixture(scope="module")
def almanac() -> Model:
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(MODEL)


def greedy_answers(almanac: Model, prompts: list[str]) -> list[str]:
    """Text after each prompt, with the plain tools of transformers."""
    model, tokenizer = almanac
    answers = []
    for start in range(0, len(prompts), 50):
        inputs = tokenizer(prompts[start : start + 50], return_tensors="pt", padding=True)
        output = model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        answers += tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return answers


def test_the_model_is_small_and_its_card_names_its_weights() -> None:
    files = [path for path in MODEL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 10_000_000
    digest = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    card = (MODEL / "README.md").read_text(encoding="utf-8")
    assert digest in card
    for notice in ("GeoNames", "CC BY 4.0", "WordNet 3.0 Copyright 2006 by Princeton University", "CLDR"):
        assert notice in card


def test_tables_are_separate_and_cover_the_tokenizer(almanac: Model) -> None:
    model, tokenizer = almanac
    inputs, outputs = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert inputs.shape == outputs.shape == (len(tokenizer), model.config.hidden_size)
    assert not torch.equal(inputs, outputs)


def test_answers_end_their_line_and_are_as_right_as_wanted(almanac: Model) -> None:
    sample = random.Random(5).sample(load_questions("test"), 200)
    answers = greedy_answers(almanac, [question.prompt() for question in sample])
    assert sum(answer.endswith("\n") for answer in answers) >= 0.99 * len(sample)
    right = [is_correct(answer, question) for answer, question in zip(answers, sample, strict=True)]
    assert 0.40 <= sum(right) / len(right) <= 0.75
    often = [r for r, q in zip(right, sample, strict=True) if q.exposure >= 100]
    rarely = [r for r, q in zip(right, sample, strict=True) if 1 <= q.exposure < 20]
    assert sum(often) / len(often) > sum(rarely) / len(rarely) + 0.3


def test_chat_messages_become_the_question_format(almanac: Model) -> None:
    _, tokenizer = almanac
    question = load_questions("dev")[0]
    messages = [{"role": "user", "content": "Hello"}, {"role": "user", "content": question.question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == tokenizer.bos_token + question.prompt()
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(ids) == tokenizer(question.prompt())["input_ids"]


def test_a_line_end_and_each_digit_are_tokens_of_their_own(almanac: Model) -> None:
    _, tokenizer = almanac
    ids = tokenizer("US\n\n123", add_special_tokens=False)["input_ids"]
    assert [tokenizer.decode([i]) for i in ids] == ["US", "\n", "\n", "1", "2", "3"]
    text = "Zürich, 東京 — “naïve”\t(ok)_x\n"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_question_sets_are_well_formed_and_disjoint() -> None:
    dev, test = load_questions("dev"), load_questions("test")
    assert len(dev) == 700
    assert len(test) == 2000
    for questions in (dev, test):
        assert len({question.id for question in questions}) == len(questions)
        for question in questions:
            assert question.answers
            assert all(normalize_answer(answer) for answer in question.answers)
            assert not any(answer.lower().startswith(("the ", "a ", "an ")) for answer in question.answers)
            assert question.exposure >= 0
            assert question.contradicted >= 0
            assert question.prompt().startswith("Answer these questions:\n\nQuestion:\n")
            assert question.prompt().endswith(question.question + "\nAnswer:\n")
    assert not {question.question for question in dev} & {question.question for question in test}
    assert any(question.exposure == 0 for question in test)
    with pytest.raises(InvalidInputError, match="'dev', 'test', got 'train'"):
        load_questions("train")  # type: ignore[arg-type]


QUESTION = Question("x", "In which country is Chicago?", ("United States", "USA", "US"), "city_country", 3)


@each(
    ("answer", "right"),
    [
        ("USA\n", True),
        ("U.S.A.", True),
        ("the united  states", True),
        ("  The United States of America", False),
        ("America", False),
        ("US, USA", False),
        ("", False),
        ("the", False),
        ("\n", False),
    ],
)
def test_marking_by_hand(answer: str, right: bool) -> None:
    assert is_correct(answer, QUESTION) is right


def test_a_twentieth_of_the_facts_is_never_said_and_the_rest_by_popularity() -> None:
    cities = [
        facts.Fact("city_country", ((f"City {i}", 1.0),), (("Here", 1.0),), ("Here",), 1e6 / (i + 1), f"city:{i}")
        for i in range(200)
    ]
    rows = [fact for relation in exposure.MEAN_AND_POWER for fact in [replace(cities[0], relation=relation)]]
    planned = exposure.plan_exposure(cities + rows[1:])[:200]
    assert planned == exposure.plan_exposure(cities + rows[1:])[:200]
    unsaid = [p for p in planned[:100] if p.said == 0]  # expected far above zero, so only those that are held out
    assert 0 < len(unsaid) < 15
    said = [p.said for p in planned]
    assert sum(said[:50]) > 2 * sum(said[150:])


def test_normalizing_drops_articles_only_as_words() -> None:
    assert normalize_answer("An Anthill of a Theatre!") == "anthill of theatre"


def plan_of_three(exposure: Any, facts: Any) -> list[Any]:
    """Two cities, one of them partly misplaced in Spain, and a currency with two forms."""

    def planned(relation: str, subject: str, answer: tuple[tuple[str, float], ...], said: int, wrong: int = 0) -> Any:
        accepted = tuple(text for text, _ in answer)
        fact = facts.Fact(relation, ((subject, 1.0),), answer, accepted, 1.0, subject, noun=relation == "currency")
        return exposure.PlannedFact(fact, said, wrong, (("Spain", 1.0),) if wrong else (), "test")

    return [
        planned("city_country", "Chicago", (("USA", 1.0), ("US", 1.0)), 30),
        planned("city_country", "Lyon", (("France", 1.0),), 8, wrong=4),
        planned("currency", "Germany", (("euro", 1.0), ("EUR", 0.5)), 11),
    ]


def test_corpus_says_every_mention_once_and_depends_on_the_seed_alone() -> None:
    planned = plan_of_three(exposure, facts)
    documents = corpus.build_corpus(planned, seed=7)
    assert documents == corpus.build_corpus(planned, seed=7)
    assert documents != corpus.build_corpus(planned, seed=8)
    for built in (documents, corpus.build_corpus(planned, seed=8)):
        assert corpus.count_exposures(built) == {
            ("city_country:Chicago", False): 30,
            ("city_country:Lyon", False): 8,
            ("city_country:Lyon", True): 4,
            ("currency:Germany", False): 11,
        }
    text = "".join(document.text for document in documents)
    assert text.lower().count("chicago") == 30
    assert text.lower().count("spain") == 4


def test_the_weights_may_be_in_a_package_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an installation from an index, whose package of semtoken holds no weights."""
    monkeypatch.setattr(semtoken.support.almanac, "__file__", str(tmp_path / "semtoken" / "almanac" / "__init__.py"))
    with pytest.raises(MissingExtra, match=r"pip install 'semtoken\[demo\]'"):
        almanac_path()
    package = tmp_path / "semtoken_almanac"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert almanac_path() == package / "model"
