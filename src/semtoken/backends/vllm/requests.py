"""What vLLM is asked for: its `SamplingParams`, and prompts in groups whose log-probabilities fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from semtoken.errors import InsufficientMemory
from semtoken.support.extras import require

BYTES_PER_NUMBER = 112  # of a log-probability in vLLM's lists: four references, two ints and a float object
MEMORY_BUDGET = 2 << 30


def sampling_params(*, exact: bool = False, top_k: int = 20, **kwargs: Any) -> Any:
    """Sampling parameters for vLLM whose outputs can be scored.

    Parameters
    ----------
    exact
        Ask for the whole vocabulary, in vLLM's flat form and without texts: exact scores. The engine must allow it
        (`LLM(max_logprobs=-1)`).
    top_k
        Otherwise, the best log-probabilities a token: scores with an interval. More than 20 need
        `LLM(max_logprobs=...)`.
    **kwargs
        Anything else of `SamplingParams`.

    Raises
    ------
    MissingExtra
        vLLM is not installed.
    """
    vllm = require("vllm", extra="vllm")
    options = {"logprobs": -1, "flat_logprobs": True, "detokenize": False} if exact else {"logprobs": top_k}
    return vllm.SamplingParams(**(options | kwargs))


def memory_groups(tokens: Sequence[int], columns: int, budget: int) -> Iterator[list[int]]:
    """Numbers of the prompts that may run together, given the tokens that each has whole rows of log-probabilities of.

    Raises
    ------
    InsufficientMemory
        One prompt alone takes more than the budget.
    """
    group: list[int] = []
    room = budget
    for i, count in enumerate(tokens):
        need = count * columns * BYTES_PER_NUMBER
        if need > budget:
            raise InsufficientMemory(
                f"Log-probabilities of the whole vocabulary for {count} tokens (number {i}) take about "
                f"{need / 2**30:.1f} GiB in vLLM's lists, more than memory_budget={budget / 2**30:.1f} "
                "GiB. Lower max_tokens, raise the budget, or score by the top-k or by the logits processor."
            )
        if need > room:
            yield group
            group, room = [], budget
        group.append(i)
        room -= need
    if group:
        yield group
