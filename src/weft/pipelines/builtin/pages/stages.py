"""The stages of `pages`: a stored page becomes text, and the text is measured. Both run in a worker.

What is kept or removed is decided by the collector, out of what is measured here: other limits need no stage to run
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft.engine.user_code.page import Page
from weft.extract.kind import BodyKind
from weft.extract.page import MAX_BYTES, ParsedPage, extract
from weft.extract.preferences import Preferences, preferences
from weft.fetch.curl.lenient import dechunked
from weft.fetch.decode import decode
from weft.pipelines.stage import StageContext
from weft.store.errors import UnreadableData
from weft.store.warc.foreign_warc import RecordReader
from weft.store.warc.warc_content import ContentPosition
from weft.store.warc.warc_read import HttpMessage, WarcRecord

BLOCK_BYTES = 2 * MAX_BYTES  # of a record that are read: no more of a page is checked than MAX_BYTES
_PREFERENCE_FIELDS = tuple(field.name for field in fields(Preferences))
_PLAIN_TEXT_TYPES = ("", "text/plain", "text/markdown")


def text(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Extracts a page's main text, as plain text and Markdown, with its title, language and other metadata."""
    if item.get("damage"):
        raise UnreadableData(Path(item["path"]), str(item["damage"]))
    place = ContentPosition(item["offset"], item["inside"])
    record, is_cut = _record_reader().read(Path(item["path"]), place, BLOCK_BYTES)
    rendered = b""
    if item.get("rendered"):
        rendering, is_cut = _record_reader().read(Path(item["path"]), ContentPosition(*item["rendered"]), BLOCK_BYTES)
        rendered = rendering.block
    http = _http_of_record(record)
    url = record.headers.get("warc-target-uri", "").strip("<>")
    content_type = http.get("content-type")
    stored = Page(url, b"" if rendered else _decoded_body(http), headers=http.headers, rendered=rendered)
    page = extract(stored.readable, url, stored.readable_type, references=False)
    if not _has_prose(page, stored.readable_type):
        context.skip(f"no page: {(content_type or page.kind.value).partition(';')[0].strip()[:80]}")
    stated = preferences(http.headers, page.document)
    return {
        "url": url,
        "fetched_at": record.headers.get("warc-date"),
        "content_type": content_type,
        "charset": page.charset,
        "title": page.title,
        "language": page.language,
        "text": page.main_text,
        "markdown": page.markdown,
        "truncated": is_cut or page.truncated,
        "ai_training": stated.ai_training,
        **{name: getattr(stated, name) for name in _PREFERENCE_FIELDS},
    }


def measure(_item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """The quality signals of a page's text, and its sketch for finding duplicates."""
    from weft.extract.text.quality import signals
    from weft.extract.text.similar import sketch
    from weft.extract.text.words import Text

    source = context.results["text"]["text"]
    words = Text(source)
    made = sketch(words)
    return {
        "signals": signals(source, words),
        "digest": made.digest if made else None,
        "minima": made.minima if made else None,
    }


@lru_cache(maxsize=1)
def _record_reader() -> RecordReader:
    return RecordReader()


def _http_of_record(record: WarcRecord) -> HttpMessage:
    """The HTTP response in a record; for other records, their block with the record's content type."""
    if record.kind == "response":
        return record.http()
    return HttpMessage("", 200, (("Content-Type", record.headers.get("content-type", "")),), record.block)


def _decoded_body(http: HttpMessage) -> bytes:
    """The decoded body, up to the length that is checked."""
    body = http.body
    if "chunked" in (http.get("transfer-encoding") or "").lower():
        # Most tools store what came out of the chunks and keep the header; then the body does not begin with one.
        plain, error, _ = dechunked(body)
        body = plain if plain or error is None else body
    encoding = http.content_encoding
    return decode(body, encoding, MAX_BYTES + 1).body if encoding else body


def _has_prose(page: ParsedPage, content_type: str | None) -> bool:
    """Whether a page is one that people read: no feed, style sheet, script or data."""
    mime = (content_type or "").partition(";")[0].strip().lower()
    return page.kind is BodyKind.HTML or (page.kind is BodyKind.TEXT and mime in _PLAIN_TEXT_TYPES)
