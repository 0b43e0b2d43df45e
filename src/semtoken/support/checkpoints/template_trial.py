"""A trial of a chat template in a process of its own, which the system ends; run as a program by `strangers`.

It reads the template from standard input and renders two conversations. It imports nothing of semtoken.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

CPU_SECONDS = 2
MEMORY = 2**30
LONGEST = 2**22  # characters; the conversations have some thousands

TOO_LARGE = 3
"""The exit status of a template that needs more memory, or writes more, than it may."""

LONG = "Where is it?\nIn Oslo, I think. " * 60
CONVERSATIONS = (
    [{"role": "user", "content": "Where?"}],
    [{"role": who, "content": LONG} for who in ("system", "user", "assistant", "user")],
)


def render(template: str, messages: list[dict[str, str]]) -> int:
    """The length of the text that a template makes of the messages, as transformers' sandbox does."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            """The body alone: transformers marks it for training."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    sandbox.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    sandbox.globals |= {"raise_exception": refuse, "strftime_now": lambda form: form}
    given = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    pieces = sandbox.from_string(template).generate(given, tools=None, documents=None)
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > LONGEST:
            raise MemoryError
    return length


if __name__ == "__main__":
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    with suppress(ImportError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for conversation in CONVERSATIONS:
        try:
            render(text, conversation)
        except MemoryError:
            sys.exit(TOO_LARGE)
        except Exception as error:  # of a template that refuses these messages; it is not tried for what it says
            print(type(error).__name__)
