"""Build the sdist and the wheel, and try the wheel in an empty environment: `make package`.

What is checked: the metadata (twine), that the wheel holds the embedded model, its questions and the SmolLM2 clusters,
that the sdist alone builds the same wheel, that the installed core scores an answer without torch, and that versions of
all dependencies can be found for every Python that is supported (uv).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "semtoken/py.typed",
    "semtoken/almanac/model/model.safetensors",
    "semtoken/almanac/clusters/clusters.safetensors",
    "semtoken/almanac/questions/test.jsonl.gz",
    "semtoken/models/clusters/smollm2/clusters.safetensors",
    "semtoken/web/page/files/app.js",
    "semtoken/data/stopwords_english.txt",
)
UNWANTED = ("tests/", "benchmarks/", "experiments/", "training/", ".gguf")
RESOLVED = {
    "all": ("3.10", "3.11", "3.12", "3.13", "3.14"),
    "llama-cpp": ("3.10", "3.11", "3.12", "3.13", "3.14"),
    "vllm": ("3.11", "3.12", "3.13", "3.14"),  # vLLM itself needs 3.11
}
"""Extra -> the versions of Python for which its dependencies must fit together."""
TRY = """
import importlib.util, semtoken as st, numpy as np
from semtoken.models import CATALOGUE
assert importlib.util.find_spec("torch") is None
clusters = st.TokenClusters.from_pretrained(CATALOGUE["smollm2"].clusters)
[token] = [i for i, text in enumerate(clusters.vocabulary.texts) if text == " Paris"]
logits = np.zeros((1, clusters.vocabulary.size), np.float32)
logits[0, token] = 20
scored = st.score_logits(logits, [token], clusters)
assert scored.text == " Paris" and 0 <= scored.uncertainty < 0.01, scored.uncertainty
print("semtoken", st.__version__, "scores", repr(scored.text), "with uncertainty", f"{scored.uncertainty:.2g}")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, and stop if it fails."""
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


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


def main() -> None:
    """Build, look inside, install, try."""
    dist = ROOT / "dist"
    for old in dist.glob("semtoken-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", dist)
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    files = contents(wheel)
    missing = [name for name in NEEDED if name not in files]
    extra = [name for name in files if any(part in name for part in UNWANTED)]
    if missing or extra:
        sys.exit(f"The wheel lacks {missing} and holds {extra}.")
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sdist)
        if contents(next(Path(folder).glob("*.whl"))) != files:
            sys.exit("The sdist builds another wheel than the repository.")
        venv.create(Path(folder) / "env", with_pip=True)
        python = Path(folder) / "env" / "bin" / "python"
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
        run(python, "-c", TRY, cwd=Path(folder))
        run(python.parent / "semtoken", "--version", cwd=Path(folder))
    resolve()
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {len(files)} files, {size:.1f} MB. The wheel works in an empty environment.")


if __name__ == "__main__":
    main()
