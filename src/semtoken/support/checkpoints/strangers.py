"""Bounds on what the files of a model folder make a loader build: layers, headers of weights, the chat template, the
normalizer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError, ModelError
from semtoken.support.checkpoints import template_trial
from semtoken.support.files.safe_files import MEBIBYTE, MOST_SETTINGS, read_bounded

MOST_OF_A_KIND = 10_000
"""Layers, experts, heads or labels that a configuration may name."""

COUNTS = re.compile(r"(?:^|_)(?:layers?|blocks|depths?|experts|heads?|labels|stages|codebooks|modules)(?:_|$)")
"""Names of numbers in a configuration by which a model builds one thing after the other."""

PER_BYTE = 16
"""Parameters for each byte of the weights that a model may have: weights of one bit are 8, and some are shared."""

SLACK = 2**27
"""Numbers that it may have besides, such as the masks that older models build for each layer."""

GROWTH = 100
"""The factor by which a tokenizer's normalizer may make a text longer."""

BESIDE = re.compile(r"\(\?<?[=!]|\\[bBGKzZA]")
"""A pattern that matches a place between characters."""

TRIAL_SECONDS = 60


def check_config(folder: Path) -> None:
    """Refuse a folder whose config.json asks for more layers, experts or heads than any model has.

    `ModelError` if a number is beyond `MOST_OF_A_KIND`, or the file beyond `MOST_SETTINGS`.
    """
    try:
        content = json.loads(read_bounded(folder / "config.json", MOST_SETTINGS))
    except InvalidInputError as error:
        raise ModelError(f"{error} So {folder} is not loaded.") from error
    except (OSError, ValueError, RecursionError):
        return  # whoever loads it says so
    for name, number in _numbers(content):
        if COUNTS.search(name) and number > MOST_OF_A_KIND:
            raise ModelError(
                f"{folder / 'config.json'} says {name} = {number:,}; at most {MOST_OF_A_KIND:,} are built, so the "
                "model is not loaded."
            )


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _numbers(below, key)
    elif isinstance(value, list):
        for below in value:
            yield from _numbers(below, name)
    elif isinstance(value, int | float):
        yield name, value


def check_header(path: Path) -> None:
    """Raise `ModelError` for a safetensors file whose header is longer than `MOST_SETTINGS`: its first 8 bytes say how
    long it is, and readers take memory for all of it. What else may be wrong is for a reader to say.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
    except OSError:
        return
    if MOST_SETTINGS < length <= size:  # of a file that is shorter, readers say so at once
        raise ModelError(
            f"{path} has a header of {length:,} bytes; at most {MOST_SETTINGS // MEBIBYTE} MiB are read, so it is not "
            "loaded."
        )


def check_size(folder: Path, elements: int) -> None:
    """Refuse a model that is many times larger than the files of its weights.

    `elements` counts the parameters and other numbers that its configuration describes. `ModelError` if there are more
    than `PER_BYTE` for each byte of the weights.
    """
    kinds = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in kinds and path.is_file())
    if size and elements > PER_BYTE * size + SLACK:
        raise ModelError(
            f"The configuration in {folder} describes a model of {elements:,} numbers, and the files of its weights "
            f"have {size:,} bytes: they belong to another model, so it is not loaded."
        )


def check_normalizer(folder: Path) -> None:
    """Raise `ModelError` if a folder's tokenizer.json makes a text over `GROWTH` times longer before it splits it."""
    try:
        text = (folder / "tokenizer.json").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    decoder = json.JSONDecoder()
    # A name may be written in escapes, and may occur twice: each one is looked at.
    for match in re.finditer(r'"(?:n|\\u006e)[^"\s:]{0,60}"\s*:\s*(?=\{)', text, re.IGNORECASE):
        try:
            steps, _ = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if growth(steps) > GROWTH:
            raise ModelError(
                f"The tokenizer in {folder} makes texts up to {growth(steps):,.0f} times longer; at most {GROWTH:,} "
                "times is accepted, so the model is not loaded."
            )


def growth(steps: Any) -> float:
    """The factor by which a normalizer of tokenizers can lengthen a text, from its JSON; 1 where it cannot.

    Of a replacement it is the length of what is put in by the shortest text that it stands for. A pattern that can
    match nothing puts it in beside each character.
    """
    if not isinstance(steps, Mapping):
        return 1
    if steps.get("type") == "Sequence":
        total = 1.0
        for step in steps.get("normalizers") or ():
            total *= growth(step)
        return total
    pattern, put = steps.get("pattern"), steps.get("content")
    if steps.get("type") != "Replace" or not isinstance(pattern, Mapping) or not isinstance(put, str):
        return 1
    if isinstance(fixed := pattern.get("String"), str) and fixed:
        return max(1.0, len(put) / len(fixed))
    return max(1.0, len(put) + _matches_nothing(str(pattern.get("Regex", ""))))


def _matches_nothing(pattern: str) -> bool:
    try:
        return BESIDE.search(pattern) is not None or re.search(pattern, "") is not None
    except (re.error, RecursionError, OverflowError):
        return True


def check_template(folder: str, templates: Any) -> None:
    """Render two short conversations by a stranger's chat template, with bounds on time, memory and length.

    Several templates go by their names; None passes. `ModelError` if one goes beyond the bounds.
    """
    for template in templates.values() if isinstance(templates, Mapping) else (templates,):
        if isinstance(template, str) and (excess := _excess(template)):
            raise ModelError(
                f"The chat template of {folder} takes {excess} for a conversation of four messages, so the model is "
                "not loaded."
            )


@lru_cache(maxsize=64)
def _excess(template: str) -> str:
    """The resource that a template takes too much of; empty if it takes too much of none."""
    try:
        done = subprocess.run(  # noqa: S603 - a file of semtoken
            # Isolated: neither the environment nor the working folder can put other modules in its way.
            [sys.executable, "-I", template_trial.__file__],
            input=template.encode("utf-8", "replace"),
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"more than {TRIAL_SECONDS} seconds"
    if done.returncode == template_trial.TOO_LARGE:
        return "more than 1 GiB of memory or 4 million characters"
    if done.returncode < 0:  # ended by the system
        return f"more than {template_trial.CPU_SECONDS} seconds or 1 GiB of memory"
    return ""
