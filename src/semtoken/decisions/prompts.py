"""The prompts that ask typed questions: options in each of their orders, prompts as texts and as token ids.

The prompt of the reading `labels` is word for word that of transformers' decision models (`DECISION_PROMPT`), so that
probabilities can be compared. Text of users never becomes a control token of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import numpy as np

from semtoken.choices import Reading
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.decisions.questions import Option, Question, ReadingOptions
from semtoken.errors import InvalidInputError
from semtoken.support.arrays import FloatArray

LETTERS = tuple(ascii_uppercase)


@dataclass(frozen=True)
class OrderedQuestion:
    """A question with its options in the order in which the model sees them."""

    question: Question
    order: tuple[int, ...]
    """The options' places in the question, in the order in which they are shown."""
    reading: Reading

    @property
    def options(self) -> tuple[Option, ...]:
        """The options in this order."""
        return tuple(self.question.options[place] for place in self.order)

    @property
    def spelled_out(self) -> bool:
        """True if the model answers with an option's own words, as always for a predicate, and not with a label."""
        return self.reading == "words" or self.question.kind == "predicate"

    @property
    def answers(self) -> tuple[str, ...]:
        """The text with which the model chooses each option, in this order."""
        if self.spelled_out:
            return tuple(option.name for option in self.options)
        return labels(len(self.order))

    def in_question_order(self, masses: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Least and greatest masses of the options as they are shown, [n] each, in the order of the question."""
        # The inverse permutation: from the places in the prompt to those in the question.
        back = np.argsort(self.order)
        return masses[0][back], masses[1][back]


def in_each_order(questions: Sequence[Question], options: ReadingOptions) -> Iterator[tuple[int, OrderedQuestion]]:
    """The questions as they are shown, each in all of its orders, with their numbers."""
    for number, question in enumerate(questions):
        for order in orders_of(question, options.orders):
            yield number, OrderedQuestion(question, order, options.reading)


def labels(n: int) -> tuple[str, ...]:
    """Letters for up to 26 options, numbers for more."""
    return LETTERS[:n] if n <= len(LETTERS) else tuple(str(i + 1) for i in range(n))


def orders_of(question: Question, wanted: int | None) -> tuple[tuple[int, ...], ...]:
    """The orders in which a question's options are shown: evenly spread rotations; None means all of them.

    Options of a predicate have two orders. Levels of a score have a direction, so their other order is the reverse.

    >>> from semtoken.decisions import Choice
    >>> orders_of(Choice("Which?", ["a", "b", "c", "d"]), 2)
    ((0, 1, 2, 3), (2, 3, 0, 1))
    """
    n = len(question.options)
    places = tuple(range(n))
    if question.kind == "score":
        # A rotation would put the highest level before the lowest one, and no scale reads like that.
        orders = [places, places[::-1]] if n > 1 else [places]
        return tuple(orders[: wanted or len(orders)])
    count = n if wanted is None else min(wanted, n)
    # Evenly spread, so that every option stands near the beginning in one of a few orders.
    starts = [i * n // count for i in range(count)]
    return tuple(places[start:] + places[:start] for start in starts)


def prompt_text(state: str, shown: OrderedQuestion) -> str:
    """State and question as one text.

    >>> from semtoken.decisions import Predicate
    >>> print(prompt_text("My parcel is late.", OrderedQuestion(Predicate("Is it a complaint?"), (0, 1), "labels")))
    My parcel is late.
    <BLANKLINE>
    Is it a complaint?
    Answer Yes or No only.
    """
    lines = [shown.question.instructions, *_option_lines(shown)]
    # The state comes first, so that all questions about it share their beginning and the model reads that once.
    return f"{state}\n\n" + "\n".join(line for line in lines if line) + f"\n{_last_line(shown)}"


def _option_lines(shown: OrderedQuestion) -> list[str]:
    if shown.question.kind == "predicate":
        return [option.line for option in shown.options if option.description]
    if shown.spelled_out:
        return [f"- {option.line}" for option in shown.options]
    return [f"{label}. {option.line}" for label, option in zip(shown.answers, shown.options, strict=True)]


def _last_line(shown: OrderedQuestion) -> str:
    kind, answers = shown.question.kind, shown.answers
    what = "level" if kind == "score" else "option"
    if kind == "predicate":
        return f"Answer {answers[0]} or {answers[1]} only."
    if shown.spelled_out:
        return f"Answer with the {what} that fits best, word for word, and nothing else."
    sign = "letter" if answers[-1] in LETTERS else "label"
    return f"Answer with the {sign} of the {what} that fits best ({answers[0]} to {answers[-1]}) only."


def continued_text(text: str) -> str:
    """The prompt for a model without a chat template, which continues the text."""
    # Without the blank at the end: words begin with their own in most vocabularies.
    return f"{text}\nAnswer: ".rstrip()


def without_markup(text: str) -> str:
    """A text with a blank inside everything that a server might read as a control token.

    >>> without_markup("<|im_end|> [INST] a<b")
    '< |im_end|> [ INST] a<b'
    """
    return MARKUP.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def prompt_tokens(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text as the user's message in the chat template; control tokens in it stay plain text.

    Without a template the model continues the text after "Answer:". `InvalidInputError` if the template fails, or the
    text holds a control token and the tokenizer cannot tell it from text.
    """
    if not getattr(tokenizer, "chat_template", None):
        return plain_tokens(tokenizer, continued_text(text))
    # A model that thinks first would not give its answer with the next token.
    messages, options = [{"role": "user", "content": text}], {"add_generation_prompt": True, "enable_thinking": False}
    try:
        # Newer tokenizers keep control tokens of a user's text as plain text by themselves.
        if hasattr(tokenizer, "_get_control_tokens"):
            ids = tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=True, sanitize_control_tokens=True, **options
            )["input_ids"]
            return [int(token) for token in ids]
        _refuse_control_tokens(tokenizer, text)
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return [int(token) for token in tokenizer(rendered, add_special_tokens=False)["input_ids"]]
    except InvalidInputError:
        raise
    except Exception as error:  # templates are programs of the model's authors and raise what they like
        raise InvalidInputError(f"The chat template rejects the question: {error}") from error


def plain_tokens(tokenizer: Any, text: str) -> list[int]:
    """The token ids of a text with control tokens read as plain text, so that users cannot insert them.

    `InvalidInputError` if the tokenizer cannot do that and the text holds one.
    """
    if hasattr(tokenizer, "backend_tokenizer"):
        return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    _refuse_control_tokens(tokenizer, text)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _refuse_control_tokens(tokenizer: Any, text: str) -> None:
    tokens: Sequence[str] = getattr(tokenizer, "all_special_tokens", ())
    if control_tokens := [token for token in tokens if token and token in text]:
        raise InvalidInputError(
            f"A text of the request holds {control_tokens[0]!r}, which is a control token of this model."
        )
