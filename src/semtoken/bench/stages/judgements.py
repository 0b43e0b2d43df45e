"""Whether the greedy answers are correct, as one judge says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from semtoken.bench.judges.base import AnswerToJudge, correctness
from semtoken.bench.judges.llm import LLMJudge
from semtoken.bench.judges.settings import judge_from
from semtoken.bench.settings import judge_name
from semtoken.bench.stages.parts import Context, Recorder, ShardInputs, StepRecords
from semtoken.support.extras import require

CORRECT = "correct"


def recorder(name: str, context: Context) -> Recorder:
    """Verdicts of the judge of that name."""
    choice = next(judge for judge in context.settings.judges if judge_name(judge) == name)
    judge = judge_from(choice, model=context.cell.model, dataset=context.cell.dataset)

    def record(part: ShardInputs) -> Iterator[StepRecords]:
        pyarrow = require("pyarrow", extra="bench")
        items = [
            AnswerToJudge(question, one.text) for question, one in zip(part.questions, part.generations, strict=True)
        ]
        before = judge.relied_on if isinstance(judge, LLMJudge) else None
        verdicts = judge.judge(items)
        usage = asdict(judge.relied_on - before) if isinstance(judge, LLMJudge) and before is not None else None
        table = pyarrow.table(
            {
                "id": part.ids,
                CORRECT: pyarrow.array(correctness(verdicts), from_pandas=False),
                "quality": pyarrow.array([verdict.quality for verdict in verdicts], type=pyarrow.float64()),
                "reply": pyarrow.array([verdict.reply for verdict in verdicts], type=pyarrow.string()),
            }
        )
        yield StepRecords(part.missing[0], table, {}, usage)

    return record
