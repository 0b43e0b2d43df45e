"""The page with scored answers inside, as one HTML file that makes no request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from semtoken.errors import InvalidInputError

MOST_BYTES = 20_000_000
LIBRARY = "preact.js"
"""The one module of the page that comes from another project."""
MODULES = (
    *("strings.js", "helpers.js", "answer.js", "ask.js", "file.js", "fields.js", "compare.js", "calibration.js"),
    *("review-strings.js", "review.js", "app.js"),
)
"""The page's own modules, each after those that it imports from."""
SERVED_ONLY = frozenset({"review-strings.js", "review.js"})
"""Modules of views that need a server's journal: a file never opens them."""
FILES = frozenset({LIBRARY, *MODULES, "app.css"})
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {script} data:; style-src {style}; \
img-src data:; base-uri 'none'; form-action 'none'">
<title>semtoken</title>
<link rel="icon" href="data:,">
"""


def static_page(files: Mapping[str, Sequence[Mapping[str, Any]]], info: Mapping[str, Any] | None = None) -> str:
    """One HTML file that shows scored answers: riskiest first, and side by side where there are two files of them.

    Parameters
    ----------
    files
        Scored answers as plain values, as `semtoken score` writes them, each with an `uncertainty`, or with an `error`
        that says why there is none; by what to call them, such as the name of their file.
    info
        What is known of the model and the calibrator; see `semtoken.web.page.facts`.

    Raises
    ------
    InvalidInputError
        There is nothing to show, or more than a browser opens with ease.
    """
    if not files or not all(any(not answer.get("error") for answer in answers) for answers in files.values()):
        raise InvalidInputError("There are no scored answers to show.")
    listed = [{"name": name, **_without_repetition(answers)} for name, answers in files.items()]
    data = json.dumps({"info": info or {}, "files": listed}, ensure_ascii=False, allow_nan=False)
    # Inside a script element "<" could end it or open a comment; JSON has another spelling for it.
    data = data.replace("<", "\\u003c")
    if len(data.encode(errors="surrogatepass")) > MOST_BYTES:
        raise InvalidInputError(
            f"The answers take {len(data) / 1e6:.0f} MB, more than a page can hold ({MOST_BYTES / 1e6:.0f} MB). Score "
            "without --tokens, or cut the file: head -n 1000 scored.jsonl > first.jsonl; then "
            "`semtoken check first.jsonl -o page.html`"
        )
    script, style = _script(), page_file("app.css")
    head = HEAD.format(script=_source(script), style=_source(style))
    return (
        f'{head}<style>{style}</style>\n</head>\n<body>\n<div id="app"></div>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _without_repetition(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows; apart from them the plain values that all of them share, such as the signature of the scores, and the place
    of each line without a score, with the reason.
    """
    first, *others = [answer for answer in answers if not answer.get("error")]
    unscored = [
        [str(answer.get("where") or f"line {answer.get('line') or i}"), answer["error"]]
        for i, answer in enumerate(answers, start=1)
        if answer.get("error")
    ]
    plain = {name: value for name, value in first.items() if isinstance(value, str | float | int | None)}
    common = {
        name: value for name, value in plain.items() if all(answer.get(name, first) == value for answer in others)
    }
    rows = [{k: v for k, v in answer.items() if k not in common} for answer in (first, *others)]
    return {"common": common, "rows": rows} | ({"unscored": unscored} if unscored else {})


@cache
def page_file(name: str) -> str:
    """The text of a file of the page, such as "index.html"."""
    return files("semtoken.web.page").joinpath("files").joinpath(name).read_text(encoding="utf-8")


_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(.+)";\n', re.MULTILINE)


@cache
def _script() -> str:
    """The modules as one: from a file, a browser loads no modules beside it. The library is imported from its text."""
    source = "".join(page_file(module) for module in MODULES if module not in SERVED_ONLY)
    names = sorted({n for listed, module in _IMPORT.findall(source) if module == LIBRARY for n in listed.split(", ")})
    library = base64.b64encode(_lines_of(page_file(LIBRARY)).encode()).decode()
    head = f'import {{ {", ".join(names)} }} from "data:text/javascript;base64,{library}";\n'
    return head + _lines_of(re.sub("^export ", "", _IMPORT.sub("", source), flags=re.MULTILINE))


def _lines_of(source: str) -> str:
    """A module without comments of their own line, indentation and line ends that mean nothing in our modules."""
    lines = (line.strip() for line in source.splitlines())
    kept = (line for line in lines if line and not line.startswith("//"))
    return "".join(line if line.endswith(("{", ";")) else f"{line}\n" for line in kept)


def _source(text: str) -> str:
    """An inline script or style sheet, as a content security policy allows it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
