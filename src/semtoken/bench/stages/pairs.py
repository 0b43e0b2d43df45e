"""Works that ask a model about pairs of texts."""

from __future__ import annotations

from collections.abc import Iterator

from semtoken.bench.columns import table_of
from semtoken.bench.stages.parts import Context, Recorder, ShardInputs, StepRecords
from semtoken.statistics import Timings, UniquePairs
from semtoken.statistics.pairs import special_token_ids
from semtoken.statistics.steps import RecordingStep, Tokens
from semtoken.tokens.vocabulary import Vocabulary


def recorder(step: RecordingStep, context: Context) -> Recorder:
    """What one of `PAIR_STEPS` computes."""
    compute = step.pairs
    assert compute is not None
    models = context.models
    ask = models.nli().logits if step.asks == "nli" else models.similarity().similarities
    tokenizer = models.tokenizer(context.cell.model)
    tokens = Tokens(Vocabulary.from_tokenizer(tokenizer).decode, special_token_ids(tokenizer))

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        timings = Timings()
        generations = part.generations
        with timings.measure(step.name):  # pairs are remembered for one shard, so that its numbers are its own
            found = compute(UniquePairs(ask), generations, tokens)
        yield StepRecords(part.missing[0], table_of(part.ids, found), timings.seconds)

    return record
