"""A question of 255 options about a long state is bounded in time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semtoken.choices import Reading
from semtoken.decisions import Choice, DecisionRequest, ReadingOptions, decide
from semtoken.models.transformers.model import TransformersBackend
from tests.decisions.models import tokenizer
from tests.tiny import llama

CONTEXT, STATE, OPTIONS = 32_768, 4_096, 255


def peak() -> float:
    """The largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.slow
@pytest.mark.parametrize("orders", [1, 4])
@pytest.mark.parametrize("reading", ["labels", "words"])
def test_255_options_about_a_state_of_4096_tokens(reading: Reading, orders: int) -> None:
    """In a process of its own: the largest memory of this one is that of other tests."""
    ask = f"from tests.decisions.test_bounds import ask_of_255_options; ask_of_255_options({reading!r}, {orders})"
    subprocess.run([sys.executable, "-c", ask], cwd=Path(__file__).parents[2], check=True)


def ask_of_255_options(reading: Reading, orders: int) -> None:
    own = tokenizer()
    model = llama(len(own) + 8, hidden=32)
    model.config.max_position_embeddings = CONTEXT
    backend = TransformersBackend(model, own)
    ids = own("The parcel was late and nobody knew why. " * STATE, add_special_tokens=False)["input_ids"][:STATE]
    question = Choice("Which department is it for?", [f"department {n + 1} of the company" for n in range(OPTIONS)])
    inquiry = DecisionRequest(own.decode(ids), [question], ReadingOptions(reading, orders))
    before, used = peak(), time.process_time()
    [found] = decide(backend, [inquiry])
    seconds, grown = time.process_time() - used, peak() - before
    print(f"{reading}, {orders} orders: {found.input_tokens:,} tokens, {seconds:.1f} s, {grown:.0f} MiB more")
    assert sum(found.answers[0].probabilities) == pytest.approx(1)
    assert STATE + 4 * OPTIONS < found.input_tokens < 65_536
    assert seconds < 120 and grown < 1024
