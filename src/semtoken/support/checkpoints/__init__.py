"""Models by name, by file and by folder: what stands behind `--model`.

A model is named in one of five ways: `almanac` (the embedded one), a name of the catalog (`smollm2`, after
`semtoken fetch smollm2`), a `.gguf` file, a directory of a checkpoint, or a hub id. `resolve` turns each of them into a
`ModelSource`, which says what transformers and the token table are to be loaded from.

- `fetch`: download, check, convert, keep
- `gguf`: a GGUF file: its header checked, its embeddings, its conversion to a checkpoint
- `hub`: whether the Hugging Face hub has a model of a name
- `sources`: names to places, and the catalog of small real models that anyone can fetch
- `stored_tensors`: the tensors in a safetensors file, mapped into memory
- `strangers`: what a folder of somebody else may not hold
- `template_trial`: a chat template tried in a process of its own
"""

from semtoken.support.checkpoints.fetch import fetch
from semtoken.support.checkpoints.sources import CATALOG, CatalogModel, ModelSource, resolve

__all__ = ["CATALOG", "CatalogModel", "ModelSource", "fetch", "resolve"]
