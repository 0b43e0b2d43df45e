"""Run the notebooks and write them with what they print, without traces of the machine that ran them.

    python scripts/run_notebooks.py                    # all of examples/notebooks/, into build/notebooks
    python scripts/run_notebooks.py examples/notebooks/1-*.ipynb
    python scripts/run_notebooks.py --keep             # for a release: in their own place

SmolLM2 is used where it has been fetched (`semtoken fetch smollm2`); the outputs in the repository were made with it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
QUIET = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""No progress bars: a notebook would keep them."""


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with new outputs, run in a folder where it may write files.

    Raises
    ------
    CellExecutionError
        A cell failed; the message holds its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ.update(QUIET)  # the kernel inherits them
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the command semtoken
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="python3", timeout=600, coalesce_streams=True, resources=place).execute()
    return cleaned(notebook)


def cleaned(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without times, versions of Python, and what libraries say on stderr."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for output in cell.outputs:
                output.pop("transient", None)
    return notebook


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--keep", action="store_true", help="write over the notebooks themselves")
    options = parser.parse_args()
    build = ROOT / "build" / "notebooks"
    build.mkdir(parents=True, exist_ok=True)
    for path in options.notebooks or sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(notebook, path if options.keep else build / path.name)
        print(f"{path.name}: {sum(len(cell.get('outputs', [])) for cell in notebook.cells)} outputs")


if __name__ == "__main__":
    main()
