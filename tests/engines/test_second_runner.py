"""vLLM's second model runner, which GPUs use: its loader takes the processor, and its answers are scored the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semtoken import ScoredModel
from tests.engines.twins import TOLERANCE


def test_the_loader_takes_the_processor_and_checks_requests(processor: Any) -> None:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors_params_validator

    validate = build_custom_logits_processors_params_validator([processor])
    validate(SamplingParams(extra_args={"semtoken_id": "fine"}))
    with pytest.raises(VLLMValidationError, match="'semtoken_id' must be a text"):
        validate(SamplingParams(extra_args={"semtoken_id": 7}))


def test_the_processor_is_not_registered() -> None:
    """An entry point would be loaded into every engine of the machine."""
    from importlib.metadata import entry_points

    assert not [entry for entry in entry_points(group="vllm.logits_processors") if "semtoken" in entry.value]


def test_answers_of_the_second_runner_are_scored_the_same(tmp_path: Path, stc: ScoredModel) -> None:
    pytest.importorskip("triton", reason="vLLM's second model runner needs Triton")
    result = tmp_path / "result.json"
    script = Path(__file__).parent / "second_runner.py"
    done = subprocess.run(
        [sys.executable, str(script), str(result)],
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    facts = json.loads(result.read_text(encoding="utf-8"))
    assert facts["second_runner"]
    assert facts["preemptions"] > 0, "nothing gave way: the test does not test what it says"
    assert facts["left"] == []
    answers = facts["answers"]
    twins = stc.score([answer["prompt"] for answer in answers], [answer["ids"] for answer in answers])
    compared = 0
    for answer, twin in zip(answers, twins, strict=True):
        penalized = answer["number"] % 5 == 0  # this runner applies penalties before it calls processors
        assert answer["distribution"] == ("processed" if penalized else "raw")
        if not penalized:
            expected = [token.log_agreeing_probability for token in twin.tokens]
            assert answer["tokens"] == pytest.approx(expected, abs=TOLERANCE)
            compared += 1
    assert compared >= 12
