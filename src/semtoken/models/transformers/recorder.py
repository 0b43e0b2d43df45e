"""Scoring while transformers generates: a logits processor that observes and changes nothing.

It sees the logits of a step before the token is chosen. They are kept until the token is known and, in a small batch,
for some steps more (`kept_steps`); then only a few numbers of them are.

What a processor is not shown (the model's own logits, which answers have ended) transformers' decoding loop knows
(`generate_loop`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import torch
from transformers import LogitsProcessor

from semtoken.choices import Equality, Preset
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core import Scorer, ScoringRules, scorer_for
from semtoken.core.given_tokens import as_tokens
from semtoken.core.results import Answers, Distribution, Flag, Running, ScoredAnswer
from semtoken.core.rules import as_rules
from semtoken.errors import BackendError, InvalidInputError, ModelError, VocabularyMismatch
from semtoken.methods.observers.method_scores import MethodScores, require_one_pass
from semtoken.methods.observers.steps import Readable, not_given
from semtoken.models.prompt_ids import end_token_ids
from semtoken.models.scores import AnswerScores
from semtoken.models.transformers.anatomy import inner_model, vocabulary_within
from semtoken.models.transformers.generate_loop import LoopStep, loop_step
from semtoken.models.transformers.generate_settings import NOT_BEAMS
from semtoken.models.transformers.inside import forward_hook
from semtoken.models.transformers.kept_steps import KeptSteps
from semtoken.models.transformers.proving import proof_of
from semtoken.support.inputs import listed, shown, whole

UNKNOWN_END = Flag(
    "unknown_end",
    "Nothing says where this answer ends, and its last tokens may be padding: give the recorder `eos_token_id`, or "
    "`answers` the lengths.",
)
TRAINING = Flag(
    "training_mode", "The model was in training mode, in which each pass gives other numbers. Call model.eval() before."
)
PADDED = Flag(
    "padded_batch",
    "In padded batches, this model gives other numbers than for one prompt. Generate with prompts of one length, or "
    "one by one.",
)
PADDED_BEHIND = Flag(
    "padded_batch",
    "A prompt was padded at its end, and the answer written after the padding. Pad at the left (padding_side='left').",
)
TUNED = Flag(
    "tuned_prompt",
    "With this tuned prompt, transformers' generate gives other numbers than a pass over the whole text. STC writes "
    "and scores with it as such a pass does.",
)
GIVES: frozenset[Readable] = frozenset({"log_probability", "entropy", "best", "row", "logits"})
"""The kinds of data that a logits processor sees of a step."""


class Recorder(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that scores the answers of your own `model.generate` call and changes nothing.

    >>> recorder = Recorder(tokenizer)  # doctest: +SKIP
    >>> sequences = model.generate(**inputs, logits_processor=[recorder])  # doctest: +SKIP
    >>> answers = recorder.answers(sequences)  # doctest: +SKIP

    A processor sees logits after transformers' own penalties and masks. Where the generation uses any
    (`repetition_penalty`, `no_repeat_ngram_size`, `suppress_tokens`, `guidance_scale`, ...), be it by the settings of
    the model, the results say `processed`; generate inside `with recorder.watching(model):` and the model's own logits
    are scored. Temperature, top-k and top-p come later and never matter.

    Where an answer ends is known from `generate` itself. In a decoding loop of your own it is not, nor what was done to
    the logits: the results say `unknown`, and carry the flag `unknown_end` where the last tokens may be padding.

    While the answers are being written, `running` gives what is known of their scores.

    Parameters
    ----------
    vocabulary
        The model's tokenizer, a `Vocabulary`, or the name of a model. The preset `paper` needs `TokenClusters`, or a
        directory or hub id of some.
    preset, equality
        As in `score_logits`.
    eos_token_id
        Ids that end an answer, besides those of `generate`. In a loop of your own without them, special tokens at the
        end of a sequence are taken as padding after the first.
    methods
        Further methods of one pass (`semtoken.methods.METHODS`), whose scores every answer gets. Those that read the
        inside of the model (attention, states) are rejected: `ScoredModel` gives them.

    Raises
    ------
    BackendError
        A method reads what a logits processor does not see.
    InvalidInputError
        Rules or methods that are not known, or rules that count clusters where there are none.
    SemtokenError
        A name under which no vocabulary or clusters can be read.
    VocabularyMismatch
        At the first step: the model has fewer logits than the vocabulary has tokens.
    """

    def __init__(
        self,
        vocabulary: Any,
        preset: Preset | ScoringRules = "default",
        *,
        equality: Equality | None = None,
        eos_token_id: int | Collection[int] | None = None,
        methods: Sequence[str] = (),
    ) -> None:
        self._methods = require_one_pass(methods)
        missing = {reading.what for reading in MethodScores(self._methods).reads} - GIVES
        if missing:
            raise BackendError(not_given("recorder", missing))
        self._rules = as_rules(preset, equality)
        self._tokens = as_tokens(vocabulary, clustering=self._rules.clustering)
        scorer_for(self._tokens, self._rules)  # or the rules are refused before anything is generated
        self._given_ends = end_token_ids(eos_token_id)
        self._watches = False
        self._lock = Lock()
        """Held while a step is taken in, so that other threads may ask for what is known."""
        self.reset()

    def reset(self) -> None:
        """Forget an unfinished generation. `answers` does so by itself."""
        self._now: _Generation | None = None
        self._watched: torch.Tensor | None = None
        self._passes = 0
        """Passes of the watched model since the last step."""

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Score the model's own logits, taken where the model returns them, before any processor.

        In a decoding loop of your own the model must be asked once for each step, for the rows of the step and no
        others. Elsewhere (guidance that asks it twice, a prompt read in pieces) nobody knows which pass the step
        belongs to: what the recorder was given is scored then, and the results say `unknown`.
        """

        def keep(module: Any, args: Any, output: Any) -> None:
            self._watched = output.logits[:, -1].detach()
            self._passes += 1

        self._watches = True
        try:
            with forward_hook(inner_model(model), keep):
                yield
        finally:
            self._watches = False

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Take in one step; `scores` is returned as it is.

        `BackendError` in beam search and assisted decoding, or if this is another generation than before.
        """
        with self._lock:
            step = loop_step(len(input_ids))
            logits, distribution = self._logits(scores, step)
            if self._now is None:
                scorer = self._scorer_of(logits.shape[1])
                self._now = _Generation(input_ids, AnswerScores(scorer, self._methods), self._given_ends, step)
            else:
                self._now.follow(input_ids)
            self._now.wait(step, logits, distribution)
        return scores

    def _scorer_of(self, columns: int) -> Scorer:
        """The scorer of a model with so many logits, without the special tokens after the last one, which it can never
        write.
        """
        tokens, scorer = self._tokens, scorer_for(self._tokens, self._rules)
        if columns >= scorer.vocabulary.size:
            return scorer
        written = vocabulary_within(tokens, columns) if isinstance(tokens, Vocabulary) else None
        if written is None:
            raise VocabularyMismatch(
                f"The model gives {columns:,} logits a step, the vocabulary has {scorer.vocabulary.size:,} tokens: it "
                "belongs to another model."
            )
        return scorer_for(written, self._rules)

    def _logits(self, scores: torch.Tensor, step: LoopStep | None) -> tuple[torch.Tensor, Distribution]:
        """The logits to score, and what they are."""
        passes, self._passes = self._passes, 0
        if self._watches and step is not None:  # the newest pass may be one of a processor that asks the model, too
            return step.logits, "raw"
        if self._watches and self._watched is not None and passes == 1 and len(self._watched) == len(scores):
            return self._watched, "raw"
        if step is None:
            return scores, "unknown"
        return scores, "raw" if step.first is self else "processed"

    def running(self, sequences: Any = None) -> list[Running]:
        """The score of each unfinished answer from its tokens so far.

        A streamer or another thread may ask at any time between two steps. A stopping criterion can end an answer
        whose uncertainty has passed a threshold, since `sequence_uncertainty_interval[0]` is never taken back:

        >>> class StopIfUncertain(StoppingCriteria):  # doctest: +SKIP
        ...     def __call__(self, input_ids, scores, **kwargs):
        ...         running = recorder.running(input_ids)
        ...         return torch.tensor([one.sequence_uncertainty_interval[0] > 0.9 for one in running],
        device=input_ids.device)

        Parameters
        ----------
        sequences
            The ids so far [B, prompt + answer], as a stopping criterion gets them, or what `generate` returned;
            `BackendError` if they are not those that are being recorded. Without them the newest token is not known
            yet and left out.

        Returns
        -------
        list of Running
            One for each sequence; none before the first step. Where a token of `eos_token_id` ended an answer, its
            final score: give these ids for a batch, in which padding counts as tokens otherwise.
        """
        with self._lock:
            if sequences is not None:
                return self._followed(_sequences(sequences)).running()
            return [] if self._now is None else self._now.running()

    def _followed(self, ids: torch.Tensor) -> _Generation:
        """The generation that wrote these sequences, which may have a token more than it was shown."""
        rows = 0 if self._now is None else len(self._now.ids)
        if self._now is None or len(ids) != rows:
            raise BackendError(
                f"{rows} sequences were recorded, {len(ids)} were given. Was the recorder passed to this generate() as "
                f"logits_processor=[recorder]? {NOT_BEAMS}"
            )
        known = self._now.ids[:, : ids.shape[1]]
        if not torch.equal(ids[:, : known.shape[1]], known):
            raise BackendError(f"The sequences are not those that were recorded. {NOT_BEAMS}")
        if ids.shape[1] > known.shape[1]:
            self._now.follow(ids)
        return self._now

    def answers(
        self, sequences: Any, *, lengths: Sequence[int] | None = None, questions: Sequence[str | None] = ()
    ) -> list[ScoredAnswer]:
        """The scored answers of the generation that just ended, one for each of its sequences.

        Parameters
        ----------
        sequences
            What `generate` returned: ids of shape [B, prompt + answer], or its output object.
        lengths
            Tokens of each answer, where neither an end-of-sequence token nor padding says so.
        questions
            What was asked, one for each answer: its words are not new in the answer. A recorder sees token ids alone,
            so that without them the explanations say that the question is not known.

        Raises
        ------
        BackendError
            The sequences are not those that were recorded (beam search, another generation).
        InvalidInputError
            There are not as many lengths or questions as answers.
        """
        ids = _sequences(sequences)
        if lengths is not None:
            lengths = [whole(length, "lengths", low=0) for length in listed(lengths, "lengths")]
        questions = listed(questions, "questions") or [None] * len(ids)
        with self._lock:
            now = self._followed(ids)
            for name, given in (("lengths", lengths), ("questions", questions)):
                if given is not None and len(given) != len(ids):
                    raise InvalidInputError(f"There are {len(ids)} answers and {len(given)} {name}.")
            results = now.results(ids, lengths, questions)
            self.reset()
        return results


class _Generation:
    """The answers of one call of `generate`, as far as they have come."""

    def __init__(
        self, ids: torch.Tensor, scores: AnswerScores, stop_ids: Collection[int], step: LoopStep | None
    ) -> None:
        self.ids = ids.clone()
        """The sequences as they were given last: a copy, as those may be edited in place."""
        self._prompt_length = ids.shape[1]
        self._scores = scores
        self._vocabulary = scores.scorer.vocabulary
        self._stop_ids = frozenset(stop_ids)
        self._ends_are_known = True
        """True as long as `generate` has said at each step which answers go on."""
        self._going_on = list(range(len(ids)))
        """The answers that have not ended, as far as that is known."""
        self._final: dict[int, Running] = {}
        self._steps = KeptSteps(scores)
        self._is_waiting = False
        """True if the tokens of the newest step are not known yet."""
        self._scored: set[Distribution] = set()
        """The kinds of logits of the steps."""
        # Without its logits: a whole prompt of them would be kept.
        self._first = None if step is None else replace(step, logits=None, first=None)
        self._in_training = step is not None and any(module.training for module in step.model.modules())

    def wait(self, step: LoopStep | None, logits: torch.Tensor, distribution: Distribution) -> None:
        """Keep the logits of a step until its tokens are known."""
        if step is None:
            self._ends_are_known = False
        else:
            self._stop_ids |= step.stop_ids
            self._going_on = [i for i in self._going_on if step.unfinished[i]]
        self._scored.add(distribution)
        self._steps.keep(logits.detach(), may_be_masked=distribution == "unknown")
        self._is_waiting = True

    def follow(self, ids: torch.Tensor) -> None:
        """Take in the tokens that the sequences have got."""
        # One step, one token: anything else is another generation.
        if tuple(ids.shape) != (len(self.ids), self.ids.shape[1] + self._is_waiting):
            raise BackendError(
                "The recorder was called for another generation, or for several tokens at once (assisted decoding). "
                "Call answers() or reset() after each generate(), and decode one token at a time."
            )
        if not torch.equal(ids[:, : self.ids.shape[1]], self.ids):
            raise BackendError(
                f"The sequences changed places between two steps, or one of their tokens was edited. {NOT_BEAMS}"
            )
        self.ids = ids.clone()
        if not self._is_waiting:
            return
        self._is_waiting = False
        tokens = ids[:, -1].tolist()
        if self._going_on:
            self._steps.add_tokens(self._going_on, [tokens[i] for i in self._going_on])
            self._going_on = [i for i in self._going_on if tokens[i] not in self._stop_ids]

    def running(self) -> list[Running]:
        """The score of each answer from its tokens so far."""
        self._steps.score()
        return [self._running(i) for i in range(len(self.ids))]

    def _running(self, i: int) -> Running:
        if i in self._going_on:
            return self._scores.running(i)
        if i not in self._final:
            scored = self._scores.result(i)
            score, length, log_confidence = scored.sequence_uncertainty, len(scored.tokens), scored.log_confidence
            self._final[i] = Running(score, (score, score), length, length, (log_confidence, log_confidence))
        return self._final[i]

    def results(self, ids: torch.Tensor, lengths: Sequence[int] | None, questions: Sequence[str | None]) -> Answers:
        """The scored answers, of these lengths if somebody gives them."""
        self._steps.score()  # first, since it refuses ids outside the vocabulary
        written = ids[:, self._prompt_length :].tolist()
        unknown = set() if lengths is not None else {i for i, one in enumerate(written) if self._may_be_padded(one)}
        if lengths is None:
            lengths = list(map(self._length, written))
        flags = self._flags()
        results = []
        for i, response in enumerate(self._scores.results(dict(enumerate(lengths)), self._distribution)):
            more = (*flags, *([UNKNOWN_END] if i in unknown else []))
            asked = response.with_fields(question=questions[i], flags=(*response.flags, *more))
            results.append(self._scores.methods.scored(i, asked))
        return Answers(results)

    @property
    def _distribution(self) -> Distribution:
        if self._scored == {"raw"}:
            return "raw"
        return "processed" if self._steps.masked or "processed" in self._scored else "unknown"

    def _may_be_padded(self, ids: list[int]) -> bool:
        """Return True if nobody has said where an answer ends, and its last tokens may be padding."""
        if self._ends_are_known or len(self.ids) == 1 or not ids or self._stop_ids.intersection(ids):
            return False
        return bool(self._vocabulary.special[ids[-1]]) or ids[-2:-1] == ids[-1:]

    def _length(self, ids: list[int]) -> int:
        """Tokens of an answer, its terminator included, without the padding after it. Those after an end that is known
        were not taken in.
        """
        length, special = len(ids), self._vocabulary.special
        if not self._ends_are_known and not self._stop_ids:
            # Of several special tokens at the end, the first ended the answer, and the others pad it.
            while length > 1 and special[ids[length - 1]] and special[ids[length - 2]]:
                length -= 1
        return length

    def _flags(self) -> list[Flag]:
        """Flags for what makes numbers of this generation doubtful. Where a batch was padded, the model is tried."""
        step = self._first
        if step is None:
            return []
        behind = [PADDED_BEHIND] * step.padded_behind
        if self._in_training:
            return [TRAINING, *behind]
        tried = partial(_generates, vocabulary=self._vocabulary, padding=step.padding)
        differs = not behind and step.padded and tried(step.model) != "padded"
        tuned = step.owner is not step.model and tried(step.owner) == "never"
        return [*behind, *[PADDED] * differs, *[TUNED] * tuned]


def _generates(model: Any, vocabulary: Vocabulary, padding: int) -> str:
    """The batches in which the `generate` of a model gives the numbers of a plain pass."""
    try:
        return proof_of(model, vocabulary, padding).generates
    except ModelError:
        return "never"


def _sequences(given: Any) -> torch.Tensor:
    """The ids in what `generate` returned, or in what a stopping criterion gets."""
    ids = getattr(given, "sequences", given)
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2:
        raise InvalidInputError(f"'sequences' must be what generate returned, ids of shape [B, n], got {shown(ids)}.")
    return ids
