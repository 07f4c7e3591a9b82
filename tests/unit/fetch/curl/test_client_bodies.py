"""Bodies as they arrive: what goes to files, within which memory, and which content types end at their head."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pace import patience
from wire_server import Server, page

from weft.bodies import ALONE_BYTES, FileBody, Spool, chunks_of
from weft.config import FetchSection
from weft.fetch.curl.client import Client
from weft.fetch.curl.handles import DRAIN_BYTES
from weft.records import FetchResult

SECTION = FetchSection(resolve={"*.test": "127.0.0.1"}, max_body_bytes=16 << 20)
LARGE = os.urandom(1 << 20) * 3
VIDEO = b"Content-Type: video/mp4"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(4 << 20, tmp_path)


@pytest.fixture
def client(spool: Spool) -> Iterator[Client]:
    made = Client(SECTION, refusal=lambda _: None, handles=12, spool=spool)
    yield made
    made.close()


def fetch_all(client: Client, urls: list[str], *, filtered: bool = True, keep_bytes: int = 0) -> list[FetchResult]:
    for number, url in enumerate(urls):
        client.submit(url, (), number, filtered=filtered, keep_bytes=keep_bytes)
    done: dict[object, FetchResult] = {}
    until = time.monotonic() + patience(10)
    while len(done) < len(urls):
        assert time.monotonic() < until
        done |= dict(client.poll(0.5))
    return [done[number] for number in range(len(urls))]


def fetch(client: Client, url: str, *, filtered: bool = True, keep_bytes: int = 0) -> FetchResult:
    return fetch_all(client, [url], filtered=filtered, keep_bytes=keep_bytes)[0]


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_large_body_is_in_a_file_and_whole(client: Client, server: Server, spool: Spool) -> None:
    result = fetch(client, server.on("/large", page(LARGE, b"Content-Type: text/html")))
    assert result.error is None and isinstance(result.body, FileBody)
    assert b"".join(chunks_of(result.body)) == LARGE and (spool.held, spool.files) == (0, 1)


def test_many_bodies_at_once_stay_within_the_memory(client: Client, server: Server, spool: Spool) -> None:
    lesser = LARGE[: ALONE_BYTES - 1000]
    urls = [server.on(f"/lesser{number}", page(lesser, b"Content-Type: text/html")) for number in range(12)]
    spool.limit = 1 << 20
    results = fetch_all(client, urls)
    assert [b"".join(chunks_of(result.body)) for result in results] == [lesser] * 12
    assert spool.files >= 6 and spool.held == 0


def test_a_body_that_is_too_large_leaves_no_file(client: Client, server: Server, spool: Spool) -> None:
    async def endless(visit: object) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")  # type: ignore[attr-defined]
        while True:
            await visit.send(LARGE[: 1 << 20])  # type: ignore[attr-defined]

    before = len(list(Path("/proc/self/fd").iterdir()))
    result = fetch(client, server.on("/endless", endless))
    assert (result.error, result.body, spool.held) == ("too_large", b"", 0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1  # the connection may last a moment longer


def test_a_disk_without_room_is_an_error_that_is_tried_again(client: Client, server: Server, spool: Spool) -> None:
    spool._folder = Path("/nonexistent")
    result = fetch(client, server.on("/noroom", page(LARGE, b"Content-Type: text/html")))
    assert result.error == "other" and result.detail.startswith("the body could not be kept: No such file")
    spool._folder = None
    assert fetch(client, server.on("/room", page(LARGE, b"Content-Type: text/html"))).error is None


# ── content types ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, DRAIN_BYTES, DRAIN_BYTES + 1, len(LARGE)])
def test_what_is_not_wanted_ends_at_its_head(client: Client, server: Server, size: int) -> None:
    result = fetch(client, server.on(f"/video{size}", page(LARGE[:size], VIDEO)))
    assert (result.status, result.error, result.detail) == (200, "content-type", "video/mp4")
    assert result.body == b"" and b"video/mp4" in result.head


def test_a_short_rest_keeps_the_connection_and_a_long_one_ends_it(client: Client, server: Server) -> None:
    wanted = server.on("/wanted", page(b"hi", b"Content-Type: text/html"))
    fetch(client, wanted)
    before = server.connections
    for size in (10, DRAIN_BYTES):
        fetch(client, server.on(f"/short{size}", page(LARGE[:size], VIDEO)))
    assert fetch(client, wanted).error is None and server.connections == before
    fetch(client, server.on("/long", page(LARGE, VIDEO)))
    assert fetch(client, wanted).error is None and server.connections == before + 1


def test_an_endless_body_that_is_not_wanted_is_left(client: Client, server: Server) -> None:
    async def endless(visit: object) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\n" + VIDEO + b"\r\n\r\n")  # type: ignore[attr-defined]
        while True:
            await visit.send(b"\0" * 1000)  # type: ignore[attr-defined]

    assert fetch(client, server.on("/stream", endless)).error == "content-type"


@pytest.mark.parametrize("code", [b"404 Not Found", b"302 Found", b"500 Oops"])
def test_only_pages_have_a_type_that_matters(client: Client, server: Server, code: bytes) -> None:
    reply = page(b"\0\1\2", VIDEO).replace(b"200 OK", code)
    result = fetch(client, server.on(f"/code{code[:3].decode()}", reply))
    assert (result.error, result.body) == (None, b"\0\1\2")


def test_robots_and_sitemaps_are_not_filtered(client: Client, server: Server) -> None:
    url = server.on("/sitemap.xml.gz", page(b"\x1f\x8b\0\0", b"Content-Type: application/x-gzip"))
    assert fetch(client, url, filtered=False).body == b"\x1f\x8b\0\0"
    assert fetch(client, server.on("/robots", page(b"Allow: /", VIDEO)), keep_bytes=100).body == b"Allow: /"


def test_interim_answers_are_no_heads(client: Client, server: Server) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\n\r\n"
    assert fetch(client, server.on("/hints", hints + page(b"\0" * 9, VIDEO))).error == "content-type"


def test_an_answer_that_is_read_leniently_is_filtered_too(client: Client, server: Server) -> None:
    reply = page(b"\0" * 9, VIDEO, b"no colon here")
    url = server.on("/sloppy", reply, close=True, host="sloppy.test")
    assert fetch(client, url).error == "protocol"
    result = fetch(client, url)
    assert (result.status, result.error, result.body) == (200, "content-type", b"")


def test_everything_can_be_asked_for(server: Server, spool: Spool) -> None:
    section = FetchSection(resolve={"*.test": "127.0.0.1"}, accept=("*/*",))
    client = Client(section, refusal=lambda _: None, handles=1, spool=spool)
    assert fetch(client, server.on("/any", page(b"\0\1", VIDEO))).body == b"\0\1"
    client.close()
