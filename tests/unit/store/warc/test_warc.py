"""Records are what the standard says, and what came over the wire."""

from __future__ import annotations

import io
import re
from base64 import b32encode
from hashlib import sha1
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from weft.records import FetchResult
from weft.store.warc.warc_read import WarcRecord, parse_record
from weft.store.warc.warc_records import NOT_MODIFIED, SAME_PAYLOAD, RecordMaker, base32, payload_digest

UUID4 = re.compile(r"<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}>\Z")


def fetched(head: bytes, body: bytes = b"hello", ip: str = "192.0.2.1") -> FetchResult:
    request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
    return FetchResult("http://a.test/", 200, head, body, None, "", 1_794_000_000.123456, 1_794_000_001, ip, request)


def response(head: bytes, body: bytes = b"hello", truncated: str | None = None) -> WarcRecord:
    return parse_record(isal_zlib.decompress(RecordMaker().page(fetched(head, body), truncated).response, 31))


def test_response_record_carries_what_a_reader_needs() -> None:
    record = response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    assert UUID4.match(record.headers.pop("warc-record-id"))
    assert record.headers == {
        "warc-type": "response",
        "warc-date": "2026-11-06T21:20:00.123456Z",
        "warc-target-uri": "http://a.test/",
        "warc-ip-address": "192.0.2.1",
        "warc-payload-digest": payload_digest(b"hello"),
        "content-type": "application/http; msgtype=response",
        "content-length": "43",
    }
    assert record.block == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def test_request_is_linked_to_its_response() -> None:
    page = RecordMaker().page(fetched(b"HTTP/1.1 200 OK\r\n\r\n"))
    request, answer = (parse_record(isal_zlib.decompress(part, 31)) for part in (page.request, page.response))
    assert request.headers["warc-concurrent-to"] == answer.headers["warc-record-id"]
    assert request.headers["warc-target-uri"] == answer.headers["warc-target-uri"]
    assert request.block == b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


def test_without_a_request_head_there_is_no_request_record() -> None:
    result = fetched(b"HTTP/1.1 200 OK\r\n\r\n")
    bare = FetchResult(result.url, 200, result.head, b"", None, "", 0.0, 0.0, "", b"")
    page = RecordMaker().page(bare)
    assert page.request == b""
    assert b"WARC-IP-Address" not in isal_zlib.decompress(page.response, 31)


@pytest.mark.parametrize("why", ["length", "time", "disconnect"])
def test_truncation_is_reported(why: str) -> None:
    assert response(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", truncated=why).headers["warc-truncated"] == why


@pytest.mark.parametrize(
    ("head", "stored"),
    [
        (b"Transfer-Encoding: chunked", b"X-Weft-Transfer-Encoding: chunked"),
        (b"transfer-encoding : Chunked", b"X-Weft-transfer-encoding : Chunked"),
        (b"TRANSFER-ENCODING: chunked", b"X-Weft-TRANSFER-ENCODING: chunked"),
        (b"Content-Length: 6", b"X-Weft-Content-Length: 6"),
        (b"content-length: x", b"X-Weft-content-length: x"),
        (b"Content-Length: 5\r\nContent-Length: 6", b"X-Weft-Content-Length: 5\r\nX-Weft-Content-Length: 6"),
        (b"Content-Length: 5 ", b"Content-Length: 5 "),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Content-Length: 5\r\nX-Weft-Transfer-Encoding: chunked"),
        (b"Set-Cookie: a=1\r\nSet-Cookie: b=2", b"Set-Cookie: a=1\r\nSet-Cookie: b=2"),
        (b"X-Note: Transfer-Encoding: no", b"X-Note: Transfer-Encoding: no"),
        (b"X-Latin: caf\xe9", b"X-Latin: caf\xe9"),
    ],
)
def test_only_headers_that_would_mislead_are_renamed(head: bytes, stored: bytes) -> None:
    record = response(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
    assert record.block == b"HTTP/1.1 200 OK\r\n" + stored + b"\r\n\r\nhello"


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n"])
def test_a_head_gets_the_empty_line_that_ends_it(end: bytes) -> None:
    assert response(b"HTTP/1.1 200 OK\r\nA: b" + end).block == b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello"


def test_http2_is_stored_so_that_readers_understand_and_said_so() -> None:
    record = response(b"HTTP/2 200 \r\nserver: x\r\n\r\n")
    assert record.head == b"HTTP/1.1 200 \r\nserver: x\r\n\r\n"
    assert record.headers["warc-protocol"] == "h2"


@pytest.mark.parametrize(("not_modified", "profile"), [(False, SAME_PAYLOAD), (True, NOT_MODIFIED)])
def test_revisit_refers_to_the_earlier_record(not_modified: bool, profile: str) -> None:
    head = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n"
    page = RecordMaker().revisit(fetched(head, b""), "sha1:" + "A" * 32, 1_700_000_000.5, not_modified)
    record = parse_record(isal_zlib.decompress(page.response, 31))
    assert record.kind == "revisit"
    assert record.headers["warc-profile"] == profile
    assert record.headers["warc-refers-to-target-uri"] == "http://a.test/"
    assert record.headers["warc-refers-to-date"] == "2023-11-14T22:13:20.500000Z"
    assert record.block == head


def test_ids_and_dates_are_unique_and_right_across_seconds() -> None:
    maker = RecordMaker()
    pages = [maker.page(fetched(b"HTTP/1.1 200 OK\r\n\r\n")) for _ in range(50)]
    records = [parse_record(isal_zlib.decompress(part, 31)) for page in pages for part in (page.request, page.response)]
    assert len({record.headers["warc-record-id"] for record in records}) == 100
    assert RecordMaker()._prefix != maker._prefix
    assert [maker._format_date(at) for at in (0.0, 59.999999, 60.0, 0.5)] == [
        "1970-01-01T00:00:00.000000Z",
        "1970-01-01T00:00:59.999999Z",
        "1970-01-01T00:01:00.000000Z",
        "1970-01-01T00:00:00.500000Z",
    ]


def every_kind() -> bytes:
    maker = RecordMaker()
    result = fetched(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n", b"x" * 9999
    )
    h2 = fetched(b"HTTP/2 404 \r\n\r\n", b"")
    revisit = maker.revisit(fetched(b"HTTP/1.1 304 Not Modified\r\n\r\n", b""), payload_digest(b"hello"), 1.0, True)
    parts = [maker.info("f.warc.gz", {"software": "Weft/1", "format": "WARC File Format 1.1", "robots": "obey"})]
    for page in (maker.page(result), maker.page(h2, "disconnect"), revisit):
        assert isinstance(page.response, bytes)
        parts += [page.request, page.response]
    parts.append(maker.metadata("http://a.test/", 1.5, {"via": "http://b.test/"}))
    return b"".join(parts)


KINDS = ["warcinfo", "request", "response", "request", "response", "request", "revisit", "metadata"]


def test_warcio_reads_every_kind_and_finds_every_digest_right() -> None:
    archive = ArchiveIterator(io.BytesIO(every_kind()), check_digests="raise")
    seen = []
    for record in archive:
        record.content_stream().read()
        seen.append((record.rec_type, record.http_headers.get_statuscode() if record.http_headers else None))
    assert [kind for kind, _ in seen] == KINDS
    assert [status for kind, status in seen if kind == "response"] == ["200", "404"]


def test_fastwarc_reads_every_kind_and_finds_every_digest_right(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(every_kind())
    seen = []
    for record in FastIterator(str(path)):
        if "WARC-Payload-Digest" in record.headers and record.headers["WARC-Type"] == "response":
            assert record.verify_payload_digest()
        seen.append(record.headers["WARC-Type"])
    assert seen == KINDS


def test_warcio_check_is_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(every_kind())

    class Command:
        inputs = [str(path)]  # noqa: RUF012
        verbose = True

    checker = Checker(Command())
    checker.process_all()
    assert checker.exit_value == 0
    assert "digest pass" in capsys.readouterr().out


@given(
    st.binary(max_size=2000),
    st.lists(st.tuples(st.from_regex(r"[A-Za-z-]{1,20}", fullmatch=True), st.text("abc ;=", max_size=20))),
)
def test_body_and_other_headers_survive_byte_for_byte(body: bytes, headers: list[tuple[str, str]]) -> None:
    lines = "".join(f"X-{name}: {value}\r\n" for name, value in headers).encode()
    head = b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n"
    record = response(head, body)
    assert record.block == head + body
    assert record.http().body == body
    assert record.http().headers == tuple((f"X-{name}", value.strip()) for name, value in headers)


@given(st.binary(min_size=20, max_size=20))
def test_a_digest_in_base32_is_what_the_standard_library_makes_of_it(digest: bytes) -> None:
    assert base32(digest) == b32encode(digest).decode()


def test_a_payload_digest_is_the_bodys_sha1() -> None:
    assert payload_digest(b"hello") == "sha1:" + b32encode(sha1(b"hello", usedforsecurity=False).digest()).decode()
