"""The recipe for LlamaIndex, as it stands on the page, with `semtoken serve`."""

from __future__ import annotations

import pytest
from llama_index.core.llms import ChatMessage

from semtoken import ScoredModel
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served
from tests.integrations.recipes import run


def test_the_raw_reply_has_the_score_of_stc(stc: ScoredModel, questions: list[Question]) -> None:
    with served(stc) as url:
        for question in questions[:4]:
            messages = [ChatMessage(role="user", content=question.question)]
            found = run("OpenAILike", BASE=f"{url}/v1", messages=messages)
            [answer] = stc.generate([question.prompt()], 24, stop_at_newline=True)
            assert found["answer"].message.content == answer.text.strip()
            assert found["block"]["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
