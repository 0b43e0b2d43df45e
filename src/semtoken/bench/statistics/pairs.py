"""Questions about pairs of texts, and the two models that answer them: whether one text entails the other (NLI), and
how alike they are (a cross-encoder).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from semtoken.errors import InvalidInputError, ModelError, SemtokenError, one_line_of
from semtoken.methods import token_text
from semtoken.methods.table import ENTAILMENT
from semtoken.models.prompt_ids import in_batches_by_length, pad
from semtoken.support.arrays import FloatArray, IntArray
from semtoken.support.checkpoints.sources import check_folder
from semtoken.support.extras import require
from semtoken.support.files.artifacts import HUB_ID

if TYPE_CHECKING:
    import torch  # its import takes seconds, which plans and reports of runs need not wait for

Pair: TypeAlias = tuple[str, str]
AskPairs: TypeAlias = Callable[[Sequence[Pair]], FloatArray]
"""Puts pairs of texts to a model: n pairs -> its answers, one row of numbers or one number for each pair.

`EntailmentModel.logits`, `SimilarityModel.similarities`, or `UniquePairs` of one of them."""


class UniquePairs:
    """Asks a model about pairs of texts with `ask`, and about each different pair only once.

    One for each recording step, so that every step is charged for its own pairs and the seconds of a method do
    not depend on which other method ran before.
    """

    def __init__(self, ask: AskPairs) -> None:
        self._ask = ask
        self._known: dict[Pair, npt.NDArray[Any]] = {}

    @property
    def asked(self) -> int:
        """The number of different pairs that the model has compared so far."""
        return len(self._known)

    def __call__(self, pairs: Iterable[Pair]) -> FloatArray:
        """The model's answers, in the order of the pairs."""
        listed = list(pairs)
        new = [pair for pair in dict.fromkeys(listed) if pair not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return np.array([self._known[pair] for pair in listed], dtype=np.float64)


def with_question(question: str | None, text: str) -> str:
    """An answer as similarity and NLI models read it: "question answer", one blank between, both stripped."""
    return f"{question.strip()} {text.strip()}".strip() if question is not None else text.strip()


def alternative_classes(
    ask: AskPairs, answers: Sequence[Sequence[Sequence[str]]]
) -> list[tuple[list[IntArray], list[IntArray]]]:
    """NLI classes of (chosen token, alternative) and of (alternative, chosen token), for every step of some answers.

    `answers`: of each answer, of each step, the k_t best tokens decoded by itself, the chosen one first. The texts are
    stripped of white space and punctuation at both ends; equal ones entail each other without being asked. Classes are
    0 contradiction, 1 neutral, 2 entailment, [k_t] for each step; premise the chosen token, then the alternative.

    References
    ----------
    Fadeeva et al. 2024, claim-conditioned probability. Choices as in LM-Polygraph's `GreedyAlternativesNLICalculator`.
    """
    stripped = [[[token_text(text) for text in texts] for texts in steps] for steps in answers]
    ahead = [[[(texts[0], text) for text in texts] for texts in steps] for steps in stripped]
    back = [[[(b, a) for a, b in pairs] for pairs in steps] for steps in ahead]
    # Both directions in one call, so that batches are filled with pairs of like lengths.
    listed = (pair for steps in (*ahead, *back) for pairs in steps for pair in pairs)
    asked = list(dict.fromkeys(pair for pair in listed if pair[0] != pair[1]))
    known: dict[Pair, int] = dict(zip(asked, ask(asked).argmax(axis=-1).tolist(), strict=True)) if asked else {}

    def classes(steps: list[list[Pair]]) -> list[IntArray]:
        return [np.array([known.get(pair, ENTAILMENT) for pair in pairs], dtype=np.int64) for pairs in steps]

    return [(classes(forward), classes(backward)) for forward, backward in zip(ahead, back, strict=True)]


ONLY_TOKEN = 0.5
"""Similarity of an answer of one token without that token: anything below 1 gives it the whole weight."""


def token_similarities(
    ask: AskPairs,
    answers: Sequence[tuple[str | None, Sequence[int]]],
    decode: Callable[[Sequence[int]], str],
    special_ids: Collection[int] = (),
) -> list[FloatArray]:
    """Similarity of each answer with and without each of its tokens.

    One position is taken out of the ids, and the rest decoded again. Special tokens have the similarity 1 without
    being asked, and the only token of an answer has `ONLY_TOKEN`.

    Parameters
    ----------
    ask
        A similarity model.
    answers
        Question (or None) and token ids of each answer.
    decode
        Ids -> text without special tokens.
    special_ids
        Ids of special tokens.

    Returns
    -------
    list of float arrays of shapes (T_m,)

    References
    ----------
    Duan et al. 2024, "Shifting attention to relevance", token relevance. Choices as in LM-Polygraph's
    `CrossEncoderSimilarityMatrixCalculator`.
    """
    special = frozenset(special_ids)
    # Without its only token nothing is left to compare.
    asked = [[] if len(ids) == 1 else _pairs(question, ids, decode, special) for question, ids in answers]
    values = iter(ask([pair for pairs in asked for pair in pairs]))
    similarities = []
    for _, ids in answers:
        if len(ids) == 1:
            similarities.append(np.array([ONLY_TOKEN]))
        else:
            similarities.append(np.array([1.0 if token in special else float(next(values)) for token in ids]))
    return similarities


def special_token_ids(tokenizer: Any) -> frozenset[int]:
    """Ids in the tokenizer's table of added tokens; where there is none, those of its special tokens."""
    return frozenset(map(int, getattr(tokenizer, "added_tokens_decoder", None) or tokenizer.all_special_ids))


def _pairs(
    question: str | None, ids: Sequence[int], decode: Callable[[Sequence[int]], str], special: frozenset[int]
) -> list[Pair]:
    listed = list(ids)
    whole = with_question(question, decode(listed))
    return [
        (whole, with_question(question, decode(listed[:t] + listed[t + 1 :])))
        for t, token in enumerate(listed)
        if token not in special
    ]


@contextmanager
def model_errors(kind: str, model_or_path: str) -> Iterator[None]:
    """Turn errors of transformers and torch about a model into `ModelError`; our own errors pass unchanged.

    `kind` is for the message: "NLI model". `ModelError` if there is no such model, it cannot be read, or its folder is
    one that `check_folder` refuses.
    """
    # Said here, since the hub would be asked for a misspelled path, and answers about names of repositories.
    if not Path(model_or_path).exists() and not HUB_ID.fullmatch(model_or_path):
        raise ModelError(f"The {kind} cannot be loaded: there is no directory {model_or_path}.")
    if Path(model_or_path).is_dir():
        check_folder(Path(model_or_path))
    try:
        yield
    except SemtokenError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"The {kind} {model_or_path} cannot be loaded: {one_line_of(error)}") from error


DEFAULT_SIMILARITY = "cross-encoder/stsb-roberta-large"


class SimilarityModel:
    """A `sentence_transformers.CrossEncoder` for text similarity, which reads `batch_size` pairs together.

    The `cross_encoder` has one output, which goes through a sigmoid; `ModelError` if it has more, and
    `InvalidInputError` for a batch size below 1.
    """

    def __init__(self, cross_encoder: Any, *, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be positive, got {batch_size}.")
        if cross_encoder.num_labels != 1:
            raise ModelError(
                f"The similarity model has {cross_encoder.num_labels} outputs; it must be a cross-encoder with one, "
                f"as {DEFAULT_SIMILARITY} is."
            )
        self.cross_encoder = cross_encoder
        self.batch_size = batch_size

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str = DEFAULT_SIMILARITY,
        *,
        device: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
    ) -> SimilarityModel:
        """Load from a directory or the hub; "almanac" is the small one inside the package.

        `ModelError` if there is no such model, or it cannot be read.
        """
        library = require("sentence_transformers", extra="similarity")
        if model_or_path == "almanac":
            from semtoken.support.almanac import almanac_sts_path

            model_or_path = str(almanac_sts_path())
        with model_errors("similarity model", model_or_path):
            return cls(library.CrossEncoder(model_or_path, device=device, revision=revision), batch_size=batch_size)

    def similarities(self, pairs: Sequence[Pair]) -> FloatArray:
        """Similarity of each of n pairs of texts, [n] in [0, 1]; higher is more alike."""
        if not pairs:
            return np.empty(0)
        import torch

        # Checkpoints disagree on whether the sigmoid is in their config: it is said here, and so applied once.
        scores = self.cross_encoder.predict(
            list(pairs), batch_size=self.batch_size, activation_fn=torch.nn.Sigmoid(), show_progress_bar=False
        )
        return np.asarray(scores, dtype=np.float64).reshape(len(pairs))


def similarity_matrices(ask: AskPairs, samples: Sequence[tuple[str | None, Sequence[str]]]) -> list[FloatArray]:
    """Similarity of every two samples, the mean of both directions: for each of several questions, [M, M].

    A question is put before both texts, one blank between; None leaves the texts bare. Samples with equal texts keep
    the value that the model gives to a text and itself; the diagonal is 1.
    """
    full = [[with_question(question, text) for text in texts] for question, texts in samples]
    answers = iter(ask([(a, b) for texts in full for a, b in permutations(texts, 2)]))
    matrices = []
    for texts in full:
        matrix = np.eye(len(texts))
        for i, j in permutations(range(len(texts)), 2):
            matrix[i, j] = next(answers)
        # A cross-encoder reads the texts in one order, and need not give the same number for the other.
        matrices.append(0.5 * (matrix + matrix.T))
    return matrices


DEFAULT_NLI = "microsoft/deberta-large-mnli"
_SPELLINGS = (("contra",), ("neutral",), ("entail",))
IDENTICAL = (-math.inf, -math.inf, 0.0)
"""Logits of a text with itself, which is never asked: entailment for certain, at any temperature."""


class EntailmentModel:
    """An NLI `model` (a sequence classifier of transformers) and its tokenizer, which read `batch_size` pairs together.

    Its config names the classes contradiction, neutral and entailment, in any order; `ModelError` if it does not, and
    `InvalidInputError` for a batch size below 1.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_size: int = 64) -> None:
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be positive, got {batch_size}.")
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._columns = label_columns(model.config)
        self._max_length = longest_input(model, tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        model_or_path: str = DEFAULT_NLI,
        *,
        device: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
    ) -> EntailmentModel:
        """Load from a directory or the hub; "almanac" is the small one inside the package.

        `ModelError` if there is no such model, or it cannot be read.
        """
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if model_or_path == "almanac":
            from semtoken.support.almanac import almanac_nli_path

            model_or_path = str(almanac_nli_path())
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with model_errors("NLI model", model_or_path):
            tokenizer = AutoTokenizer.from_pretrained(model_or_path, revision=revision)
            model = AutoModelForSequenceClassification.from_pretrained(
                model_or_path, revision=revision, dtype=torch.float32
            )
            return cls(model.to(device).eval(), tokenizer, batch_size=batch_size)

    def logits(self, pairs: Sequence[Pair]) -> FloatArray:
        """Logits [n, 3] of n pairs (premise, hypothesis), in the order contradiction, neutral, entailment."""
        import torch

        class_logits = np.empty((len(pairs), 3))
        if not pairs:
            return class_logits
        first, second = zip(*pairs, strict=True)
        encoded = self.tokenizer(list(first), list(second), truncation=True, max_length=self._max_length)
        for batch in in_batches_by_length([len(ids) for ids in encoded["input_ids"]], self.batch_size):
            inputs = {name: self._padded(name, [rows[i] for i in batch]) for name, rows in encoded.items()}
            with torch.inference_mode():
                class_logits[batch] = self.model(**inputs).logits[:, self._columns].double().cpu().numpy()
        return class_logits

    def _padded(self, name: str, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """One of the tokenizer's outputs, filled up on the right: encoders count positions from the left."""
        import torch

        padding = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id}
        return torch.from_numpy(pad(rows, padding.get(name, 0), left=False).ids).to(self.model.device)


def label_columns(config: Any) -> list[int]:
    """Columns of contradiction, neutral and entailment, from the names in the model's config.

    `ModelError` if there are not exactly three classes, one name for each.
    """
    names = {int(column): str(name) for column, name in (config.id2label or {}).items()}
    columns = [
        [column for column, name in names.items() if name.strip().lower().startswith(spellings)]
        for spellings in _SPELLINGS
    ]
    if len(names) != 3 or [len(class_columns) for class_columns in columns] != [1, 1, 1]:
        raise ModelError(
            f"The NLI model's classes are {names}; they must be named contradiction, neutral and entailment. "
            "If they are these under other names, set id2label in the model's config.json."
        )
    return [class_columns[0] for class_columns in columns]


def longest_input(model: Any, tokenizer: Any) -> int | None:
    """Tokens that an encoder reads at most; None if neither config nor tokenizer says so."""
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    # Tokenizers without a limit say int(1e30).
    sensible = [int(limit) for limit in limits if limit is not None and 0 < limit < 1_000_000]
    return min(sensible, default=None)


def entailment_matrices(ask: AskPairs, samples: Sequence[tuple[str | None, Sequence[str]]]) -> list[FloatArray]:
    """NLI logits of every ordered pair of samples, for each of several questions with texts as `similarity_matrices`.

    Each array is [M, M, 3]: contradiction, neutral, entailment; row: premise, column: hypothesis. Texts that are equal
    once stripped, the diagonal among them, are `IDENTICAL`.
    """
    full = [[with_question(question, text) for text in texts] for question, texts in samples]
    pairs = [(a, b) for texts in full for a in texts for b in texts if a != b]
    answers = iter(ask(pairs) if pairs else ())
    return [
        np.array([[IDENTICAL if a == b else next(answers) for b in texts] for a in texts], dtype=np.float64)
        for texts in full
    ]


def asked(kind: str, model: str | EntailmentModel | SimilarityModel, **options: Any) -> AskPairs:
    """The function that puts pairs of texts to a model of the kind "nli" or "similarity".

    A model that is only named is loaded, with the options of `from_pretrained`; errors are those of loading it.
    """
    loaded: Any = model
    if isinstance(model, str):
        loaded = (EntailmentModel if kind == "nli" else SimilarityModel).from_pretrained(model, **options)
    ask: AskPairs = loaded.logits if kind == "nli" else loaded.similarities
    return ask
