"""Run the notebooks and keep what they print, without traces of the machine that ran them.

    python scripts/run_notebooks.py                    # all of examples/notebooks/
    python scripts/run_notebooks.py examples/notebooks/1-*.ipynb

SmolLM2 is used where it has been fetched (`semtoken fetch smollm2`); the outputs in the repository were made with it.
"""

from __future__ import annotations

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
    for path in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, Path(folder))
        nbformat.write(notebook, path)
        print(f"{path.name}: {sum(len(cell.get('outputs', [])) for cell in notebook.cells)} outputs")


if __name__ == "__main__":
    main()
