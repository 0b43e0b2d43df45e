"""The record of one answer that methods read. It is frozen, and filled in step by step.

Recording steps return a fuller copy (`dataclasses.replace`); nothing writes to a record. Log-probabilities
are natural logs of the raw distribution, terminators (end of sequence, newline) included. A `HiddenState` comes
from inside a model at the end of an answer, and has fields of its own in a file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.support.inputs import shown
from semtoken.support.text import shortened

AnyFloats = npt.NDArray[np.floating[Any]]
AnyIntegers = npt.NDArray[np.integer[Any]]

DEPTH = 0.65
"""Depth of the layer whose states are read, two thirds up. One value serves all models; it was chosen on one of
them."""
STATE_FIELDS = ("state", "state_depth", "state_prompt", "state_weights", "state_vocabulary", "state_given")
"""Fields of a line that holds a hidden state."""


@dataclass(frozen=True, eq=False)
class HiddenState:
    """The hidden state of a model where it chose the last token of an answer, with what makes it comparable."""

    values: AnyFloats
    """[H] output of one layer at that position."""
    depth: float
    """Depth of the layer in (0, 1]: 0.5 is the middle layer, 1 the last one."""
    prompt: str = ""
    """The text that the model read before the answer, its template and special tokens included."""
    weights: str | None = None
    """Hash of samples of the model's weights; None where it is not known."""
    vocabulary: str | None = None
    """`Vocabulary.fingerprint` of the model's tokens; None where it is not known."""
    given: bool = False
    """True if the answer was read from a text, which has no terminator, and not generated."""

    def to_fields(self) -> dict[str, Any]:
        """The state as plain fields of a line; the values are float32 in base64."""
        values = base64.b64encode(self.values.astype("<f4").tobytes()).decode("ascii")
        others = {f"state_{name}": value for name, value in vars(self).items() if name != "values"}
        return {"state": values, **others}


def state_from(record: Mapping[str, Any], where: str) -> HiddenState | None:
    """Read the hidden state from a line's fields, None if there is none; `InvalidInputError` if they cannot be read."""
    if not record.get("state"):
        return None
    try:
        values = np.frombuffer(base64.b64decode(record["state"], validate=True), dtype="<f4").astype(np.float64)
        state = HiddenState(
            values=values,
            depth=float(record["state_depth"]),
            prompt=str(record["state_prompt"]),
            weights=record.get("state_weights") or None,
            vocabulary=record.get("state_vocabulary") or None,
            given=str(record.get("state_given")).lower() == "true",
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise InvalidInputError(
            f"{where}: the hidden state cannot be read. Score the answers again with --scoring.states true."
        ) from error
    if not values.size or not np.isfinite(values).all():
        raise InvalidInputError(f"{where}: the hidden state holds no finite numbers.")
    return state


Unit = Literal["", "token", "sample"]


@dataclass(frozen=True)
class Layout:
    """The type and shape of a field of `Generation`, in memory and in a column of a file."""

    kind: str
    """Type of one value, as pyarrow names it."""
    depth: int = 0
    """The depth of nested lists: 0 for one value an answer, 1 for a list, such as one value a token, 2 for a list of
    lists, and so on."""
    per: Unit = ""
    """`token` or `sample` for a field with one entry for each token of the answer, or for each sample; "" for any
    other field."""
    form: Literal["plain", "array", "arrays"] = "plain"
    """`plain` values and lists, one regular `array`, or a list of `arrays` of different lengths."""


PER_TOKEN = Layout("float64", 1, "token", "array")
"""Layout of a field with one number for each token."""


def _layout(
    kind: str, depth: int = 0, per: Unit = "", form: Literal["plain", "array", "arrays"] = "plain"
) -> dict[str, Layout]:
    """Metadata of a field that a recording step fills; see `semtoken.bench.statistics.steps`."""
    return {"layout": Layout(kind, depth, per, form)}


@dataclass(frozen=True, eq=False, repr=False)
class Generation:
    """One answer with everything recorded of it: n tokens, M samples of the same prompt.

    A field that was not recorded is None.

    Raises
    ------
    InvalidInputError
        A record does not have one entry per token, or per sample.
    """

    text: str = field(metadata=_layout("string"))
    """The greedy answer, special tokens left out."""
    token_ids: Sequence[int] = field(metadata=_layout("int32", 1))
    """[n] its tokens, the terminator included."""

    question: str | None = None
    """The question alone, without instructions or examples."""
    prompt: str | None = None
    """The text that the model was given, examples included."""
    distribution: str = "unknown"
    """The distribution of the log-probabilities: "raw", "processed" or "unknown". Published figures need "raw"."""

    token_texts: Sequence[str] | None = field(default=None, metadata=_layout("string", 1, "token"))
    """[n] each token decoded by itself."""
    log_probs: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "token", "array"))
    """[n] log-probability of each token."""
    top_ids: Sequence[AnyIntegers] | None = field(default=None, metadata=_layout("int32", 2, "token", "arrays"))
    """[n] arrays: ids of the best tokens of each step, the chosen one first."""
    top_texts: Sequence[Sequence[str]] | None = field(default=None, metadata=_layout("string", 2, "token"))
    """[n] lists: texts of the tokens in `top_ids`, each decoded by itself."""
    top_log_probs: Sequence[AnyFloats] | None = field(default=None, metadata=_layout("float64", 2, "token", "arrays"))
    """[n] arrays: log-probabilities of the tokens in `top_ids`."""

    sample_texts: Sequence[str] | None = field(default=None, metadata=_layout("string", 1, "sample"))
    """[M] sampled answers; the greedy one is not among them."""
    sample_token_ids: Sequence[Sequence[int]] | None = field(default=None, metadata=_layout("int32", 2, "sample"))
    """[M] lists: their tokens, terminators included."""
    sample_log_probs: Sequence[AnyFloats] | None = field(
        default=None, metadata=_layout("float64", 2, "sample", "arrays")
    )
    """[M] arrays: log-probabilities of the sampled tokens at temperature 1, whatever they were drawn with."""

    p_true_log_probs: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "", "array"))
    """[2] log P("True") and log P("False") after the question whether the greedy answer is true."""
    nli_logits: AnyFloats | None = field(default=None, metadata=_layout("float64", 3, "sample", "array"))
    """[M, M, 3] logits of contradiction, neutral and entailment between samples, each read after the question: the
    row's sample is the premise, the column's the hypothesis."""
    similarity: AnyFloats | None = field(default=None, metadata=_layout("float64", 2, "sample", "array"))
    """[M, M] similarity, in [0, 1], of every two samples, each read after the question."""
    token_similarity: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "token", "array"))
    """[n] similarity, in [0, 1], of the greedy answer to the same answer without each token; 1 for special tokens."""
    sample_token_similarity: Sequence[AnyFloats] | None = field(
        default=None, metadata=_layout("float64", 2, "sample", "arrays")
    )
    """[M] arrays: the `token_similarity` of every sample."""
    nli_chosen_to_alternative: Sequence[AnyIntegers] | None = field(
        default=None, metadata=_layout("int8", 2, "token", "arrays")
    )
    """[n] arrays in the order of `top_ids`: NLI class (0 contradiction, 1 neutral, 2 entailment) with the chosen token
    as premise and the alternative as hypothesis."""
    nli_alternative_to_chosen: Sequence[AnyIntegers] | None = field(
        default=None, metadata=_layout("int8", 2, "token", "arrays")
    )
    """[n] arrays: the same with the alternative as premise and the chosen token as hypothesis."""
    hidden_states: AnyFloats | None = field(default=None, metadata=_layout("float64", 2, "sample", "array"))
    """[M, H] output of the middle layer at the position that chose the last token of each sample."""

    token_entropies: AnyFloats | None = field(default=None, metadata={"layout": PER_TOKEN})
    """[n] entropy of the next-token distribution from which each token was chosen, in nats."""
    uniform_divergences: AnyFloats | None = field(default=None, metadata={"layout": PER_TOKEN})
    """[n] divergence of the uniform distribution from the next-token distribution p of each step, KL(U || p), in
    nats."""
    best_log_probs: Sequence[AnyFloats] | None = field(default=None, metadata=_layout("float64", 2, "token", "arrays"))
    """[n] arrays: log-probabilities of the 20 best tokens of each step, best first, whether chosen or not."""
    attention_to_previous: AnyFloats | None = field(default=None, metadata=_layout("float64", 3, "token", "array"))
    """[n, L, heads] how much each head of each layer attends to the token before, where each token is chosen, in
    [0, 1]. The first entry is about the prompt and means nothing."""
    new_word_log_probs: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "", "array"))
    """[words] log confidence of each word that the answer adds to the question, by the preset `default`."""
    phrase_log_probs: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "", "array"))
    """[phrases] log confidence of each phrase of the answer, by the preset `default`."""
    new_phrase_log_probs: AnyFloats | None = field(default=None, metadata=_layout("float64", 1, "", "array"))
    """[phrases] the same of the phrases that the answer adds to the question; of all phrases where it adds none."""

    stc_log_score: float | None = field(default=None, metadata=_layout("float64"))
    """`ScoredAnswer.log_confidence` of the greedy answer, <= 0."""
    stc_no_clustering_log_score: float | None = field(default=None, metadata=_layout("float64"))
    """`log_confidence` of the greedy answer under the same rules without embedding clusters, <= 0."""
    stc_no_prefix_log_score: float | None = field(default=None, metadata=_layout("float64"))
    """`log_confidence` of the greedy answer under the same rules without prefix matching, <= 0."""
    default_log_score: float | None = field(default=None, metadata=_layout("float64"))
    """`log_confidence` of the greedy answer under the preset `default`, whatever the preset of the others, <= 0."""

    further: Mapping[str, Any] = field(default_factory=dict)
    """Fields that other packages have declared (`declare_field`), by name; they read like the others."""

    def __post_init__(self) -> None:
        if not isinstance(self.further, Mapping):
            raise InvalidInputError(f"further must be a mapping of names to values. Got {shown(self.further)}.")
        self._require_one_per("token", _length(self.token_ids, "token_ids"))
        recorded = [getattr(self, name) for name, layout in LAYOUTS.items() if layout.per == "sample"]
        samples = next((_length(value, "samples") for value in recorded if value is not None), 0)
        self._require_one_per("sample", samples)

    def __repr__(self) -> str:
        others = ", ".join(sorted(self.recorded - {"text", "token_ids", "distribution"})) or "nothing else"
        return f"Generation({shortened(self.text)!r}, {len(self.token_ids)} tokens; recorded: {others})"

    def __getattr__(self, name: str) -> Any:
        further = vars(self).get("further", {})
        if name in further or (name in LAYOUTS and "further" in vars(self)):
            return further.get(name)
        raise AttributeError(f"A Generation has no field {name!r}.")

    def with_fields(self, recorded: Mapping[str, Any]) -> Generation:
        """A copy of the record with some fields set. Names that `Generation` does not have go into `further`.

        Raises
        ------
        InvalidInputError
            This is no mapping of names, or a field does not have one entry per token, or per sample.
        """
        if not isinstance(recorded, Mapping) or not all(isinstance(name, str) for name in recorded):
            raise InvalidInputError(f"'recorded' must be a mapping of the names of fields, got {shown(recorded)}.")
        own = {name: value for name, value in recorded.items() if name in _OWN_FIELDS}
        more = {name: value for name, value in recorded.items() if name not in _OWN_FIELDS}
        return replace(self, **own, further={**self.further, **more})

    @property
    def sample_text_index(self) -> list[int] | None:
        """[M] position of the first sample with the same stripped text; None without samples."""
        if self.sample_texts is None:
            return None
        texts = [text.strip() for text in self.sample_texts]
        return [texts.index(text) for text in texts]

    @property
    def recorded(self) -> frozenset[str]:
        """The names of the fields that have been recorded."""
        own = (one.name for one in fields(self) if one.name != "further" and getattr(self, one.name) is not None)
        return frozenset(own) | self.further.keys()

    def _require_one_per(self, unit: Unit, count: int) -> None:
        for name, layout in LAYOUTS.items():
            value: Sized | None = getattr(self, name) if layout.per == unit else None
            if value is not None and (length := _length(value, name)) != count:
                raise InvalidInputError(f"'{name}' has {length} entries for {count} {unit}s; it needs one per {unit}.")


_OWN_FIELDS = frozenset(one.name for one in fields(Generation))
_layouts: dict[str, Layout] = {
    one.name: one.metadata["layout"] for one in fields(Generation) if "layout" in one.metadata
}
LAYOUTS: Mapping[str, Layout] = MappingProxyType(_layouts)
"""Every field that is recorded of an answer -> its layout."""


def declare_field(name: str, layout: Layout) -> None:
    """Add a field to every `Generation`, for a recording step to fill.

    `TypeError` if the name is no Python name, or another field has it already with another layout or with none.
    """
    if not name.isidentifier() or (name in _OWN_FIELDS and name not in _layouts):
        raise TypeError(f"{name!r} cannot be the name of a field of Generation.")
    if _layouts.setdefault(name, layout) != layout:
        raise TypeError(f"{name!r} is laid out as {_layouts[name]}, not as {layout}.")


def _length(value: Any, name: str) -> int:
    """Number of entries of a field, or `InvalidInputError` for what has none."""
    try:
        return len(value)
    except Exception as error:  # objects raise what they like
        raise InvalidInputError(f"'{name}' must be a list, got {shown(value)}.") from error
