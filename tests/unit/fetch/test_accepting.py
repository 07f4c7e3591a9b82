"""Which content types are wanted, by what the head says and, where it says nothing, by the first bytes."""

from __future__ import annotations

import pytest

from weft.config import FetchSection
from weft.fetch.content_types import Accepting, accepting

DEFAULT = Accepting(FetchSection().accept)


def head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode()


@pytest.mark.parametrize(
    "media",
    ["text/html", "Text/HTML; charset=utf-8", "text/plain", "text/markdown", "application/xhtml+xml", "text/xml",
     "application/rss+xml", "application/atom+xml;q=1", "application/json", "application/ld+json", "application/pdf"],
)  # fmt: skip
def test_what_is_wanted_by_default(media: str) -> None:
    assert DEFAULT.left_out(head(f"Content-Type: {media}"), b"\0\0") == ""


@pytest.mark.parametrize(
    "media",
    ["video/mp4", "image/png", "image/svg+xml", "audio/mpeg", "application/zip", "application/octet-stream",
     "font/woff2", "application/x-text", "nottext/html"],
)  # fmt: skip
def test_what_is_left_out_by_default(media: str) -> None:
    assert DEFAULT.left_out(head(f"Content-Type: {media}"), b"<html>") == media


@pytest.mark.parametrize("said", [(), ("Content-Type:",), ("Content-Type: html",), ("Content-Type: unknown/unknown",)])
@pytest.mark.parametrize(
    ("first", "found"),
    [(b"<html>", ""), (b"", ""), (b"%PDF-1.7\n\0", ""), ("é".encode("latin-1"), ""), (b"\xff\xfe<\0h\0", ""),
     (b"\0\0\0\x18ftypmp42", "application/octet-stream"), (b"\x89PNG\r\n\x1a\n\0", "application/octet-stream")],
)  # fmt: skip
def test_without_a_type_the_first_bytes_tell(said: tuple[str, ...], first: bytes, found: str) -> None:
    assert DEFAULT.left_out(head(*said), first) == found


def test_a_compressed_body_without_a_type_is_wanted() -> None:
    assert DEFAULT.left_out(head("Content-Encoding: gzip"), b"\x1f\x8b\x08\0") == ""


def test_the_last_valid_type_counts() -> None:
    assert DEFAULT.left_out(head("Content-Type: text/html", "Content-Type: video/mp4"), b"") == "video/mp4"


def test_patterns_are_globs_and_everything_is_no_filter() -> None:
    assert Accepting(["image/*"]).left_out(head("Content-Type: image/png"), b"") == ""
    assert Accepting(["image/*"]).left_out(head("Content-Type: text/html"), b"") == "text/html"
    assert Accepting(["json", "html"]).left_out(head("Content-Type: text/plain"), b"") == "text/plain"
    assert Accepting(["json", "html"]).left_out(head("Content-Type: application/xhtml+xml"), b"") == ""
    assert accepting(["text/html", "*/*"]) is None and accepting(["text/html"]) is not None


def test_a_made_up_type_is_shown_in_part() -> None:
    assert len(DEFAULT.left_out(head("Content-Type: x/" + "y" * 5000), b"")) == 100
