"""`semtoken demo --model smollm2`: a real model answers a few questions, some right and some wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from semtoken.cli.console import waiting
from semtoken.support.extras import installed_first
from semtoken.support.text import number, visible

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.probing import Dispute
    from semtoken.results import ScoredResponse

MAX_NEW_TOKENS = 24
MAX_STEPS = 3  # doubtful steps that are followed up, at a few short continuations each
INSTRUCTION = "Answer in a few words."


@dataclass(frozen=True)
class DemoQuestion:
    """A question of the demo."""

    question: str
    accepted: tuple[str, ...]
    """An answer that holds one of these is right."""


QUESTIONS = (
    DemoQuestion("What is the capital of Australia?", ("Canberra",)),
    DemoQuestion("What is the chemical symbol for gold?", ("Au",)),
    DemoQuestion("What is the capital of Turkey?", ("Ankara",)),
    DemoQuestion("Which element has the atomic number 6?", ("carbon",)),
)
"""Chosen to show both: what a small model knows, and what it gets wrong but doubts."""


def run(stc: STC, name: str, console: Console, questions: Sequence[DemoQuestion] = QUESTIONS) -> list[ScoredResponse]:
    """Ask, mark, and say what else the model considered."""
    console.print(Text(f"{name} answers. The redder a word, the less sure the model is of it.", style="bold"))
    answers = []
    for asked in questions:
        prompt = [{"role": "user", "content": f"{INSTRUCTION} {asked.question}"}]
        if not getattr(stc.tokenizer, "chat_template", None):
            prompt = f"Question: {asked.question}\nAnswer:"  # type: ignore[assignment]
        console.print()
        console.print(Text(asked.question, style="dim"))
        with waiting("the model answers"):
            [answer] = stc.generate([prompt], MAX_NEW_TOKENS, stop_at_newline=True)
        show(asked, answer, console)
        with waiting("following up what else it could have said"):
            disputes = stc.disputed(prompt, answer, max_steps=MAX_STEPS)
        if disputes:
            console.print(Text(f"  {considered(disputes[0])}"))
        answers.append(answer)
    console.print()
    console.print("The score is a ranking: it tells which answers to check first, not how often they are right.")
    console.print("A wrong answer that the model is sure of gets a low uncertainty, too.")
    console.print()
    console.print(f'Next: ask it yourself      semtoken ask --model {quote(name)} "..."', soft_wrap=True)
    page = f"{installed_first('serve')}semtoken serve --model {quote(name)}"
    console.print(f"      on a page            {page}", markup=False, soft_wrap=True)
    console.print(
        '      your own model       semtoken ask --model DIRECTORY_OR_HUB_ID_OR_FILE.gguf "..."', soft_wrap=True
    )
    return answers


def show(asked: DemoQuestion, answer: ScoredResponse, console: Console) -> None:
    """The marked answer and its number."""
    from semtoken.display import shaded_text

    right = any(word.lower() in answer.text.lower() for word in asked.accepted)
    mark = Text(" right ", style="green") if right else Text(f" wrong: {asked.accepted[0]}", style="red")
    console.print(Text("  ") + shaded_text(answer))
    console.print(Text(f"  uncertainty {number(answer.uncertainty)} ") + mark)


def considered(dispute: Dispute) -> str:
    """What competed at a step: at "Istanbul" the model also considered "Ankara" (9 %)."""
    others = [c for c in dispute.competitors if not c.chosen and c.continuation and round(100 * c.probability) >= 1]
    named = ", ".join(f"“{visible(c.continuation or '')}” ({c.probability:.0%})" for c in others[:3])
    part = visible(dispute.part.text.strip())
    return f"at “{part}” the model also considered {named}" if named else f"at “{part}” it was least sure"
