"""Every hostile behaviour does what the table says, seen from a raw socket."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest
from isal import isal_zlib
from pace import patience
from zstd_module import zstd

from weft.testing import tls
from weft.testing.content import hostile
from weft.testing.web import SyntheticWeb, synthetic_web

HOSTS = 2


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=HOSTS, pages=10, profile="hostile") as web:
        yield web


def site_of(web: SyntheticWeb, name: str) -> str:
    return next(site.host for site in web.world.sites if site.hostile == name)


def talk(
    web: SyntheticWeb, name: str, path: str | None = None, *, limit: int = 20 << 20, wait_s: float | None = None
) -> bytes:
    """What comes back for a behaviour's URL: until the end, `limit` bytes, or a pause of `wait_s`."""
    with socket.create_connection((site_of(web, name), web.port), timeout=wait_s or patience(5)) as one:
        one.sendall(f"GET {path or f'/hostile/{name}'} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        data = bytearray()
        try:
            while len(data) < limit and (part := one.recv(1 << 20)):
                data += part
        except TimeoutError:
            data += b"...SILENCE"
        except ConnectionResetError:
            data += b"...RST"
    return bytes(data)


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def head_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[0]


def unpacked_gzip(data: bytes) -> int:
    unpacker = isal_zlib.decompressobj(31)
    total = len(unpacker.decompress(data, 1 << 20))
    while unpacker.unconsumed_tail and not unpacker.eof:
        total += len(unpacker.decompress(unpacker.unconsumed_tail, 1 << 20))
    assert unpacker.eof, "the checksum is part of it"
    return total


def unpacked_br(data: bytes) -> int:
    unpacker = brotli.Decompressor()
    total = len(unpacker.process(data, output_buffer_limit=1 << 20))
    while not unpacker.is_finished():
        total += len(unpacker.process(b"", output_buffer_limit=1 << 20))
    return total


CHECKS: dict[str, Callable[[bytes], bool]] = {
    "empty-answer": lambda got: got == b"",
    "broken-chunk": lambda got: b"\r\nZZZ\r\n" in got,
    "huge-chunk": lambda got: b"FFFFFFFFFFFFFFFF\r\n" in got,
    "missing-final-chunk": lambda got: b"chunked" in got and not got.endswith(b"0\r\n\r\n"),
    "huge-header": lambda got: len(head_of(got)) > 1 << 20 and b"Still here" in body_of(got),
    "many-headers": lambda got: head_of(got).count(b"\r\n") > 100_000 and b"Still here" in body_of(got),
    "no-colon": lambda got: b"\r\nthis line has no colon\r\nX-Kept: yes" in got and b"Still here" in body_of(got),
    "garbage-status": lambda got: got.startswith(b"HTTP/9.banana"),
    "no-status-line": lambda got: got.startswith(b"<html>"),
    "long-length": lambda got: length_of(got) > len(body_of(got)),
    "short-length": lambda got: length_of(got) < len(body_of(got)),
    "negative-length": lambda got: length_of(got) == -5,
    "two-lengths": lambda got: head_of(got).count(b"Content-Length") == 2,
    "drop-mid-body": lambda got: got.endswith(b"...RST") and 20_000 < len(got) < length_of(got),
    "truncated-gzip": lambda got: is_cut_gzip(body_of(got)),
    "false-gzip": lambda got: b"Content-Encoding: gzip" in got and body_of(got).startswith(b"<html>"),
    "redirect-file": lambda got: b"\r\nLocation: file:///etc/passwd\r\n" in got,
    "redirect-metadata": lambda got: b"\r\nLocation: http://169.254.169.254/" in got,
    "redirect-private": lambda got: b"\r\nLocation: http://10.0.0.1/" in got,
    "redirect-gopher": lambda got: b"\r\nLocation: gopher:" in got,
    "redirect-self": lambda got: b"/hostile/redirect-self\r\n" in got,
    "redirect-long": lambda got: len(head_of(got)) > 10_000 and got.startswith(b"HTTP/1.1 302"),
    "redirect-nowhere": lambda got: got.startswith(b"HTTP/1.1 302") and b"Location" not in got,
    "deep-nesting": lambda got: body_of(got).count(b"<div>") == 200_000,
    "huge-attribute": lambda got: b"t" * (5 << 20) in got,
    "million-links": lambda got: body_of(got).count(b"<a href=") == 1_000_000 and len(body_of(got)) < 10 << 20,
    "nul-bytes": lambda got: body_of(got).count(b"\0") > 20_000,
    "invalid-utf8": lambda got: not is_utf8(body_of(got)) and b'charset="utf-8"' in got,
    "cookie-flood": lambda got: got.count(b"\r\nSet-Cookie: ") == 3000,
    "crash-parser": lambda got: hostile.CRASH_MARKER in body_of(got),
    "gzip-bomb": lambda got: len(got) < 2 << 20 and unpacked_gzip(body_of(got)) == 1 << 30,
    "zstd-bomb": lambda got: len(got) < 40_000 and unpacked_zstd(body_of(got)) == 1 << 30,
    "br-bomb": lambda got: len(got) < 10_000 and unpacked_br(body_of(got)) == 256 << 20,
    "nested-bomb": lambda got: len(got) < 20_000 and unpacked_gzip(gzip.decompress(body_of(got))) == 1 << 30,
}
STREAMS = ("endless-body", "endless-chunks", "endless-headers")
SILENT = ("never-answers",)
DRIPS = ("drip-body", "drip-headers")


def length_of(answer: bytes) -> int:
    return int(answer.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])


def is_cut_gzip(data: bytes) -> bool:
    unpacker = zlib.decompressobj(31)
    return b"Still here" in unpacker.decompress(data) and not unpacker.eof


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def unpacked_zstd(data: bytes) -> int:
    total, decoder = 0, zstd.ZstdDecompressor()
    while not decoder.eof:
        total += len(decoder.decompress(data, 1 << 20))
        data = b""
    return total


def test_every_behaviour_is_checked_here() -> None:
    others = {"robots-endless", "robots-silent", "tls-stall", "tls-expired", "tls-wrong-host", "tls-self-signed"}
    assert {*CHECKS, *STREAMS, *SILENT, *DRIPS, *others} == set(hostile.TABLE)


@pytest.mark.parametrize("name", CHECKS)
def test_behaviour(web: SyntheticWeb, name: str) -> None:
    assert CHECKS[name](talk(web, name))


@pytest.mark.parametrize("name", STREAMS)
def test_endless_answers_go_on(web: SyntheticWeb, name: str) -> None:
    got = talk(web, name, limit=30 << 20)
    assert len(got) >= 30 << 20
    assert (b"\r\n\r\n" in got) == (name != "endless-headers")


def test_silent_one_says_nothing(web: SyntheticWeb) -> None:
    assert talk(web, "never-answers", wait_s=0.3) == b"...SILENCE"


@pytest.mark.parametrize("name", DRIPS)
def test_drips_come_byte_by_byte(web: SyntheticWeb, name: str) -> None:
    with socket.create_connection((site_of(web, name), web.port), timeout=patience(5)) as one:
        one.sendall(f"GET /hostile/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        if name == "drip-body":
            head = b""
            while b"\r\n\r\n" not in head:
                head += one.recv(1)
        began = time.monotonic()
        assert [len(one.recv(1000)) for _ in range(3)] == [1, 1, 1]
        assert time.monotonic() - began >= hostile.DRIP_S * 1.8


def test_hostile_robots_txt(web: SyntheticWeb) -> None:
    assert talk(web, "robots-silent", "/robots.txt", wait_s=0.3) == b"...SILENCE"
    assert talk(web, "robots-endless", "/robots.txt", limit=2 << 20).count(b"Disallow: /private/") > 10_000
    assert b"200 OK" in talk(web, "robots-endless")


def test_host_of_each_behaviour_has_a_home_page_that_host_0_links_to(web: SyntheticWeb) -> None:
    linked = {
        reference.target for number in range(4) for reference in web.world.page(web.world.sites[0], number).references
    }
    for site in web.world.sites[HOSTS:]:
        assert site.home in linked
        assert f"{site.origin}/hostile/{site.hostile}" in linked
    assert b"200 OK" in talk(web, "never-answers", "/")


def test_oracle_knows_what_each_allows(web: SyntheticWeb) -> None:
    expectation = web.expect()
    for site in web.world.sites[HOSTS:]:
        assert site.hostile is not None
        url = f"{site.origin}/hostile/{site.hostile}"
        outcome = hostile.TABLE[site.hostile].outcome
        assert (url in expectation.must) == (outcome != "unreachable")
        if outcome == "unreachable":
            assert expectation.never[url] == ["robots-unreachable"]
        if outcome == "fails":
            assert expectation.requests[url] == 4
    assert expectation.never["http://10.0.0.1/"] == ["address", "scope"]
    assert expectation.never["file:///etc/passwd"] == ["scheme"]


def test_abandoned_requests_are_logged_as_such(web: SyntheticWeb) -> None:
    talk(web, "never-answers", wait_s=0.1)
    talk(web, "endless-body", limit=1 << 20)
    deadline = time.monotonic() + patience(5)
    while time.monotonic() < deadline:
        lost = {arrival.note: arrival for arrival in web.arrivals() if arrival.aborted}
        if {"hostile-never-answers", "hostile-endless-body"} <= set(lost):
            break
        time.sleep(0.05)
    silent, endless = lost["hostile-never-answers"], lost["hostile-endless-body"]
    assert (silent.status, silent.bytes, silent.end) == (0, 0, silent.t)
    assert endless.status == 200 and endless.bytes >= 1 << 20 and endless.end > endless.t


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure_web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=HOSTS, pages=10, profile="hostile", tls=True, names=True) as web:
        yield web


def secure_talk(web: SyntheticWeb, host: str, path: str, wait_s: float | None = None) -> bytes:
    context = tls.client_context()
    with (
        socket.create_connection((web.resolve[host], web.port), timeout=wait_s or patience(5)) as plain,
        context.wrap_socket(plain, server_hostname=host) as one,
    ):
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{web.port}\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: one.recv(1 << 16), b""))


def test_names_are_served_with_the_test_authoritys_certificate(secure_web: SyntheticWeb) -> None:
    site = secure_web.world.sites[1]
    assert secure_talk(secure_web, site.host, "/").startswith(b"HTTP/1.1 200 OK")
    assert site.origin == f"https://site1.weft-web.test:{secure_web.port}"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("tls-expired", "expired"), ("tls-wrong-host", "mismatch"), ("tls-self-signed", "self.signed")],
)
def test_bad_certificates_are_bad(secure_web: SyntheticWeb, name: str, complaint: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=complaint):
        secure_talk(secure_web, site_of(secure_web, name), "/")


def test_tls_stall_never_ends_the_handshake(secure_web: SyntheticWeb) -> None:
    with pytest.raises(TimeoutError):
        secure_talk(secure_web, site_of(secure_web, "tls-stall"), "/", wait_s=0.5)
