"""Build what a release uploads, and check it as far as a machine can: `make release-check`.

    python scripts/release_check.py [--tag v0.1.0] [--extras]

What is checked: the version is the same everywhere, and the tag's; the newest section of CHANGELOG is that version's;
the workflows are sound (check-jsonschema, zizmor, and actionlint where it is installed); the recipe for conda renders
(rattler-build); the metadata render as the index would render them (twine); the wheel holds what it needs, nothing
else, and is below 6 MB; the sdist alone builds the same wheel; the wheel starts and runs the README's commands for
replies in an empty environment of every Python that is installed here, without its extras; versions of all dependencies
can be found for each supported Python (uv). With `--extras` each extra is installed in an environment of its own, and
the README's commands that need it run there; this takes gigabytes and up to an hour.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 6_000_000
"""Bytes of semtoken's own wheel."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = (
    "semtoken/py.typed",
    "semtoken/support/almanac/clusters/clusters.safetensors",
    "semtoken/support/almanac/questions/test.jsonl.gz",
    "semtoken/support/almanac/questions/README.md",  # with the notices of its sources
    "semtoken/support/checkpoints/clusters/smollm2/clusters.safetensors",
    "semtoken/web/page/files/app.js",
    "semtoken/data/stopwords_english.txt",
)
UNWANTED = (
    "tests/",
    "benchmarks/",
    "research/",
    ".gguf",
    "almanac/model/",
    "almanac/nli/",
    "almanac/sts/",
)
EXAMPLES = ROOT / "examples"
REPLIES = (
    str(EXAMPLES / "extraction" / "replies.jsonl"),
    "--questions",
    str(EXAMPLES / "extraction" / "invoices.jsonl"),
)
SCHEMA = str(EXAMPLES / "extraction" / "invoice.schema.json")
QUESTIONS = """
import json
from semtoken.support.almanac import load_questions
for one in load_questions("dev")[:8]:
    print(json.dumps({"id": one.id, "prompt": one.prompt()}), file=open("questions.jsonl", "a"))
"""
FEW_LINES = """
import semtoken as st
question = [{"role": "user", "content": "What is the capital of Turkey?"}]
[answer] = st.ScoredModel.from_pretrained().generate([question], max_new_tokens=16)
print(answer.text, answer.sequence_uncertainty, answer.parts(by="phrase")[-1])
"""
TRIAL = ("--model", "almanac", "--dataset", "almanac-dev", "--methods", "stc,perplexity", "--limit", "60")
CORE = (
    ("semtoken", "--version"),
    ("semtoken", "--help"),
    ("semtoken", "doctor", "--report"),
    ("semtoken", "check", REPLIES[0]),
    ("semtoken", "check", *REPLIES, "-o", "page.html"),
    ("semtoken", "check", *REPLIES, "--schema", SCHEMA, "-o", "fields.csv"),
)
"""Commands of the README and of the pages that it leads to, which need no extra."""
EXTRAS = {
    "transformers": (
        ("semtoken", "ask"),
        ("semtoken", "ask", "--model", "almanac", "What is the capital of Turkey?"),
        ("python", "-c", QUESTIONS),
        ("semtoken", "score", "questions.jsonl", "--model", "almanac", "-o", "scored.jsonl"),
        ("semtoken", "check", "scored.jsonl", "-o", "page.html"),
        ("python", "-c", FEW_LINES),
    ),
    "cluster": (("semtoken", "cluster", "--help"),),
    "calibrate": (("semtoken", "calibrate", "--help"),),
    "frames": (("python", "-c", "import semtoken; semtoken.to_frame([])"),),
    "parts": (("python", "-c", "from semtoken.core.parts.prose import find_words; assert find_words('a word')"),),
    "gguf": (("semtoken", "fetch"),),
    "journal": (
        ("semtoken", "check", *REPLIES, "-o", "page.html", "--journal", "journal.db"),
        ("semtoken", "journal", "show", "journal.db"),
    ),
    "serve": (("semtoken", "proxy", "--help"), ("semtoken", "serve", "--help")),
    "bench": (
        ("python", str(EXAMPLES / "calibrate.py"), "my-calibrator"),
        ("semtoken", "bench", "run", *TRIAL, "--output", "run"),
        ("semtoken", "bench", "report", "run"),
    ),
}
"""Extra -> commands that have to end well where it alone is installed, with the embedded models beside it."""
RESOLVED = {
    "all": ("3.11", "3.12", "3.13", "3.14"),
    "llama-cpp": ("3.11", "3.12", "3.13", "3.14"),
    "vllm": ("3.11", "3.12", "3.13", "3.14"),  # vLLM itself needs 3.11
}
"""Extra -> the versions of Python for which its dependencies must fit together."""
TRY = """
import importlib.util, semtoken as st, numpy as np
from semtoken.support.checkpoints import CATALOG
assert importlib.util.find_spec("torch") is None
clusters = st.TokenClusters.from_pretrained(CATALOG["smollm2"].clusters)
[token] = [i for i, text in enumerate(clusters.vocabulary.texts) if text == " Paris"]
logits = np.zeros((1, clusters.vocabulary.size), np.float32)
logits[0, token] = 20
scored = st.score_logits(logits, [token], clusters)
assert scored.text == " Paris" and 0 <= scored.sequence_uncertainty < 0.01, scored.sequence_uncertainty
print("semtoken", st.__version__, "scores", repr(scored.text), "with uncertainty", f"{scored.sequence_uncertainty:.2g}")
"""


def run(*command: str | Path, cwd: Path = ROOT, quiet: bool = False) -> None:
    """Run a command, and stop if it fails."""
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, stdout=subprocess.DEVNULL if quiet else None)


def contents(wheel: Path) -> dict[str, int]:
    """Files of a wheel and their checksums, without its own records."""
    with zipfile.ZipFile(wheel) as archive:
        return {i.filename: i.CRC for i in archive.infolist() if ".dist-info/" not in i.filename}


def resolve() -> None:
    """Find versions of what each extra needs, for each Python; the index says whether there are some."""
    for extra, versions in RESOLVED.items():
        for version in versions:
            with tempfile.TemporaryDirectory() as folder:
                found = Path(folder) / "found.txt"
                command = [
                    "-m",
                    "uv",
                    "pip",
                    "compile",
                    "pyproject.toml",
                    "--extra",
                    extra,
                    "--python-version",
                    version,
                ]
                run(sys.executable, *command, "--quiet", "--output-file", found)
                print(f"  {sum('==' in line for line in found.read_text().splitlines())} packages")


def pythons() -> dict[str, str]:
    """The interpreters of this machine that semtoken supports: version -> path."""
    found = {}
    for version in PYTHONS:
        own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        named = shutil.which(f"python{version}") if not own else str(own[-1])
        if named and subprocess.run([named, "-c", "pass"], check=False, capture_output=True).returncode == 0:
            found[version] = named
    return found


def first_match(pattern: str, file: str) -> str:
    """The group of a pattern at its first place in a file."""
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    return found[1] if found else sys.exit(f"{file} has no line like {pattern}.")


def check_version(tag: str | None) -> str:
    """The version, which the package, CITATION.cff, CHANGELOG and the tag must agree on."""
    version = first_match(r'^__version__ = "(.+)"', "src/semtoken/version.py")
    cited = first_match(r"^version: (.+)$", "CITATION.cff")
    if cited != version:
        sys.exit(f"CITATION.cff says {cited}, the package {version}.")
    newest = first_match(r"^## (\S+)", "CHANGELOG.md")
    if newest != version:
        sys.exit(f"The newest section of CHANGELOG.md is '## {newest}', the package has {version}.")
    if tag and tag != f"v{version}":
        sys.exit(f"The tag {tag} is not that of version {version}.")
    return version


def check_workflows() -> None:
    """The workflows follow the host's schema, and a linter for their security finds nothing."""
    folder = ROOT / ".github" / "workflows"
    commands = Path(sys.executable).parent
    run(commands / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *sorted(folder.glob("*.yml")))
    run(commands / "zizmor", "--offline", "--quiet", folder)
    if linter := shutil.which("actionlint"):
        run(linter, *sorted(folder.glob("*.yml")))
    else:
        print("  actionlint is not installed here: its check of the workflows is left out")


def check_recipe(version: str) -> None:
    """The recipe for conda is one, and of this version."""
    from rattler_build import Stage0Recipe, VariantConfig

    recipe = Stage0Recipe.from_file(ROOT / "packaging" / "recipe" / "recipe.yaml")
    rendered = recipe.render(VariantConfig({"python_min": [PYTHONS[0]]}))
    found = {one.recipe.package.version for one in rendered}
    if found != {version}:
        sys.exit(f"packaging/recipe/recipe.yaml is of version {found}, the package of {version}.")


def build(dist: Path) -> tuple[Path, Path, Path]:
    """The wheel and the sdist of semtoken, and the wheel of the embedded models."""
    for old in dist.glob("semtoken*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", dist)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT / "packaging" / "semtoken-almanac")
    [wheel], [sdist] = dist.glob("semtoken-*.whl"), dist.glob("semtoken-*.tar.gz")
    [models] = dist.glob("semtoken_almanac-*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, models)
    return wheel, sdist, models


def look_inside(wheel: Path, sdist: Path) -> None:
    """Stop if the wheel lacks something, holds too much, or is not what the sdist builds."""
    files = contents(wheel)
    missing = [name for name in NEEDED if name not in files]
    extra = [name for name in files if any(part in name for part in UNWANTED)]
    if missing or extra:
        sys.exit(f"The wheel lacks {missing} and holds {extra}.")
    if wheel.stat().st_size > MOST:
        sys.exit(f"The wheel has {wheel.stat().st_size / 1e6:.1f} MB, more than {MOST / 1e6:.0f}.")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sdist)
        if contents(next(Path(folder).glob("*.whl"))) != files:
            sys.exit("The sdist builds another wheel than the repository.")


def environment(folder: Path, python: str, *wanted: str | Path) -> Path:
    """An empty environment with these packages; the folder of its commands."""
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted)
    return folder / "bin"


def run_all(wanted: Sequence[Sequence[str]], commands: Path, folder: Path) -> None:
    """Run commands of an environment in a folder, without the repository's own packages."""
    for program, *arguments in wanted:
        run(commands / program, *arguments, cwd=folder, quiet=True)


def try_wheel(wheel: Path, version: str, python: str) -> None:
    """The core alone, in an empty environment of one Python."""
    with tempfile.TemporaryDirectory() as folder:
        commands = environment(Path(folder) / "env", python, wheel)
        run(commands / "python", "-c", TRY, cwd=Path(folder))
        run_all(CORE, commands, Path(folder))
    print(f"  works with Python {version} and no extra")


def try_extra(extra: str, wheel: Path, models: Path) -> None:
    """One extra in an environment of its own, with the command that shows that it is enough."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = (f"semtoken[{extra}] @ {wheel.as_uri()}", models, "-c", ROOT / "constraints.txt")
        commands = environment(Path(folder) / "env", sys.executable, *wanted)
        run_all(EXTRAS[extra], commands, Path(folder))
    print(f"  extra {extra}: {len(EXTRAS[extra])} commands")


def main() -> None:
    """Build, look inside, install, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--extras", action="store_true", help="install each extra, too")
    options = parser.parse_args()
    version = check_version(options.tag or None)
    check_workflows()
    check_recipe(version)
    wheel, sdist, models = build(ROOT / "dist")
    look_inside(wheel, sdist)
    found = pythons()
    for name, path in found.items():
        try_wheel(wheel, name, path)
    for extra in EXTRAS if options.extras else ():
        try_extra(extra, wheel, models)
    resolve()
    sizes = [f"{one.name} {one.stat().st_size / 1e6:.1f} MB" for one in (wheel, models)]
    print(f"semtoken {version} can be released: {', '.join(sizes)}.")
    if absent := [name for name in PYTHONS if name not in found]:
        print(f"Not tried, because it is not installed here: Python {', '.join(absent)}.")


if __name__ == "__main__":
    main()
