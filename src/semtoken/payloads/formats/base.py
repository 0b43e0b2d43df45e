"""What a payload shape is: one class that detects it, asks for it, and reads it whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.records import StepList
from semtoken.engine_tokens.spellings import with_ids
from semtoken.engine_tokens.values import as_id, as_list, as_text, optional
from semtoken.errors import InvalidInput
from semtoken.payloads.segments import RawChoice
from semtoken.results import Distribution

Reply: TypeAlias = Mapping[str, Any]
Engine = Literal["openai", "vllm", "sglang", "llama-cpp", "llama-cpp-python"]


@dataclass(frozen=True)
class ProbeQuestion:
    """What a request asks a server for."""

    prompt: str
    max_tokens: int = 1
    top: int | None = None
    """Log-probabilities a token; None: none are asked for."""
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields."""


NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Delta(NamedTuple):
    """What a whole reply says of one choice, or what a chunk of a stream adds to it."""

    choice: int
    texts: Mapping[SegmentKind, str] = NOTHING
    steps: StepList = StepList()
    """Of whatever was written; not yet given to a segment."""
    apart: Mapping[SegmentKind, StepList] = NOTHING
    """Steps that the engine lists under a segment of their own."""
    calls: Mapping[int, tuple[str, str]] = NOTHING
    """Name and arguments (or a piece of them) of each tool call, by its index; -1 is `function_call`."""
    ids: tuple[int, ...] | None = None
    """Ids of the tokens, which some engines list beside the steps."""
    finish_reason: str | None = None
    ended: bool = False
    """The engine says that the choice is complete."""

    @property
    def goes_on(self) -> bool:
        """It adds to the answer and to nothing else."""
        return len(self.texts) == 1 and "answer" in self.texts and not (self.calls or self.apart or self.ended)

    @property
    def written(self) -> Mapping[SegmentKind, str]:
        """The texts, tool calls included."""
        if not self.calls:
            return self.texts
        said = "".join(name + arguments for name, arguments in self.calls.values())
        return {**self.texts, "tool_call": said} if said else self.texts


class ChoiceSum:
    """The deltas of one choice, added up."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.texts: dict[SegmentKind, list[str]] = {}
        self.steps: list[StepList] = []
        self.apart: dict[SegmentKind, list[StepList]] = {}
        self.calls: dict[int, tuple[str, str]] = {}
        self.ids: list[int] | None = None
        self.finish_reason: str | None = None

    def add(self, delta: Delta) -> None:
        """Take in what a chunk adds."""
        for kind, text in delta.texts.items():
            self.texts.setdefault(kind, []).append(text)
        if delta.steps.steps or delta.steps.fault:
            self.steps.append(delta.steps)
        for kind, steps in delta.apart.items():
            self.apart.setdefault(kind, []).append(steps)
        for at, (name, arguments) in delta.calls.items():
            known = self.calls.get(at, ("", ""))
            self.calls[at] = (known[0] + name, known[1] + arguments)
        if delta.ids is not None:
            self.ids = [*(self.ids or ()), *delta.ids]
        self.finish_reason = delta.finish_reason or self.finish_reason

    def raw(self) -> RawChoice:
        """The choice as its engine gives it."""
        texts: dict[SegmentKind, str] = {kind: "".join(parts) for kind, parts in self.texts.items() if any(parts)}
        if self.calls:
            texts["tool_call"] = "\n".join(f"{name}({arguments})" for name, arguments in self.calls.values())
        steps, flags = _with_ids(StepList.chained(self.steps), self.ids)
        apart = {kind: StepList.chained(parts) for kind, parts in self.apart.items()}
        return RawChoice(self.index, texts, steps, self.finish_reason, flags, apart)


def _with_ids(steps: StepList, ids: Sequence[int] | None) -> tuple[StepList, tuple[str, ...]]:
    if ids is None or not steps.steps:
        return steps, ()
    if len(ids) != len(steps.steps):
        return steps, (f"{len(ids)} token ids do not fit {len(steps.steps)} steps; they are not used.",)
    return StepList(with_ids(steps.steps, ids), steps.missing, steps.fault), ()


class Shape:
    """One shape of replies, and the reading of one reply of it: all at once, or chunk by chunk.

    A new shape is a subclass in a file of its own and a line in `registry.SHAPES`.
    """

    name: ClassVar[str]
    """For people and for `semtoken doctor`."""
    path: ClassVar[str]
    """Where servers answer in this shape."""
    below_v1: ClassVar[bool] = True
    """The path lies below `/v1`; else it is one of an engine's own, at the root."""
    formats: ClassVar[Mapping[Engine, str]]
    """The name of the format in which each engine uses this shape."""
    ask: ClassVar[str]
    """The fields of a request that bring log-probabilities, for messages."""
    is_chat: ClassVar[bool] = False
    """The server renders the prompt as a message of a chat; else it continues the prompt."""
    divided: ClassVar[bool] = False
    """The engine divides what the model wrote into reasoning, answer and tool calls."""

    def __init__(self) -> None:
        self.sums: dict[int, ChoiceSum] = {}

    # --- detect

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """Whether a reply (several: a batch) has this shape."""
        raise NotImplementedError

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Whether a chunk of a stream has this shape."""
        raise NotImplementedError

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The body of a request that asks in this shape, without the model's name."""
        raise NotImplementedError

    # --- read

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """The choices of a reply (several: a batch)."""
        raise NotImplementedError

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """What a chunk of a stream adds to each choice."""
        raise NotImplementedError

    def add(self, delta: Delta) -> None:
        """Take in what `whole` or `chunk` gave."""
        if delta.choice not in self.sums:
            self.sums[delta.choice] = ChoiceSum(delta.choice)
        self.sums[delta.choice].add(delta)

    def raw_choice(self, index: int) -> RawChoice:
        """One of the choices so far."""
        return self.sums[index].raw()

    def raw_choices(self) -> Iterator[RawChoice]:
        """The choices so far."""
        return map(self.raw_choice, sorted(self.sums))

    # --- what the numbers are

    @property
    def engine(self) -> Engine:
        """Which engine sent what was read so far."""
        return next(iter(self.formats))

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return None

    def distribution(self, engine: Engine, temperature: float | None, *, masked: bool) -> Distribution:
        """Which distribution the engine shows, with its default settings.

        SGLang divides by the temperature, and takes 1 for the greedy 0. `masked`: some tokens have no probability.
        """
        if engine == "openai":
            return "unknown"
        if engine == "sglang":
            return "raw" if temperature in (0, 1) and not masked else "processed"
        return "processed" if masked else "raw"


def only(replies: Sequence[Reply]) -> Reply:
    """The one reply of a shape that has no batches."""
    if len(replies) != 1:
        raise InvalidInput("A list of replies is understood from SGLang and llama.cpp only; read them one by one.")
    return replies[0]


def index_of(choice: Reply, where: str, default: int = 0) -> int:
    """The index of a choice."""
    return as_id(choice.get("index", default), f"{where}.index" if where else "index")


def ids_of(choice: Reply, where: str) -> tuple[int, ...] | None:
    """The ids that vLLM lists beside the steps."""
    ids = optional(as_list, choice.get("token_ids"), f"{where}.token_ids")
    return None if ids is None else tuple(as_id(token, f"{where}.token_ids") for token in ids)


def end_of(choice: Reply, where: str) -> str | None:
    """Why a choice ended; None while it goes on."""
    return optional(as_text, choice.get("finish_reason"), f"{where}.finish_reason")
