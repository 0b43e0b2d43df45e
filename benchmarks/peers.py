"""Agreement with LM-Polygraph and UQLM on the same generations.

The peers want versions of their own, so they get an environment of their own (2.3 GB, some minutes):

    python -m venv peers
    peers/bin/pip install --upgrade pip
    peers/bin/pip install torch==2.13.0
    peers/bin/pip install lm-polygraph==0.7.0 torch==2.13.0 transformers==5.23.0 'httpx>=0.27'
    peers/bin/pip install --no-deps uqlm==0.6.7
    peers/bin/pip install langchain langchain-model-profiles 'optuna<5' ipywidgets
    PYTHONPATH=src peers/bin/python benchmarks/peers.py

semtoken answers some questions with a small random model and records everything. The peers' own code then reads these
very answers: its statistics (NLI matrices, similarities, alternatives, P(True)) come from the same helper models, its
estimators from its own statistics. Three columns say how far semtoken is away:

arithmetic   largest gap of our function on the peer's statistics, with the option that names its choices
pipeline     the same on our own statistics, for the answers to which no deliberate difference applies
defaults     rank correlation of what `score` gives, our statistics and our choices

Random models are enough here and even better than good ones: they disagree with themselves, so that every class and
every direction occurs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaConfig,
    DebertaForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

import semtoken as st
from semtoken import methods
from semtoken.bench.statistics import AnswerSettings, EntailmentModel, record
from semtoken.bench.statistics.pairs import with_question
from semtoken.core.results.generation import Generation
from semtoken.models.probing import p_true_prompt

QUESTIONS = [
    f"{start} {thing} ?"
    for start in ("Who made the", "Where is the", "What is a", "Is it True that the", "When was the")
    for thing in ("river", "old town", "first radio", "red bird", "moon", "king of France", "paper", "long road")
]
LABELS = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
Rows = list[tuple[str, str, float, float, float, str]]
NONE = float("nan")


def tokenizer(*, closing: bool = False) -> Any:
    """A byte-level tokenizer that knows "True" and " True" as one token each; `closing`: texts end in a token."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<end>", "<pad>"],
        show_progress=False,
    )
    bpe.train_from_iterator([*QUESTIONS, "(A) True\n(B) False\nTrue False True False " * 20], trainer)
    if closing:
        bpe.post_processor = processors.TemplateProcessing(
            single="$A <end>", pair="$A <end> $B <end>", special_tokens=[("<end>", bpe.token_to_id("<end>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<end>",
        pad_token="<pad>",
        padding_side="right" if closing else "left",
        model_max_length=256,
    )


def answering_model(size: int) -> Any:
    """A random Llama that is fairly sure of itself, so that samples repeat, and that ends its answers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=24,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.8,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
    )
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).eval()
    bias = torch.zeros(size)
    bias[0] = 5.0
    model.lm_head.bias = torch.nn.Parameter(bias)
    return model


def save_helpers(folder: Path, words: Any) -> tuple[str, str]:
    """Random NLI and similarity models; LM-Polygraph asks for a DeBERTa."""
    sizes = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
        "initializer_range": 0.5,
        "pad_token_id": words.pad_token_id,
    }
    torch.manual_seed(1)
    label2id = {name: column for column, name in LABELS.items()}
    nli = DebertaForSequenceClassification(
        DebertaConfig(
            **sizes,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            type_vocab_size=0,
            id2label=LABELS,
            label2id=label2id,
        )
    )
    sts = BertForSequenceClassification(BertConfig(**sizes, id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0}))
    for name, model in (("nli", nli), ("sts", sts)):
        model.eval().save_pretrained(folder / name)
        words.save_pretrained(folder / name)
    return str(folder / "nli"), str(folder / "sts")


def polygraph_statistics(stc: Any, generations: Sequence[Generation], nli: str, sts: str) -> dict[str, Any]:
    """LM-Polygraph's statistics of our answers, by its own calculators."""
    from lm_polygraph import WhiteboxModel
    from lm_polygraph.stat_calculators.cross_encoder_similarity import CrossEncoderSimilarityMatrixCalculator
    from lm_polygraph.stat_calculators.greedy_alternatives_nli import GreedyAlternativesNLICalculator
    from lm_polygraph.stat_calculators.prompt import PromptCalculator
    from lm_polygraph.stat_calculators.semantic_classes import SemanticClassesCalculator
    from lm_polygraph.stat_calculators.semantic_matrix import SemanticMatrixCalculator
    from lm_polygraph.utils.deberta import MultilingualDeberta
    from lm_polygraph.utils.generation_parameters import GenerationParameters

    model = WhiteboxModel(
        stc.model, stc.tokenizer, model_path="", generation_parameters=GenerationParameters(do_sample=False)
    )
    deberta = MultilingualDeberta(nli, batch_size=8, device="cpu")
    deberta.deberta.eval()
    texts = [g.question for g in generations]
    found: dict[str, Any] = {
        "input_texts": texts,
        "greedy_texts": [g.text.strip() for g in generations],
        "greedy_tokens": [list(g.token_ids) for g in generations],
        "greedy_log_likelihoods": [g.log_probs.tolist() for g in generations],
        "greedy_tokens_alternatives": [
            [
                list(zip(ids.tolist(), values.tolist(), strict=True))
                for ids, values in zip(g.top_ids, g.top_log_probs, strict=True)
            ]
            for g in generations
        ],
        "sample_texts": [[with_question(g.question, text) for text in g.sample_texts] for g in generations],
        "sample_tokens": [[list(ids) for ids in g.sample_token_ids] for g in generations],
        "sample_log_likelihoods": [[row.tolist() for row in g.sample_log_probs] for g in generations],
        "sample_log_probs": [[float(row.sum()) for row in g.sample_log_probs] for g in generations],
    }
    for calculator in (
        SemanticMatrixCalculator(deberta),
        SemanticClassesCalculator(),
        CrossEncoderSimilarityMatrixCalculator(batch_size=8, cross_encoder_name=sts),
        GreedyAlternativesNLICalculator(deberta),
        PromptCalculator(),
    ):
        found |= calculator(found, texts, model)
    return found


def compare_polygraph(stc: Any, generations: Sequence[Generation], peer: dict[str, Any]) -> Rows:
    """Every method that both have."""
    from lm_polygraph import estimators as theirs

    on_theirs, on_ours = polygraph_arithmetic(peer), polygraph_pipeline(stc, generations)
    rows: Rows = []
    for name, estimator, note in (
        ("perplexity", theirs.Perplexity(), ""),
        ("predictive_entropy", theirs.MonteCarloSequenceEntropy(), ""),
        ("ln_entropy", theirs.MonteCarloNormalizedSequenceEntropy(), "given the terminator among the tokens"),
        ("semantic_entropy", theirs.SemanticEntropy(), "equal samples share a class here; default: normalised mass"),
        ("eigv", theirs.EigValLaplacian(), "equal texts have affinity 1 here"),
        ("deg", theirs.DegMat(), "the same"),
        ("ecc", theirs.Eccentricity(), "the same"),
        ("token_sar", theirs.TokenSAR(), "texts are stripped here"),
        ("sentence_sar", theirs.SentenceSAR(), "mean of both directions here"),
        ("sar", theirs.SAR(), "the same"),
        ("ccp", theirs.ClaimConditionedProbability(), "equal texts entail here; default: stop words skipped"),
        ("p_true", theirs.PTrue(), "pipeline: end of sequence taken out, as there"),
    ):
        values = np.asarray(estimator(peer), dtype=float)
        same = np.array([on_theirs[name](i, g) for i, g in enumerate(generations)])
        own = np.array([on_ours[name](i, g) for i, g in enumerate(generations)])
        there = ~np.isnan(own)
        defaults = np.array([methods.score(name, g) for g in generations])
        note = f"{note} ({there.sum()} answers)" if 0 < there.sum() < len(own) else note
        title = f"LM-Polygraph {type(estimator).__name__}"
        rows.append((title, name, gap(values, same), gap(values[there], own[there]), rank(values, defaults), note))
    return rows


Value = Callable[[int, Generation], float]


def polygraph_arithmetic(peer: dict[str, Any]) -> dict[str, Value]:
    """Our functions on LM-Polygraph's statistics."""
    entail, alike = np.clip(peer["semantic_matrix_entail"], 0, 1), peer["sample_sentence_similarity"]
    tokens, sample_tokens = peer["token_similarity"], peer["sample_token_similarity"]

    def classes(i: int) -> list[int]:
        of_sample = peer["semantic_classes_entail"]["sample_to_class"][i]
        return [of_sample[m] for m in range(len(of_sample))]

    def nli_classes(i: int) -> tuple[list[list[str]], list[list[str]]]:
        steps = peer["greedy_tokens_alternatives_nli"][i]
        return [step[0] for step in steps], [[line[0] for line in step] for step in steps]

    return {
        "perplexity": lambda i, g: methods.perplexity(g.log_probs),
        "predictive_entropy": lambda i, g: methods.predictive_entropy(g.sample_log_probs),
        "ln_entropy": lambda i, g: methods.ln_entropy(g.sample_log_probs),
        "semantic_entropy": lambda i, g: methods.semantic_entropy(
            g.sample_log_probs, classes(i), variant="lm_polygraph_monte_carlo"
        ),
        "eigv": lambda i, g: methods.eigv(entail[i]),
        "deg": lambda i, g: methods.deg(entail[i]),
        "ecc": lambda i, g: methods.ecc(entail[i]),
        "token_sar": lambda i, g: methods.token_sar(g.log_probs, tokens[i]),
        "sentence_sar": lambda i, g: methods.sentence_sar(g.sample_log_probs, alike[i], symmetric=False),
        "sar": lambda i, g: methods.sar(g.sample_log_probs, alike[i], sample_tokens[i], symmetric=False),
        "ccp": lambda i, g: methods.ccp(g.top_log_probs, *nli_classes(i)),
        "p_true": lambda i, g: methods.p_true([peer["p_true"][i], np.log1p(-np.exp(peer["p_true"][i]))], 0),
    }


def polygraph_pipeline(stc: Any, generations: Sequence[Generation]) -> dict[str, Value]:
    """Our functions on our statistics with LM-Polygraph's options; NaN where a deliberate difference applies."""
    word = stc.tokenizer("True")["input_ids"]
    prompts = [stc.tokenizer(p_true_prompt(g.question, g.text))["input_ids"] for g in generations]
    asked = stc.backend.next_log_probs(prompts, [word, [stc.tokenizer.eos_token_id]])

    def semantic_entropy(i: int, g: Generation) -> float:
        if len(set(g.sample_text_index)) < len(g.sample_texts):
            return NONE
        ids = methods.semantic_clusters(methods.nli_labels(g.nli_logits))
        return methods.semantic_entropy(g.sample_log_probs, ids, variant="lm_polygraph_monte_carlo")

    def token_sar(i: int, g: Generation) -> float:
        return NONE if loses_blanks(g) else methods.token_sar(g.log_probs, g.token_similarity)

    def ccp(i: int, g: Generation) -> float:
        stripped = [[methods.token_text(text) for text in texts] for texts in g.top_texts]
        if any(texts[0] in texts[1:] for texts in stripped):
            return NONE
        return methods.ccp(g.top_log_probs, g.nli_chosen_to_alternative, g.nli_alternative_to_chosen)

    def never(i: int, g: Generation) -> float:
        return NONE

    return {
        "perplexity": lambda i, g: methods.score("perplexity", g),
        "predictive_entropy": lambda i, g: methods.score("predictive_entropy", g),
        "ln_entropy": lambda i, g: methods.score("ln_entropy", g),
        "semantic_entropy": semantic_entropy,
        "token_sar": token_sar,
        "ccp": ccp,
        "p_true": lambda i, g: float(np.log1p(-np.exp(asked[i, 1])) - asked[i, 0]),
        **dict.fromkeys(("eigv", "deg", "ecc", "sentence_sar", "sar"), never),
    }


def loses_blanks(g: Generation) -> bool:
    """Whether stripping changes the text with some token left out: a blank at its edge, or nothing left of it."""
    words = [text for text in g.token_texts if text]
    return len(words) == 1 or any(text != text.strip() for text in words)


def compare_statistics(generations: Sequence[Generation], peer: dict[str, Any]) -> Rows:
    """What both recorded of the same texts."""
    different = [np.array([[a != b for b in row] for a in row]) for row in peer["sample_texts"]]
    entail = gap_over(
        (theirs[where], softmax(g.nli_logits)[..., 2][where])
        for theirs, g, where in zip(peer["semantic_matrix_entail"], generations, different, strict=True)
    )
    alike = gap_over(
        (0.5 * (theirs + theirs.T)[where], g.similarity[where])
        for theirs, g, where in zip(peer["sample_sentence_similarity"], generations, different, strict=True)
    )
    clean = [i for i, g in enumerate(generations) if not loses_blanks(g)]
    tokens = gap_over((peer["token_similarity"][i], generations[i].token_similarity) for i in clean)
    return [
        ("LM-Polygraph semantic_matrix_entail", "nli_logits", NONE, entail, NONE, "pairs of different texts"),
        ("LM-Polygraph sample_sentence_similarity", "similarity", NONE, alike, NONE, "mean of both directions"),
        (
            "LM-Polygraph token_similarity",
            "token_similarity",
            NONE,
            tokens,
            NONE,
            f"texts are stripped here ({len(clean)} answers)",
        ),
    ]


def compare_uqlm(generations: Sequence[Generation], nli: str) -> Rows:
    """UQLM's semantic entropy and sequence probability; its scores are confidences of the answer among its samples."""
    import asyncio

    from uqlm import SemanticEntropy, WhiteBoxUQ

    def tokens(texts: Sequence[str], log_probs: Any) -> list[dict[str, Any]]:
        return [{"token": t, "logprob": float(p), "top_logprobs": []} for t, p in zip(texts, log_probs, strict=True)]

    answers = [tokens(g.token_texts, g.log_probs) for g in generations]
    samples = [[tokens(["x"] * len(row), row) for row in g.sample_log_probs] for g in generations]
    white = asyncio.run(
        WhiteBoxUQ(scorers=["sequence_probability"]).score(logprobs_results=answers, show_progress_bars=False)
    ).to_dict()["data"]
    perplexity = np.array([methods.perplexity(g.log_probs) for g in generations])
    sequence = np.asarray(white["sequence_probability"], dtype=float)
    rows: Rows = [
        (
            "UQLM sequence_probability",
            "perplexity",
            gap(sequence, np.exp(-perplexity)),
            NONE,
            rank(-sequence, perplexity),
            "exp(-U)",
        )
    ]
    texts = [[g.text.strip(), *(text.strip() for text in g.sample_texts)] for g in generations]
    scored = (
        SemanticEntropy(nli_model_name=nli, device="cpu")
        .score(
            prompts=[g.question for g in generations],
            responses=[row[0] for row in texts],
            sampled_responses=[row[1:] for row in texts],
            logprobs_results=answers,
            sampled_logprobs_results=samples,
            show_progress_bars=False,
        )
        .to_dict()["data"]
    )
    classifier = EntailmentModel.from_pretrained(nli)
    discrete, weighted, simple = [], [], []
    for i, (g, row) in enumerate(zip(generations, texts, strict=True)):
        ids = uqlm_classes(classifier, g.question, row)
        if ids is None or max(ids) + 1 != scored["num_semantic_sets"][i]:
            continue
        simple.append(i)
        discrete.append(methods.semantic_entropy(cluster_ids=ids, variant="discrete"))
        weighted.append(methods.semantic_entropy([g.log_probs, *g.sample_log_probs], ids))
    defaults = np.array([methods.score("semantic_entropy", g) for g in generations])
    for key, mine in (("discrete_entropy_values", discrete), ("tokenprob_entropy_values", weighted)):
        values = np.asarray(scored[key], dtype=float)
        note = f"{len(simple)} answers; in the others a sample is in two classes, which UQLM counts twice"
        own = gap(values[simple], np.array(mine))
        rows.append((f"UQLM {key}", "semantic_entropy", NONE, own, rank(values, defaults), note))
    return rows


def uqlm_classes(classifier: EntailmentModel, question: str, texts: Sequence[str]) -> list[int] | None:
    """UQLM's classes: either direction, first members, prompt and line break before both; None if not disjoint."""
    full = [f"{question}\n{text}" for text in texts]
    labels = classifier.logits([(a, b) for a in full for b in full]).argmax(-1).reshape(len(full), len(full))
    either = (labels == 2) | (labels.T == 2)
    firsts: list[int] = []
    ids: list[int] = []
    for i in range(len(full)):
        found = [c for c, first in enumerate(firsts) if either[first, i]]
        if len(found) > 1:
            return None
        if not found:
            firsts.append(i)
        ids.append(found[0] if found else len(firsts) - 1)
    return ids


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis; rows of -inf but one are legal."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference, relative where the values are large."""
    return float(np.max(np.abs(a - b) / np.maximum(1.0, np.abs(a)))) if len(a) else float("nan")


def gap_over(pairs: Any) -> float:
    """Largest `gap` of several pairs of arrays."""
    return max(
        (gap(np.asarray(a, dtype=float), np.asarray(b, dtype=float)) for a, b in pairs if len(a)), default=float("nan")
    )


def rank(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation."""
    return float(spearmanr(a, b).statistic)


def main() -> None:
    """Record once, let each library compute, print the table."""
    words = tokenizer()
    model = answering_model(len(words))
    vocabulary = st.Vocabulary.from_tokenizer(words)
    stc = st.ScoredModel(model, words, st.TokenClusters(np.arange(vocabulary.size) % 50, vocabulary))
    with tempfile.TemporaryDirectory() as folder:
        nli, sts = save_helpers(Path(folder), tokenizer(closing=True))
        decoding = AnswerSettings(max_new_tokens=8, n_samples=5)
        generations = record(stc, QUESTIONS, nli=nli, similarity=sts, decoding=decoding)
        peer = polygraph_statistics(stc, generations, nli, sts)
        rows = compare_polygraph(stc, generations, peer) + compare_statistics(generations, peer)
        rows += compare_uqlm(generations, nli)
    repeated = sum(len(set(g.sample_texts)) < len(g.sample_texts) for g in generations)
    print(f"{len(generations)} questions, {repeated} with repeated samples\n")
    print("| peer | semtoken | arithmetic | pipeline | defaults | |\n| --- | --- | ---: | ---: | ---: | --- |")
    for name, ours, same, own, ranks, note in rows:
        print(f"| {name} | {ours} | {cell(same, '.1e')} | {cell(own, '.1e')} | {cell(ranks, '.3f')} | {note} |")


def cell(value: float, form: str) -> str:
    """Empty where there is nothing to compare."""
    return "" if np.isnan(value) else format(value, form)


if __name__ == "__main__":
    main()
