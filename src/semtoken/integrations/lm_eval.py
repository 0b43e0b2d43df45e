"""lm-evaluation-harness: any existing task by name, with AUROC, PRR and calibration beside its accuracy.

    evaluate(SemtokenLM(), ["triviaqa"], limit=200)

Tasks that compare log-probabilities of choices run as well. They
have no generated answer, so they get no uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import metrics
from semtoken.core.results import ScoredAnswer
from semtoken.errors import InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.integrations.hosts import require_host
from semtoken.integrations.selective import selective_figures
from semtoken.methods.observers.steps import LOGITS, Completion, Observer, Step
from semtoken.models.prompt_ids import encode_prompt
from semtoken.scored_model import ScoredModel

require_host("lm_eval")

from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.api.registry import register_model  # noqa: E402
from lm_eval.evaluator import simple_evaluate  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

MAX_NEW_TOKENS = 256
"""Longest answer of a task that names no length, as the harness's own models have it."""
OnProgress = Callable[[int, int], None]


@register_model("semtoken")
class SemtokenLM(TemplateLM):  # type: ignore[misc]
    """A model for the harness whose generated answers are scored on the way.

    Parameters
    ----------
    pretrained
        A name that `ScoredModel.from_pretrained` takes, or a `ScoredModel`.
    batch_size
        How many prompts are answered together.
    max_gen_toks
        Most tokens of an answer, where a task names no length.
    on_progress
        Called with the number of answers that are there, and of all.
    **options
        Further arguments of `ScoredModel.from_pretrained`.
    """

    backend = "causal"

    def __init__(
        self,
        pretrained: str | ScoredModel = "almanac",
        batch_size: int | str = 8,
        max_gen_toks: int = MAX_NEW_TOKENS,
        on_progress: OnProgress | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.stc = ScoredModel.from_pretrained(pretrained, **options) if isinstance(pretrained, str) else pretrained
        # The harness' "auto" looks for the largest batch by running out of memory.
        self.batch_size = 8 if isinstance(batch_size, str) and not batch_size.isdigit() else int(batch_size)
        self.max_gen_toks = max_gen_toks
        self._on_progress = on_progress
        self.scored: dict[tuple[str, str], ScoredAnswer] = {}
        """Every generated answer by its prompt and its text as the harness gets it. A table, since filters of the
        harness build new strings."""

    @property
    def eot_token_id(self) -> int:
        """The id of the token that the harness puts before a text without context."""
        return int(self.stc.tokenizer.eos_token_id)

    @property
    def tokenizer_name(self) -> str:
        """The name under which the harness caches prompts."""
        return str(getattr(self.stc.tokenizer, "name_or_path", "semtoken")).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids of a text, encoded as prompts are."""
        if add_special_tokens is False:
            return list(self.stc.tokenizer(string, add_special_tokens=False)["input_ids"])
        return list(encode_prompt(self.stc.tokenizer, string))

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as the text of the model's chat template."""
        return str(
            self.stc.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The model's chat template."""
        return str(self.stc.tokenizer.chat_template or "") if chat_template else ""

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answer every request; the scores are in `scored`."""
        answers: dict[int, str] = {}
        for settings, numbers in _groups([request.args[1] for request in requests]):
            contexts = [requests[number].args[0] for number in numbers]
            stops = _stops(settings)

            def keep(
                place: int,
                result: ScoredAnswer,
                contexts: list[str] = contexts,
                numbers: list[int] = numbers,
                stops: tuple[str, ...] = stops,
            ) -> None:
                text = _cut(result.text, stops)
                self.scored[contexts[place], text] = result
                answers[numbers[place]] = text
                if self._on_progress is not None:
                    self._on_progress(len(answers), len(requests))

            self.stc.generate(
                contexts,
                int(next((settings[name] for name in _LENGTHS if settings.get(name)), self.max_gen_toks)),
                batch_size=self.batch_size,
                stop_strings=stops,
                on_result=keep,
                **_options(settings),
            )
        return [answers[number] for number in range(len(requests))]

    def _loglikelihood_tokens(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-probability of each continuation, and whether greedy decoding would give it."""
        likelihoods = _Likelihoods()
        prompts, replies = [list(request[1]) for request in requests], [list(request[2]) for request in requests]
        self.stc.backend.read(prompts, replies, [likelihoods], batch_size=self.batch_size)
        return [likelihoods.found.get(number, (0.0, True)) for number in range(len(requests))]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Refused with `InvalidInputError`: semtoken scores answers, and a perplexity of documents says nothing of
        one.
        """
        raise InvalidInputError(
            "This task measures the perplexity of documents, which has no answer to score. Choose tasks that generate."
        )


class _Likelihoods(Observer):
    """Sums the log-probabilities of replies that are read, and compares each token with the best one."""

    reads = frozenset({LOGITS})

    def __init__(self) -> None:
        self.found: dict[int, tuple[float, bool]] = {}

    def observe(self, step: Step) -> None:
        """Take in one step."""
        assert step.logits is not None
        values = step.log_probabilities()
        for answer, token, row, value in zip(step.answers, step.tokens, step.rows, values.tolist(), strict=True):
            total, greedy = self.found.get(answer, (0.0, True))
            # By the array's own method: NumPy knows neither bfloat16 nor tensors on a GPU.
            best = int(step.logits[row][: step.size].argmax())
            self.found[answer] = (total + value, greedy and token == best)

    def finish(self, answer: int, completion: Completion) -> None:
        """Nothing is left to do."""


# --- running tasks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskFigures:
    """Figures on how well the uncertainty ranks the answers of one task, by one of its metrics."""

    task: str
    metric: str
    filter: str
    """The harness's way from an answer to what it compares."""
    accuracy: float
    """Mean of the metric over the answers that were scored, in [0, 1]."""
    figures: Mapping[str, float]
    """`n`, `auroc`, `prr`, `aurc` with intervals (`_low`, `_high`), `risk_at_50` and so on, `ece`;
    `probability_correct_ece` with a calibrator."""


def evaluate(
    model: SemtokenLM,
    tasks: Sequence[str | Mapping[str, Any]],
    *,
    limit: int | None = None,
    num_fewshot: int | None = None,
    chat: bool = False,
    include_path: Path | None = None,
    calibrator: CalibratorInUse | None = None,
    **options: Any,
) -> tuple[dict[str, Any], list[TaskFigures]]:
    """Run tasks of the harness; returns the harness's own results, samples included, and ours.

    Tasks are names of tasks or groups, or configurations; `include_path` is a folder with further ones. `limit` is how
    many documents of each are asked (None: all), `num_fewshot` how many examples come before each question (None: as
    many as the task has). `options` are further arguments of the harness's `simple_evaluate`. `InvalidInputError` if
    there is no such task.
    """
    manager = TaskManager(include_path=None if include_path is None else str(include_path))
    unknown = [name for name in tasks if isinstance(name, str) and not manager.match_tasks([name])]
    if unknown:
        raise InvalidInputError(
            f"lm-evaluation-harness has no task {', '.join(map(repr, unknown))}. `lm-eval ls tasks` lists them; "
            "tasks of your own are found in the folder that you include."
        )
    results = simple_evaluate(
        model,
        tasks=list(tasks),
        limit=limit,
        num_fewshot=num_fewshot,
        apply_chat_template=chat,
        task_manager=manager,
        log_samples=True,
        **options,
    )
    all_figures = [
        figures
        for task, samples in results["samples"].items()
        for figures in task_figures(task, samples, model.scored, calibrator)
    ]
    return results, all_figures


def task_figures(
    task: str,
    samples: Sequence[Mapping[str, Any]],
    scored: Mapping[tuple[str, str], ScoredAnswer],
    calibrator: CalibratorInUse | None = None,
) -> list[TaskFigures]:
    """The figures of one task, from the harness's `samples` and `SemtokenLM.scored`, and those of a calibrator."""
    answered = [(sample, scored.get(_key(sample))) for sample in samples]
    names = sorted({(metric, sample["filter"]) for sample in samples for metric in sample["metrics"]})
    all_figures = []
    for metric, filtered in names:
        rows = [
            (sample[metric], answer)
            for sample, answer in answered
            if sample["filter"] == filtered and answer is not None
        ]
        # Metrics such as a corpus BLEU give a sample something else than its share of being right.
        if not rows or not all(isinstance(value, int | float) and 0 <= value <= 1 for value, _ in rows):
            continue
        quality = np.array([float(value) for value, _ in rows])
        confidence = np.array([answer.confidence for _, answer in rows])
        figures = selective_figures(-confidence, quality)
        right = (quality == 1.0).astype(float)
        figures["ece"] = metrics.expected_calibration_error(confidence, right)
        if calibrator is not None:
            probabilities = [float(calibrator.calibrator.predict_proba(answer)) for _, answer in rows]
            figures["probability_correct_ece"] = metrics.expected_calibration_error(probabilities, right)
        all_figures.append(TaskFigures(task, metric, filtered, float(quality.mean()), figures))
    return all_figures


def _key(sample: Mapping[str, Any]) -> tuple[str, str]:
    """Prompt and first answer of a sample, as `SemtokenLM.scored` has them."""
    [context, *_] = sample["arguments"][0]
    answer = sample["resps"][0]
    first = answer[0] if isinstance(answer, list) else answer
    return str(context), str(first)


# --- settings of tasks -------------------------------------------------------------------------------------------

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The harness's names of the most tokens of an answer; the first one that a task gives counts."""
_SAMPLING = ("do_sample", "temperature", "top_p", "top_k")


def _groups(settings: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[int]]]:
    """Requests that are generated in the same way, together, with their numbers."""
    groups: dict[str, tuple[Mapping[str, Any], list[int]]] = {}
    for number, each in enumerate(settings):
        # By its representation, since settings hold lists, which are no keys.
        groups.setdefault(repr(sorted(each.items())), (each, []))[1].append(number)
    return list(groups.values())


def _stops(settings: Mapping[str, Any]) -> tuple[str, ...]:
    until = settings.get("until") or ()
    return tuple(text for text in ([until] if isinstance(until, str) else until) if text)


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stops."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of generation: greedy unless the task samples. Whatever else it sets is for transformers'
    `generate`, as in the harness's own model.
    """
    read = {"until", *_LENGTHS, *_SAMPLING}
    more = {name: value for name, value in settings.items() if name not in read and value is not None}
    if not settings.get("do_sample") or not settings.get("temperature"):
        return more
    return more | {name: settings[name] for name in _SAMPLING if settings.get(name) is not None}
