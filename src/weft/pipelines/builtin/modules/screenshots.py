"""The picture that shows a repository best, and a thumbnail of it.

Candidates are ranked by where they are mentioned and how they are called (pure), then opened in that order until one
is a picture of a useful size. Images come from strangers: their pixels are counted before they are unpacked, only a few
plain formats are read, and whatever a decoder raises makes the next candidate's turn.
"""

from __future__ import annotations

import io
import posixpath
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from weft.pipelines.builtin.modules.repositories.tree import FOREIGN

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MAX_PIXELS = 40_000_000
MAX_FILE_BYTES = 20_000_000
MIN_SIDE = 48  # smaller ones are icons
MAX_RATIO = 6.0  # banners and lines
MAX_TRIED = 20
_LIKELY_NAME = re.compile(r"screen[-_ ]?shot|screen|preview|demo|example|sample", re.IGNORECASE)
_UNLIKELY_NAME = re.compile(r"icon|logo|badge|favicon|sprite|avatar|button|arrow|spinner|loading|flag", re.IGNORECASE)
_LIKELY_FOLDER = re.compile(
    r"(?:^|/)(?:screenshots?|images?|img|docs?|assets|media|\.github|previews?)/", re.IGNORECASE
)


def ranked(sizes: Mapping[str, int], mentioned: Iterable[str]) -> list[str]:
    """Ranks the paths that may be screenshots, the likeliest first; `mentioned`: the images of the README, in their
    order.
    """
    named = {path: number for number, path in enumerate(filter(None, map(_path_of_mention, mentioned)))}
    candidates = [
        path
        for path, size in sizes.items()
        if path.lower().endswith(SUFFIXES) and 0 < size <= MAX_FILE_BYTES and not FOREIGN.intersection(path.split("/"))
    ]
    return sorted(
        candidates, key=lambda path: (-_score_of(path, named), named.get(path, len(named)), -sizes[path], path)
    )


def thumbnail(data: bytes, width: int, height: int) -> bytes | None:
    """Converts a picture into a WebP that fits into width x height; None if the bytes are not a usable picture."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of what may be a decompression bomb
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                if not _is_useful(*image.size):
                    return None
                image.draft("RGB", (width * 2, height * 2))  # a JPEG is then decoded at a fraction of its size
                small: Any = ImageOps.exif_transpose(image).convert("RGBA")
                small.thumbnail((width, height), Image.Resampling.LANCZOS)
                flat = Image.new("RGB", small.size, "white")
                flat.paste(small, mask=small.getchannel("A"))
                out = io.BytesIO()
                flat.save(out, "WEBP", quality=80, method=4)  # a new picture: no metadata of the old one is in it
                return out.getvalue()
    except MemoryError:
        return None
    except Exception:
        return None


def _is_useful(width: int, height: int) -> bool:
    if width * height > MAX_PIXELS or min(width, height) < MIN_SIDE:
        return False
    return max(width, height) / min(width, height) <= MAX_RATIO


def _score_of(path: str, named: Mapping[str, int]) -> int:
    name = posixpath.basename(path)
    return (
        (4 if path in named else 0)
        + (4 if _LIKELY_NAME.search(name) else 0)
        + (1 if _LIKELY_FOLDER.search(path) else 0)
        - (6 if _UNLIKELY_NAME.search(name) else 0)
        - (1 if path.count("/") > 3 else 0)
    )


def _path_of_mention(mention: str) -> str | None:
    """The path in the repository of an image that a README mentions; None for images elsewhere, which are not
    fetched.
    """
    parts = urlsplit(mention.strip()[:2_000]) if "[" not in mention else urlsplit("")
    if parts.scheme or parts.netloc or not parts.path:
        return None
    path = posixpath.normpath(unquote(parts.path).lstrip("/"))
    return None if path.startswith("..") else path
