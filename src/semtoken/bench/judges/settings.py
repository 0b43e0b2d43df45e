"""Judges as the file of a run names them: checked settings, and the judge made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from semtoken.bench.judges.base import Judge
from semtoken.bench.judges.endpoint import Endpoint
from semtoken.bench.judges.llm import DEFAULT_JUDGE_MODEL, LLMJudge
from semtoken.bench.judges.texts import ContainsJudge, ExactJudge, RougeJudge, SimilarityJudge
from semtoken.bench.judges.verdict_files import ImportedJudge
from semtoken.errors import InvalidInput
from semtoken.support.extras import require

require("pydantic", extra="bench")

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError  # noqa: E402

Threshold: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    """The judge's name in files and tables; its kind if not given. Two judges of a kind need different ones."""


class ExactSettings(_Settings):
    """Settings of an `ExactJudge`, which has none of its own."""

    kind: Literal["exact"] = "exact"


class ContainsSettings(_Settings):
    """Settings of a `ContainsJudge`, which has none of its own."""

    kind: Literal["contains"] = "contains"


class RougeSettings(_Settings):
    """Settings of a `RougeJudge`: an answer is right if its F1 is above `threshold`."""

    kind: Literal["rouge"] = "rouge"
    threshold: Threshold = 0.3


class SimilaritySettings(_Settings):
    """Settings of a `SimilarityJudge`: its cross-encoder, and the similarity above which an answer is right."""

    kind: Literal["similarity"] = "similarity"
    model: str | None = None
    threshold: Threshold = 0.5
    device: str | None = None


class LLMSettings(_Settings):
    """Settings of an `LLMJudge`: the endpoint, its model, and where replies are kept."""

    kind: Literal["llm"] = "llm"
    model: str = DEFAULT_JUDGE_MODEL
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(ge=1)] = 8
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    max_retries: Annotated[int, Field(ge=0)] = 10
    timeout: Annotated[float, Field(gt=0)] = 60.0
    temperature: Annotated[float, Field(ge=0)] | None = 0.0
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    extra: Mapping[str, Any] = Field(default_factory=dict)
    cache: Path | None = None


class ImportedSettings(_Settings):
    """Settings of an `ImportedJudge`: the file that holds the verdicts."""

    kind: Literal["imported"] = "imported"
    path: str
    """The file of verdicts. The path may hold `{model}` and `{dataset}`: verdicts are of one model's answers to one
    set."""
    column: str = "correct"
    others: Literal["refuse", "ignore"] = "refuse"


JudgeSettings: TypeAlias = Annotated[
    ExactSettings | ContainsSettings | RougeSettings | SimilaritySettings | LLMSettings | ImportedSettings,
    Field(discriminator="kind"),
]
"""Settings of one judge; a field of this type in a pydantic model takes a mapping with `kind`."""
KINDS = ("exact", "contains", "rouge", "similarity", "llm", "imported")
_ADAPTER: TypeAdapter[JudgeSettings] = TypeAdapter(JudgeSettings)


def judge_settings(value: str | Mapping[str, Any]) -> JudgeSettings:
    """Check the settings of a judge, given its kind ("exact") or a mapping such as `{"kind": "rouge", "threshold":
    0.5}`.

    Raises
    ------
    InvalidInput
        The kind or a key is unknown, or a value cannot be used.
    """
    given = {"kind": value} if isinstance(value, str) else dict(value)
    if given.get("kind") not in KINDS:
        raise InvalidInput(f"There is no judge {given.get('kind')!r}; there are {', '.join(KINDS)}.")
    try:
        return _ADAPTER.validate_python(given)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'judge'}: {fault['msg']}" for fault in error.errors()
        )
        raise InvalidInput(f"The judge's settings cannot be used: {faults}.") from error


def judge_from(
    settings: str | Mapping[str, Any] | JudgeSettings,
    *,
    model: str = "",
    dataset: str = "",
    ids: Iterable[str] | None = None,
) -> Judge:
    """Make the judge that these settings describe.

    Parameters
    ----------
    settings
        Checked ones, or what `judge_settings` takes.
    model, dataset
        What `{model}` and `{dataset}` stand for in the path of an imported file.
    ids
        The ids of all questions that will be judged. An imported file is checked against them at once.

    Raises
    ------
    InvalidInput
        The settings or an imported file cannot be used.
    """
    checked = settings if isinstance(settings, BaseModel) else judge_settings(settings)
    options = checked.model_dump(exclude={"kind", "name"})
    name = checked.name or checked.kind
    match checked:
        case ImportedSettings():
            path = checked.path.replace("{model}", model).replace("{dataset}", dataset)
            imported = ImportedJudge(Path(path), column=checked.column, others=checked.others, name=name)
            if ids is not None:
                imported.check(ids)
            return imported
        case LLMSettings():
            endpoint = Endpoint(**{field.name: options.pop(field.name) for field in fields(Endpoint)})
            return LLMJudge(endpoint=endpoint, name=name, **options)
        case _:
            return _MAKERS[checked.kind](name=name, **options)


_MAKERS: Mapping[str, Callable[..., Judge]] = {
    "exact": ExactJudge,
    "contains": ContainsJudge,
    "rouge": RougeJudge,
    "similarity": SimilarityJudge,
}
