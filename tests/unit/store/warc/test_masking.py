"""No credential reaches a WARC file, nor leaves in an export."""

from __future__ import annotations

import pytest
from isal import isal_zlib

from weft.credentials import HARMLESS
from weft.records import FetchResult
from weft.store.export.warc import _last_request
from weft.store.warc.masking import mask_request
from weft.store.warc.warc_read import parse_record
from weft.store.warc.warc_records import RecordMaker

REQUEST = (
    b"GET /a?Cookie: x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: Weft\r\nAuthorization: Basic bWU6c2VjcmV0\r\n"
    b"COOKIE: sid=secret; other=1\r\nproxy-authorization : Basic eA==\r\nX-Api-Key:secret\r\n"
    b"X-Cookie: kept\r\nAccept-Language: de\r\n\r\n"
)


def test_every_header_is_masked_that_is_not_known_to_be_harmless() -> None:
    assert mask_request(REQUEST) == (
        b"GET /a?Cookie: x HTTP/1.1\r\nHost: a.test\r\nUser-Agent: Weft\r\nAuthorization: [masked]\r\n"
        b"COOKIE: [masked]\r\nproxy-authorization : [masked]\r\nX-Api-Key: [masked]\r\n"
        b"X-Cookie: [masked]\r\nAccept-Language: de\r\n\r\n"
    )
    assert mask_request(b"GET / HTTP/1.1\r\nAccept-Language-2: x\r\nhOST : a\r\n\r\n") == (
        b"GET / HTTP/1.1\r\nAccept-Language-2: [masked]\r\nhOST : a\r\n\r\n"
    )
    assert "authorization" not in HARMLESS and "cookie" not in HARMLESS


def test_masking_twice_is_masking_once_and_a_body_stays() -> None:
    once = mask_request(REQUEST)
    assert mask_request(once) == once
    assert mask_request(REQUEST + b"\r\nCookie: in a body") == once + b"\r\nCookie: in a body"
    assert mask_request(b"GET / HTTP/1.1\r\nCookie:\r\n\r\n") == b"GET / HTTP/1.1\r\nCookie: [masked]\r\n\r\n"


def result() -> FetchResult:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=theirs\r\n\r\n"
    return FetchResult("http://a.test/", 200, head, b"x", None, "", 1.0, 2.0, "", REQUEST)


def test_records_are_made_without_credentials() -> None:
    page = RecordMaker().page(result())
    request = parse_record(isal_zlib.decompress(page.request, 31))
    assert b"Authorization: [masked]" in request.block and b"secret" not in request.block
    assert int(request.headers["content-length"]) == len(request.block)
    assert (
        b"Set-Cookie: sid=theirs" in parse_record(isal_zlib.decompress(page.response, 31)).block
    )  # what the site said
    revisit = RecordMaker().revisit(result(), "sha1:" + "A" * 32, 1.0)
    assert b"sid=secret" not in isal_zlib.decompress(revisit.request, 31)


@pytest.mark.parametrize("before", [b"", b"\xff" * 50, b"\x1f\x8b\x08 no member", b"\x1f\x8b\x08"])
def test_a_request_is_found_behind_damage(before: bytes) -> None:
    member = RecordMaker().page(result()).request
    assert _last_request(before + member) == member
    assert _last_request(before + member + b"\0") == b""
    assert _last_request(before) == b""


def test_what_is_no_request_is_not_copied() -> None:
    maker = RecordMaker()
    assert _last_request(maker.note("http://a.test/", 1.0, "").note) == b""
    assert _last_request(maker.page(result()).request + maker.note("http://a.test/", 1.0, "").note) == b""
