"""Typed questions as texts that any server can complete: the requests, and what the lists in the replies say.

    asked = asked_texts(state, questions, options)
    for each of asked.texts: body = text.request(shape, state, ...); send it; masses = text.masses(reply)
    answers = asked.answers(masses)

Nothing here sends anything. How a request asks and what a reply says is the business of `semtoken.replies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.decisions.answers import Answer, answers_to, in_all_orders
from semtoken.decisions.best_tokens import masses_from_named_tokens, masses_from_top_tokens, tokens_to_read
from semtoken.decisions.prompts import OrderedQuestion, continued_text, in_each_order, prompt_text, without_markup
from semtoken.decisions.questions import Question, ReadingOptions
from semtoken.decisions.spellings import OptionReader, spellings_of, surfaces_of
from semtoken.errors import InvalidInputError
from semtoken.replies import Reply
from semtoken.replies.formats import ProbeQuestion, Shape
from semtoken.support.arrays import FloatArray

MOST_TOKENS = 16
"""Most tokens of an answer that a server is asked for. The probability of a longer option stays an interval."""
MOST_TEXTS = 1024
"""Most requests for the questions about one state."""
MOST_SENT = 2**26
"""Most characters of all these requests together, roughly counted."""
NOT_LISTED = "None of its options is surely among the tokens that the server lists, so nothing tells them apart."
Masses: TypeAlias = tuple[FloatArray, FloatArray]
"""Least and greatest mass of each option, in the order of the question."""
NAMED_TOKENS = "logprob_token_ids"
"""The field of vLLM in which a request names the tokens whose log-probabilities it wants in place of the best ones."""


@dataclass(frozen=True)
class AskedText:
    """The prompt of one question with its options in one order, which a server completes."""

    number: int
    """The place of the question among those that were asked."""
    shown: OrderedQuestion

    @property
    def exact(self) -> bool:
        """True if options count only as they are spelled; true for labels."""
        return self.shown.reading == "labels"

    def request(
        self,
        shape: type[Shape],
        state: str,
        *,
        top: int | None = None,
        model: str | None = None,
        extra: Mapping[str, Any] | None = None,
        reader: OptionReader | None = None,
    ) -> dict[str, Any]:
        """The body of a request, with the fields in `extra`; where `top` is None, the caller adds log-probabilities.

        With a `reader` it asks for the tokens of the options, by their ids.
        """
        text = without_markup(prompt_text(state, self.shown))
        is_predicate = self.shown.question.kind == "predicate"
        length = 1 if is_predicate else tokens_to_read(self.shown.answers, MOST_TOKENS)  # more of it cannot matter
        question = ProbeQuestion(
            text if shape.is_chat else continued_text(text),
            max_tokens=length,
            top=top if reader is None else None,
            temperature=1.0 if length == 1 else 0.0,  # 1 changes no list; further ones are read behind the likeliest
            extra=extra or {},
            model=model,
        )
        body = shape.body(question)
        if reader is None:
            return body
        ids = {} if top is None else shape.asking(body, top, token_ids=True)
        return {NAMED_TOKENS: reader.first_tokens.tolist(), **body, **ids}

    def reader(self, vocabulary: Vocabulary, tokenizer: Any) -> OptionReader | None:
        """The tokens to ask a server for that lists chosen ones by id, so that the masses of the options are exact.

        None where an option takes several tokens, or another one goes on from it: the best tokens say more of these.
        """
        try:
            spellings = spellings_of(self.shown.answers, tokenizer, vocabulary, exact=self.exact)
        except InvalidInputError:
            return None
        alone = all(any(map(option.ends_at_once, option.paths)) for option in spellings)
        return OptionReader(spellings) if alone else None

    def masses(self, reply: Reply, vocabulary: Vocabulary | None = None) -> Masses:
        """Lower and upper bound of the probability of each option, from the best tokens in the server's reply.

        With a `vocabulary`, tokens that the server names only by ids are known. `InvalidInputError` if the reply has
        no log-probabilities, `InvalidLogits` if a number is no log-probability.
        """
        steps = self._steps(reply)
        if vocabulary is not None:
            steps = [_spelled_out(step, vocabulary) for step in steps]
        return self.shown.in_question_order(masses_from_top_tokens(self.shown.answers, steps, exact=self.exact))

    def named_masses(self, reply: Reply, reader: OptionReader) -> Masses | None:
        """The same masses from a reply to a request for the tokens of the `reader`; None if they are not all listed."""
        masses = masses_from_named_tokens(reader, self._steps(reply)[0])
        return None if masses is None else self.shown.in_question_order(masses)

    def _steps(self, reply: Reply) -> list[TopStep]:
        segments = reply.choices[0].segments
        steps = [step for segment in segments for step in segment.steps]
        if not steps:
            raise InvalidInputError(segments[0].problem or "The reply holds no log-probabilities.")
        return steps


def _spelled_out(step: TopStep, vocabulary: Vocabulary) -> TopStep:
    """A step with the bytes of the tokens that its server names only by ids."""

    def spelled(token: TopToken) -> TopToken:
        if token.id is None or token.text is not None or token.bytes is not None or token.id >= vocabulary.size:
            return token
        return token._replace(bytes=vocabulary.pieces[token.id])

    return TopStep(spelled(step.chosen), tuple(map(spelled, step.top)))


@dataclass(frozen=True)
class AskedTexts:
    """All prompts for the questions about one state."""

    questions: Sequence[Question]
    texts: Sequence[AskedText]
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Why a question cannot be asked, by its number."""

    def answers(self, masses: Sequence[Masses], model: str | None = None) -> list[Answer]:
        """Answer the questions from the probabilities that were read for each prompt of a `model`, as far as known."""
        # A list that names no option for sure leaves only upper ends, and renormalizing these would look like an
        # answer.
        known = in_all_orders(zip((text.number for text in self.texts), masses, strict=True))
        unlisted = {number: NOT_LISTED for number, bounds in known.items() if not bounds.low.any()}
        answers = answers_to(self.questions, known, unlisted | dict(self.refusals))
        return [answer if answer.refusal else replace(answer, model=model) for answer in answers]


def asked_texts(state: str, questions: Sequence[Question], options: ReadingOptions) -> AskedTexts:
    """Make the prompts for questions about a state; `InvalidInputError` if they are too many or too long together."""
    texts: list[AskedText] = []
    refusals: dict[int, str] = {}
    size = 0
    for number, shown in in_each_order(questions, options):
        try:
            surfaces_of(shown.answers, exact=options.reading == "labels")
        except InvalidInputError as error:
            refusals.setdefault(number, str(error))
            continue
        texts.append(AskedText(number, shown))
        size += len(state) + len(shown.question.instructions) + sum(len(option.line) for option in shown.options)
        if len(texts) > MOST_TEXTS or size > MOST_SENT:
            raise InvalidInputError(
                f"The questions take more than {MOST_TEXTS:,} requests, or {MOST_SENT:,} characters in all of them. "
                "Ask fewer at a time, or in fewer orders."
            )
    return AskedTexts(questions, texts, refusals)
