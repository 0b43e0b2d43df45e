"""llama.cpp in this process, through llama-cpp-python: generate with exact scores, or score text that exists.

After each token the context still holds the logits that it was chosen from, before any sampler. They are read there, a
row at a time, so `logits_all=True` is not needed. Tested with llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from semtoken._arrays import FloatArray, log_normalizers
from semtoken._extras import require
from semtoken.backends.prompts import Prompt, Response, as_prompts, newline_ids
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidInput, VocabularyMismatch
from semtoken.results import ScoredResponse
from semtoken.scoring import LogitsAnswer, scorer_for
from semtoken.scoring.rules import FunctionWords, Preset, ScoringRules
from semtoken.vocabulary import Vocabulary

OnResult = Callable[[int, ScoredResponse], None]


class LlamaCppScorer:
    """A llama.cpp model whose answers come with an uncertainty, exact and in bounded memory.

    Parameters
    ----------
    llama
        A `llama_cpp.Llama`.
    clusters
        `TokenClusters` of the model's tokenizer, or a directory or hub id of some.
    preset, function_words, clustering, prefix_matching
        As in `score_logits`.

    Raises
    ------
    VocabularyMismatch
        A token of the model is spelled otherwise than in the clusters.
    """

    def __init__(
        self,
        llama: Any,
        clusters: TokenClusters | str,
        *,
        preset: Preset = "default",
        function_words: FunctionWords = "paper",
        clustering: bool = True,
        prefix_matching: bool = True,
    ) -> None:
        self.llama = llama
        self.clusters = clusters if isinstance(clusters, TokenClusters) else TokenClusters.from_pretrained(clusters)
        self.rules = ScoringRules(preset, function_words, clustering, prefix_matching)
        check_spelling(llama, self.clusters.vocabulary)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_tokens: int = 256,
        *,
        stop_at_newline: bool = False,
        stop_token_ids: Collection[int] = (),
        on_result: OnResult | None = None,
        **sampling: Any,
    ) -> list[ScoredResponse]:
        """Generate one answer a prompt and score it on the way.

        Parameters
        ----------
        prompts
            A string, a list of chat messages (rendered by the template in the model's file), or a list of either.
        max_tokens
            Tokens an answer may have.
        stop_at_newline
            End an answer at the first token with a newline, as the paper's prompts ask for.
        stop_token_ids
            Further ids that end an answer, besides the model's own.
        on_result
            Called with (number of the answer, answer) as soon as it is there.
        **sampling
            Of `Llama.generate` (`temp`, `top_p`, ...). Decoding is greedy unless `temp` is given. The distribution
            scored is the model's own at temperature 1 either way.

        Raises
        ------
        InvalidInput
            An empty prompt, chat messages without a template, or no room for an answer.
        """
        if max_tokens < 1:
            raise InvalidInput(f"max_tokens must be positive, got {max_tokens}.")
        encoded = [self._encode(prompt, number) for number, prompt in enumerate(as_prompts(prompts))]
        for number, ids in enumerate(encoded):
            self._check_length(ids, 1, number)
        ends = set(stop_token_ids) | set(newline_ids(self.clusters.vocabulary) if stop_at_newline else ())
        results: list[ScoredResponse] = []
        for ids in encoded:
            result = self._generate_one(ids, min(max_tokens, self.llama.n_ctx() - len(ids)), ends, sampling)
            if on_result is not None:
                on_result(len(results), result)
            results.append(result)
        return results

    def _generate_one(self, prompt: list[int], length: int, ends: set[int], sampling: dict[str, Any]) -> ScoredResponse:
        llama_cpp = require("llama_cpp", extra="llama-cpp")
        vocabulary = _vocabulary(self.llama)
        answer = LogitsAnswer(scorer_for(self.clusters, self.rules))
        self.llama.reset()
        for token in self.llama.generate(prompt, **({"temp": 0.0} | sampling)):
            self.clusters.vocabulary.check_ids([token])
            self._add(answer, token)
            if token in ends or len(answer.ids) >= length or llama_cpp.llama_vocab_is_eog(vocabulary, token):
                break
        return answer.finish("raw")

    def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Response | Sequence[Response],
        *,
        on_result: OnResult | None = None,
    ) -> list[ScoredResponse]:
        """Score text that already exists, token by token.

        Parameters
        ----------
        prompts
            As in `generate`.
        responses
            One text, or list of token ids, for each prompt. Text is scored as it stands: no terminator is added.
        on_result
            Called with (number of the response, result) as soon as it is there.

        Raises
        ------
        InvalidInput
            Numbers of prompts and responses differ, or one of them cannot be used.
        """
        listed = as_prompts(prompts)
        answers: list[Any] = [responses] if isinstance(responses, str) else list(responses)
        if len(listed) != len(answers):
            raise InvalidInput(f"There are {len(listed)} prompts and {len(answers)} responses; each prompt needs one.")
        encoded = [self._encode(prompt, number) for number, prompt in enumerate(listed)]
        replies = [
            self._encode_response(prompt, ids, response, number)
            for number, (prompt, ids, response) in enumerate(zip(listed, encoded, answers, strict=True))
        ]
        for number, (ids, reply) in enumerate(zip(encoded, replies, strict=True)):
            self.clusters.vocabulary.check_ids(reply)
            self._check_length(ids, len(reply), number)
        results: list[ScoredResponse] = []
        for ids, reply in zip(encoded, replies, strict=True):
            result = self._score_one(ids, reply)
            if on_result is not None:
                on_result(len(results), result)
            results.append(result)
        return results

    def _score_one(self, prompt: list[int], reply: list[int]) -> ScoredResponse:
        answer = LogitsAnswer(scorer_for(self.clusters, self.rules))
        self.llama.reset()
        self.llama.eval(prompt)
        for step, token in enumerate(reply):
            self._add(answer, token)
            if step + 1 < len(reply):
                self.llama.eval([token])
        return answer.finish("raw")

    def _add(self, answer: LogitsAnswer, token: int) -> None:
        row = self._logits()[None]
        answer.add(row, 0, token, log_normalizers(row, self.clusters.vocabulary.size)[0])

    def _logits(self) -> FloatArray:
        """Logits [V] of the last token that was read, in the context's own memory: valid until the next one."""
        llama_cpp = require("llama_cpp", extra="llama-cpp")
        pointer = llama_cpp.llama_get_logits_ith(self.llama.ctx, -1)
        return np.ctypeslib.as_array(pointer, shape=(self.llama.n_vocab(),))

    def _encode(self, prompt: Prompt, number: int) -> list[int]:
        """Token ids of a prompt; a chat template writes its special tokens itself."""
        text, add_bos = self._text(prompt, number)
        if not text.strip():
            raise InvalidInput(f"Prompt {number} is empty.")
        return list(self.llama.tokenize(text.encode(), add_bos=add_bos, special=True))

    def _text(self, prompt: Prompt, number: int) -> tuple[str, bool]:
        """The text that the model sees, and whether it still needs its opening token."""
        if isinstance(prompt, str):
            return prompt, True
        template = self.llama.metadata.get("tokenizer.chat_template")
        if template is None:
            raise InvalidInput(f"Prompt {number} is a list of chat messages, but the model's file has no template.")
        formats = require("llama_cpp.llama_chat_format", extra="llama-cpp")
        spell = self.llama.detokenize
        bos, eos = (spell([i], special=True).decode() for i in (self.llama.token_bos(), self.llama.token_eos()))
        try:
            formatted = formats.Jinja2ChatFormatter(template, eos_token=eos, bos_token=bos)(messages=list(prompt))
        except Exception as error:  # templates are programs of the model's authors and raise what they like
            raise InvalidInput(f"The chat template refuses the messages of prompt {number}: {error}") from error
        return str(formatted.prompt), False

    def _encode_response(self, prompt: Prompt, ids: list[int], response: Response, number: int) -> list[int]:
        """Ids of a response: tokenised with its prompt where that leaves the prompt's ids as they are."""
        if not isinstance(response, str):
            return [int(token) for token in response]
        text, add_bos = self._text(prompt, number)
        together = list(self.llama.tokenize((text + response).encode(), add_bos=add_bos, special=True))
        if together[: len(ids)] == ids:
            return together[len(ids) :]
        return list(self.llama.tokenize(response.encode(), add_bos=False, special=True))

    def _check_length(self, prompt: list[int], more: int, number: int) -> None:
        if len(prompt) + more > self.llama.n_ctx():
            raise InvalidInput(
                f"Prompt {number} and its answer take {len(prompt) + more} tokens or more, the context holds "
                f"{self.llama.n_ctx()}. Shorten the prompt or load the model with a larger n_ctx."
            )


def check_spelling(llama: Any, vocabulary: Vocabulary) -> None:
    """Raise `VocabularyMismatch` unless the model's tokens are spelled as those of the vocabulary."""
    if llama.n_vocab() < vocabulary.size:
        raise VocabularyMismatch(
            f"The model has {llama.n_vocab():,} tokens, the vocabulary of the clusters {vocabulary.size:,}."
        )
    for token in np.flatnonzero(~vocabulary.special).tolist():
        spelled = _piece(llama, token)
        if spelled and spelled != vocabulary.pieces[token]:
            raise VocabularyMismatch(
                f"Token {token} is {spelled!r} in the model and {vocabulary.pieces[token]!r} in the vocabulary of the "
                "clusters: these clusters belong to another model."
            )


def _piece(llama: Any, token: int, room: int = 64) -> bytes:
    """Bytes of one token in the model's file, whatever tokenizer was given to `Llama`; none for a control token."""
    llama_cpp = require("llama_cpp", extra="llama-cpp")
    buffer = ctypes.create_string_buffer(room)
    length = llama_cpp.llama_token_to_piece(_vocabulary(llama), token, buffer, room, 0, False)
    return _piece(llama, token, -length) if length < 0 else buffer.raw[:length]


def _vocabulary(llama: Any) -> Any:
    llama_cpp = require("llama_cpp", extra="llama-cpp")
    return llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(llama.ctx))
