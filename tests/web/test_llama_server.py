"""llama.cpp's own server, from the wheel of xllamacpp, with the embedded model: its replies beside transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from semtoken import ScoredAnswer, ScoredModel, TokenClusters, score_reply
from semtoken.errors import BackendError
from semtoken.replies import ReplyStream
from semtoken.support.almanac import almanac_path, load_questions
from semtoken.web.doctor.examination import examine
from tests.gguf_model import write_gguf
from tests.web.asking import CHAT, assert_holds, events_in, figure, post
from tests.web.conftest import proxy_of

xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp, which brings llama.cpp's server, has no wheel here")

CLOSE = 1e-4  # a token
RENAMED, CALL = "urderer", "<tool_call>\n"
TEMPLATE = """\
{% if tools %}{{ tools | tojson }}
{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}{% for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
"""The form in which Qwen's models call tools, from which the server makes a grammar for the calls."""
PROMPTS = [question.prompt() for question in load_questions("test")[:2]]


def started(folder: Path, template: str = "", renamed: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A server, which ends with the object. Keys and values in float32, as the twin keeps them."""
    settings = xllamacpp.CommonParams()
    settings.model.path = str(write_gguf(almanac_path(), folder / "almanac.gguf", renamed))
    settings.hostnames, settings.port, settings.verbosity = ["127.0.0.1"], 0, 0
    settings.use_jinja, settings.chat_template = True, template
    settings.n_ctx = settings.n_batch = 512
    settings.n_parallel = settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(settings)


@pytest.fixture(scope="module")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    server = started(tmp_path_factory.mktemp("gguf"))
    yield server.listening_address


def asked(stc: ScoredModel, prompt: str, **changes: Any) -> dict[str, Any]:
    """A greedy request. The prompt goes as ids: llama.cpp does not know how this model splits words."""
    ids = stc.tokenizer(prompt)["input_ids"]
    return {"prompt": ids, "max_tokens": 8, "temperature": 0, "logprobs": 20} | changes


def completed(url: str, request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = post(url, "/v1/completions", json=request).raise_for_status().json()
    return found


@pytest.mark.parametrize("prompt", [PROMPTS[0], pytest.param(PROMPTS[1], marks=pytest.mark.slow)])
def test_its_replies_have_the_numbers_of_transformers(llama_server: str, almanac: ScoredModel, prompt: str) -> None:
    (scored,) = score_reply(completed(llama_server, asked(almanac, prompt)))
    (greedy,) = almanac.generate(prompt, 8)
    assert scored.text == greedy.text
    (twin,) = almanac.score([prompt], [scored.token_ids])  # the server lists the end of the answer, too
    assert scored.log_probability == pytest.approx(twin.log_probability, abs=CLOSE * len(scored.token_ids))
    assert_holds(scored.sequence_uncertainty_interval, twin.sequence_uncertainty, CLOSE)
    lower, upper = scored.sequence_uncertainty_interval
    assert upper - lower < 0.5


def test_a_proxy_in_front_of_it_adds_the_score(
    llama_server: str, almanac: ScoredModel, almanac_clusters: TokenClusters
) -> None:
    with proxy_of(llama_server, almanac_clusters) as url:
        choice = completed(url, asked(almanac, PROMPTS[0], logprobs=None))["choices"][0]
    (twin,) = almanac.generate(PROMPTS[0], 8)
    assert choice["text"] == twin.text
    assert not choice.get("logprobs")
    assert_holds(choice["semtoken"]["sequence_uncertainty_interval"], twin.sequence_uncertainty, CLOSE)


def test_a_stream_with_tools_has_a_number_too(llama_server: str, almanac_clusters: TokenClusters) -> None:
    """It refuses `logprobs` there, and gives them by its own name, `n_probs`."""
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    body = CHAT | {"max_tokens": 6, "temperature": 0, "tools": [{"type": "function", "function": function}]}
    assert post(llama_server, json=body | {"stream": True, "logprobs": True}).is_error
    (scored,) = score_reply(post(llama_server, json=body | {"n_probs": 20}).json())
    with proxy_of(llama_server, almanac_clusters) as url:
        for _ in range(2):
            choices = [
                choice for one in events_in(post(url, json=body | {"stream": True}).text) for choice in one["choices"]
            ]
            assert not any(choice.get("logprobs") for choice in choices)
            block = choices[-1]["semtoken"]
            assert block["n_tokens"] == len(scored.tokens)
            low, high = block["sequence_uncertainty_interval"]
            assert low - CLOSE <= scored.sequence_uncertainty_interval[1]
            assert high + CLOSE >= scored.sequence_uncertainty_interval[0]
        assert figure(url, 'refusals_total{endpoint="chat",given="n_probs"}') == 1


def test_a_streamed_tool_call_has_no_number_since_its_name_has_none(tmp_path: Path, almanac: ScoredModel) -> None:
    """The stream leaves out the tokens that add nothing to the call's arguments; the whole reply has them all."""
    cities = {"type": "string", "enum": ["Lima", "Quito"]}
    schema = {"type": "object", "properties": {"city": cities}, "required": ["city"]}
    ids = {name: almanac.tokenizer.convert_tokens_to_ids(name) for name in (RENAMED, "Ċ", "Ġ")}
    body = CHAT | {
        "tools": [{"type": "function", "function": {"name": "show", "parameters": schema}}],
        "tool_choice": "required",
        "max_tokens": 40,
        "temperature": 0,
        "n_probs": 20,
        "logit_bias": [[ids[RENAMED], 100], [ids["Ċ"], -100], [ids["Ġ"], -100]],  # a call at once, without blanks
    }

    server = started(tmp_path, TEMPLATE, {RENAMED: CALL.replace("\n", "Ċ")})

    def sent(**more: Any) -> httpx.Response:
        return post(server.listening_address, json=body | more)

    (whole,) = score_reply(sent().json(), segment="tool_call")
    assert whole.text.startswith(CALL + '{"name":"show","arguments":{"city":"')
    stream = ReplyStream(request=body)
    stream.feed(sent(stream=True).content)
    reply = stream.finish()
    (called,) = reply.choices[0].calls[:1]
    assert called.name == "show" and json.loads(called.arguments)["city"] in cities["enum"]
    assert "show" not in "".join(step.chosen.text or "" for step in reply.choices[0].segments[0].steps)
    with pytest.raises(BackendError, match="omit the name of the function"):
        score_reply(reply, segment="tool_call")


def test_the_doctor_finds_what_it_gives(llama_server: str, almanac_clusters: TokenClusters) -> None:
    found = examine(llama_server, vocabulary=almanac_clusters).to_dict()
    assert found["usable"] and found["numbers"]["distribution"] == "raw" and found["tokenizer"]["fits"]
    assert found["tokens"]["bytes"] and found["tokens"]["ids"]


def streamed(url: str, request: dict[str, Any]) -> ScoredAnswer:
    """The scores of the stream that answers a request."""
    stream = ReplyStream(request=request)
    stream.feed(post(url, "/v1/completions", json=request | {"stream": True}).content)
    (scored,) = score_reply(stream.finish())
    return scored


LONG = {"max_tokens": 10, "ignore_eos": True, "logit_bias": [[201, -20]]}  # no newline, so that the answer goes on


@pytest.mark.parametrize("matches", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_text_held_back_for_a_stop_string_leaves_each_token_its_own_name(
    llama_server: str, almanac: ScoredModel, matches: bool
) -> None:
    """It calls a token by what it sends with it: by nothing while it waits, and the next one by all that waited."""
    request = asked(almanac, PROMPTS[0], **LONG)
    (free,) = score_reply(completed(llama_server, request))
    texts = [token.text for token in free.tokens]
    for first in (1, 4):
        for cut, more in ((0, 1), (1, 1), (0, 2), (len(texts[first]) - 1, 2)):
            stop = "".join([texts[first][cut:], *texts[first + 1 : first + more]])
            stop += texts[first + more][:1] if matches else "?"
            if matches and free.text.index(stop) != len("".join(texts[:first])) + cut:
                continue  # it stops before
            found = streamed(llama_server, request | {"stop": [stop]})
            if not matches:
                whole = score_reply(completed(llama_server, request | {"stop": [stop]}))[0]
                assert whole.token_ids == found.token_ids == free.token_ids
                assert [token.text for token in whole.tokens] == texts
            n = len(found.token_ids)
            assert [token.text for token in found.tokens] == texts[:n]
            shown = len(free.text[: len("".join(texts[:first])) + cut].rstrip())
            assert n == (next(k for k in range(11) if len("".join(texts[:k])) >= shown) if matches else len(texts)), (
                stop
            )
            own = sum(token.log_probability for token in free.tokens[:n])
            assert found.log_probability == pytest.approx(own, abs=CLOSE * n)
