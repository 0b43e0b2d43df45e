"""Run the live tests of hosts, each in an environment of its own: python scripts/integrations.py [HOST ...]."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from semtoken.integrations.hosts import HOSTS  # noqa: E402

ENVIRONMENTS = ROOT / ".venv-integrations"
SEMTOKEN = f"{ROOT}[transformers,cluster,serve]"
RECIPES = {
    "mlflow": ("mlflow-skinny>=3.17,<4", "sqlalchemy", "alembic"),
    "langfuse": ("langfuse>=5,<6",),
    "phoenix": ("arize-phoenix>=20,<21",),
    "llama_index": ("llama-index-core>=0.14,<0.15", "llama-index-llms-openai-like>=0.8,<0.9"),
    "dspy": ("dspy>=3.4,<4",),
    "uqlm": ("uqlm>=0.6,<0.7", "pyarrow<26"),  # its NumPy 1 is too old for later ones
    "gradio": ("gradio>=6.17,<7",),
    "artefactual": ("artefactual>=2026.9,<2027",),
}
"""What needs no module of ours: docs/integrations/recipes.md as written."""
LIVE = {host.name: (host.requirement, *host.also) for host in HOSTS.values()} | RECIPES
"""What is installed for each live test, beside semtoken. A path is a package of this repository."""


def python_of(name: str) -> Path:
    """The interpreter of a host's environment, which is made if need be.

    Raises
    ------
    subprocess.CalledProcessError
        It could not be made; pip said why.
    """
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    ready = folder / "installed"
    wanted = [*LIVE[name], "pytest", "hypothesis"]
    if not ready.is_file() or ready.read_text(encoding="utf-8").split("\n") != wanted:
        print(f"Installing {LIVE[name][0]} and semtoken into {folder.relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        # The torch of the tests, since the newest one may come with gigabytes for a GPU.
        torch = next(
            line
            for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
            if line.startswith("torch==")
        )
        published = [one for one in wanted if not one.startswith("./")]
        subprocess.run([*install, torch, "-e", SEMTOKEN, *published], check=True, cwd=ROOT)
        for own in set(wanted) - set(published):  # afterwards: pip looks for their semtoken on the index otherwise
            subprocess.run([*install, own], check=True, cwd=ROOT)
        ready.write_text("\n".join(wanted), encoding="utf-8")
    return python


def passes(name: str) -> bool:
    """Whether the live tests of a host pass."""
    settings = {"SEMTOKEN_TEST_INTEGRATIONS": name, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        python = python_of(name)
    except subprocess.CalledProcessError:
        print(f"{name} could not be installed.", flush=True)
        return False
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-m",
        "",
        "-p",
        "no:cacheprovider",
        "tests/integrations/live",
    ]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode == 0


def main() -> int:
    """Run them all; the exit status says whether all passed."""
    names = sys.argv[1:] or list(LIVE)
    unknown = set(names) - set(LIVE)
    if unknown:
        sys.exit(f"There is no host {', '.join(sorted(unknown))}. Choose from {', '.join(LIVE)}.")
    failed = [name for name in names if not passes(name)]
    print(
        f"{len(names) - len(failed)} of {len(names)} hosts passed{': failed ' + ', '.join(failed) if failed else ''}."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
