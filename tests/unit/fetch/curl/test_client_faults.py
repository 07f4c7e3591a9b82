"""The client against servers that stall, lie, flood, break off or talk nonsense: each is one word, soon, in bounds."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest
from pace import patience
from wire_server import Server, Visit, page, until

from weft.bodies import chunks_of
from weft.config import FetchSection
from weft.fetch.curl.client import Client
from weft.fetch.dns.resolver import Resolver
from weft.records import FetchResult

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LIMIT = 100_000
# Real limits, which the tests here run into: long enough that nobody else does on a busy machine.
READ_S, TOTAL_S = patience(0.15), patience(0.4)
SECTION = FetchSection(
    connect_timeout_s=READ_S,
    read_timeout_s=READ_S,
    total_timeout_s=TOTAL_S,
    max_body_bytes=LIMIT,
    resolve={"*.test": "127.0.0.1"},
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(SECTION, refusal=lambda _: None, handles=2)
    yield made
    made.close()


def fetch(client: Client, url: str) -> FetchResult:
    client.submit(url, (), None)
    until = time.monotonic() + patience(5)
    while not (done := client.poll(0.5)):
        assert time.monotonic() < until
    assert client.in_flight == 0 and len(done) == 1
    return done[0][1]


def outcome(result: FetchResult) -> tuple[int, str | None, bytes]:
    return result.status, result.error, b"".join(chunks_of(result.body))


# -- time


async def say_nothing(visit: Visit) -> None:
    await visit.wait_for_the_end()


def test_a_server_that_never_answers_is_a_read_timeout(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/never", say_nothing))
    assert outcome(result) == (0, "timeout", b"")
    assert result.detail.startswith("read") and result.ended - result.started >= READ_S


def test_a_body_that_stops_is_a_read_timeout_and_its_part_is_kept(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/stops", OK + b"Content-Length: 10\r\n\r\npart"))
    assert outcome(result) == (200, "timeout", b"part") and result.detail.startswith("read")


def test_a_head_that_stops_is_a_read_timeout(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/half", OK + b"X: 1\r\nY"))
    assert result.error == "timeout" and result.detail.startswith("read")


def test_a_slow_drip_ends_at_the_total_limit(client: Client, server: Server) -> None:
    async def drip(visit: Visit) -> None:
        await visit.send(OK + b"\r\n")
        while True:
            await visit.send(b".")
            await asyncio.sleep(0.05)

    result = fetch(client, server.on("/drip", drip))
    assert (result.status, result.error) == (200, "timeout") and result.detail.startswith("total")
    assert result.ended - result.started >= TOTAL_S
    assert len(result.body) > 10


def test_a_slow_drip_of_headers_ends_too(client: Client, server: Server) -> None:
    async def drip(visit: Visit) -> None:
        await visit.send(OK)
        while True:
            await visit.send(b"X: y\r\n")
            await asyncio.sleep(0.05)

    result = fetch(client, server.on("/drip-head", drip))
    assert result.error == "timeout" and result.detail.startswith("total")


def test_slow_but_steady_is_no_timeout(client: Client, server: Server) -> None:
    async def steady(visit: Visit) -> None:
        await visit.send(OK + b"Content-Length: 4\r\n\r\n")
        for _ in range(4):
            await asyncio.sleep(0.4 * READ_S)
            await visit.send(b".")

    assert outcome(fetch(client, server.on("/steady", steady))) == (200, None, b"....")


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port whose backlog is full: connecting to it hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        time.sleep(0.05)
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_a_connection_that_does_not_come_is_a_connect_timeout(client: Client, black_hole: int) -> None:
    result = fetch(client, f"http://127.0.0.1:{black_hole}/")
    assert outcome(result) == (0, "timeout", b"") and result.detail.startswith("connect")
    assert result.ended - result.started >= READ_S


def test_a_host_that_nobody_knows_has_less_time_to_take_a_connection(black_hole: int) -> None:
    section = msgspec.structs.replace(SECTION, connect_timeout_s=3600.0, first_connect_s=READ_S, total_timeout_s=3700.0)
    made = Client(section, refusal=lambda _: None, handles=2)
    made.submit(f"http://127.0.0.1:{black_hole}/again", (), "known")
    made.submit(f"http://127.0.0.1:{black_hole}/", (), "first", is_first=True)
    limit, ended = time.monotonic() + patience(5), list[tuple[object, FetchResult]]()
    while not ended and time.monotonic() < limit:
        ended += made.poll(0.1)
    assert [(tag, result.error, result.detail[:7]) for tag, result in ended] == [("first", "timeout", "connect")]
    assert made.in_flight == 1, "the other one still has its time"
    made.close()


def test_the_next_address_gets_its_share_of_the_time_to_connect(black_hole: int) -> None:
    resolver = Resolver(lookup=lambda _: ("127.0.0.1", "127.0.0.5"))
    made = Client(SECTION, refusal=lambda _: None, handles=1, resolver=resolver)
    with socket.socket() as other:
        other.bind(("127.0.0.5", black_hole))
        other.listen()
        made.submit(f"http://two.example:{black_hole}/", (), None)
        until = time.monotonic() + patience(3)
        other.setblocking(False)
        while time.monotonic() < until:
            assert made.poll(0.02) == []
            try:
                connection, _ = other.accept()
                break
            except BlockingIOError:
                continue
        connection.setblocking(True)
        connection.sendall(page(b"second"))
        ((_, result),) = made.poll(1)
        connection.close()
    made.close()
    assert (result.body, result.ip) == (b"second", "127.0.0.5")


def test_a_name_server_that_does_not_answer_is_a_connect_timeout() -> None:
    resolver = Resolver(lookup=lambda _: time.sleep(2 * READ_S) or ())  # type: ignore[func-returns-value]
    made = Client(SECTION, refusal=lambda _: None, handles=1, resolver=resolver)
    result = fetch(made, "http://slow.example/")
    made.close()
    assert result.error == "timeout" and result.detail.startswith("connect: no address")
    assert result.ended - result.started >= READ_S


def test_tls_that_never_begins_is_a_connect_timeout(client: Client, server: Server) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        result = fetch(client, f"https://127.0.0.1:{silent.getsockname()[1]}/")
    assert result.error == "timeout" and result.detail.startswith("connect")


def test_a_stall_does_not_hold_up_the_others(client: Client, server: Server) -> None:
    client.submit(server.on("/never", say_nothing), (), "stalled")
    client.submit(server.on("/quick", page(b"hi")), (), "quick")
    ended: list[tuple[object, FetchResult]] = []

    def both_have_ended() -> bool:
        ended.extend(client.poll(0.5))
        return len(ended) == 2

    until(both_have_ended)
    assert [(tag, result.error) for tag, result in ended] == [("quick", None), ("stalled", "timeout")]
    assert ended[0][1].ended < ended[1][1].ended


# -- size


@pytest.mark.parametrize(
    "head", [OK + b"\r\n", CHUNKED, OK + b"Content-Length: 100001\r\n\r\n", OK + b"Content-Length: %d\r\n\r\n" % 10**18]
)
def test_a_body_without_end_is_cut_off(client: Client, server: Server, head: bytes) -> None:
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n" if head is CHUNKED else b"x" * 65536

    async def flood(visit: Visit) -> None:
        await visit.send(head)
        while True:
            await visit.send(piece)

    before = server.broken_off
    result = fetch(client, server.on("/flood", flood))
    assert outcome(result) == (200, "too_large", b"")
    until(lambda: server.broken_off == before + 1)


@pytest.mark.parametrize("head", [OK + b"\r\n", OK + b"Content-Length: 100000\r\n\r\n"])
def test_a_body_of_just_the_limit_is_whole(client: Client, server: Server, head: bytes) -> None:
    result = fetch(client, server.on("/limit", head + b"x" * LIMIT, close=True))
    assert (result.error, len(result.body)) == (None, LIMIT)


def test_a_body_of_one_byte_more_is_too_large(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/over", OK + b"\r\n" + b"x" * (LIMIT + 1), close=True))
    assert outcome(result) == (200, "too_large", b"")


@pytest.mark.parametrize("line", [b"X: " + b"y" * 200 + b"\r\n", b"y" * 4096, b"a:\r\n", b" folded" * 50 + b"\r\n"])
def test_a_head_without_end_is_cut_off(client: Client, server: Server, line: bytes) -> None:
    async def flood(visit: Visit) -> None:
        await visit.send(OK + b"X: ")
        while True:
            await visit.send(line)

    result = fetch(client, server.on("/head-flood", flood))
    assert result.error == "headers_too_large"
    assert len(result.head) < 400_000


def test_interim_answers_without_end_are_cut_off(client: Client, server: Server) -> None:
    async def flood(visit: Visit) -> None:
        while True:
            await visit.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)

    result = fetch(client, server.on("/interim-flood", flood))
    assert (result.status, result.error, result.head) == (0, "headers_too_large", b"")


def test_trailers_without_end_are_cut_off(client: Client, server: Server) -> None:
    async def flood(visit: Visit) -> None:
        await visit.send(CHUNKED + b"2\r\nhi\r\n0\r\n")
        while True:
            await visit.send(b"X: " + b"y" * 200 + b"\r\n")

    result = fetch(client, server.on("/trailer-flood", flood))
    assert result.error == "headers_too_large"


def test_large_but_finite_headers_are_kept(client: Client, server: Server) -> None:
    headers = [b"X-%d: %s" % (number, b"y" * 1000) for number in range(90)]
    result = fetch(client, server.on("/large-head", page(b"hi", *headers)))
    assert (result.error, result.body) == (None, b"hi") and result.head.count(b"X-") == 90


def test_floods_do_not_grow_the_process(client: Client, server: Server) -> None:
    async def flood(visit: Visit) -> None:
        await visit.send(OK + b"\r\n")
        while True:
            await visit.send(b"x" * 65536)

    url = server.on("/again-flood", flood)
    for _ in range(5):
        fetch(client, url)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(50):
        assert fetch(client, url).error == "too_large"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB, for 5 MB of accepted bytes


# -- lies and breaks


def test_dropped_in_the_body_is_truncated_and_the_part_is_kept(client: Client, server: Server) -> None:
    url = server.on("/dropped", OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 300, close=True)
    assert outcome(fetch(client, url)) == (200, "truncated", b"x" * 300)


def test_a_length_that_is_too_small_ends_the_body_and_the_connection(client: Client) -> None:
    with Server() as fresh:
        url = fresh.on("/small", OK + b"Content-Length: 2\r\n\r\nhi, and then some")
        for _ in range(2):
            result = fetch(client, url)
            assert outcome(result) == (200, None, b"hi") and result.surplus
        assert fresh.connections == 2  # what was left over is not taken for the next answer


@pytest.mark.parametrize("connection", [b"", b"Connection: close\r\n", b"Connection: Keep-Alive\r\n"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize(("body", "surplus"), [(b"hi", False), (b"hi!", True), (b"hi" * 9000, True)])
def test_what_comes_beyond_the_length_is_noticed(
    client: Client, version: bytes, connection: bytes, closes: bool, body: bytes, surplus: bool
) -> None:
    head = b"HTTP/" + version + b" 200 OK\r\n" + connection + b"Content-Length: 2\r\n\r\n"
    with Server() as fresh:
        fresh.on("/first", page(b"kept"))
        result = fetch(client, fresh.on("/small", head + body, close=closes))
        assert outcome(result) == (200, None, b"hi") and result.surplus is surplus
        fetch(client, fresh.url("/first"))
        if b"Keep" in connection or (version, connection) == (b"1.1", b""):
            # Of the second answer on a connection it is known where the connection would have been kept.
            result = fetch(client, fresh.url("/small"))
            assert outcome(result) == (200, None, b"hi") and result.surplus is surplus


def test_an_answer_without_a_length_or_with_another_status_has_no_surplus(client: Client, server: Server) -> None:
    for path, reply in (
        ("/until-closed", OK + b"Connection: close\r\n\r\nhi"),
        ("/chunks", CHUNKED + b"2\r\nhi\r\n0\r\n\r\nmore"),
        ("/same", b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"),
    ):
        assert not fetch(client, server.on(path, reply, close=True)).surplus


@pytest.mark.parametrize("lengths", [b"x", b"-1", b"1\r\nContent-Length: 3"])
def test_a_length_that_is_none_is_an_error(client: Client, server: Server, lengths: bytes) -> None:
    url = server.on("/no-length", OK + b"Content-Length: " + lengths + b"\r\n\r\nabc", close=True)
    assert fetch(client, url).error == "protocol"


def test_the_same_length_twice_is_fine(client: Client, server: Server) -> None:
    url = server.on("/same-length", OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi")
    assert outcome(fetch(client, url)) == (200, None, b"hi")


def test_without_a_length_the_end_of_the_connection_is_the_end(client: Client, server: Server) -> None:
    assert outcome(fetch(client, server.on("/till-end", OK + b"\r\nall of it", close=True))) == (
        200,
        None,
        b"all of it",
    )


@pytest.mark.parametrize(
    ("rest", "kept"),
    [(b"2\r\nhi\r\nzz\r\n", b"hi"), (b"2\r\nhiXX", b"hi"), (b"2\r\nhi\r\n", b"hi"), (b"5\r\nhi", b"hi"), (b"", b"")],
)
def test_a_broken_chunk_or_a_missing_end_is_an_error(client: Client, server: Server, rest: bytes, kept: bytes) -> None:
    assert outcome(fetch(client, server.on("/chunks", CHUNKED + rest, close=True))) == (200, "protocol", kept)


def test_a_reset_before_the_answer(client: Client, server: Server) -> None:
    async def reset(visit: Visit) -> None:
        visit.reset()

    assert outcome(fetch(client, server.on("/reset", reset))) == (0, "reset", b"")


def test_a_reset_in_the_body_keeps_the_part(client: Client, server: Server) -> None:
    async def reset(visit: Visit) -> None:
        await visit.send(OK + b"Content-Length: 99\r\n\r\npart")
        await asyncio.sleep(0.1)
        visit.reset()

    assert outcome(fetch(client, server.on("/reset-later", reset))) == (200, "reset", b"part")


def test_closed_without_a_word_is_a_reset(client: Client, server: Server) -> None:
    assert outcome(fetch(client, server.on("/mute", b"", close=True))) == (0, "reset", b"")


def test_closed_inside_the_head_is_never_whole(client: Client, server: Server) -> None:
    assert fetch(client, server.on("/cut-head", OK + b"X: 1\r\nY", close=True)).error == "protocol"


def test_a_port_where_nobody_listens(client: Client) -> None:
    result = fetch(client, "http://127.0.0.1:1/")
    assert outcome(result) == (0, "connect", b"")
    assert result.request_head.startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "text", [b"<html>old web</html>", b"220 smtp ready\r\n", b"\0\0\0", b"HTTP/1.7 200 OK\r\n\r\n"]
)
def test_what_is_not_http_1_is_refused(client: Client, server: Server, text: bytes) -> None:
    assert outcome(fetch(client, server.on("/not-http", text, close=True))) == (0, "protocol", b"")


# -- header lines that are none


def test_a_header_line_without_colon_is_read_over_when_the_server_is_asked_again(client: Client) -> None:
    reply = OK + b"X: 1\r\nno colon here\r\nY: 2\r\nContent-Length: 2\r\n\r\nhi"
    with Server() as fresh:
        url = fresh.on("/sloppy", reply, close=True)
        first = fetch(client, url)
        assert (first.error, first.detail) == ("protocol", "Header without colon")
        assert len(fresh.visits) == 1  # not asked again behind the crawl's back
        second = fetch(client, url)
        assert outcome(second) == (200, None, b"hi") and second.head + outcome(second)[2] == reply
        assert second.ip == "127.0.0.1"
        assert fresh.heads[-1] == second.request_head and b"\r\nConnection: close\r\n" in second.request_head
        other = fetch(client, fresh.on("/tidy", page(b"tidy"), host="other.test"))
        assert outcome(other) == (200, None, b"tidy") and b"Connection" not in other.request_head


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (OK + b"bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: x\r\n\r\n", (200, None, b"hi")),
        (OK + b"bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", (200, "protocol", b"hi")),
        (OK + b"bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhixx\r\n", (200, "protocol", b"hi")),
        (OK + b"bad\r\nContent-Length: 5\r\n\r\nhi", (200, "truncated", b"hi")),
        (OK + b"bad\r\nContent-Length: 1\r\n\r\nhi", (200, None, b"h")),
        (OK + b"bad\r\nContent-Length: x\r\n\r\nhi", (200, "protocol", b"")),
        (OK + b"bad\r\n\r\nhi", (200, None, b"hi")),
        (b"HTTP/1.1 100 Go\r\nbad\r\n\r\n" + OK + b"\r\nhi", (200, None, b"hi")),
        (OK + b"nul: \0\r\n\r\nhi", (200, None, b"hi")),
        (b"HTTP/1.1 304 Same\r\nbad\r\n\r\n", (304, None, b"")),
        (OK + b"bad\r\n\r\n" + b"x" * (LIMIT + 1), (200, "too_large", b"")),
        (OK + b"bad\r\n" + b"x: y\r\n" * 60_000 + b"\r\n", (0, "headers_too_large", b"")),
    ],
)
def test_sloppy_answers_are_read_to_the_letter(
    client: Client, server: Server, reply: bytes, expected: tuple[int, str | None, bytes]
) -> None:
    with Server() as fresh:
        url = fresh.on("/sloppy", reply, close=True)
        assert fetch(client, url).error == "protocol"
        assert outcome(fetch(client, url)) == expected


@pytest.mark.parametrize(
    ("behaviour", "error"), [("never", "timeout"), ("flood", "too_large"), ("reset", "reset"), ("mute", "reset")]
)
def test_sloppy_servers_have_the_same_limits(client: Client, behaviour: str, error: str) -> None:
    async def misbehave(visit: Visit) -> None:
        if behaviour == "never":
            await visit.wait_for_the_end()
        elif behaviour == "reset":
            visit.reset()
        elif behaviour == "flood":
            await visit.send(OK + b"bad\r\n\r\n")
            while True:
                await visit.send(b"x" * 65536)

    with Server() as fresh:
        assert fetch(client, fresh.on("/sloppy", OK + b"bad\r\n\r\n", close=True)).error == "protocol"
        result = fetch(client, fresh.on("/next", misbehave, close=True))
        assert outcome(result) == (200 if error == "too_large" else 0, error, b"")


def test_a_sloppy_server_that_does_not_close_is_read_as_far_as_its_length(client: Client) -> None:
    with Server() as fresh:
        url = fresh.on("/open", OK + b"bad\r\nContent-Length: 2\r\n\r\nhi")
        assert fetch(client, url).error == "protocol"
        assert outcome(fetch(client, url)) == (200, None, b"hi")


@pytest.mark.parametrize(
    ("rest", "surplus"),
    [
        (b"Content-Length: 2\r\n\r\nhi", False),
        (b"Content-Length: 2\r\n\r\nhi!", True),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
    ],
)
def test_a_sloppy_servers_surplus_is_noticed(client: Client, rest: bytes, surplus: bool) -> None:
    with Server() as fresh:
        url = fresh.on("/sloppy", OK + b"bad\r\n" + rest, close=True)
        assert fetch(client, url).error == "protocol"
        assert fetch(client, url).surplus is surplus
