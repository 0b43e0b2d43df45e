"""Models by name, by file and by folder: what stands behind `--model`.

A model is named in one of five ways: `almanac` (the embedded one), a name of the catalogue (`smollm2`, after
`semtoken fetch smollm2`), a `.gguf` file, a directory of a checkpoint, or a hub id. `resolve` turns each of them into a
`ModelSource`, which says what transformers and the token table are to be loaded from.

- `catalogue`: small real models that anyone can fetch, with their sources, licences and checksums
- `fetch`: download, check, convert, keep
- `gguf`: embeddings and metadata of a GGUF file, and its conversion to a checkpoint
- `sources`: names to places
"""

from semtoken.models.catalogue import CATALOGUE, CatalogueModel
from semtoken.models.fetch import fetch
from semtoken.models.sources import ModelSource, resolve

__all__ = ["CATALOGUE", "CatalogueModel", "ModelSource", "fetch", "resolve"]
