"""A model proves which ways of reading it are equal; those that are not are not used, so all numbers are right."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

import semtoken as st
from semtoken.errors import BackendError, ModelError
from semtoken.models.base import Decoding
from semtoken.models.transformers import TransformersBackend
from semtoken.models.transformers.proof import Proof
from semtoken.models.transformers.proving import proof_of
from tests import tiny
from tests.models.plain_pass import PROMPTS, assert_right, backend_of, generated, tiny_model, with_adapter

pytestmark = pytest.mark.usefixtures("own_cache")

KINDS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "Bart": {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 32}
    | {"is_decoder": True, "is_encoder_decoder": False},
    "Rwkv": {"attention_hidden_size": 32},
}
GPT2 = KINDS["GPT2"]


def test_what_holds_of_a_model_is_used_and_what_does_not_is_not() -> None:
    """The sweep over all types says that all numbers are right then; of a model that is read alone, also this test."""
    llama = backend_of("Llama").proof
    assert llama.padded and llama.continued and llama.joined and llama.trees
    assert llama.generates == "padded" and 0 < llama.tokens <= 60
    bart, recurrent = (backend_of(kind, **KINDS[kind]) for kind in ("Bart", "Rwkv"))
    assert not bart.proof.padded and not bart.proof.joined and bart.proof.generates == "equal"
    assert not recurrent.proof.continued and recurrent.proof.generates == "alone"
    assert_right(recurrent)


def test_without_a_proof_every_text_is_read_alone_and_whole() -> None:
    model = tiny_model("Llama")
    backend = TransformersBackend(model, tiny.byte_level_bpe(), prove=False)
    assert backend.proof == Proof() and not backend.joins and not backend.reads_trees
    assert_right(backend)
    with pytest.raises(BackendError, match=r"settings cannot be followed: repetition_penalty"):
        st.ScoredModel(backend).generate(PROMPTS[0], repetition_penalty=1.2)


def test_a_model_that_sees_tokens_to_come_is_refused() -> None:
    with pytest.raises(ModelError, match=r"RobertaForCausalLM .* changes with the tokens that follow"):
        backend_of("Roberta").generate(PROMPTS, Decoding())


def test_what_a_model_takes_for_padding_may_stand_in_a_text() -> None:
    tokenizer = tiny.byte_level_bpe()
    token = tokenizer(PROMPTS[0])["input_ids"][4]  # as where unknown words and padding are one token
    assert_right(TransformersBackend(tiny_model("Roberta", is_decoder=True, pad_token_id=token), tokenizer))


def test_a_model_that_never_gives_the_same_numbers_is_refused() -> None:
    model = tiny_model("Llama")
    model.model.norm.register_forward_hook(lambda module, args, output: output + 0.1 * torch.randn_like(output))
    with pytest.raises(ModelError, match="other numbers when it reads the same text again"):
        _ = TransformersBackend(model, tiny.byte_level_bpe()).proof.generates


@pytest.mark.parametrize(("off_in_batches", "equal"), [(1e-6, True), (1e-3, False)])
def test_rounding_of_batches_is_no_difference(off_in_batches: float, equal: bool) -> None:
    model = tiny_model("Llama")
    model.lm_head.register_forward_hook(lambda module, args, output: output * (1 + off_in_batches * (len(output) > 1)))
    assert TransformersBackend(model, tiny.byte_level_bpe()).proof.padded is equal


@pytest.mark.parametrize("rejected", [set(), {"logits_to_keep"}, {"position_ids"}, {"position_ids", "logits_to_keep"}])
def test_a_model_gets_those_arguments_that_it_takes(rejected: set[str]) -> None:
    model = tiny_model("Bloom" if "position_ids" in rejected else "Llama")  # the first counts positions by the mask

    def reject(module: Any, args: Any, given: dict[str, Any]) -> None:
        if rejected & set(given):
            raise TypeError(f"unexpected keyword arguments {rejected & set(given)}")

    model.register_forward_pre_hook(reject, with_kwargs=True)
    backend = TransformersBackend(model, tiny.byte_level_bpe())
    assert set(backend.proof.takes) == {"position_ids", "logits_to_keep"} - rejected
    assert backend.proof.padded and backend.proof.continued
    assert_right(backend)


def test_where_rows_of_a_batch_differ_texts_are_read_alone_and_whole() -> None:
    model = tiny_model("Llama")
    model.lm_head.register_forward_hook(lambda module, args, output: output * (1 + 0.1 * (len(output) > 1)))
    backend = TransformersBackend(model, tiny.byte_level_bpe())
    assert not backend.proof.padded and not backend.proof.continued and backend.proof.generates == "alone"
    assert_right(backend)


def test_a_proof_is_kept_and_belongs_to_these_weights(tmp_path: Path) -> None:
    first = backend_of("Llama")
    made = first.proof
    [kept] = (tmp_path / "cache" / "proofs").iterdir()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"tokens": 59}))
    assert backend_of("Llama").proof.tokens == 59
    for damaged in ("{", '{"tokens": "59"}', '{"takes": ["head_mask"]}', '{"generates": "often"}', "\udcff"):
        kept.write_text(damaged, errors="surrogateescape")
        assert backend_of("Llama").proof == made, damaged
    other = tiny_model("Llama")
    with torch.no_grad():
        other.lm_head.weight.mul_(2)
    _ = TransformersBackend(other, tiny.byte_level_bpe()).proof.padded
    assert len(list((tmp_path / "cache" / "proofs").iterdir())) == 2


def test_a_model_is_asked_once() -> None:
    backend, passes = backend_of("Llama"), []
    backend.model.register_forward_pre_hook(lambda module, args: passes.append(1))
    backend.next_log_probs(PROMPTS[:1], [[5]])
    proof, known = backend.proof, len(passes)
    backend.next_log_probs(PROMPTS[:1], [[5]])
    assert backend.proof is proof and len(passes) == known + 1


def test_passes_of_other_threads_are_not_taken_for_those_of_the_proof() -> None:
    model, done = tiny_model("Llama"), threading.Event()

    def read() -> None:
        while not done.is_set():
            model(input_ids=torch.tensor([[5, 6, 7]]))

    other = threading.Thread(target=read)
    other.start()
    try:
        assert TransformersBackend(model, tiny.byte_level_bpe()).proof.generates == "padded"
    finally:
        done.set()
        other.join()


def test_windows_are_asked_while_other_threads_read_with_the_models_own() -> None:
    model = tiny_model("Mistral", sliding_window=32)
    seen: list[int] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, args: seen.append(model.config.sliding_window))
    proof = TransformersBackend(model, tiny.byte_level_bpe()).proof
    assert proof.padded and proof.continued and set(seen) == {32}


class TestStates:
    """Models as they come: wrapped, in training mode, with settings of their own."""

    def test_training_mode_is_ended_and_said(self) -> None:
        model = tiny_model("GPT2", **GPT2, attn_pdrop=0.3, resid_pdrop=0.3)
        expected = st.ScoredModel(copy.deepcopy(model), tiny.byte_level_bpe()).score(PROMPTS, ["Paris"] * 3)
        stc = st.ScoredModel(model.train(), tiny.byte_level_bpe())
        with pytest.warns(UserWarning, match="was in training mode"):
            found = stc.score(PROMPTS, ["Paris"] * 3)
        assert [one.log_confidence for one in found] == pytest.approx(
            [one.log_confidence for one in expected], abs=1e-5
        )
        stc.model.train()  # as a Trainer does between two evaluations
        with pytest.warns(UserWarning, match="was in training mode"):
            stc.generate(PROMPTS, max_new_tokens=2)

    @pytest.mark.parametrize("setting", [{"use_cache": False}, {"num_return_sequences": 2}, {"suppress_tokens": [7]}])
    def test_settings_for_generation(self, setting: dict[str, Any]) -> None:
        backend = backend_of("Llama")
        for name, value in setting.items():
            setattr(backend.model.generation_config, name, value)
        assert_right(backend)
        if "suppress_tokens" in setting:
            with torch.no_grad():
                backend.model.lm_head.weight[7] = 3 * backend.model.lm_head.weight.abs().max()
            answers = backend.generate(PROMPTS, Decoding(max_new_tokens=8))
            assert all(7 not in answer.token_ids for answer in answers)

    def test_settings_that_ask_for_several_answers_stay_as_they_are_for_other_threads(self) -> None:
        backend, penalty = backend_of("Llama"), {"repetition_penalty": 1.2}  # which only `generate` follows
        expected = [one.token_ids for one in backend.generate(PROMPTS, Decoding(max_new_tokens=8, options=penalty))]
        settings, seen = backend.model.generation_config, []
        settings.num_return_sequences = 3

        def looks(input_ids: torch.Tensor, scores: torch.Tensor, **others: Any) -> bool:
            seen.append((backend.model.generation_config is settings, settings.num_return_sequences))
            return False

        options = {**penalty, "stopping_criteria": [looks]}
        found = backend.generate(PROMPTS, Decoding(max_new_tokens=8, options=options))
        assert [one.token_ids for one in found] == expected
        assert set(seen) == {(True, 3)} and settings.num_return_sequences == 3

    def test_a_generation_config_that_is_given_is_followed(self) -> None:
        stc = st.ScoredModel(tiny_model("Llama"), tiny.byte_level_bpe())
        settings = [GenerationConfig(do_sample=False), GenerationConfig(do_sample=True, temperature=9.0)]
        greedy, drawn = (stc.generate(PROMPTS, 8, generation_config=one) for one in settings)
        assert [one.token_ids for one in greedy] == [one.token_ids for one in stc.generate(PROMPTS, 8)]
        assert [one.token_ids for one in greedy] != [one.token_ids for one in drawn]

    @pytest.mark.parametrize("wrap", [pytest.param(torch.compile, marks=pytest.mark.slow), torch.nn.DataParallel])
    def test_wrappers_that_run_a_model(self, wrap: Any) -> None:
        model = tiny_model("GPT2", **GPT2)
        assert_right(TransformersBackend(wrap(model), tiny.byte_level_bpe()), model)

    def test_an_adapter_that_is_not_merged(self) -> None:
        base = tiny_model("GPT2", **GPT2)
        model = with_adapter(base, r=4, lora_alpha=8, lora_dropout=0.5, init_lora_weights=False)
        backend = TransformersBackend(model, tiny.byte_level_bpe())
        with pytest.warns(UserWarning, match="was in training mode"):
            assert backend.proof.padded
        assert_right(backend)

    def test_tuned_prompts(self) -> None:
        model = with_adapter(tiny_model("Llama"), "PromptTuningConfig", num_virtual_tokens=3).eval()
        assert_right(TransformersBackend(model, tiny.byte_level_bpe()))


class TestRecorder:
    def answers(self, model: Any, prompts: list[str], side: str = "left") -> tuple[Any, list[st.ScoredAnswer]]:
        """The result of `generate` for some prompts, and the answers of a recorder."""
        tokenizer = tiny.byte_level_bpe()
        recorder = st.Recorder(tokenizer)
        settings = {"max_new_tokens": 3, "suppress_tokens": list(range(len(tokenizer), 640))}
        made = generated(model, tokenizer, prompts, recorder, side=side, **settings)
        return made, recorder.answers(made)

    def flagged(self, code: str, *given: Any) -> set[bool]:
        return {code in {flag.code for flag in answer.flags} for answer in self.answers(*given)[1]}

    def test_a_padded_batch_is_flagged_where_it_changes_the_numbers(self) -> None:
        """As it does in any model where prompts are padded behind their ends."""
        bart, llama = tiny_model("Bart", **KINDS["Bart"]), tiny_model("Llama")
        assert True in self.flagged("padded_batch", bart, PROMPTS)
        assert self.flagged("padded_batch", bart, PROMPTS[:1] * 2) == {False}
        assert self.flagged("padded_batch", llama, PROMPTS) == {False}
        assert self.flagged("padded_batch", llama, PROMPTS, "right") == {True}

    def test_a_tuned_prompt_is_flagged_where_generate_gives_other_numbers(self) -> None:
        """As a pass over the whole text says whether it does."""
        for kind in ("PromptTuningConfig", "PrefixTuningConfig"):
            torch.manual_seed(0)
            model = with_adapter(tiny_model("Llama"), kind, num_virtual_tokens=3).eval()
            made, [answer] = self.answers(model, PROMPTS[:1])
            with torch.no_grad():
                logits = model(made).logits[0, -len(answer.token_ids) - 1 : -1, : len(tiny.byte_level_bpe())]
            rows = logits.double().log_softmax(-1)
            expected = [float(row[token]) for row, token in zip(rows, answer.token_ids, strict=True)]
            equal = np.allclose([token.log_probability for token in answer.tokens], expected, atol=1e-3)
            assert equal or "tuned_prompt" in {flag.code for flag in answer.flags}

    def test_training_mode_is_flagged(self) -> None:
        assert self.flagged("training_mode", tiny_model("Llama").train(), PROMPTS[:1]) == {True}


def test_the_proof_of_a_wrapper_is_not_that_of_the_model_in_it() -> None:
    model = tiny_model("Llama")
    vocabulary = TransformersBackend(model, tiny.byte_level_bpe()).vocabulary

    class Shifted(torch.nn.Module):  # hides what the model takes
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.config, self.dtype = model, model.config, model.dtype

        def get_input_embeddings(self) -> Any:
            return model.get_input_embeddings()

        def forward(self, input_ids: Any, attention_mask: Any = None, **ignored: Any) -> Any:
            return model(input_ids=input_ids, attention_mask=attention_mask)

    proof = proof_of(Shifted().eval(), vocabulary, 1)
    assert not proof.padded and not proof.continued and proof.generates == "never"
