"""Run the live tests of hosts, each in an environment of its own: python scripts/integrations.py [HOST ...]."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from semtoken.integrations.hosts import HOSTS, Host  # noqa: E402

ENVIRONMENTS = ROOT / ".venv-integrations"
SEMTOKEN = f"{ROOT}[transformers,cluster,serve]"


def python_of(host: Host) -> Path:
    """The interpreter of a host's environment, which is made if need be."""
    folder = ENVIRONMENTS / host.name
    python = folder / "bin" / "python"
    ready = folder / "installed"
    wanted = [host.requirement, *host.also, "pytest", "hypothesis"]
    if not ready.is_file() or ready.read_text(encoding="utf-8").split("\n") != wanted:
        print(f"Installing {host.requirement} and semtoken into {folder.relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        # The torch of the tests, since the newest one may come with gigabytes for a GPU.
        torch = next(
            line
            for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
            if line.startswith("torch==")
        )
        subprocess.run([*install, torch, "-e", SEMTOKEN, *wanted], check=True, cwd=ROOT)
        ready.write_text("\n".join(wanted), encoding="utf-8")
    return python


def passes(host: Host) -> bool:
    """Whether the live tests of a host pass."""
    settings = {"SEMTOKEN_TEST_INTEGRATIONS": host.name, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [
        str(python_of(host)),
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
    names = sys.argv[1:] or list(HOSTS)
    unknown = set(names) - set(HOSTS)
    if unknown:
        sys.exit(f"There is no host {', '.join(sorted(unknown))}. Choose from {', '.join(HOSTS)}.")
    failed = [name for name in names if not passes(HOSTS[name])]
    print(
        f"{len(names) - len(failed)} of {len(names)} hosts passed{': failed ' + ', '.join(failed) if failed else ''}."
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
