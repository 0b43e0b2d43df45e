"""`semtoken config`: the settings in effect, as a settings file."""

from __future__ import annotations

import codecs
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from semtoken.cli.settings import SECTIONS, Read, SettingsInUse, lines_of_keys


def config(*, in_use: Read[SettingsInUse]) -> None:
    """Show the settings in effect, and where each comes from.

    Prints all settings as TOML, with defaults and their source (file, variable, command line) as comments, so that the
    output is a valid semtoken.toml. Passwords in URLs are hidden. Exit status 2 if the file is not valid.

    Example: `semtoken config > semtoken.toml`
    """
    lines = {} if in_use.file is None else lines_of_keys(in_use.file)
    sections = []
    for name in SECTIONS:
        values = getattr(in_use.settings, name)
        rows = [f"[{name}]"]
        for field in fields(values):
            key = f"{name}.{field.name}"
            source = in_use.sources.get(key, "default")
            if source == str(in_use.file):
                source = f"{Path(source).name}:{lines[key]}" if key in lines else Path(source).name
            rows.append(f"{_setting(field.name, getattr(values, field.name))}  # {source}")
        sections.append("\n".join(rows))
    written = "\n\n".join(sections) + "\n"
    if codecs.lookup(sys.stdout.encoding).name != "utf-8":  # TOML is UTF-8, and what is shown may become a file
        written = "".join(c if c.isascii() else f"\\U{ord(c):08X}" for c in written)
    sys.stdout.write(written)


def _setting(key: str, value: Any) -> str:
    """A key with its value as TOML, whose texts, lists and truth values are written as in JSON."""
    if value is None:  # TOML has no word for it
        return f"# {key} ="
    value = [_without_password(one) for one in value] if isinstance(value, tuple) else _without_password(value)
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"


def _without_password(value: Any) -> Any:
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", value) if isinstance(value, str) else value
