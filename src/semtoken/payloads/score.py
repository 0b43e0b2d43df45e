"""`score_payload`: a reply of any engine -> its answers with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from semtoken.choices import Preset, SegmentKind
from semtoken.engine_tokens import check_shared_vocabulary
from semtoken.errors import BackendError, InvalidInput, SemtokenError, VocabularyMismatch
from semtoken.observers.method_scores import require_one_pass, scores_of_steps
from semtoken.payloads.reading import read_payload
from semtoken.payloads.segments import FORBIDDEN, Payload, PayloadChoice, Segment
from semtoken.results import Answers, Distribution, ScoredResponse
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.topk import new_answer, tokens_or_none
from semtoken.scoring.topk_answer import TopkAnswer
from semtoken.support.inputs import one_of, text
from semtoken.tokens.rules import ScoringRules, as_rules
from semtoken.tokens.scored_token import Flag
from semtoken.tokens.tokenizers import REPLACEMENT


def score_payload(
    reply: Any,
    vocabulary: Any = None,
    preset: Preset | ScoringRules = "default",
    *,
    format: str | None = None,
    segment: SegmentKind = "answer",
    temperature: float | None = None,
    request: Mapping[str, Any] | None = None,
    distribution: Distribution | None = None,
    proxy_for: str | None = None,
    methods: Sequence[str] = (),
    question: str = "",
) -> list[ScoredResponse]:
    """Score every choice of a reply from the log-probabilities in it.

    Parameters
    ----------
    reply
        Whatever `read_payload` reads, or what it made of it.
    vocabulary
        As in `score_top_logprobs`: None is enough for `default`, `surface` and `exact`, since spellings are read from
        the lists.
    preset
        As in `score_top_logprobs`.
    proxy_for
        As in `score_top_logprobs`; tokens of all parts of a choice tell whether the tokenizers are the same.
    methods
        Further methods of one pass, whose scores each answer gets; see `ScoredResponse.scores`.
    question
        What was asked: its words are not new in an answer.
    format, temperature, request
        As in `read_payload`.
    segment : {"answer", "reasoning", "refusal", "tool_call"}
        The part to score.
    distribution : {"raw", "processed", "unknown"}, optional
        What the log-probabilities are, if you know it better than the reply tells.

    Returns
    -------
    list of ScoredResponse
        One for each choice, in the order of their index. `uncertainty_bounds` contain the exact uncertainty.

    Raises
    ------
    InvalidInput
        The reply cannot be read, a choice has no such part, or a method reads more than the best tokens of the steps.
    BackendError
        The log-probabilities of a part are missing or do not spell it; the message says what to do.
    VocabularyMismatch
        The vocabulary is that of another tokenizer.
    """
    rules = as_rules(preset)
    scorer = scorer_for(tokens_or_none(vocabulary, rules, proxy_for), rules)
    one_of("segment", segment, get_args(SegmentKind))
    if distribution is not None:
        one_of("distribution", distribution, get_args(Distribution))
    if proxy_for is not None:
        text(proxy_for, "proxy_for")
    wanted = require_one_pass(methods)
    payload = (
        reply if isinstance(reply, Payload) else read_payload(reply, format, temperature=temperature, request=request)
    )
    known = distribution or payload.distribution
    scored = Answers()
    for choice in payload.choices:
        if choice.segment(segment) is None:
            raise InvalidInput(f"Choice {choice.index} {_lacking(choice, segment)}")
        try:
            one = score_choice(choice, scorer, known, segment=segment, proxy_for=proxy_for)
            scored.append(with_methods(one, choice, wanted, scorer, segment=segment, question=question))
        except SemtokenError as error:
            raise type(error)(f"Choice {choice.index}: {error}") from error
    return scored


def score_choice(
    choice: PayloadChoice,
    scorer: Scorer,
    distribution: Distribution,
    *,
    segment: SegmentKind = "answer",
    proxy_for: str | None = None,
    answer: TopkAnswer | None = None,
) -> ScoredResponse:
    """Score one choice of a payload.

    Parameters
    ----------
    choice, distribution, segment, proxy_for
        As in `score_payload`.
    scorer
        The scorer with the vocabulary and the rules.
    answer
        A running answer that has taken in the steps of this segment; it is finished instead of scoring them again.

    Raises
    ------
    InvalidInput, BackendError, VocabularyMismatch
        As `score_payload`.
    """
    part = _scorable(choice, segment)
    if proxy_for is not None:
        written = [step for each in choice.segments for step in each.steps]
        check_shared_vocabulary(written, scorer.vocabulary).require(proxy_for)
    if answer is None:
        answer = new_answer(scorer)
        for step in part.steps:
            answer.add(step)
    result = answer.finish(distribution, proxy_for=proxy_for, said=part.text if segment == "answer" else None)
    if segment == "answer":
        _require_same_text(result, part, scorer)
    notes = tuple(Flag("constrained" if flag == FORBIDDEN else "reply", flag) for flag in choice.flags)
    return result.with_fields(flags=(*result.flags, *notes)) if notes else result


def with_methods(
    result: ScoredResponse,
    choice: PayloadChoice,
    methods: Sequence[str],
    scorer: Scorer,
    *,
    segment: SegmentKind = "answer",
    question: str = "",
) -> ScoredResponse:
    """A scored choice with its scores by further methods; the arguments are those of `score_payload`."""
    steps = _scorable(choice, segment).steps[: result.n_tokens]
    size = None if scorer.open_ended else scorer.vocabulary.size
    return scores_of_steps(methods, result, steps, size, question)


def _scorable(choice: PayloadChoice, kind: SegmentKind) -> Segment:
    part = choice.segment(kind)
    if part is None:
        raise InvalidInput(f"The choice {_lacking(choice, kind)}")
    if part.problem is not None:
        raise BackendError(part.problem)
    if choice.broken is not None:
        raise BackendError(choice.broken)
    return part


def _lacking(choice: PayloadChoice, kind: SegmentKind) -> str:
    parts = " and ".join(segment.kind for segment in choice.segments) or "nothing"
    return f"has no {kind} to score: it holds {parts}. Name another segment."


def _require_same_text(result: ScoredResponse, part: Segment, scorer: Scorer) -> None:
    """Raise unless the tokens spell the message: ids alone fit any vocabulary that is large enough."""
    spelled, said = ("".join(text.partition(REPLACEMENT)[0].split()) for text in (result.text, part.text))
    cut = REPLACEMENT in result.text and said.startswith(spelled)
    if not spelled.startswith(said) and not cut and scorer.open_ended:
        raise BackendError(
            f"The tokens spell {result.text[:60]!r}, the message says {part.text[:60]!r}: some tokens are missing, or "
            "their names are not their texts. Name the model that answered, and send token ids."
        )
    if not spelled.startswith(said) and not cut:
        raise VocabularyMismatch(
            f"The tokens spell {result.text[:60]!r} in this vocabulary, the message says "
            f"{part.text[:60]!r}. It belongs to another model."
        )
