"""Images as a model is shown them: shades by hand, transparent pictures on white, pages and folders of scans."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from semtoken.errors import InvalidInputError
from semtoken.support.files.images import MOST_BYTES, path_of, read_image, scans_in


def read_back(picture: Any, path: Path, **options: Any) -> Any:
    """The pixels that are shown of a picture that was saved."""
    picture.save(path, **options)
    return np.asarray(read_image({"type": "image", "path": str(path)}))


def ink_on_paper(paper: float, ink: float, dtype: Any) -> Any:
    page = np.full((20, 30), paper, dtype)
    page[5:15, 5:25] = ink
    return page


@pytest.mark.parametrize(
    ("paper", "ink", "dtype", "suffix", "shown"),
    [
        (58000, 6000, np.uint16, "png", (226, 23)),  # 16 bits: / 257
        (58000, 6000, np.uint16, "tif", (226, 23)),
        (58000, 0, np.uint16, "png", (226, 0)),  # what is quite black counts as any other shade
        (3900, 400, np.uint16, "png", (243, 25)),  # 12 bits in 16: / 4095 * 255
        (250, 20, np.uint16, "png", (250, 20)),  # 8 bits in 16
        (0.9, 0.1, np.float32, "tif", (229, 26)),  # 0 to 1
        (240.0, 20.0, np.float32, "tif", (240, 20)),  # 0 to 255
        (1.0, -1.0, np.float32, "tif", (255, 0)),  # darkest to lightest
        (2_000_000, 0, np.int32, "tif", (255, 0)),
        (65_536, 0, np.int32, "tif", (255, 0)),  # the first beyond 16 bits
        (58000, 6000, np.int32, "tif", (226, 23)),
    ],
)
def test_grey_images_of_more_than_8_bits_keep_their_shades(
    tmp_path: Path, paper: float, ink: float, dtype: Any, suffix: str, shown: tuple[int, int]
) -> None:
    seen = read_back(Image.fromarray(ink_on_paper(paper, ink, dtype)), tmp_path / f"scan.{suffix}")
    assert seen.shape == (20, 30, 3)
    assert (tuple(seen[0, 0]), tuple(seen[10, 10])) == ((shown[0],) * 3, (shown[1],) * 3)


def test_a_tiff_in_which_zero_is_white(tmp_path: Path) -> None:
    picture = Image.fromarray(ink_on_paper(6000, 58000, np.uint16))
    seen = read_back(picture, tmp_path / "scan.tif", tiffinfo={262: 0})
    assert (seen[0, 0, 0], seen[10, 10, 0]) == (255 - 23, 255 - 226)


def test_numbers_that_are_not_finite_are_no_image(tmp_path: Path) -> None:
    Image.fromarray(ink_on_paper(np.nan, 0.1, np.float32)).save(tmp_path / "scan.tif")
    with pytest.raises(InvalidInputError, match="not finite"):
        read_image({"type": "image", "path": str(tmp_path / "scan.tif")})


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1-bit key"])
def test_what_is_transparent_is_white_and_half_of_it_half_as_dark(tmp_path: Path, mode: str) -> None:
    alpha = Image.fromarray(ink_on_paper(0, 255, np.uint8))
    black = Image.new("RGB", (30, 20))
    black.putalpha(alpha)
    if mode == "1-bit key":
        keyed = Image.new("L", (30, 20), 7)
        keyed.paste(0, (5, 5, 25, 15))
        seen = read_back(keyed, tmp_path / "scan.png", transparency=7)
    elif mode == "P":
        seen = read_back(black.quantize(), tmp_path / "scan.png")
    else:
        seen = read_back(black.convert(mode), tmp_path / "scan.png")
    assert tuple(seen[0, 0]) == (255, 255, 255) and tuple(seen[10, 10]) == (0, 0, 0)
    if mode == "RGBA":
        half = black.copy()
        half.putalpha(128)
        assert read_back(half, tmp_path / "half.png")[0, 0, 0] == pytest.approx(127, abs=1)


def pages(*shades: int) -> list[Image.Image]:
    return [Image.new("L", (40, 30), shade) for shade in shades]


def test_a_folder_reads_every_page_in_every_folder_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    first, *rest = pages(10, 20, 30)
    first.save(tmp_path / "b.tif", save_all=True, append_images=rest)
    first.save(tmp_path / "c.PDF", save_all=True, append_images=rest[:1], format="PDF")
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a.png", "sub/d.JPG", ".hidden.png", ".git/e.png"):
        Image.new("L", (4, 4), 40).save(tmp_path / name)
    Image.new("L", (4, 4), 40).save(tmp_path / "x.jfif", format="JPEG")
    for name in ("notes.txt", "sub/f.heic"):
        (tmp_path / name).write_text("no image")
    found = scans_in(tmp_path)
    names = ["a.png", "b.tif#1", "b.tif#2", "b.tif#3", "c.PDF#1", "c.PDF#2", "sub/d.JPG", "x.jfif"]
    assert [name for name, _ in found.pages] == names
    assert found.left_out == ["notes.txt", "sub/f.heic"]
    shown = [read_image(part | {"path": str(tmp_path / part["path"])}) for _, part in found.pages]
    middles = [np.asarray(one)[one.height // 2, one.width // 2, 0] for one in shown]
    np.testing.assert_allclose(middles, [40, 10, 20, 30, 10, 20, 40, 40], atol=3)


def test_a_page_that_is_not_there_and_a_damaged_file(tmp_path: Path) -> None:
    pages(1)[0].save(tmp_path / "a.pdf", format="PDF")
    with pytest.raises(InvalidInputError, match="has 1 pages, page 2 is asked for"):
        read_image({"type": "image", "path": str(tmp_path / "a.pdf"), "page": 2})
    pages(1)[0].save(tmp_path / "a.tif")
    with pytest.raises(InvalidInputError, match=r"Page 2 of the image .*a\.tif cannot be read"):
        read_image({"type": "image", "path": str(tmp_path / "a.tif"), "page": 2})
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(InvalidInputError, match=r"^The image .*a\.png cannot be read"):
        read_image({"type": "image", "path": str(tmp_path / "a.png")})
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\nnothing")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        scans_in(tmp_path)


def test_a_pdf_page_is_drawn_within_the_limit_of_pixels(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("1", (100, 100)).save(content, format="PDF", resolution=0.5)  # 200 inches wide
    (tmp_path / "wide.pdf").write_bytes(content.getvalue())
    with pytest.raises(InvalidInputError, match=r"30,00\d x 30,00\d pixels"):
        read_image({"type": "image", "path": str(tmp_path / "wide.pdf")})


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"url": "scans/one.png"}, "scans/one.png"),
        ({"path": "./one.png"}, "./one.png"),
        ({"image_url": {"url": "one.png"}}, "one.png"),
        ({"url": "https://example.org/one.png"}, None),
        ({"url": "data:image/png;base64,AAAA"}, None),
        ({"image": Image.new("L", (1, 1))}, None),
        ({}, None),
    ],
)
def test_only_what_is_no_address_is_the_path_of_a_file(source: dict[str, Any], path: str | None) -> None:
    assert path_of({"type": "image"} | source) == path


PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_data_urls_are_read_for_anybody_and_files_for_this_user_alone(tmp_path: Path) -> None:
    url = data_url(png(PICTURE))
    for part in ({"url": url}, {"image_url": {"url": url}}):
        assert read_image(part, files=False).tobytes() == PICTURE.tobytes()
    PICTURE.save(tmp_path / "a.png")
    assert read_image({"path": tmp_path / "a.png"}).size == PICTURE.size
    for name in ("path", "url", "image"):
        with pytest.raises(InvalidInputError, match="no address or file is read"):
            read_image({name: str(tmp_path / "a.png")}, files=False)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("none.png", r"there is no image file none\.png\.$"),
        ("no\0ne.png", r"there is no image file no\\x00ne\.png\.$"),
        (base64.b64encode(png(PICTURE)).decode(), r"^.{,400}begin it with data:image/png;base64,\.$"),
    ],
    ids=["none", "a sign that no name has", "base64 alone"],
)
def test_files_that_are_not_there(path: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_image({"path": path})


@pytest.mark.parametrize("url", ["http://127.0.0.1/a.png", "https://example.com/a.png", "file:///etc/passwd"])
def test_addresses_are_never_fetched(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is not fetched"):
        read_image({"url": url})
    with pytest.raises(InvalidInputError, match="as data URLs"):
        read_image({"image_url": {"url": url}}, files=False)


BOMB = png(Image.new("1", (9_000, 9_000)))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (data_url(BOMB), "9,000 x 9,000 pixels"),
        (data_url(b"no image"), "cannot be read as one of PNG"),
        (data_url(png(PICTURE)[:-900]), "cannot be read as one of PNG"),
        ("data:image/svg+xml;base64,PHN2Zy8+", "cannot be read as one of PNG"),
        ("data:image/png;base64,!!!!", "no base64"),
        ("data:image/png;base64," + "A" * (MOST_BYTES * 3 // 2), "20,000,000 bytes"),
    ],
    ids=["fills the memory", "no image", "cut off", "another kind", "no base64", "too many bytes"],
)
def test_data_that_is_no_fair_image_is_refused(url: str, said: str) -> None:
    assert len(BOMB) < 20_000
    with pytest.raises(InvalidInputError, match=said):
        read_image({"url": url}, files=False)
