"""The picture of a repository: which one is chosen, and what becomes of images that strangers made."""

from __future__ import annotations

import io

import pytest
from module_repositories import bomb
from PIL import Image

from weft.pipelines.builtin.modules import screenshots


def image(width: int, height: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height), 128 if mode in "LP" else "red").save(out, kind)
    return out.getvalue()


def test_the_picture_that_the_readme_shows_and_is_called_a_screenshot_comes_first() -> None:
    sizes = dict.fromkeys(
        [
            "logo.png",
            "images/screenshot.png",
            "images/other.png",
            "docs/shown.jpg",
            "node_modules/x/screenshot.png",
            "a.txt",
        ],
        10,
    )
    sizes["empty.png"] = 0
    assert screenshots.ranked(
        sizes, ["https://host/far.png", "./docs/shown.jpg", "images/screenshot.png?raw=true"]
    ) == [
        "images/screenshot.png",
        "docs/shown.jpg",
        "images/other.png",
        "logo.png",
    ]


@pytest.mark.parametrize("mention", ["../../etc/passwd.png", "http://[bad", "data:image/png;base64,xx", "", "%00.png"])
def test_what_a_readme_mentions_need_not_be_a_file(mention: str) -> None:
    assert screenshots.ranked({"a.png": 10}, [mention]) == ["a.png"]


@pytest.mark.parametrize(
    ("kind", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "L"), ("GIF", "P"), ("WEBP", "RGB"), ("BMP", "RGB")]
)
def test_a_thumbnail_fits_and_keeps_the_ratio(kind: str, mode: str) -> None:
    small = screenshots.thumbnail(image(800, 400, kind, mode), 320, 240)
    assert small is not None
    with Image.open(io.BytesIO(small)) as found:
        assert (found.format, found.size) == ("WEBP", (320, 160))


def test_a_thumbnail_has_no_metadata_of_its_source() -> None:
    out = io.BytesIO()
    source = Image.new("RGB", (200, 100))
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    source.save(out, "JPEG", exif=exif)
    small = screenshots.thumbnail(out.getvalue(), 100, 100)
    assert small is not None and b"secret" not in small


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"rubbish",
        image(100, 100)[:60],
        bomb(),
        image(20, 20),
        image(1000, 100),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n",
    ],
    ids=["empty", "rubbish", "cut", "bomb", "icon", "banner", "svg", "postscript"],
)
def test_what_is_no_useful_picture_makes_no_thumbnail(data: bytes) -> None:
    assert screenshots.thumbnail(data, 320, 240) is None
