"""Reading heads: single questions and the whole walk agree, nothing raises, and the usual question is quick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.headers import Head, final_head, http_date, merged, wire

HEAD = Head(
    b"HTTP/1.1 200 All Right\r\n"
    b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    b"content-TYPE: Text/HTML; Charset=ISO-8859-1\r\n"
    b"Set-Cookie: a=1\r\n"
    b"X-Content-Type: not this\r\n"
    b"this line says nothing\r\n"
    b"set-cookie:b=2  \r\n"
    b"Folded: one\r\n  two\r\n\tthree\r\n"
    b"ETag: \"x\"\r\n"
    b"Last-Modified: yesterday\r\n"
    b"Empty:\r\n"
    b"With Space: no\r\n"
    b": nameless\r\n"
    b"Location: /caf\xc3\xa9\r\n"
    b"X-Latin: caf\xe9\r\n"
    b"\r\n"
)  # fmt: skip


def test_the_status_line() -> None:
    assert HEAD.status_line == "HTTP/1.1 200 All Right"
    assert Head(b"").status_line == ""


def test_a_header_is_found_whatever_its_case() -> None:
    assert HEAD.get("Content-Type") == HEAD.get("CONTENT-type") == "Text/HTML; Charset=ISO-8859-1"
    assert HEAD.get("X-Missing") is None and HEAD.get("Type") is None and HEAD.get("HTTP/1.1 200 All Right") is None


def test_every_value_is_kept_in_order() -> None:
    assert HEAD.get_all("Set-Cookie") == HEAD.set_cookies == ["a=1", "b=2"]
    assert HEAD.get_all("Nothing") == []


def test_lines_that_are_no_headers_are_read_over() -> None:
    names = [name for name, _ in HEAD.items()]
    assert names == [
        "Date", "content-TYPE", "Set-Cookie", "X-Content-Type", "set-cookie", "Folded", "ETag", "Last-Modified",
        "Empty", "Location", "X-Latin",
    ]  # fmt: skip


def test_folded_lines_are_one_value() -> None:
    assert HEAD.get("folded") == "one two three"
    assert Head(b"HTTP/1.1 200\r\nA: b\r\n c").get("a") == "b c"


def test_bytes_are_utf_8_or_latin_1() -> None:
    assert HEAD.location == "/café" and HEAD.get("x-latin") == "café"


def test_validators() -> None:
    assert (HEAD.etag, HEAD.last_modified, HEAD.get("empty")) == ('"x"', "yesterday", "")


def test_bare_line_feeds() -> None:
    head = Head(b"HTTP/1.0 200 OK\nA: 1\nB: 2\n\n")
    assert dict(head.items()) == {"A": "1", "B": "2"} and head.get("b") == "2"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["text/html"], ("text/html", None)),
        (["Text/HTML ; Charset = UTF-8"], ("text/html", "UTF-8")),
        (['text/html; charset="utf-8"; x=y'], ("text/html", "utf-8")),
        (["text/html; charset='utf-8'"], ("text/html", "utf-8")),
        (['text/html; x="y"; charset=latin1;'], ("text/html", "latin1")),
        (["text/html;charset="], ("text/html", None)),
        (['text/html;charset=""'], ("text/html", None)),
        (["text/html; xcharset=a"], ("text/html", None)),
        (["application/xml", "text/html; charset=a"], ("text/html", "a")),
        (["text/html; charset=a", "nonsense"], ("text/html", "a")),
        (["html"], ("", None)),
        ([""], ("", None)),
        ([], ("", None)),
    ],
)
def test_content_type(values: list[str], expected: tuple[str, str | None]) -> None:
    raw = "HTTP/1.1 200 OK\r\n" + "".join(f"Content-Type: {value}\r\n" for value in values) + "\r\n"
    assert Head(raw.encode()).content_type() == expected


NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("9" * 5000, 1e10),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun, 06 Nov 1994 00:00:00 GMT", 0.0),
        ("Sun, 06 Nov 199999 00:00:00 GMT", None),
        ("Sun, 99 Foo 1994 00:00:00 GMT", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    got = Head(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode()).retry_after_s(NOW)
    assert got == seconds or (seconds is None and got is not None and got > 1e10)


def test_without_retry_after() -> None:
    assert HEAD.retry_after_s(NOW) is None


@given(st.text())
def test_no_date_raises(value: str) -> None:
    http_date(value)


PIECES = st.lists(
    st.sampled_from([b"A", b"b", b":", b" ", b"\t", b"\r\n", b"\n", b"\r", b"x", b"\xff", b"set-cookie: ", b"a:", b""])
)


@given(PIECES.map(b"".join))
def test_single_questions_and_the_walk_agree(rest: bytes) -> None:
    head = Head(b"HTTP/1.1 200 OK\r\n" + rest)
    walked: dict[str, list[str]] = {}
    for name, value in head.items():
        walked.setdefault(name.lower(), []).append(value)
    for name in {"a", "b", "ab", "x", "set-cookie", *(n for n in walked if n.isascii())}:
        assert head.get_all(name) == walked.get(name, [])
        assert head.get(name) == walked.get(name, [None])[0]


@given(st.binary())
def test_any_bytes_can_be_asked(raw: bytes) -> None:
    head = Head(raw)
    assert isinstance(head.status_line, str)
    list(head.items())
    head.content_type()
    head.retry_after_s(0)


# -- the head among what libcurl hands over


def test_the_final_head() -> None:
    interim = [b"HTTP/1.1 103 Early\r\n", b"A: 1\r\n", b"\r\n"]
    final = [b"HTTP/1.1 200 OK\r\n", b"B: 2\r\n", b"\r\n"]
    trailers = [b"HTTP/1.1: 5\r\n", b"\r\n"]
    whole = b"".join(final)
    assert final_head(final) == (whole, True)
    assert final_head(interim + interim + final) == (whole, True)
    assert final_head(interim + final + trailers) == (whole, True)
    assert final_head(final[:2]) == (whole[:-2], False)
    assert final_head(interim) == final_head([]) == (b"", False)
    assert final_head([b"HTTP/1.0 200 OK\n", b"\n"]) == (b"HTTP/1.0 200 OK\n\n", True)


# -- headers to send


def test_given_headers_take_the_place_of_usual_ones() -> None:
    usual = [("User-Agent", "weft"), ("Accept", "*/*")]
    assert merged(usual, [("user-AGENT", "me"), ("X", "y")]) == [("Accept", "*/*"), ("user-AGENT", "me"), ("X", "y")]


@pytest.mark.parametrize("name", ["Host", "connection", "Content-Length", "Transfer-Encoding", "Expect", "Upgrade"])
def test_where_a_request_goes_is_not_for_headers_to_say(name: str) -> None:
    assert merged([], [(name, "x"), ("X", "y")]) == [("X", "y")]


def test_headers_on_the_wire() -> None:
    assert wire([("A", " b "), ("Empty", "")]) == ([b"A: b", b"Empty;"], b"A: b\r\nEmpty:\r\n\r\n")
    assert wire([]) == ([], b"\r\n")
