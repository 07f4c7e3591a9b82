"""Behaviours 44 to 57 of spec/behaviours.md: servers that stall, lie, break off, pack their answers or prove nothing.

Each behaviour has its own sites, written above its test; those that need no settings of their own share one crawl.
"""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Iterator

import brotli
import pytest
from pace import patience
from scripted import STALL, Page, Plan, Reply, Site, Visit, Web, crawled, linking, page, until
from zstd_module import zstd

LIMIT = 1 << 20
OPEN = Plan("open", max_body_bytes=LIMIT)
HASTE_S = patience(0.3)  # their robots.txt comes in time, however busy the machine is
HASTY = Plan("hasty", connect_timeout=HASTE_S, read_timeout=HASTE_S, total_timeout=2 * HASTE_S, max_retries=0)
STRICT = Plan("strict")
TRUSTING = Plan("trusting", tls_verify=False)


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("transport"), OPEN, HASTY, STRICT, TRUSTING) as running:
        yield running


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
held_s: dict[str, float] = {}  # how long the client stayed, by host


def closing(reply: bytes) -> Reply:
    """Sends something and closes the connection."""

    async def answer(visit: Visit) -> None:
        await visit.send(reply)
        visit.close()

    return answer


def truncation(site: Site, path: str) -> str | None:
    """What the WARC record says about a body that is not whole."""
    record = site.stored(path).record
    assert record is not None
    return record.headers.get("warc-truncated")


async def never(visit: Visit) -> None:
    await visit.wait_for_the_end()
    held_s[visit.ask.host] = time.monotonic() - visit.ask.at


never_answers = HASTY.site("never.test", "/").on("/", never)
stops = HASTY.site("stops.test", "/")


async def stop_in_the_middle(visit: Visit) -> None:
    await visit.send(OK + b"Content-Length: 1000\r\n\r\nhalf")
    await never(visit)


stops.on("/", stop_in_the_middle)


def test_44_a_server_that_never_answers_is_left_at_the_time_limit() -> None:
    assert never_answers.row("/").error == "timeout" and never_answers.row("/").status == 0
    until(lambda: "never.test" in held_s)
    assert held_s["never.test"] > HASTE_S - 0.1
    assert (stops.row("/").error, stops.body("/"), truncation(stops, "/")) == ("timeout", b"half", "time")


async def drip(visit: Visit) -> None:
    await visit.send(OK + b"Content-Length: 1000\r\n\r\n")
    try:
        while not visit.reader.at_eof():
            await visit.send(b"x")
            await asyncio.sleep(0.1)
    finally:
        held_s[visit.ask.host] = time.monotonic() - visit.ask.at


dripping = HASTY.site("dripping.test", "/").on("/", drip)


def test_45_a_slow_drip_ends_at_the_total_limit() -> None:
    row = dripping.row("/")
    assert (row.status, row.error) == (200, "timeout") and 2 <= row.length < 500
    until(lambda: "dripping.test" in held_s)
    assert 2 * HASTE_S - 0.1 < held_s["dripping.test"] < 100, "the whole body takes longer"
    assert truncation(dripping, "/") == "time"


stalling = HASTY.site("stalling.weft-web.test", "/", tls=STALL)


def test_46_a_tls_handshake_that_stalls_is_left_at_the_time_limit(web: Web) -> None:
    error = stalling.row("/").error
    assert error.startswith("robots-unreachable: timeout: connect: no connection in")
    assert web.stalled == 3


dropping = OPEN.site("dropping.test", "/once", "/always", "/reset")
HALF = OK + b"Content-Length: 1000\r\n\r\n<a href=/half>"
dropping.on("/once", closing(HALF), linking("/whole")).on("/always", closing(HALF)).pages("/whole", "/half")


async def reset(visit: Visit) -> None:
    await visit.send(HALF)
    visit.reset()


dropping.on("/reset", reset, page("whole"))


def test_47_dropped_in_the_body_is_tried_again_and_then_kept_in_part_and_marked() -> None:
    assert [len(dropping.asks(path)) for path in ("/once", "/always", "/reset")] == [2, 2, 2]
    assert (dropping.row("/once").error, truncation(dropping, "/once")) == ("", None)
    assert (dropping.row("/reset").error, dropping.body("/reset")) == ("", b"whole")
    assert (dropping.row("/always").error, truncation(dropping, "/always")) == ("truncated", "disconnect")
    assert dropping.body("/always") == b"<a href=/half>"
    assert len(dropping.asks("/whole")) == 1


lying = OPEN.site("lying.test", "/long", "/short", "/short-closed", "/short-old", "/conflict")
lying.on("/long", closing(OK + b"Content-Length: 900\r\n\r\nnot so much"))
lying.on("/short", OK + b"Content-Length: 20\r\n\r\n<a href='/in-it'></a><p>and more")
lying.on("/short-closed", closing(OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello and more"))
lying.on("/short-old", closing(OK.replace(b"1.1", b"1.0") + b"Content-Length: 5\r\n\r\nhello!"))
lying.on("/conflict", closing(OK + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\nhello!!"))
lying.pages("/in-it")


def test_48_a_wrong_length_is_marked_and_never_silently_whole() -> None:
    rows = {path: lying.row(path) for path in ("/long", "/short", "/short-closed", "/short-old", "/conflict")}
    assert {path: row.error for path, row in rows.items()} == {
        "/long": "truncated", "/short": "wrong_length", "/short-closed": "wrong_length", "/short-old": "wrong_length",
        "/conflict": "protocol",
    }  # fmt: skip
    assert (lying.body("/short"), truncation(lying, "/short")) == (b"<a href='/in-it'></a>"[:20], "unspecified")
    assert len(lying.asks("/short")) == 1  # it would say the same again
    assert rows["/short"].length == 20


chunks = OPEN.site("chunks.test", "/broken", "/endless", "/trailers")
chunks.on("/broken", closing(CHUNKED + b"5\r\nhello\r\nnonsense\r\nworld\r\n0\r\n\r\n"))
chunks.on("/endless", closing(CHUNKED + b"5\r\nhello\r\n"))
chunks.on(
    "/trailers", CHUNKED + b"5;ext=1\r\nhello\r\n7\r\n, world\r\n0\r\nX-Trailer: yes\r\nX-Second: 2\r\n\r\n", page("x")
)


def test_49_a_broken_chunk_or_a_missing_end_is_an_error_and_trailers_are_accepted() -> None:
    for path in ("/broken", "/endless"):
        assert (chunks.row(path).error, chunks.body(path), truncation(chunks, path)) in (
            ("protocol", b"hello", "disconnect"), ("truncated", b"hello", "disconnect"),
        )  # fmt: skip
    assert (chunks.row("/trailers").error, chunks.body("/trailers")) == ("", b"hello, world")
    assert len(chunks.asks("/trailers")) == 1


sloppy = OPEN.site("sloppy.test", "/").pages("/next")
sloppy.on("/", closing(OK + b"this line has no colon\r\nX-After: kept\r\nContent-Length: 14\r\n\r\n<a href=/next>"))


def test_50_a_header_line_without_colon_is_skipped_and_the_rest_kept() -> None:
    row, http = sloppy.row("/"), sloppy.stored("/").http
    assert (row.status, row.error, sloppy.body("/")) == (200, "", b"<a href=/next>")
    assert http is not None and (http.get("x-after"), http.get("content-type")) == ("kept", "text/html")
    assert "/next" in sloppy.asked()


double = OPEN.site("double.test", "/", "/next")
double.on(
    "/", page("x", "X-Thing: one", "X-Other: 1", "x-thing: two", "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2; Path=/")
)
double.pages("/next")


def test_51_duplicate_headers_are_all_kept() -> None:
    http = double.stored("/").http
    assert http is not None
    assert [value for name, value in http.headers if name.lower() == "x-thing"] == ["one", "two"]
    assert [value for name, value in http.headers if name == "Set-Cookie"] == ["a=1; Path=/", "b=2; Path=/"]
    assert double.asks("/next")[0].header("cookie") == "a=1; b=2"


typeless = OPEN.site("typeless.test", "/html", "/text", "/binary", "/nonsense")
BARE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"
for path, type_line, body in (
    ("/html", b"", b"  <!-- c --><!DOCTYPE html><title>Sniffed</title><a href=/from-html>"),
    ("/text", b"", b"plain words, then <b>bold</b> and a link: a href=/from-text"),
    ("/binary", b"", b"\x89PNG\r\n\x1a\n<html><a href=/from-binary>"),
    ("/nonsense", b"Content-Type: nonsense\r\n", b"<html><title>Sniffed</title><a href=/from-nonsense>"),
):
    typeless.on(path, BARE % len(body) + type_line + b"\r\n" + body)


def test_52_without_a_content_type_the_body_tells_what_it_is() -> None:
    assert {target for target in typeless.asked() if "from" in target} == {"/from-html", "/from-nonsense"}
    assert (typeless.row("/html").title, typeless.row("/html").content_type) == ("Sniffed", "")
    assert typeless.row("/binary").title == ""


TEXT = "<title>Unpacked</title><p>" + "the same words again, " * 200 + "<a href=/from-{}>"
packed = OPEN.site("packed.test", "/")


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS = {
    "gzip": (gzip.compress, ("gzip",)),
    "zlib": (zlib.compress, ("deflate",)),
    "raw": (raw_deflate, ("deflate",)),
    "br": (brotli.compress, ("br",)),
    "zstd": (zstd.compress, ("zstd",)),
    "x-gzip": (gzip.compress, ("X-GZIP",)),
    "stacked": (lambda data: brotli.compress(gzip.compress(data)), ("gzip, br",)),
    "lines": (lambda data: zstd.compress(zlib.compress(data)), ("deflate", "zstd")),
}
packed.on("/", linking(*(f"/{name}" for name in CODINGS)))
for name, (pack, encodings) in CODINGS.items():
    packed.on(f"/{name}", page(pack(TEXT.format(name).encode()), *(f"Content-Encoding: {each}" for each in encodings)))


def test_53_every_coding_and_stacks_of_them_are_undone() -> None:
    assert {target for target in packed.asked() if "from" in target} == {f"/from-{name}" for name in CODINGS}
    for name in CODINGS:
        assert (packed.row(f"/{name}").error, packed.row(f"/{name}").title) == ("", "Unpacked")
        assert packed.body(f"/{name}") == TEXT.format(name).encode()
    assert {ask.header("accept-encoding") for ask in packed.arrivals} == {"gzip, deflate, br, zstd"}


LONG = "<title>Cut</title><a href=/early>" + "".join(f"<p>{number * 7919 % 100_003}" for number in range(20_000))
cut = OPEN.site("cut.test", "/").pages("/early")
cut.on("/", page(gzip.compress(LONG.encode())[:20_000], "Content-Encoding: gzip"))


def test_54_of_a_truncated_gzip_the_readable_part_is_kept_and_marked() -> None:
    assert (cut.row("/").error, cut.row("/").title) == ("decode", "Cut")
    assert len(cut.body("/")) > 10_000 and LONG.startswith(cut.body("/").decode())
    assert "/early" in cut.asked()


async def flood(visit: Visit) -> None:
    await visit.send(CHUNKED)
    while True:
        await visit.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        flooded_bytes.append(65536)


flooded_bytes: list[int] = []
bombs = OPEN.site("bombs.test", "/gzip", "/double", "/br", "/flood", "/announced", "/after")
ZEROS = bytes(64 * LIMIT)
ZIPPED = gzip.compress(ZEROS, 1)
bombs.on("/gzip", page(ZIPPED, "Content-Encoding: gzip"))
bombs.on("/double", page(gzip.compress(ZIPPED, 1), "Content-Encoding: gzip, gzip"))
bombs.on("/br", page(brotli.compress(ZEROS, quality=1), "Content-Encoding: br"))
bombs.on("/flood", flood).on("/announced", closing(OK + b"Content-Length: 99999999999\r\n\r\n<p>")).pages("/after")


def test_55_a_bomb_is_stopped_at_the_limit() -> None:
    for path in ("/gzip", "/double", "/br", "/flood", "/announced"):
        row = bombs.row(path)
        assert (row.status, row.error, row.warc_file) == (200, "too_large", ""), path
        assert len(bombs.asks(path)) == 1
    assert sum(flooded_bytes) < 32 << 20  # what lay in the buffers of the two sockets was sent too
    assert bombs.row("/after").error == ""


answers = OPEN.site("answers.test", "/204", "/304", "/416", "/504", "/504-once")
answers.on("/204", b"HTTP/1.1 204 No Content\r\n\r\n").on("/304", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")
answers.on("/416", Page(b"", ("Content-Range: bytes */10",), "416 Range Not Satisfiable"))
answers.on("/504", Page(b"later", (), "504 Gateway Timeout"))
answers.on("/504-once", Page(b"later", (), "504 Gateway Timeout"), page("now"))


def test_56_204_is_empty_304_unchanged_416_complete_and_504_retried() -> None:
    for path, status, length in (("/204", 204, 0), ("/304", 304, 0), ("/416", 416, 0), ("/504", 504, 5)):
        row = answers.row(path)
        assert (row.status, row.error, row.length) == (status, "", length)
    assert [len(answers.asks(path)) for path in ("/204", "/304", "/416", "/504", "/504-once")] == [1, 1, 1, 2, 2]
    assert (answers.row("/504-once").status, answers.body("/504-once")) == (200, b"now")


FAULTS = ("expired", "self-signed", "wrong-host")
strict = {name: STRICT.site(f"{name}.weft-web.test", "/", tls=name).pages("/") for name in (*FAULTS, "leaf")}
trusting = {name: TRUSTING.site(f"{name}-too.weft-web.test", "/", tls=name).pages("/") for name in FAULTS}


def test_57_certificates_that_prove_nothing_are_refused_unless_configured_otherwise() -> None:
    for name in FAULTS:
        assert strict[name].row("/").error.startswith("robots-unreachable: tls: ") and strict[name].arrivals == []
        assert (trusting[name].row("/").status, trusting[name].asked()) == (200, ["/"])
    assert "expired" in strict["expired"].row("/").error
    assert "self-signed" in strict["self-signed"].row("/").error
    assert "wrong-host.weft-web.test" in strict["wrong-host"].row("/").error
    assert strict["leaf"].row("/").status == 200
