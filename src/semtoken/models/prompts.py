"""From a bare question to what a model is given: the paper's prompts, the almanac's, chats, users' templates."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from semtoken.errors import InvalidInputError
from semtoken.support.almanac import ALMANAC
from semtoken.support.almanac import PROMPT as ALMANAC_TEMPLATE
from semtoken.support.files.safe_files import MOST_SETTINGS, read_bounded

BLANK = "{question}"

_NQ_EXAMPLES = (
    ("who makes up the state council in russia", "governors and presidents"),
    ("when does real time with bill maher come back", "November 9, 2018"),
    ("where did the phrase american dream come from", "the mystique regarding frontier life"),
    ("what do you call a group of eels", "bed"),
    ("who wrote the score for mission impossible fallout", "Lorne Balfe"),
)
_TQA_EXAMPLES = (("In Scotland a bothy/bothie is a?", "House"),)
_WQ_EXAMPLES = (("where was the ancient region of mesopotamia?", "Middle East"),)


@dataclass(frozen=True)
class PromptFormat:
    """The form in which bare questions of a data set become prompts; `InvalidInputError` if the template has no place
    for the question.
    """

    template: str
    """Text with `{question}`, which may stand in it more than once. Other braces are left alone."""
    chat: bool = False
    """True if the text is one message of a user, for the chat template of the tokenizer."""
    stop_at_newline: bool = True
    """True if an answer ends at its first newline, since the template asks for one line."""
    normalization: Literal["NFKD"] | None = "NFKD"
    """Unicode form of the whole prompt, as in the paper. None: as it is."""

    def __post_init__(self) -> None:
        if BLANK not in self.template:
            raise InvalidInputError(f"The prompt template holds no {BLANK}: {self.template!r}.")

    def prompt(self, question: str) -> str | list[Mapping[str, str]]:
        """The prompt for a question: a text, or messages for a chat template."""
        text = self.template.replace(BLANK, question)
        if self.normalization is not None:
            text = unicodedata.normalize(self.normalization, text)
        return [{"role": "user", "content": text}] if self.chat else text


def _few_shot(examples: tuple[tuple[str, str], ...]) -> str:
    """The paper's form: a heading, solved questions, and the one to answer."""
    solved = "".join(f"Question:\n{question}\nAnswer:\n{answer}\n\n" for question, answer in examples)
    return f"Answer these questions:\n\n{solved}Question:\n{BLANK}\nAnswer:\n"


PROMPTS: Mapping[str, PromptFormat] = {
    "nq": PromptFormat(_few_shot(_NQ_EXAMPLES)),
    "tqa": PromptFormat(_few_shot(_TQA_EXAMPLES)),
    "wq": PromptFormat(_few_shot(_WQ_EXAMPLES)),
    "almanac": PromptFormat(ALMANAC_TEMPLATE),
    "chat": PromptFormat(f"Answer with the name, date or phrase alone.\n\n{BLANK}", chat=True, stop_at_newline=False),
}
"""The built-in formats. The first three are the paper's, character for character; "chat" is for tuned models."""

BARE = PromptFormat(BLANK, stop_at_newline=False, normalization=None)
"""The question as it stands."""


def how_to_ask(model: str, tokenizer: Any, *, raw: bool) -> PromptFormat:
    """The prompt format of a model: the almanac's own, a message for the model's chat template if it has one, or else
    the paper's for TriviaQA. With `raw` it is the bare question.
    """
    if raw:
        return BARE
    if model == ALMANAC:
        return replace(PROMPTS["almanac"], normalization=None)
    if getattr(tokenizer, "chat_template", None):
        return replace(BARE, chat=True)
    return replace(PROMPTS["tqa"], normalization=None)


def about_images(question: str, images: Sequence[Path]) -> list[Mapping[str, Any]]:
    """The message of a user who shows images and asks a question about them."""
    seen = [{"type": "image", "path": str(path)} for path in images]
    return [{"role": "user", "content": [*seen, {"type": "text", "text": question}]}]


def prompt_format(source: str | Path, *, chat: bool = False, stop_at_newline: bool = True) -> PromptFormat:
    """A prompt format by its name in `PROMPTS` (the other arguments then say nothing), or the user's own format.

    The user's is a text with `{question}`, or a file that holds one, which is taken character for character, its last
    newline included. `InvalidInputError` if the source is neither a name, a template nor a file that can be read.
    """
    if source in PROMPTS:
        return PROMPTS[str(source)]
    if isinstance(source, str) and BLANK in source:
        return PromptFormat(source, chat=chat, stop_at_newline=stop_at_newline)
    try:
        template = read_bounded(Path(source), MOST_SETTINGS).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"The prompt {str(source)!r} is none of {', '.join(PROMPTS)}, holds no {BLANK}, and is no file of "
            "text that can be read."
        ) from error
    return PromptFormat(template.replace("\r\n", "\n"), chat=chat, stop_at_newline=stop_at_newline)


def template_of(asking: PromptFormat) -> str | None:
    """The text that is put around a question; None where the model's chat template is used."""
    return None if asking.chat else asking.template
