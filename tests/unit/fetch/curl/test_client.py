"""The client over the wire: what is sent, what is kept of the answer, addresses, reuse, life and death of handles."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pace import patience
from wire_server import Server, Visit, page, until

from weft.bodies import chunks_of
from weft.config import FetchSection
from weft.fetch.curl.client import Client
from weft.fetch.dns.resolver import Resolver
from weft.records import FetchResult


def fine(_address: str) -> None:
    return None


def no_second(address: str) -> str | None:
    return "not that one" if address == "127.0.0.2" else None


SECTION = FetchSection(
    email="a@b.test",
    resolve={"*.test": "127.0.0.1"},
    connect_timeout_s=patience(1),
    read_timeout_s=patience(1),
    total_timeout_s=patience(2),
    max_body_bytes=1 << 20,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(SECTION, refusal=no_second, handles=4)
    yield made
    made.close()


def collect(client: Client, count: int, limit_s: float = 10) -> list[tuple[object, FetchResult]]:
    done: list[tuple[object, FetchResult]] = []
    until = time.monotonic() + patience(limit_s)
    while len(done) < count:
        assert time.monotonic() < until, f"{len(done)} of {count} done"
        done += client.poll(0.5)
    return done


def fetch(client: Client, url: str, headers: tuple[tuple[str, str], ...] = ()) -> FetchResult:
    tag = object()
    client.submit(url, headers, tag)
    ((got, result),) = collect(client, 1)
    assert got is tag
    assert client.in_flight == 0
    return result


# -- a plain answer


def test_a_page_comes_whole_with_its_head_and_address(client: Client, server: Server) -> None:
    reply = page(b"x" * 42_000, b"Content-Type: text/html", b"X-Odd:  \xff\xfe ")
    before = time.monotonic()
    result = fetch(client, server.on("/page", reply))
    assert (result.status, result.error, result.detail) == (200, None, "")
    assert result.head + b"".join(chunks_of(result.body)) == reply
    assert result.ip == "127.0.0.1"
    assert before <= result.started <= result.ended <= time.monotonic()


def test_the_body_is_not_decoded(client: Client, server: Server) -> None:
    assert fetch(client, server.on("/gz", page(b"not gzip", b"Content-Encoding: gzip"))).body == b"not gzip"


def test_a_redirect_is_not_followed(client: Client, server: Server) -> None:
    url = server.on("/moved", page(b"", b"Location: /elsewhere", status=b"302 Found"))
    result = fetch(client, url)
    assert result.status == 302 and b"Location: /elsewhere" in result.head


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body_end_at_their_head(client: Client, server: Server, status: bytes) -> None:
    url = server.on("/empty", b"HTTP/1.1 " + status + b"\r\nETag: x\r\n\r\n")
    result = fetch(client, url)
    assert result.error is None and result.status == int(status[:3]) and result.body == b""


@pytest.mark.parametrize("status", [416, 504])
def test_any_status_is_a_result(client: Client, server: Server, status: int) -> None:
    url = server.on("/status", page(b"why", status=b"%d Hm" % status))
    assert fetch(client, url).status == status


def test_interim_answers_are_dropped(client: Client, server: Server) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nA: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    result = fetch(client, server.on("/interim", interim + page(b"hi")))
    assert (result.status, result.body, result.head) == (200, b"hi", page(b"hi")[:-2])


def test_duplicate_headers_are_all_kept(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/twice", page(b"", b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"Set-Cookie: a=1")))
    assert result.head.count(b"Set-Cookie") == 3


def test_bare_line_feeds_are_accepted(client: Client, server: Server) -> None:
    head = b"HTTP/1.0 200 OK\nX: 1\n\n"
    result = fetch(client, server.on("/lf", head + b"old", close=True))
    assert (result.head, result.body, result.error) == (head, b"old", None)


def test_trailers_are_accepted_and_not_part_of_the_head(client: Client, server: Server) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    result = fetch(client, server.on("/trailers", head + b"2\r\nhi\r\n0\r\nExpires: 0\r\nHTTP/1.1: x\r\n\r\n"))
    assert (result.head, result.body, result.error) == (head, b"hi", None)


# -- what is sent


def test_the_request_is_reported_byte_for_byte(client: Client, server: Server) -> None:
    url = server.on("/a/b", page(b""))
    for headers in ((), (("X-One", "1"), ("Cookie", "a=b; c=d"), ("X-Empty", ""), ("ACCEPT", "x/y"), ("X-Ü", " ü "))):
        result = fetch(client, url + "?q=%20&r=|^{}`#gone", headers)
        assert server.heads[-1] == result.request_head
    assert server.heads[-1].startswith(b"GET /a/b?q=%20&r=|^{}` HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.heads[-1].count(b"ccept:") + server.heads[-1].count(b"CCEPT:") == 1


def test_the_usual_headers_are_sent(client: Client, server: Server) -> None:
    result = fetch(client, server.on("/usual", page(b"")))
    assert b"\r\nUser-Agent: Weft/" in result.request_head and b"(+a@b.test)\r\n" in result.request_head
    assert b"\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" in result.request_head


@pytest.mark.parametrize("path", ["", "?x=1", "/../a/./b//c", "/%7Euser/%2e%2e", "/?", "/a;b=c,d", "/[x]\\'\"<>"])
def test_paths_are_sent_as_written(client: Client, server: Server, path: str) -> None:
    result = fetch(client, server.url(path))
    assert server.heads[-1] == result.request_head
    assert result.request_head.split(b" ")[1].decode() == (path if path.startswith("/") else "/" + path)


TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=40)
NAMES = st.sampled_from(
    ["Accept", "user-agent", "Host", "Connection", "Referer", "Authorization", "If-None-Match", "X"]
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=TEXT, headers=st.lists(st.tuples(NAMES, TEXT), max_size=4))
def test_whatever_is_requested_the_request_head_is_reported(
    client: Client, server: Server, path: str, headers: list[tuple[str, str]]
) -> None:
    result = fetch(client, server.url("/" + path), tuple(headers))
    assert result.error is None
    assert server.heads[-1] == result.request_head


def test_harmless_headers_are_sent_others_by_request_alone_and_host_cannot_be_forged(server: Server) -> None:
    section = FetchSection(
        headers={"DNT": "1", "X-Me": "no", "Cookie": "no", "a.test:DNT": "no", "Host": "evil.test", "User-Agent": "me"}
    )
    made = Client(section, refusal=fine, handles=1)
    result = fetch(made, server.on("/mine", page(b"")))
    made.close()
    assert server.heads[-1] == result.request_head
    assert b"DNT: 1\r\n" in result.request_head and b"evil" not in result.request_head
    assert b": no\r\n" not in result.request_head, "whether a credential goes with a request, its caller decides"
    assert result.request_head.count(b"User-Agent: me\r\n") == 1 and b"Weft" not in result.request_head


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\n", "a"), ("X", "a\0")])
def test_headers_cannot_be_injected(client: Client, server: Server, header: tuple[str, str]) -> None:
    arrived = len(server.visits)
    assert fetch(client, server.url("/inject"), (header,)).error == "other"
    assert len(server.visits) == arrived


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x/", "http://", "http://a b/", "http://a/\r\nX: y", "http://u:p@a.test/", "file:///etc/passwd",
     "http://a.test:123456/", "http://a.test/ü", "gopher://a.test/", "http://a.test:0x50/"],
)  # fmt: skip
def test_what_is_no_url_is_an_error_not_an_exception(client: Client, url: str) -> None:
    result = fetch(client, url)
    assert result.error == "other" and result.status == 0 and result.url == url


# -- hygiene between transfers


def test_nothing_of_one_host_reaches_another(server: Server) -> None:
    made = Client(SECTION, refusal=fine, handles=1)
    server.on("/hygiene", page(b""))
    secret = (("Authorization", "Basic c2VjcmV0"), ("Cookie", "s=1"), ("X-Token", "t"))
    fetch(made, server.url("/hygiene", "a.test"), secret)
    fetch(made, server.url("/hygiene", "b.test"))
    fetch(made, server.url("/hygiene", "b.test"), (("X-Other", "o"),))
    first, second, third = server.heads[-3:]
    made.close()
    assert b"Authorization" in first and f"Host: a.test:{server.port}".encode() in first
    for later in (second, third):
        assert not any(word in later for word in (b"Authorization", b"Cookie", b"X-Token", b"a.test:"))
    assert b"X-Other" not in second and b"X-Other: o" in third


def test_the_address_of_one_host_is_not_used_for_another() -> None:
    section = FetchSection(resolve={"a.test": "127.0.0.1", "b.test": "127.0.0.3"})
    made = Client(section, refusal=fine, handles=1)
    with Server(host="127.0.0.1") as one, Server(host="127.0.0.3") as three:
        one.on("/", page(b"one"))
        three.on("/", page(b"three"))
        for _ in range(2):
            assert fetch(made, one.url("/", "a.test")).body == b"one"
            assert fetch(made, three.url("/", "b.test")).body == b"three"
            assert fetch(made, one.url("/", "127.0.0.1")).ip == "127.0.0.1"
            assert fetch(made, three.url("/", "127.0.0.3")).ip == "127.0.0.3"
    made.close()


def test_a_failed_transfer_leaves_nothing_behind(server: Server) -> None:
    made = Client(SECTION, refusal=fine, handles=1)
    cut = server.on("/cut", b"HTTP/1.1 500 Oops\r\nX-Old: 1\r\nContent-Length: 50\r\n\r\npart", close=True)
    assert fetch(made, cut).body == b"part"
    result = fetch(made, server.on("/fresh", page(b"new")))
    assert (result.status, result.body, result.error) == (200, b"new", None) and b"X-Old" not in result.head
    refused = fetch(made, "http://127.0.0.1:1/")
    assert (refused.status, refused.head, refused.body, refused.ip) == (0, b"", b"", "")
    made.close()


def test_cookies_and_proxies_of_the_environment_are_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Client(SECTION, refusal=fine, handles=1)
    url = server.on("/env", page(b"", b"Set-Cookie: a=1; Path=/"))
    fetch(made, url)
    result = fetch(made, url)
    made.close()
    assert result.error is None
    assert b"Cookie" not in server.heads[-1] and b"Authorization" not in server.heads[-1]


# -- connections


def test_a_connection_is_used_again(client: Client) -> None:
    with Server() as fresh:
        url = fresh.on("/again", page(b"hi"))
        for _ in range(20):
            assert fetch(client, url).error is None
        assert fresh.connections == 1


def test_a_kept_connection_that_the_server_closed_is_replaced(client: Client) -> None:
    with Server() as fresh:
        url = fresh.on("/closed", page(b"hi"), close=True)
        assert fetch(client, url).body == b"hi"
        until(lambda: fresh.closed == 1)
        time.sleep(1.1)  # libcurl trusts a connection for a second before it looks
        assert fetch(client, url).body == b"hi"
        assert fresh.connections == 2


def test_a_request_is_made_once_even_if_its_kept_connection_is_dead(client: Client) -> None:
    async def reset(visit: Visit) -> None:
        visit.reset()

    with Server() as fresh:
        assert fetch(client, fresh.on("/first", page(b"hi"))).body == b"hi"
        result = fetch(client, fresh.on("/then", reset))
        assert (result.status, result.error, result.body) == (0, "stale", b"")
        assert len(fresh.visits) == 2 and fresh.connections == 1  # libcurl's own retry would be a third
        assert fetch(client, fresh.url("/first")).body == b"hi"


def test_two_thousand_at_once() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip("not enough open files allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    arrived, all_are_here = 0, asyncio.Event()

    async def when_all_are_here(visit: Visit) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 2000:
            all_are_here.set()
        await all_are_here.wait()
        await visit.send(page(b"%d" % visit.connection))

    section = FetchSection(connect_timeout_s=10, read_timeout_s=10, total_timeout_s=20)
    made = Client(section, refusal=fine, handles=2000)
    with Server() as fresh:
        url = fresh.on("/many", when_all_are_here)
        for number in range(2000):
            made.submit(url, (), number)
        assert (made.in_flight, made.free) == (2000, 0)
        done = collect(made, 2000, 20)
    assert sorted(tag for tag, _ in done if isinstance(tag, int)) == list(range(2000))
    assert {result.error for _, result in done} == {None}
    assert len({result.body for _, result in done}) == 2000
    made.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_no_file_is_left_open_after_ten_thousand_transfers(server: Server) -> None:
    urls = [
        server.on("/leak/kept", page(b"hi")),
        server.on("/leak/kept", page(b"hi")),
        server.on("/leak/kept", page(b"hi")),
        server.on("/leak/kept", page(b"hi")),
        server.on("/leak/closed", page(b"hi"), close=True),
        server.on("/leak/cut", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", close=True),
        "http://127.0.0.1:1/",
        "http://127.0.0.2/",
    ]
    before = open_files()
    made = Client(SECTION, refusal=no_second, handles=50)
    begun = ended = 0
    halfway = 0
    while ended < 10_000:
        while made.free and begun < 10_000:
            made.submit(urls[begun % len(urls)], (), begun)
            begun += 1
        ended += len(made.poll(1))
        if ended >= 5_000 and not halfway:
            halfway = open_files()
    # 50 handles, each with at most one connection on either side, and the loops' own
    assert halfway < before + 250 and open_files() < before + 250
    made.close()
    time.sleep(0.05)
    assert open_files() <= before + 1


# -- addresses


def test_a_refused_literal_is_not_asked(client: Client) -> None:
    with Server(host="127.0.0.2") as guarded:
        result = fetch(client, guarded.on("/", page(b"secret")))
        assert (result.error, result.detail, result.status) == ("address", "127.0.0.2: not that one", 0)
        assert guarded.connections == 0


def test_a_refused_pin_is_not_asked() -> None:
    made = Client(FetchSection(resolve={"x.test": "127.0.0.2"}), refusal=no_second, handles=1)
    with Server(host="127.0.0.2") as guarded:
        assert fetch(made, guarded.url("/", "x.test")).error == "address"
        assert guarded.connections == 0
    made.close()


def test_a_refused_dns_answer_is_not_asked() -> None:
    resolver = Resolver(lookup=lambda _: ("127.0.0.2",))
    made = Client(FetchSection(), refusal=no_second, handles=1, resolver=resolver)
    with Server(host="127.0.0.2") as guarded:
        assert fetch(made, guarded.url("/", "rebound.example")).error == "address"
        assert guarded.connections == 0
    made.close()


def test_of_several_addresses_the_refused_are_passed_over() -> None:
    resolver = Resolver(lookup=lambda _: ("127.0.0.2", "127.0.0.1"))
    made = Client(FetchSection(), refusal=no_second, handles=1, resolver=resolver)
    with Server() as good:
        result = fetch(made, good.on("/", page(b"hi"), host="two.example"))
    made.close()
    assert (result.error, result.ip) == (None, "127.0.0.1")


def test_the_socket_is_guarded_even_if_the_check_before_was_fooled() -> None:
    answers = iter([None])  # fine when it is chosen, refused when it is opened

    def changes_its_mind(_address: str) -> str | None:
        return next(answers, "found out")

    made = Client(FetchSection(), refusal=changes_its_mind, handles=1)
    made._refusal = changes_its_mind  # type: ignore[assignment]  # without the memory
    with Server() as guarded:
        result = fetch(made, guarded.on("/", page(b"secret")))
        assert (result.error, result.detail) == ("address", "127.0.0.1: found out")
        assert guarded.connections == 0
    made.close()


def test_when_an_address_does_not_answer_the_next_is_tried() -> None:
    resolver = Resolver(lookup=lambda _: ("127.0.0.9", "127.0.0.8", "127.0.0.1"))
    made = Client(FetchSection(), refusal=fine, handles=1, resolver=resolver)
    with Server() as good:
        result = fetch(made, good.on("/", page(b"hi"), host="three.example"))
    made.close()
    assert (result.error, result.ip) == (None, "127.0.0.1")


def test_a_request_to_one_address_goes_nowhere_else_and_the_next_try_has_another() -> None:
    resolver = Resolver(lookup=lambda _: ("127.0.0.9", "127.0.0.1"))
    made = Client(FetchSection(), refusal=fine, handles=1, resolver=resolver)
    with Server() as good:
        url = good.on("/", page(b"hi"), host="two.example")
        until(lambda: made.poll(0.05) == [] and made.address_of("two.example") is not None)
        assert made.address_of("two.example") == "127.0.0.9"
        made.submit(url, (), "first", address="127.0.0.9")
        ((_, first),) = collect(made, 1)
        assert (first.error, good.connections) == ("connect", 0)
        assert made.address_of("two.example") == "127.0.0.1", "politeness is asked for this one now"
        made.submit(url, (), "second", address="127.0.0.1")
        ((_, second),) = collect(made, 1)
        assert (second.status, second.ip) == (200, "127.0.0.1")
    made.close()


def test_a_name_that_had_no_address_is_not_asked_when_it_has_one_now() -> None:
    made = Client(SECTION, refusal=fine, handles=1)
    with Server() as server:
        made.submit(server.on("/", page(b"hi"), host="now.test"), (), "tag", address="")
        ((_, result),) = collect(made, 1)
        assert (result.error, result.detail, server.connections) == ("dns", "its address has just changed", 0)
        made.submit("http://127.0.0.1:1/", (), "tag", address="127.0.0.1")
        assert collect(made, 1)[0][1].error == "connect"
    made.close()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_an_ipv6_literal_is_asked(client: Client) -> None:
    with Server(host="::1") as six:
        result = fetch(client, f"http://[::1]:{six.port}/")
        assert (result.status, result.ip) == (404, "::1")
        assert six.heads[-1] == result.request_head


def test_running_out_of_files_is_not_the_sites_fault(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("weft.fetch.curl.client.socket.socket", too_many)
        result = fetch(client, server.url("/"))
    assert (result.error, result.detail) == ("other", "no socket: Too many open files")
    assert fetch(client, server.url("/")).status == 404


def test_a_name_that_does_not_exist(client: Client) -> None:
    resolver = Resolver(lookup=_no_such_name)
    made = Client(FetchSection(), refusal=fine, handles=1, resolver=resolver)
    result = fetch(made, "http://no.example/")
    made.close()
    assert (result.error, result.detail) == ("dns", "Name or service not known")


def _no_such_name(_host: str) -> tuple[str, ...]:
    raise OSError(-2, "Name or service not known")


# -- the loop


def test_poll_returns_in_time_when_nothing_ends(client: Client) -> None:
    before = time.monotonic()
    assert client.poll(0.05) == []
    assert time.monotonic() - before > 0.04
    assert client.timeout_s() is None


def test_an_aborted_transfer_comes_out_and_frees_its_handle(client: Client, server: Server) -> None:
    url = server.on("/never", _never)
    client.submit(url, (), "a")
    client.submit(url, (), "b")
    assert client.poll(0.05) == [] and client.in_flight == 2
    client.abort("a")
    assert client.timeout_s() == 0.0
    ((tag, result),) = client.poll(0)
    assert (tag, result.error, client.in_flight, client.free) == ("a", "aborted", 1, 3)
    client.abort("b")
    assert [tag for tag, _ in client.poll(0)] == ["b"]


async def _never(visit: Visit) -> None:
    await visit.wait_for_the_end()


class _Clock:
    """A clock that a process finds far ahead when it was stopped in between."""

    def __init__(self) -> None:
        self.stood_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.stood_s


@pytest.mark.parametrize("connection", ["new", "kept", "read by us"])
def test_what_was_begun_before_a_pause_is_not_sent_after_its_time(connection: str) -> None:
    clock = _Clock()
    with Server() as fresh:
        made = Client(SECTION, refusal=fine, handles=2, clock=clock)
        if connection == "kept":
            assert fetch(made, fresh.on("/", page(b"hi"))).status == 200
        elif connection == "read by us":
            assert fetch(made, fresh.on("/", b"HTTP/1.1 200 OK\r\nbad\r\n\r\n", close=True)).error == "protocol"
        before = len(fresh.visits)
        made.submit(fresh.url("/late"), (), 1, until=clock() + 3)
        clock.stood_s = 3.0
        ((_, result),) = collect(made, 1)
        assert (result.error, result.detail) == ("aborted", "its deadline has passed")
        made.submit(fresh.url("/later"), (), 2, until=clock())
        assert [done.error for _, done in made.poll(0)] == ["aborted"]
        assert fetch(made, fresh.on("/now", page(b"now"), close=True)).status == 200
        made.close()
        assert [head.split()[1] for head in fresh.heads[before:]] == [b"/now"]


def test_what_is_under_way_when_its_time_is_over_is_broken_off(server: Server) -> None:
    clock = _Clock()
    made = Client(SECTION, refusal=fine, handles=2, clock=clock)
    made.submit(server.on("/never", _never), (), 1, until=clock() + 3)
    assert made.poll(0.05) == []
    clock.stood_s = 3.0
    ((_, result),) = made.poll(0)
    made.close()
    assert result.error == "aborted"


def test_aborting_during_a_lookup(server: Server) -> None:
    resolver = Resolver(lookup=lambda _: time.sleep(0.2) or ("127.0.0.1",))  # type: ignore[func-returns-value]
    made = Client(FetchSection(), refusal=fine, handles=2, resolver=resolver)
    made.submit(server.url("/", "slow.example"), (), 1)
    made.submit(server.url("/", "slow.example"), (), 2)
    made.abort(1)
    done = dict(collect(made, 2))
    made.close()
    assert (done[1].error, done[2].status) == ("aborted", 404)


def test_closing_with_transfers_in_flight_leaves_nothing_open(server: Server) -> None:
    before = open_files()
    made = Client(SECTION, refusal=fine, handles=5)
    for number in range(5):
        made.submit(server.on("/never", _never), (), number)
    made.poll(0.1)
    made.close()
    until(lambda: open_files() <= before)
