"""`LlamaCppScorer`: an `STC` over a `llama_cpp.Llama` that you have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from semtoken.backends.base import Prompt
from semtoken.backends.llama_cpp.model import LlamaCppBackend
from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidInput
from semtoken.results import ScoredResponse
from semtoken.stc import STC, OnResult


class LlamaCppScorer(STC):
    """`STC` over a `llama_cpp.Llama`, with llama.cpp's names of arguments.

    Parameters
    ----------
    llama
        A `llama_cpp.Llama`.
    clusters
        As for `STC`: only the preset `paper` reads them.
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
        clusters: TokenClusters | str | Path | None = None,
        *,
        preset: Preset = "default",
        function_words: FunctionWords | None = None,
        clustering: bool | None = None,
        prefix_matching: bool | None = None,
    ) -> None:
        super().__init__(
            LlamaCppBackend(llama),
            clusters=clusters,
            preset=preset,
            function_words=function_words,
            clustering=clustering,
            prefix_matching=prefix_matching,
        )
        self.llama = llama

    def generate(  # type: ignore[override]
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
        options = sampling | {"stop_token_ids": tuple(stop_token_ids)}
        return super().generate(prompts, max_tokens, stop_at_newline=stop_at_newline, on_result=on_result, **options)
