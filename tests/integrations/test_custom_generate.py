"""transformers runs the folder of examples/generate, and its pipelines take the recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semtoken.support.almanac import almanac_path, load_questions

torch = pytest.importorskip("torch", reason="torch is missing")
transformers = pytest.importorskip("transformers", reason="transformers is missing")

from semtoken import Recorder, ScoredModel, TokenClusters  # noqa: E402
from semtoken.errors import InvalidInputError  # noqa: E402

FOLDER = str(Path(__file__).parents[2] / "examples" / "generate")


@pytest.fixture(scope="module")
def stc() -> ScoredModel:
    return ScoredModel.from_pretrained("almanac", dtype="float32")


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies the code that it runs into a cache; here that is a temporary folder."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("as_dict", [False, True])
def test_the_folder_scores_what_generate_gives(stc: ScoredModel, as_dict: bool) -> None:
    prompts = [question.prompt() for question in load_questions("test")[:5]]
    inputs = stc.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    given: dict[str, Any] = {"max_new_tokens": 12, "return_dict_in_generate": as_dict, "repetition_penalty": 1.3}
    plain = stc.model.generate(**inputs, **given)
    output = stc.model.generate(
        **inputs, **given, custom_generate=FOLDER, trust_remote_code=True, semtoken_vocabulary="almanac"
    )
    ids = output.sequences if as_dict else output
    assert torch.equal(ids, plain.sequences if as_dict else plain)
    found = output["semtoken"] if as_dict else output.semtoken
    again = stc.score(prompts, [[token.id for token in one.tokens] for one in found])
    assert [one.sequence_uncertainty for one in found] == pytest.approx(
        [one.sequence_uncertainty for one in again], abs=1e-4
    )


def test_without_clusters_nothing_is_generated(stc: ScoredModel) -> None:
    inputs = stc.tokenizer("a", return_tensors="pt")
    with pytest.raises(InvalidInputError, match="semtoken_vocabulary"):
        stc.model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True)


def test_a_pipeline_takes_the_recorder(stc: ScoredModel) -> None:
    prompt = load_questions("test")[0].prompt()
    recorder = Recorder(TokenClusters.from_pretrained("almanac"))
    pipe = transformers.pipeline("text-generation", model=str(almanac_path()), dtype="float32", device="cpu")
    [[answer]] = pipe([prompt], return_tensors=True, logits_processor=[recorder], max_new_tokens=12, do_sample=False)
    [found] = recorder.answers(torch.tensor([answer["generated_token_ids"]]))
    [expected] = stc.generate(prompt, 12)
    assert found.sequence_uncertainty == pytest.approx(expected.sequence_uncertainty, abs=1e-5)
