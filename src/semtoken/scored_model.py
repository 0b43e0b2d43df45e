"""`ScoredModel`: a model of any backend whose answers come with their confidence, at no further generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from semtoken.choices import BackendName, Equality, Preset, Reading
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core import Scorer, ScoringRules, scorer_for
from semtoken.core.given_tokens import as_clusters
from semtoken.core.results import Answers, ScoredAnswer
from semtoken.core.results.generation import DEPTH
from semtoken.core.rules import as_rules
from semtoken.errors import InvalidInputError
from semtoken.guarantees import Calibrator, Fingerprint, Threshold
from semtoken.guarantees.apply import origin_of, with_decision
from semtoken.guarantees.fingerprint import require_clusters
from semtoken.guarantees.labels import CONFIDENCE
from semtoken.guarantees.threshold import product_limit
from semtoken.methods.observers.method_scores import MethodScores, require_one_pass
from semtoken.methods.observers.steps import Completion, Observer
from semtoken.models import load_backend
from semtoken.models.base import Backend, Decoding, Prompt, Response, require_readings
from semtoken.models.prompt_ids import as_prompts, as_responses, encode_prompt, is_ids, question_of_prompt
from semtoken.models.scores import AnswerScores, StoppingScores
from semtoken.support.checkpoints.sources import resolve
from semtoken.support.inputs import flag, instance, listed, real, text, whole

if TYPE_CHECKING:
    from semtoken.models.probing import Dispute

OnResult = Callable[[int, ScoredAnswer], None]

MOST_SAMPLES = 10_000
"""Most answers to one prompt in one call: more would be a slip, and would fill the memory before the first is there."""


class ScoredModel:
    """A model whose answers come with their confidence, computed while it generates.

    The method is Semantic Token Clustering (Cao et al., EACL 2026): S = 1 - prod_i p(tokens that agree with token i).

    Parameters
    ----------
    model
        A causal language model of transformers with an output head, or any `Backend`.
    tokenizer
        The tokenizer of a transformers model; a `Backend` brings its own.
    clusters
        Only the preset `paper` reads them: `TokenClusters`, or a directory, a hub id or a model's name. None: those
        cached for this model, or computed (minutes to an hour for a vocabulary of 150k) and cached, when a score is
        first asked for. Given under another preset, they ask for `uncertainty_under("meaning")` beside the score.
    preset, equality
        As in `score_logits`.
    methods
        Further methods of one pass (`semtoken.methods.METHODS`), such as `["mean_new_word", "trace"]`: each answer gets
        their scores. What they read is recorded in the same pass, a few numbers for each token.
    calibrator
        A `Calibrator`, or a directory that holds one: every answer gets its probability of being right.
    threshold
        A `Threshold`, instead of the calibrator's: every answer gets a decision.
    states
        Whether to keep the hidden state at the end of every answer (`ScoredAnswer.state`), to train on. True: of
        the layer at .65 of the depth; a number in (0, 1]: of the layer at that depth. Only transformers gives states.
    progress
        Called with the progress of clustering; see `semtoken.clustering.progress.Progress`.

    Raises
    ------
    CalibratorMismatchError
        The calibrator or the threshold belongs to other rules or clusters. Where clusters are yet to be made, the first
        answer shows it.
    ModelError
        The model is an encoder-decoder or has no output head.
    VocabularyMismatch
        The clusters are those of another tokenizer, or the model has fewer logits than the tokenizer has tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        clusters: TokenClusters | str | Path | None = None,
        *,
        preset: Preset | ScoringRules = "default",
        equality: Equality | None = None,
        methods: Sequence[str] = (),
        calibrator: Calibrator | str | Path | None = None,
        threshold: Threshold | None = None,
        states: bool | float = False,
        progress: Callable[..., None] | None = None,
    ) -> None:
        self.backend = _as_backend(model, tokenizer)
        self.rules = as_rules(preset, equality)
        self._progress = progress
        if isinstance(calibrator, str | Path):
            calibrator = Calibrator.load(calibrator)
        self.calibrator = None if calibrator is None else instance(calibrator, Calibrator, "calibrator")
        if threshold is not None:
            instance(threshold, Threshold, "threshold")
        self.threshold = threshold or (self.calibrator.threshold if self.calibrator is not None else None)
        labeled_by = (fitted.fingerprint.method for fitted in (self.calibrator, self.threshold) if fitted is not None)
        # the confidence is always there
        known = (method for method in labeled_by if method not in (None, CONFIDENCE))
        self.methods = require_one_pass([*methods, *known])
        self.depth: float | None = None if states is False else DEPTH if states is True else real(states, "states")
        """Depth of the layer whose states are read, in (0, 1]; None where no states are read."""
        if self.depth is not None and not 0 < self.depth <= 1:
            raise InvalidInputError(f"states must be True or a depth in (0, 1]. Got {states!r} instead.")
        require_readings(self.backend, [MethodScores(self.methods, self.depth)])
        self._name: str | None = None
        self._given = clusters is not None
        self._shipped: Path | None = None
        """Clusters that come with semtoken for this model."""
        # Rules are known at once, so a mismatch shows before clusters are loaded or made, which can take minutes.
        self._require_own(lambda origin: origin.require_rules(self.rules.signature))
        if clusters is not None:
            token_clusters = self.__dict__["clusters"] = load_clusters(clusters, self.backend)
            self._require_own(lambda origin: require_clusters(origin, token_clusters))

    @cached_property
    def _weights(self) -> str | None:
        """The identity of this model's weights, for states that are kept."""
        weights: str | None = getattr(self.backend, "weights", None)
        return weights

    def _require_own(self, check: Callable[[Fingerprint], None]) -> None:
        """Check where the calibrator and the threshold come from."""
        for fitted in (self.calibrator, self.threshold):
            if fitted is not None:
                check(fitted.fingerprint)

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str | Path = "almanac",
        *,
        backend: BackendName = "transformers",
        device: str | None = None,
        dtype: Any = "auto",
        clusters: TokenClusters | str | Path | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        preset: Preset | ScoringRules = "default",
        equality: Equality | None = None,
        methods: Sequence[str] = (),
        calibrator: Calibrator | str | Path | None = None,
        threshold: Threshold | None = None,
        states: bool | float = False,
        progress: Callable[..., None] | None = None,
        **options: Any,
    ) -> ScoredModel:
        """Load a model and its tokenizer.

        Parameters
        ----------
        model_or_path
            "almanac" (the embedded model), a name that `semtoken fetch` has got, a GGUF file, a directory, or a hub id.
        backend : {"transformers", "vllm", "llama-cpp"}
            The engine that runs it.
        device
            A torch device ("cuda:0"). Default: the first CUDA device if there is one.
        dtype
            Precision of the weights; "auto" is that of the checkpoint.
        clusters, preset, equality, methods, calibrator, threshold, states, progress
            As for `ScoredModel`.
        revision, trust_remote_code
            As in transformers.
        **options
            Options of the engine: anything that transformers' `from_pretrained` takes (`device_map`,
            `quantization_config`, `attn_implementation`, ...), or arguments of `vllm.LLM` or `llama_cpp.Llama`.

        Returns
        -------
        ScoredModel

        Raises
        ------
        InvalidInputError
            An option that the engine does not know, or a setting that is not known. Nothing was loaded.
        ModelError
            There is no such model or device, or the model cannot be loaded.
        MissingExtra
            The engine is not installed.
        CalibratorMismatchError, VocabularyMismatch
            As for `ScoredModel`.
        """
        require_one_pass(methods)  # before minutes are spent on loading
        rules = as_rules(preset, equality)
        loaded = load_backend(
            backend,
            model_or_path,
            device=device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            **options,
        )
        made = cls(
            loaded,
            clusters=resolve(model_or_path).clusters if clusters is None and rules.clustering else clusters,
            preset=rules,
            methods=methods,
            calibrator=calibrator,
            threshold=threshold,
            states=states,
            progress=progress,
        )
        made._name, made._shipped = str(model_or_path), resolve(model_or_path).clusters
        return made

    @cached_property
    def clusters(self) -> TokenClusters:
        """The clusters of the model: given by the user, from the cache, or computed now.

        Rules that read clusters ask for them when a score is first needed. Under other rules nothing but you does.
        """
        if self._shipped is not None:
            return load_clusters(self._shipped, self.backend)
        return self.backend.default_clusters(self._progress)

    @property
    def scorer(self) -> Scorer:
        """The scorer of the current rules, with clusters if the rules need them or some were given."""
        # Clusters that were given count for their vocabulary and signature even where the rules read none.
        reads = self.rules.clustering or self._given
        return scorer_for(self.clusters if reads else self.backend.vocabulary, self.rules)

    def scorer_of(self, rules: ScoringRules) -> Scorer:
        """A scorer of the same model under other rules; clusters are loaded or made if these need them."""
        if not rules.clustering:
            return scorer_for(self.scorer.vocabulary, rules)
        return scorer_for(self.clusters, rules)

    def fingerprint(self, name: str | None = None) -> Fingerprint:
        """The origin of this object's scores, which calibrators compare; `name` is the model's name as you gave it."""
        return Fingerprint(
            signature=self.scorer.signature,
            distribution=self.backend.distribution,
            scores="exact",
            **origin_of(self.model, name or self._name),
        )

    @property
    def model(self) -> Any:
        """The engine's own model: of transformers, `vllm.LLM`, or `llama_cpp.Llama`."""
        return self.backend.model

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model, called like those of transformers whatever the engine."""
        return self.backend.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_new_tokens: int = 256,
        *,
        batch_size: int = 8,
        stop_at_newline: bool = False,
        stop_strings: str | Sequence[str] = (),
        stop_above_product: Threshold | float | None = None,
        on_result: OnResult | None = None,
        **generation_kwargs: Any,
    ) -> list[ScoredAnswer]:
        """Generate one answer for each prompt, and score it in the same pass.

        Parameters
        ----------
        prompts
            A string, a list of chat messages (rendered by the tokenizer's template), or a list of either.
        max_new_tokens
            How many tokens an answer may have.
        batch_size
            How many prompts are decoded together (padded on the left).
        stop_at_newline
            Whether an answer ends at its first token with a newline, as the paper's prompts ask for.
        stop_strings
            Texts that end an answer once one of them is complete. The token that completes it belongs to the answer.
        stop_above_product
            A threshold that was fitted with `score="stc"`, or -log_confidence in nats: end an answer once its own can
            only be above, since it would be rejected anyway. It carries the flag `stopped_early`. The product over the
            tokens is the one number whose running bound never falls again; a threshold of the confidence or of another
            method is rejected. Engines that return whole answers ignore it.
        on_result
            Called with (number of the answer, answer), in this order, as soon as it is there.
        **generation_kwargs
            Anything of transformers' `generate`, of vLLM's `SamplingParams`, or of llama.cpp's `Llama.generate`.
            Decoding is greedy unless they say otherwise (`do_sample=True` in transformers); the distribution scored
            is the model's own at temperature 1, before any processor, either way.

        Returns
        -------
        list of ScoredAnswer
            In the order of the prompts; with `num_return_sequences=k`, k in a row for each.

        Raises
        ------
        InvalidInputError
            An empty prompt, chat messages without a template, or no room for an answer.
        BackendError
            Beam search or assisted decoding was asked for.
        """
        decoding = self.decoding(max_new_tokens, batch_size, stop_at_newline, stop_strings, generation_kwargs)
        scores = self.observer(stop_above_product)
        asked = as_prompts(prompts)
        results = _InOrder(self, scores, on_result, [prompt for prompt in asked for _ in range(decoding.n)])
        # In this order: an answer is scored when its last step has been observed, so `results` comes second.
        self.backend.generate(asked, decoding, [scores, results])
        return results.found

    def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Response | Sequence[Response],
        *,
        batch_size: int = 8,
        on_result: OnResult | None = None,
        **reading_kwargs: Any,
    ) -> list[ScoredAnswer]:
        """Score existing text in one teacher-forced pass for each response.

        Parameters
        ----------
        prompts
            As in `generate`.
        responses
            One text, or list of token ids, for each prompt. Text is scored as it stands: no terminator is added.
        batch_size
            How many responses are scored together.
        on_result
            Called with (number of the response, result), in this order, as soon as it is there.
        **reading_kwargs
            Options of the engine. With transformers, `chunk_size` is the number of response tokens whose logits exist
            at one time: batch_size x chunk_size x V numbers at most. By default there are up to 2^25 of them.

        Returns
        -------
        list of ScoredAnswer
            In the order of the prompts. An empty response has uncertainty 1.

        Raises
        ------
        InvalidInputError
            Numbers of prompts and responses differ, or one of them cannot be used.
        """
        batch_size, asked = whole(batch_size, "batch_size", low=1), as_prompts(prompts)
        scores = self.observer()
        results = _InOrder(self, scores, on_result, asked)
        self.backend.read(
            asked, as_responses(responses, len(asked)), [scores, results], batch_size=batch_size, **reading_kwargs
        )
        return results.found

    def disputed(self, prompt: Prompt, answer: ScoredAnswer, **options: Any) -> list[Dispute]:
        """See at which steps this model might have answered something else, the greatest disagreement first.

        `prompt` is what it was asked, `answer` what `generate` or `score` gave for it. The `options`, what is returned
        and the errors are those of `semtoken.models.probing.disputed`.
        """
        from semtoken.models.probing import disputed

        return disputed(self, prompt, answer, **options)

    def decide(
        self,
        state: Any,
        questions: Sequence[Any] | Mapping[str, Any],
        *,
        reading: Reading = "labels",
        orders: int | None = 1,
    ) -> Any:
        """Answer typed questions about a state, with a probability for every answer that is allowed.

        Parameters
        ----------
        state
            What the questions are about: a text, or anything that JSON can hold.
        questions
            `Predicate`, `Choice` and `Score` objects, or dictionaries as `/v1/decisions` or `/v1/systemone` take them.
            A list of them, or a dictionary by names.
        reading
            `labels`: the probability of an option's letter. `words`: of the option's own words. See docs/decisions.md.
        orders
            How many orders of the options are read and averaged; None: all.

        Returns
        -------
        list of Answer, or dict by name
            As `questions`.

        Raises
        ------
        InvalidInputError
            A question cannot be read as one, or the prompts are longer than the model reads.
        """
        from semtoken.decisions import ReadingOptions, decide_about

        return decide_about(self.backend, state, questions, ReadingOptions(reading, orders))

    def decoding(
        self,
        max_new_tokens: int,
        batch_size: int,
        stop_at_newline: bool,
        stop_strings: str | Sequence[str],
        options: Mapping[str, Any],
    ) -> Decoding:
        """Turn the arguments of `generate` into a `Decoding`, for an engine that you run yourself.

        `options` are those of the engine; `num_return_sequences` is taken out of them. `InvalidInputError` if a value
        cannot be used.
        """
        max_new_tokens, batch_size = whole(max_new_tokens, "max_new_tokens"), whole(batch_size, "batch_size")
        stops = [stop_strings] if isinstance(stop_strings, str) else listed(stop_strings, "stop_strings")
        if max_new_tokens < 1 or batch_size < 1:
            raise InvalidInputError(
                f"max_new_tokens and batch_size must be positive, got {max_new_tokens} and {batch_size}."
            )
        if "" in stops:
            raise InvalidInputError("An empty text in stop_strings would end every answer at once: leave it out.")
        own = dict(options)
        samples = own.pop("num_return_sequences", None)
        return Decoding(
            max_new_tokens=max_new_tokens,
            n=1 if samples is None else whole(samples, "num_return_sequences", low=1, high=MOST_SAMPLES),
            stop_at_newline=flag(stop_at_newline, "stop_at_newline"),
            stop_strings=tuple(text(stop, "stop_strings") for stop in stops),
            batch_size=batch_size,
            options=own,
        )

    def observer(self, stop_above_product: Threshold | float | None = None) -> AnswerScores:
        """An observer that scores the answers of one call of the backend, for an engine that you run yourself.

        With `stop_above_product` it ends answers, as `generate` says; the errors are those that `generate` raises for
        it.
        """
        if stop_above_product is None:
            return AnswerScores(self.scorer, self.methods, self.depth)
        limit = product_limit(stop_above_product)
        if isinstance(stop_above_product, Threshold):
            stop_above_product.fingerprint.require_rules(self.rules.signature)
        return StoppingScores(self.scorer, limit, self.methods, self.depth)

    def result(
        self,
        scores: AnswerScores,
        answer: int,
        completion: Completion,
        question: str | None = None,
        prompt: Prompt = "",
    ) -> ScoredAnswer:
        """The score of a complete answer, with its probability and its decision where there is a calibrator.

        `scores` is the `observer` that saw the answer, under this number; `completion` is what the backend gave for it;
        and `question` and `prompt` are what it answers.
        """
        return self.results(scores, {answer: completion}, {answer: question}, {answer: prompt})[0]

    def results(
        self,
        scores: AnswerScores,
        completions: Mapping[int, Completion],
        questions: Mapping[int, str | None] = MappingProxyType({}),
        prompts: Mapping[int, Prompt] = MappingProxyType({}),
    ) -> list[ScoredAnswer]:
        """The scores of several answers, whose completions, questions and prompts are given by their numbers."""
        lengths = {answer: len(completion.token_ids) for answer, completion in completions.items()}
        scored = zip(scores.results(lengths, self.backend.distribution), completions.items(), strict=True)
        responses = [
            scores.methods.scored(
                answer, result.with_fields(truncated=completion.truncated, question=questions.get(answer))
            )
            for result, (answer, completion) in scored
        ]
        if self.depth is not None:
            pairs = zip(responses, lengths, strict=True)
            responses = [self._with_origin_of_state(response, prompts.get(answer, "")) for response, answer in pairs]
        if self.calibrator is None and self.threshold is None:
            return responses
        origin = Fingerprint(**origin_of(self.model, self._name))
        return [with_decision(result, self.calibrator, self.threshold, origin) for result in responses]

    def _with_origin_of_state(self, answer: ScoredAnswer, prompt: Prompt) -> ScoredAnswer:
        """An answer whose hidden state says of which model and prompt it is."""
        if answer.state is None:
            return answer
        state = replace(
            answer.state,
            prompt=self._read_before(prompt),
            weights=self._weights,
            vocabulary=self.backend.vocabulary.fingerprint,
            given=answer.truncated is None,
        )
        return answer.with_fields(state=state)

    def _read_before(self, prompt: Prompt) -> str:
        """The text that the model reads for a prompt, its template and special tokens included."""
        if not prompt:
            return ""
        ids = prompt if is_ids(prompt) else encode_prompt(self.tokenizer, prompt)
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


class _InOrder(Observer):
    """Keeps the results of a call and reports them in the order of the answers."""

    reads = frozenset()

    def __init__(
        self, stc: ScoredModel, scores: AnswerScores, on_result: OnResult | None, prompts: Sequence[Prompt]
    ) -> None:
        self.found = Answers()
        self._prompts = prompts
        self._stc = stc
        self._scores = scores
        self._on_result = on_result
        self._waiting: dict[int, ScoredAnswer] = {}

    def finish(self, answer: int, completion: Completion) -> None:
        """Score a complete answer, and report it once all answers before it have been reported."""
        prompt = self._prompts[answer]
        self._waiting[answer] = self._stc.result(self._scores, answer, completion, question_of_prompt(prompt), prompt)
        # Batches are sorted by length, so answers end in another order than that of the prompts.
        while len(self.found) in self._waiting:
            result = self._waiting.pop(len(self.found))
            if self._on_result is not None:
                self._on_result(len(self.found), result)
            self.found.append(result)


def load_clusters(clusters: TokenClusters | str | Path, backend: Backend) -> TokenClusters:
    """Clusters that fit the backend: those given, or those of a directory, the hub or a model's name."""
    token_clusters = as_clusters(clusters)
    backend.check_vocabulary(token_clusters.vocabulary)
    return token_clusters


def _as_backend(model: Any, tokenizer: Any) -> Backend:
    if isinstance(model, Backend):
        if tokenizer is not None:
            raise InvalidInputError("A backend brings its own tokenizer; leave the tokenizer out.")
        return model
    from semtoken.models.transformers.model import TransformersBackend

    return TransformersBackend(model, tokenizer)
