"""robots.txt files without end, that come slowly, or grow when unpacked: the first 500 KiB count (RFC 9309 §2.5)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator

import pytest
from scripted import Plan, Site, Visit, Web, crawled, page

RULES = b"User-agent: *\nDisallow: /private\n"
LIMIT = 500 * 1024
TEN_GB = 10 * 1000**3
SENT_AT_MOST = 20 << 20  # by a server of ours, however much it has promised
PAST = b"Disallow: /past\n"  # a rule beyond the limit
COMMENT = b"# " + b"x" * 61 + b"\n"

LARGE = Plan("large", max_body_bytes=4096)  # which is for pages
SLOW = Plan("slow", exit_code=4, total_timeout=1.2, read_timeout=1.0)
sent: dict[str, int] = {}


async def flood(visit: Visit, head: str) -> None:
    """Rules, and then comments for as long as they are taken; at the end one more rule, which is too late."""
    await visit.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{head}\r\n\r\n".encode() + RULES)
    host, block = visit.ask.host, COMMENT * 256
    try:
        for number in range(SENT_AT_MOST // len(block)):
            await visit.send(block + (PAST if number * len(block) > LIMIT else b""))
            sent[host] = sent.get(host, 0) + len(block)
    finally:
        visit.close()


async def announced(visit: Visit) -> None:
    await flood(visit, f"Content-Length: {TEN_GB}")


async def endless(visit: Visit) -> None:
    await flood(visit, "Connection: close")


async def read_by_hand(visit: Visit) -> None:
    """A header line without a colon, which libcurl gives up on."""
    await flood(visit, f"this line has no colon\r\nContent-Length: {TEN_GB}")


async def trickles_on(visit: Visit) -> None:
    """As much as is read comes at once, the rest never."""
    body = RULES + COMMENT * (LIMIT // len(COMMENT) + 16)
    await visit.send(f"HTTP/1.1 200 OK\r\nContent-Length: {TEN_GB}\r\n\r\n".encode() + body)
    await visit.wait_for_the_end()


async def trickles(visit: Visit) -> None:
    """A few whole lines, then a byte now and then."""
    await visit.send(f"HTTP/1.1 200 OK\r\nContent-Length: {TEN_GB}\r\n\r\n".encode() + RULES)
    while not visit.reader.at_eof():
        await visit.send(b"#")
        await asyncio.sleep(0.1)


def packed(coding: int, body: bytes) -> bytes:
    pack = zlib.compressobj(9, zlib.DEFLATED, coding)
    return pack.compress(body) + pack.flush()


def large(host: str) -> Site:
    return LARGE.site(host, "/", "/private", "/past").pages("/", "/private", "/past")


BOMB = packed(31, RULES + COMMENT * (LIMIT // len(COMMENT) + 1) + PAST + bytes(40 << 20))
LARGER = [
    large("announced.test").on("/robots.txt", announced),
    large("endless.test").on("/robots.txt", endless),
    large("by-hand.test").on("/robots.txt", read_by_hand),
    large("trickles-on.test").on("/robots.txt", trickles_on),
    large("gzip.test").on("/robots.txt", page(BOMB, "Content-Type: text/plain", "Content-Encoding: gzip")),
]
SMALL = large("small.test").on("/robots.txt", page(RULES + PAST + COMMENT * 200, "Content-Type: text/plain"))
LED = LARGE.site("led.test", "/", "/private").pages("/", "/private")
LED.on("/rules", page(RULES, "Content-Type: text/plain"))
LED.on("/robots.txt", page(COMMENT * 20_000, "Location: /rules", status="301 Moved Permanently"))
SLOWLY = SLOW.site("trickles.test", "/").on("/robots.txt", trickles).pages("/")


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("robots"), LARGE, SLOW) as running:
        yield running


@pytest.mark.parametrize("site", LARGER, ids=lambda site: site.host)
def test_the_first_500_kib_are_read_and_used(site: Site) -> None:
    assert sorted(site.asked()) == ["/", "/past"]
    assert site.row("/private").error == "robots: Disallow: /private (line 2)"
    assert len(site.asks("/robots.txt")) == (2 if site.host == "by-hand.test" else 1)


@pytest.mark.parametrize("host", ["announced.test", "endless.test", "by-hand.test"])
def test_no_more_is_taken_than_is_read(host: str) -> None:
    LARGE.wait()
    assert LIMIT // 2 < sent[host] < SENT_AT_MOST, "what lies in the buffers of two sockets is sent and not taken"


def test_the_limit_of_pages_does_not_cut_it() -> None:
    assert SMALL.asked() == ["/"]
    assert SMALL.row("/past").error == "robots: Disallow: /past (line 3)"


def test_a_redirect_with_a_long_body_is_followed() -> None:
    assert LED.asked() == ["/rules", "/"]
    assert LED.row("/private").error == "robots: Disallow: /private (line 2)"


def test_one_that_does_not_come_in_time_is_unreachable_and_the_reason_says_so() -> None:
    """What is not known may forbid everything: nothing is asked on the strength of the first lines."""
    assert SLOWLY.asked() == []
    assert len(SLOWLY.asks("/robots.txt")) == 3
    error = SLOWLY.row("/").error
    assert error.startswith("robots-unreachable: timeout: total: not done in 1.2 s, after "), error
    assert error.endswith(" bytes")
