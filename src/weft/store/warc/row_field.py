"""A row inside its WARC record: the named field `X-Weft-Row`, from which `weft rebuild` makes the index again.

It holds, as JSON, the values of the row that the rest of the record lacks. An item that ended without a response has a
`metadata` record of its own for it. WARC 1.1 lets a writer add named fields, and readers ignore unknown ones. Some
refuse a head of more than 32 KB; so what rules have read is in it up to MAX_FIELDS_BYTES, and else a note that says so.
"""

from __future__ import annotations

import msgspec

from weft.records import Row, RowOutput
from weft.store.warc.warc_read import WarcRecord

ROW_HEADER = "X-Weft-Row"
OUTPUT_HEADER = (
    "X-Weft-Output"  # of a record before the page's: the item, and how many items a user's code has made of it
)
MAX_FIELDS_BYTES = 12_000
FIELDS_TOO_LONG = (
    '{"fields":{},"field_errors":{"*":"the fields were too long for the record of the page, and the index that had '
    'them is gone: fetch the page again"}}'
)


class RowFacts(msgspec.Struct, omit_defaults=True, gc=False):
    """The field's content; default values are omitted."""

    item: int
    at: float
    crawl: int = 1
    status: int = 200
    final: str = ""
    type: str = "text/html"
    charset: str = "utf-8"
    language: str = ""
    title: str = ""
    depth: int = 0
    parent: int = 0
    length: int = 0
    digest: str = ""
    error: str = ""
    hops: int = 0
    fields: str = ""
    rendered: int = 0
    request: str = ""


def row_header(row: Row) -> str:
    """The field's line."""
    facts = RowFacts(
        row.item, row.fetched_at, row.crawl, row.status, "" if row.final_url == row.url else row.final_url,
        row.content_type, row.charset, row.language, row.title, row.depth, row.parent, row.length, row.digest,
        row.error, row.hops, row.fields if _are_fields_short(row.fields) else FIELDS_TOO_LONG, row.rendered,
        row.request,
    )  # fmt: skip
    try:
        encoded = _encode_facts(facts)
    except UnicodeEncodeError:  # half a surrogate pair, as a broken page's title can hold
        texts = {name: _whole_characters(getattr(facts, name)) for name in ("final", "type", "title", "error")}
        encoded = _encode_facts(msgspec.structs.replace(facts, **texts))
    return f"{ROW_HEADER}: {encoded.decode()}\r\n"


def row_in_record(record: WarcRecord, file: str, offset: int, length: int) -> Row | None:
    """The row in a record at this position; None if it has none."""
    encoded = record.headers.get(ROW_HEADER.lower())
    if encoded is None:
        return None
    try:
        facts = _decode_facts(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    url = record.headers.get("warc-target-uri", "")
    if record.kind == "metadata":
        file, offset, length = "", 0, 0
    return Row(
        facts.item, facts.crawl, url, facts.final or url, facts.status, facts.at, facts.type, facts.charset,
        facts.language, facts.title, facts.depth, facts.parent,
        facts.digest or record.headers.get("warc-payload-digest", ""), facts.length, facts.error, facts.hops,
        file, offset, length, facts.fields, facts.rendered if file else 0, facts.request,
    )  # fmt: skip


def output_in_record(record: WarcRecord) -> tuple[int, RowOutput] | None:
    """The item and the output in a record; None if it has none."""
    item, _, count = record.headers.get(OUTPUT_HEADER.lower(), "").partition(" ")
    if not item.isdecimal() or not count.isdecimal():
        return None
    return int(item), RowOutput(int(count), record.block)


def needs_next_record(record: WarcRecord) -> bool:
    """Whether a record is useless without the next one: at the end of a file it has lost that."""
    return record.kind == "request" or OUTPUT_HEADER.lower() in record.headers


def _are_fields_short(fields: str) -> bool:
    """Whether the fields are short enough in their quoted form."""
    return len(fields) <= MAX_FIELDS_BYTES // 6 or len(_encode_facts(fields)) <= MAX_FIELDS_BYTES


def _whole_characters(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


_encode_facts = msgspec.json.Encoder().encode
_decode_facts = msgspec.json.Decoder(RowFacts).decode
