# ruff: noqa: S603 (programs of this machine, on sources that the reader names)
"""Apply each proposed change to its host's current source and run its test.

    python packaging/contrib/check.py [--sources FOLDER]

Without FOLDER, released sources are fetched with pip. FOLDER may hold them (`lm_polygraph-0.7.0.tar.gz`), and single
files of hosts that release no documentation: `extensions.yml` of inspect_ai, `directory.md` of llm. A change must
apply without fuzz, and every Python file of the host that it touches must still compile.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RELEASED = {"lm-polygraph/lm-polygraph-0.7.0.patch": "lm-polygraph==0.7.0"}
FILES = {"inspect_ai/extensions.patch": "extensions.yml", "llm/directory.patch": "directory.md"}
PACKAGES = (
    *("lm_polygraph", "lm_polygraph.estimators", "lm_polygraph.stat_calculators"),
    *("lm_polygraph.utils", "lm_polygraph.defaults"),
)
RUN = """
import sys, types
from pathlib import Path
for name in sys.argv[2].split(","):  # the packages without their __init__, which imports gigabytes
    package = types.ModuleType(name)
    package.__path__ = [str(Path(sys.argv[1]) / "src" / name.replace(".", "/"))]
    sys.modules[name] = package
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", sys.argv[3]]))
"""


def source(requirement: str, folder: Path | None, work: Path) -> Path:
    """The unpacked source of a release."""
    name = requirement.replace("-", "_").replace("==", "-")
    archive = None if folder is None else next(iter(folder.glob(f"{name}*.tar.gz")), None)
    if archive is None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(work), requirement], check=True)
        [archive] = work.glob(f"{name}*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(work, filter="data")
    [found] = [one for one in work.iterdir() if one.is_dir()]
    return found


def apply(change: Path, *where: str) -> None:
    """Apply a patch; raises if anything does not fit exactly."""
    subprocess.run(["patch", "--batch", "--fuzz=0", *where, "--input", str(change)], check=True)  # noqa: S607


def check_released(change: Path, requirement: str, folder: Path | None) -> None:
    """A change to a released package: applied, compiled, and its own test run."""
    with tempfile.TemporaryDirectory() as temporary:
        root = source(requirement, folder, Path(temporary))
        apply(change, "-p1", "--directory", str(root))
        touched = [root / name for name in re.findall(r"^\+\+\+ b/(\S+)", change.read_text("utf-8"), re.MULTILINE)]
        for path in (one for one in touched if one.suffix == ".py"):
            compile(path.read_text("utf-8"), str(path), "exec")
        for path in (one for one in touched if one.name.startswith("test_")):
            run = [sys.executable, "-c", RUN, str(root), ",".join(PACKAGES), str(path)]
            subprocess.run(run, check=True, cwd=root, env=os.environ)


def check_file(change: Path, original: Path) -> None:
    """A change to one file of a host's documentation."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / original.name
        copy.write_bytes(original.read_bytes())
        apply(change, str(copy))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path)
    folder = parser.parse_args().sources
    for name, requirement in RELEASED.items():
        check_released(HERE / name, requirement, folder)
        print(f"{name} fits {requirement}, and its test passes.")
    for name, file in FILES.items():
        if folder is None or not (folder / file).is_file():
            print(f"{name}: give --sources with {file} of the host's repository.")
            continue
        check_file(HERE / name, folder / file)
        print(f"{name} fits {file}.")


if __name__ == "__main__":
    main()
