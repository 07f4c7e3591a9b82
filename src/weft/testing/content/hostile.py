"""The hostile part of the synthetic web: one behaviour per host, each at /hostile/<name>, listed in TABLE.

Ordinary pages of host 0 link to every one of them, so a crawl meets them all and must still finish the rest. The
`outcome` of each is what a correct client may make of it:

    page          a complete page after one request, however unusual
    fails         no attempt succeeds; a client may retry as usual
    stale         the same, and on a reused connection it looks like a dead one: a client may repeat the request
    either        a page or a failure
    redirect      the target is out of bounds for any crawl: one request
    unreachable   robots.txt never arrives, so the page must never be requested
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from weft.testing.content.resources import Reference, Resource, mix
from weft.testing.content.sites import SyntheticSite, WorldSpec

if TYPE_CHECKING:
    from weft.testing.connection import WebConnection
    from weft.testing.content.fixtures import HostFixtures
    from weft.testing.world import World

CRASH_MARKER = b"<!--weft-crash-parser-->"
DRIP_S = 0.5
# A client that never disconnects is dropped after this long.
PATIENCE_S = 600.0
ENDLESS_BYTES = 10 << 30
BOMB_BYTES = 1 << 30
_BOMB_CRC = 0x9AC47FA6  # crc32 of that many blanks
_TEXT_BLOCK = b"<p>the quick brown fox jumps over the lazy dog</p>\n" * 1285


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One hostile behaviour: a row of TABLE."""

    name: str
    outcome: str
    what: str

    @property
    def path(self) -> str:
        return f"/hostile/{self.name}"


TABLE: dict[str, Behaviour] = {
    name: Behaviour(name, outcome, what)
    for name, outcome, what in (
        ("drip-body", "fails", "one byte of the body every half second"),
        ("drip-headers", "fails", "one byte of the head every half second"),
        ("endless-body", "fails", "a body of 10 GB, as its length says"),
        ("endless-chunks", "fails", "chunks without end"),
        ("endless-headers", "fails", "header lines without end"),
        ("never-answers", "fails", "reads the request and says nothing"),
        ("empty-answer", "stale", "closes without a byte"),
        ("gzip-bomb", "either", "1 MB of gzip that becomes 1 GB"),
        ("br-bomb", "either", "a few hundred bytes of brotli that become 256 MB"),
        ("zstd-bomb", "either", "32 KB of zstd that become 1 GB"),
        ("nested-bomb", "either", "gzip within gzip: a few KB that become 1 GB"),
        ("broken-chunk", "fails", "a chunk whose size is no number"),
        ("huge-chunk", "fails", "a chunk that says it has 2^64-1 bytes"),
        ("missing-final-chunk", "fails", "chunks that stop without the last one"),
        ("huge-header", "either", "one header field of 1 MB"),
        ("many-headers", "either", "100,000 header lines"),
        ("no-colon", "either", "a header line without a colon among good ones"),
        ("garbage-status", "fails", "a status line that is none"),
        ("no-status-line", "fails", "HTML without any head"),
        ("long-length", "fails", "says more bytes than it sends, then closes"),
        ("short-length", "either", "says fewer bytes than it sends"),
        ("negative-length", "either", "Content-Length: -5"),
        ("two-lengths", "either", "two different Content-Length fields"),
        ("drop-mid-body", "fails", "resets the connection in the middle of the body"),
        ("truncated-gzip", "either", "half of a gzip body, with the length of the half"),
        ("false-gzip", "either", "says gzip, sends plain text"),
        ("redirect-file", "redirect", "to file:///etc/passwd"),
        ("redirect-metadata", "redirect", "to http://169.254.169.254/latest/meta-data/"),
        ("redirect-private", "redirect", "to http://10.0.0.1/"),
        ("redirect-gopher", "redirect", "to gopher://127.0.0.1/"),
        ("redirect-self", "redirect", "to itself"),
        ("redirect-long", "redirect", "a Location of 10 kB"),
        ("redirect-nowhere", "redirect", "302 without a Location"),
        ("deep-nesting", "page", "200,000 nested divs in 1 MB"),
        ("huge-attribute", "page", "5 MB of one attribute"),
        ("million-links", "page", "a million links to ten targets in 10 MB"),
        ("nul-bytes", "page", "NULs between and inside the tags"),
        ("invalid-utf8", "page", "bytes that are no UTF-8, declared as UTF-8"),
        ("cookie-flood", "either", "3,000 Set-Cookie fields"),
        ("crash-parser", "either", "a page with the marker that crashes a parser under test"),
        ("robots-endless", "page", "robots.txt without end"),
        ("robots-silent", "unreachable", "robots.txt that never answers"),
        ("tls-stall", "fails", "never ends the TLS handshake (with --tls)"),
        ("tls-expired", "fails", "an expired certificate (with --tls)"),
        ("tls-wrong-host", "fails", "a certificate for another name (with --tls)"),
        ("tls-self-signed", "fails", "a certificate signed by no authority (with --tls)"),
    )
}


def names(spec: WorldSpec) -> tuple[str, ...]:
    """The behaviours of a hostile web, in the order of their hosts (the first is host number `spec.hosts`)."""
    return tuple(name for name in TABLE if spec.tls or not name.startswith("tls-"))


def stock(world: World, site: SyntheticSite, shelf: HostFixtures) -> None:
    """Puts the behaviour on its own host, and the links to all of them on host 0."""
    if site.hostile:
        _add_resource(site, shelf)
    elif site.index == 0:
        for other in world.sites[world.spec.hosts :]:
            assert other.hostile is not None
            url = other.origin + TABLE[other.hostile].path
            shelf.entrances += [Reference(other.home, other.home), Reference(url, url)]


def _add_resource(site: SyntheticSite, shelf: HostFixtures) -> None:
    assert site.hostile is not None
    name = site.hostile
    behaviour = TABLE[name]
    make = STATIC.get(name)
    resource = make(site, behaviour.path) if make else Resource(behaviour.path)
    resource.kind = f"hostile-{name}"
    if name in ACTS:
        resource.behaviour = name
    shelf.resources[behaviour.path] = resource
    if name.startswith("robots-"):
        robots = Resource("/robots.txt", kind=f"hostile-{name}", content_type="text/plain")
        robots.behaviour = "never-answers" if name == "robots-silent" else "robots-endless"
        shelf.resources["/robots.txt"] = robots
        resource.behaviour = None
    if name == "million-links":
        for number in range(10):
            shelf.page(f"/hostile/{number}")


async def act(link: WebConnection, resource: Resource) -> None:
    """Runs a behaviour to its end, or until the client disconnects."""
    assert resource.behaviour is not None
    await asyncio.wait_for(ACTS[resource.behaviour](link, resource.kind), PATIENCE_S)


# -- behaviours on the wire -----------------------------------------------------------------------------------------


def _encode_head(*fields: str, status: str = "200 OK") -> bytes:
    return ("\r\n".join([f"HTTP/1.1 {status}", "Content-Type: text/html", *fields]) + "\r\n\r\n").encode()


async def _send_by_byte(link: WebConnection, data: bytes) -> None:
    for offset in range(len(data)):
        await link.send(data[offset : offset + 1])
        await asyncio.sleep(DRIP_S)


async def drip_body(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Content-Length: 100000"))
    await _send_by_byte(link, _TEXT_BLOCK)
    link.close(200, note)


async def drip_headers(link: WebConnection, note: str) -> None:
    await _send_by_byte(link, _encode_head("X-Slow: " + "y" * 10_000, "Content-Length: 0"))
    link.close(200, note)


async def endless_body(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head(f"Content-Length: {ENDLESS_BYTES}"))
    for _ in range(ENDLESS_BYTES // len(_TEXT_BLOCK)):
        await link.send(_TEXT_BLOCK)
    link.close(200, note)


async def endless_chunks(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Transfer-Encoding: chunked"))
    chunk = f"{len(_TEXT_BLOCK):x}\r\n".encode() + _TEXT_BLOCK + b"\r\n"
    for _ in range(ENDLESS_BYTES // len(_TEXT_BLOCK)):
        await link.send(chunk)
    link.close(200, note)


async def endless_headers(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(b"HTTP/1.1 200 OK\r\n")
    lines = b"".join(b"X-Header-%d: %b\r\n" % (number, b"v" * 100) for number in range(500))
    for _ in range(ENDLESS_BYTES // len(lines)):
        await link.send(lines)
    link.close(200, note)


async def never_answers(link: WebConnection, note: str) -> None:  # noqa: ARG001
    await asyncio.sleep(PATIENCE_S)


async def empty_answer(link: WebConnection, note: str) -> None:
    link.close(0, note)


def _bomb_sender(make: Callable[[], tuple[str, bytes]]) -> Callable[[WebConnection, str], Awaitable[None]]:
    async def send(link: WebConnection, note: str) -> None:
        encoding, body = make()
        link.status = 200
        await link.send(_encode_head(f"Content-Encoding: {encoding}", f"Content-Length: {len(body)}"))
        await _send_all(link, body)
        link.finish(200, note)

    return send


@lru_cache(1)
def gzip_bomb() -> tuple[str, bytes]:
    """One compressed megabyte, repeated: blocks that end in a full flush can be strung together."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    count = BOMB_BYTES >> 20
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    end = b"\x03\x00" + _BOMB_CRC.to_bytes(4, "little") + (BOMB_BYTES & 0xFFFFFFFF).to_bytes(4, "little")
    return "gzip", head + block * count + end


@lru_cache(1)
def br_bomb() -> tuple[str, bytes]:
    import brotli

    packer = brotli.Compressor(quality=3, lgwin=22)
    blanks = b" " * (1 << 22)
    return "br", b"".join([packer.process(blanks) for _ in range(64)]) + packer.finish()


@lru_cache(1)
def zstd_bomb() -> tuple[str, bytes]:
    """RLE blocks written by hand: four bytes for 128 KB each."""
    size = 1 << 17
    count = BOMB_BYTES // size
    block = (1 << 1 | size << 3).to_bytes(3, "little") + b" "
    last = (1 | 1 << 1 | size << 3).to_bytes(3, "little") + b" "
    window = 7 << 3  # 2^(10+7) = 128 KB
    return "zstd", b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + block * (count - 1) + last


@lru_cache(1)
def nested_bomb() -> tuple[str, bytes]:
    return "gzip, gzip", zlib.compress(gzip_bomb()[1], 9, 31)


async def broken_chunk(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Transfer-Encoding: chunked") + b"5\r\nhello\r\nZZZ\r\nworld\r\n0\r\n\r\n")
    link.close(200, note)


async def huge_chunk(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Transfer-Encoding: chunked") + b"FFFFFFFFFFFFFFFF\r\n" + _TEXT_BLOCK)
    link.close(200, note)


async def missing_final_chunk(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Transfer-Encoding: chunked") + b"%x\r\n%b\r\n" % (len(_TEXT_BLOCK), _TEXT_BLOCK))
    link.close(200, note)


def _raw_sender(make: Callable[[], bytes], status: int = 200) -> Callable[[WebConnection, str], Awaitable[None]]:
    """Sends bytes as they are, then closes."""

    async def send(link: WebConnection, note: str) -> None:
        link.status = status
        await _send_all(link, make())
        link.close(status, note)

    return send


async def _send_all(link: WebConnection, data: bytes) -> None:
    for start in range(0, len(data), 65_536):
        await link.send(data[start : start + 65_536], last=start + 65_536 >= len(data))


async def drop_mid_body(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(_encode_head("Content-Length: 131072") + _TEXT_BLOCK[:40_000])
    await asyncio.sleep(0.05)
    link.reset(note, 200)


async def robots_endless(link: WebConnection, note: str) -> None:
    link.status = 200
    await link.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\nDisallow: /private/\n")
    lines = b"Disallow: /private/and/more/of/it\n" * 2000
    for _ in range(ENDLESS_BYTES // len(lines)):
        await link.send(lines)
    link.close(200, note)


_PAGE_BODY = b'<html><head><title>Hostile</title></head><body><p>Still here.</p><a href="/">home</a></body></html>\n'
_LENGTH_HEADER = f"Content-Length: {len(_PAGE_BODY)}"
_GZIPPED = zlib.compress(_PAGE_BODY + _TEXT_BLOCK, 6, 31)
_HALF_GZIPPED = _GZIPPED[: len(_GZIPPED) // 2]

ACTS: dict[str, Callable[[WebConnection, str], Awaitable[None]]] = {
    "drip-body": drip_body,
    "drip-headers": drip_headers,
    "endless-body": endless_body,
    "endless-chunks": endless_chunks,
    "endless-headers": endless_headers,
    "never-answers": never_answers,
    "empty-answer": empty_answer,
    "gzip-bomb": _bomb_sender(gzip_bomb),
    "br-bomb": _bomb_sender(br_bomb),
    "zstd-bomb": _bomb_sender(zstd_bomb),
    "nested-bomb": _bomb_sender(nested_bomb),
    "broken-chunk": broken_chunk,
    "huge-chunk": huge_chunk,
    "missing-final-chunk": missing_final_chunk,
    "huge-header": _raw_sender(lambda: _encode_head("X-Huge: " + "h" * (1 << 20), _LENGTH_HEADER) + _PAGE_BODY),
    "many-headers": _raw_sender(
        lambda: _encode_head(*(f"X-Many-{number}: v" for number in range(100_000)), _LENGTH_HEADER) + _PAGE_BODY
    ),
    "no-colon": _raw_sender(lambda: _encode_head("this line has no colon", "X-Kept: yes", _LENGTH_HEADER) + _PAGE_BODY),
    "garbage-status": _raw_sender(
        lambda: b"HTTP/9.banana YES please\r\n" + _LENGTH_HEADER.encode() + b"\r\n\r\n" + _PAGE_BODY
    ),
    "no-status-line": _raw_sender(lambda: _PAGE_BODY),
    "long-length": _raw_sender(lambda: _encode_head(f"Content-Length: {len(_PAGE_BODY) + 5000}") + _PAGE_BODY),
    "short-length": _raw_sender(lambda: _encode_head(f"Content-Length: {len(_PAGE_BODY) // 2}") + _PAGE_BODY),
    "negative-length": _raw_sender(lambda: _encode_head("Content-Length: -5") + _PAGE_BODY),
    "two-lengths": _raw_sender(lambda: _encode_head(_LENGTH_HEADER, "Content-Length: 7") + _PAGE_BODY),
    "drop-mid-body": drop_mid_body,
    "truncated-gzip": _raw_sender(
        lambda: _encode_head("Content-Encoding: gzip", f"Content-Length: {len(_HALF_GZIPPED)}") + _HALF_GZIPPED
    ),
    "false-gzip": _raw_sender(lambda: _encode_head("Content-Encoding: gzip", _LENGTH_HEADER) + _PAGE_BODY),
    "redirect-nowhere": _raw_sender(lambda: _encode_head("Content-Length: 0", status="302 Found"), 302),
    "cookie-flood": _raw_sender(
        lambda: (
            _encode_head(*(f"Set-Cookie: c{number}={'v' * 100}" for number in range(3000)), _LENGTH_HEADER) + _PAGE_BODY
        )
    ),
    "robots-endless": robots_endless,
}


# -- pages that are hostile by content ------------------------------------------------------------------------------


def _make_redirect(location: str) -> Callable[[SyntheticSite, str], Resource]:
    def make(site: SyntheticSite, path: str) -> Resource:
        target = location or site.origin + path
        return Resource(path, status=302, location=target, leads_to=target)

    return make


def _make_content(
    make_body: Callable[[], bytes], *, links: tuple[str, ...] = ("/",)
) -> Callable[[SyntheticSite, str], Resource]:
    def make(site: SyntheticSite, path: str) -> Resource:
        references = [Reference(link, site.origin + link) for link in links]
        body = make_body()
        return Resource(path, body=body, references=references, key=mix(site.key, *path.encode()), title="Hostile")

    return make


def _page_of(middle: bytes, charset: bytes = b"utf-8") -> bytes:
    start = b'<html><head><meta charset="%b"><title>Hostile</title></head><body><a href="/">home</a>' % charset
    return start + middle + b"</body></html>\n"


STATIC: dict[str, Callable[[SyntheticSite, str], Resource]] = {
    "redirect-file": _make_redirect("file:///etc/passwd"),
    "redirect-metadata": _make_redirect("http://169.254.169.254/latest/meta-data/"),
    "redirect-private": _make_redirect("http://10.0.0.1/"),
    "redirect-gopher": _make_redirect("gopher://127.0.0.1/"),
    "redirect-self": _make_redirect(""),
    "redirect-long": lambda site, path: _make_redirect(site.origin + "/never/" + "l" * 10_000)(site, path),
    "deep-nesting": _make_content(lambda: b'<a href="/">home</a>' + b"<div>" * 200_000),
    "huge-attribute": _make_content(lambda: _page_of(b'<p title="' + b"t" * (5 << 20) + b'">large</p>')),
    "million-links": _make_content(
        lambda: b"".join(b"<a href=%d>" % number for number in range(10)) * 100_000,
        links=tuple(f"/hostile/{number}" for number in range(10)),
    ),
    "nul-bytes": _make_content(lambda: _page_of(b"<p>a\0b\0c</p>\0<p\0>d</p>" + b"\0" * 20_000)),
    "invalid-utf8": _make_content(
        lambda: _page_of(b"<p>\xff\xfe\xc3\x28\xa0\xa1\xe2\x28\xa1\xf0\x28\x8c\xbc</p>" * 200)
    ),
    "crash-parser": _make_content(lambda: _page_of(CRASH_MARKER)),
    "robots-endless": _make_content(lambda: _page_of(b"<p>past an endless robots.txt</p>")),
    "robots-silent": _make_content(lambda: _page_of(b"<p>must never be requested</p>")),
}
