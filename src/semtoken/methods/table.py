"""`METHODS`: every method with what it needs, what it costs and where it comes from; `score` applies one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from semtoken.errors import InvalidInput, MissingStatistic
from semtoken.methods.claims import ccp, is_function_word_text
from semtoken.methods.frequency import conu
from semtoken.methods.graphs import deg, ecc, eigv
from semtoken.methods.likelihood import ln_entropy, perplexity, predictive_entropy, sequence_probability, stc
from semtoken.methods.prompted import p_true
from semtoken.methods.relevance import sar, sentence_sar, token_sar
from semtoken.methods.semantic import nli_labels, semantic_clusters, semantic_entropy
from semtoken.methods.states import eigenscore
from semtoken.results.generation import Generation
from semtoken.support.inputs import instance, shown

Overhead = Literal["low", "medium", "high"]
Arguments = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Method:
    """One way to give an answer an uncertainty. The last four fields are the columns of the paper's Table 1."""

    name: str
    """Key in `METHODS`; for the methods that STC is compared with, also the name of the function."""
    title: str
    """As tables print it."""
    family: str
    """What it reads: likelihood, prompted, relevance, semantic, graph, frequency, states, claims, clusters."""
    function: Callable[..., float]
    """Arrays -> uncertainty, higher is riskier."""
    needs: tuple[str, ...]
    """Fields of `Generation` that must be recorded."""
    arguments: Arguments
    """A generation that has them -> the function's arguments."""
    range: tuple[float, float]
    """Smallest and largest value."""
    reference: str
    """Where it was published."""
    semantic_aware: bool
    """Knows that different words can mean the same."""
    single_sample: bool
    """Reads the one answer, no further samples."""
    external_model_free: bool
    """Needs no model but the one that answered."""
    overhead: Overhead
    """Cost beyond the greedy generation."""


def score(name: str, generation: Generation, **options: Any) -> float:
    """Uncertainty of a recorded answer by the method of that name.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    generation : Generation
        With the fields that the method needs.
    **options
        Passed to the method's function, `temperature=3.0` for example.

    Returns
    -------
    float
        Higher is riskier; the range is the method's.

    Raises
    ------
    MissingStatistic
        A field that the method needs was not recorded.
    InvalidInput
        There is no such method, or a record cannot be used.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInput(f"There is no method {shown(name)}; there are {', '.join(METHODS)}.")
    instance(generation, Generation, "generation")
    method = METHODS[name]
    missing = [field for field in method.needs if getattr(generation, field) is None]
    if missing:
        raise MissingStatistic(
            f"{name} needs {', '.join(missing)}, which this generation does not hold. "
            "Record it first, or leave the method out."
        )
    try:
        return method.function(**method.arguments(generation), **options)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def _greedy(g: Generation) -> dict[str, Any]:
    return {"greedy_logprobs": g.log_probs}


def _samples(g: Generation) -> dict[str, Any]:
    return {"sample_logprobs": g.sample_log_probs}


def _asked(g: Any) -> dict[str, Any]:
    """The two log-probabilities and the rest of the vocabulary as a distribution over three."""
    log_true, log_false = (float(value) for value in g.p_true_log_probs)
    rest = max(1.0 - math.exp(log_true) - math.exp(log_false), 0.0)
    log_rest = math.log(rest) if rest else -math.inf
    return {"next_token_logits": [log_true, log_false, log_rest], "true_index": 0, "false_index": 1}


def _classes(g: Any) -> dict[str, Any]:
    return {
        "sample_logprobs": g.sample_log_probs,
        "cluster_ids": semantic_clusters(nli_labels(g.nli_logits), g.sample_text_index),
    }


def _graph(g: Any) -> dict[str, Any]:
    return {
        "nli_logits_unique_contra_neutral_entail": g.nli_logits,
        "unique_text_index_per_sample": g.sample_text_index,
    }


def _alternatives(g: Any) -> dict[str, Any]:
    return {
        "alternative_logprobs_chosen_first": g.top_log_probs,
        "nli_chosen_to_alternative": g.nli_chosen_to_alternative,
        "nli_alternative_to_chosen": g.nli_alternative_to_chosen,
        "is_function_word": np.array([is_function_word_text(text) for text in g.token_texts]),
    }


_STC_PAPER = "Cao et al., EACL 2026, arXiv:2603.20161"
_LIN = "Lin et al., TMLR 2024, arXiv:2305.19187"
_DUAN = "Duan et al., ACL 2024, arXiv:2307.01379"
_MALININ = "Malinin and Gales, ICLR 2021, arXiv:2002.07650"
_INF = math.inf

_ALL = (
    Method(
        name="stc",
        title="STC",
        family="clusters",
        function=stc,
        needs=("stc_log_score",),
        arguments=lambda g: {"log_score": g.stc_log_score},
        range=(0.0, 1.0),
        reference=_STC_PAPER,
        semantic_aware=True,
        single_sample=True,
        external_model_free=True,
        overhead="low",
    ),
    Method(
        name="stc_no_clustering",
        title="STC without clustering",
        family="clusters",
        function=stc,
        needs=("stc_no_clustering_log_score",),
        arguments=lambda g: {"log_score": g.stc_no_clustering_log_score},
        range=(0.0, 1.0),
        reference=_STC_PAPER,
        semantic_aware=False,
        single_sample=True,
        external_model_free=True,
        overhead="low",
    ),
    Method(
        name="stc_no_prefix",
        title="STC without prefix matching",
        family="clusters",
        function=stc,
        needs=("stc_no_prefix_log_score",),
        arguments=lambda g: {"log_score": g.stc_no_prefix_log_score},
        range=(0.0, 1.0),
        reference=_STC_PAPER,
        semantic_aware=True,
        single_sample=True,
        external_model_free=True,
        overhead="low",
    ),
    Method(
        name="sequence_probability",
        title="Sequence probability",
        family="likelihood",
        function=sequence_probability,
        needs=("log_probs",),
        arguments=_greedy,
        range=(0.0, 1.0),
        reference=_STC_PAPER,
        semantic_aware=False,
        single_sample=True,
        external_model_free=True,
        overhead="low",
    ),
    Method(
        name="perplexity",
        title="Perplexity",
        family="likelihood",
        function=perplexity,
        needs=("log_probs",),
        arguments=_greedy,
        range=(0.0, _INF),
        reference="Fomicheva et al., TACL 2020, arXiv:2005.10608",
        semantic_aware=False,
        single_sample=True,
        external_model_free=True,
        overhead="low",
    ),
    Method(
        name="p_true",
        title="P(True)",
        family="prompted",
        function=p_true,
        needs=("p_true_log_probs",),
        arguments=_asked,
        range=(0.0, _INF),
        reference="Kadavath et al., 2022, arXiv:2207.05221",
        semantic_aware=False,
        single_sample=True,
        external_model_free=True,
        overhead="medium",
    ),
    Method(
        name="predictive_entropy",
        title="Predictive entropy",
        family="likelihood",
        function=predictive_entropy,
        needs=("sample_log_probs",),
        arguments=_samples,
        range=(0.0, _INF),
        reference=_MALININ,
        semantic_aware=False,
        single_sample=False,
        external_model_free=True,
        overhead="high",
    ),
    Method(
        name="ln_entropy",
        title="LN entropy",
        family="likelihood",
        function=ln_entropy,
        needs=("sample_log_probs",),
        arguments=_samples,
        range=(0.0, _INF),
        reference=_MALININ,
        semantic_aware=False,
        single_sample=False,
        external_model_free=True,
        overhead="high",
    ),
    Method(
        name="token_sar",
        title="TokenSAR",
        family="relevance",
        function=token_sar,
        needs=("log_probs", "token_similarity"),
        arguments=lambda g: _greedy(g) | {"similarity_to_full_without_token": g.token_similarity},
        range=(0.0, _INF),
        reference=_DUAN,
        semantic_aware=True,
        single_sample=True,
        external_model_free=False,
        overhead="medium",
    ),
    Method(
        name="sentence_sar",
        title="SentenceSAR",
        family="relevance",
        function=sentence_sar,
        needs=("sample_log_probs", "similarity"),
        arguments=lambda g: _samples(g) | {"similarity": g.similarity},
        range=(-_INF, _INF),
        reference=_DUAN,
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="sar",
        title="SAR",
        family="relevance",
        function=sar,
        needs=("sample_log_probs", "similarity", "sample_token_similarity"),
        arguments=lambda g: _samples(g) | {"similarity": g.similarity, "token_similarity": g.sample_token_similarity},
        range=(-_INF, _INF),
        reference=_DUAN,
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="semantic_entropy",
        title="Semantic entropy",
        family="semantic",
        function=semantic_entropy,
        needs=("sample_texts", "sample_log_probs", "nli_logits"),
        arguments=_classes,
        range=(0.0, _INF),
        reference="Kuhn et al., ICLR 2023, arXiv:2302.09664; Farquhar et al., Nature 2024",
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="ecc",
        title="Ecc",
        family="graph",
        function=ecc,
        needs=("sample_texts", "nli_logits"),
        arguments=_graph,
        range=(0.0, _INF),
        reference=_LIN,
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="eigv",
        title="EigV",
        family="graph",
        function=eigv,
        needs=("sample_texts", "nli_logits"),
        arguments=_graph,
        range=(1.0, _INF),
        reference=_LIN,
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="deg",
        title="Deg",
        family="graph",
        function=deg,
        needs=("sample_texts", "nli_logits"),
        arguments=_graph,
        range=(0.0, 1.0),
        reference=_LIN,
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="conu",
        title="ConU",
        family="frequency",
        function=conu,
        needs=("similarity",),
        arguments=lambda g: {"similarity": g.similarity},
        range=(0.0, 1.0),
        reference="Wang et al., Findings of EMNLP 2024, arXiv:2407.00499",
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),
    Method(
        name="eigenscore",
        title="EigenScore",
        family="states",
        function=eigenscore,
        needs=("hidden_states",),
        arguments=lambda g: {"embeddings": g.hidden_states},
        range=(-3.0, _INF),
        reference="Chen et al., ICLR 2024, arXiv:2402.03744",
        semantic_aware=True,
        single_sample=False,
        external_model_free=True,
        overhead="high",
    ),
    Method(
        name="ccp",
        title="CCP",
        family="claims",
        function=ccp,
        needs=("token_texts", "top_log_probs", "nli_chosen_to_alternative", "nli_alternative_to_chosen"),
        arguments=_alternatives,
        range=(-1.0, 0.0),
        reference="Fadeeva et al., Findings of ACL 2024, arXiv:2403.04696",
        semantic_aware=True,
        single_sample=True,
        external_model_free=False,
        overhead="high",
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _ALL})
"""Every method by name: STC with its ablations, then the methods it is compared with."""
