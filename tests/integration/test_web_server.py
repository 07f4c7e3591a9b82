"""The synthetic web over HTTP: what clients see, what the log says, how fast it is."""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pace import patience

from weft.errors import Busy
from weft.supervise import process
from weft.testing.content import pages
from weft.testing.content.sites import SyntheticSite
from weft.testing.judge import judge
from weft.testing.oracle import Expectation
from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=30, pages=200, seed=1, profile="messy", gzip=True) as web:
        yield web


def fetch(
    web: SyntheticWeb, site: SyntheticSite, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(site.host, web.port, timeout=patience(10))
    try:
        connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def flavoured(web: SyntheticWeb, flavour: str) -> SyntheticSite:
    return max((site for site in web.world.ordinary if site.flavour == flavour), key=lambda site: site.count)


def read_answers(one: socket.socket, count: int) -> list[bytes]:
    """The bodies of that many answers from one connection."""
    stream = one.makefile("rb")
    bodies = []
    for _ in range(count):
        length = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        bodies.append(stream.read(length))
    return bodies


def test_pages_come_as_the_world_renders_them(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    for path in (*site.paths[:3], "/hard/a%20space", "/robots.txt"):
        resource = web.world.find(site, path)
        status, headers, body = fetch(web, site, path)
        assert (status, body) == (resource.status, pages.render(resource, web.world.texts))
        assert headers.get("content-type") == pages.content_type(resource)
    assert fetch(web, site, "/no/such")[0] == 404


def test_two_processes_serve_identical_bytes() -> None:
    bodies = []
    for _ in range(2):
        with (
            synthetic_web(hosts=3, pages=12, seed=7, names=True) as web,
            socket.create_connection(("127.0.0.1", web.port), timeout=patience(5)) as one,
        ):
            paths = web.world.sites[0].paths
            for path in paths:
                one.sendall(f"GET {path} HTTP/1.1\r\nHost: site0.weft-web.test\r\n\r\n".encode())
            answers = read_answers(one, len(paths))
            bodies.append([body.replace(f":{web.port}".encode(), b":PORT") for body in answers])
    assert bodies[0] == bodies[1]
    assert len(set(bodies[0])) > 1


def test_keep_alive_and_pipelining(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    with socket.create_connection((site.host, web.port), timeout=patience(5)) as one:
        requests = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in ("/", "/robots.txt", "/"))
        one.sendall(requests.encode())
        first, robots, again = read_answers(one, 3)
    assert first == again == pages.render(web.world.page(site, 0), web.world.texts)
    assert robots == site.robots.body


def test_requests_in_small_pieces_and_with_bodies(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    with socket.create_connection((site.host, web.port), timeout=patience(5)) as one:
        for piece in (
            b"POST /robo",
            b"ts.txt HTTP/1.1\r\nHost: x\r\nContent-Le",
            b"ngth: 4\r\n\r\nab",
            b"cdGET /robots.txt ",
        ):
            one.sendall(piece)
            time.sleep(0.01)
        one.sendall(b"HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answers(one, 2) == [site.robots.body] * 2


def test_head_has_the_length_and_no_body(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    status, headers, body = fetch(web, site, "/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) == len(pages.render(web.world.page(site, 0), web.world.texts))


def test_gzip_for_those_who_accept_it(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    _, headers, packed = fetch(web, site, "/", Accept_Encoding="br, gzip")
    _, plain_headers, plain = fetch(web, site, "/", Accept_Encoding="br")
    assert headers["content-encoding"] == "gzip" and "content-encoding" not in plain_headers
    assert gzip.decompress(packed) == plain
    assert 2 < len(plain) / len(packed) < 8


def test_conditional_requests(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    _, headers, _ = fetch(web, site, "/")
    assert fetch(web, site, "/", If_None_Match=headers["etag"])[0] == 304
    assert fetch(web, site, "/", If_None_Match='"other"')[0] == 200
    assert fetch(web, site, "/", If_Modified_Since=headers["last-modified"])[0] == 304
    assert fetch(web, site, "/", If_Modified_Since="Mon, 01 Jan 2001 00:00:00 GMT")[0] == 200
    assert fetch(web, site, "/", If_Modified_Since="soon")[0] == 200


def test_garbage_is_refused(web: SyntheticWeb) -> None:
    for garbage in (b"HELLO\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000):
        with socket.create_connection((web.world.sites[0].host, web.port), timeout=patience(5)) as one:
            one.sendall(garbage)
            assert one.recv(1000).startswith(b"HTTP/1.1 4")


def test_transient_failures_end(web: SyntheticWeb) -> None:
    site = flavoured(web, "transient")
    assert [fetch(web, site, site.paths[2])[0] for _ in range(4)] == [500, 500, 200, 200]
    assert [fetch(web, site, site.paths[1])[0] for _ in range(2)] == [503, 200]


def test_rate_limit_names_its_second(web: SyntheticWeb) -> None:
    site = flavoured(web, "rate-limit")
    status, headers, _ = fetch(web, site, site.paths[1])
    assert (status, headers["retry-after"]) == (429, "1")
    assert fetch(web, site, site.paths[1])[0] == 200


def test_reset_on_the_first_attempt(web: SyntheticWeb) -> None:
    site = flavoured(web, "reset")
    with pytest.raises(ConnectionResetError):
        fetch(web, site, site.paths[1])
    assert fetch(web, site, site.paths[1])[0] == 200


def test_slow_and_broken_and_soft(web: SyntheticWeb) -> None:
    slow = flavoured(web, "slow")
    began = time.monotonic()
    assert fetch(web, slow, slow.paths[1])[0] == 200
    assert time.monotonic() - began >= 0.3
    assert [fetch(web, flavoured(web, "broken"), "/broken/always")[0] for _ in range(5)] == [500] * 5
    status, _, body = fetch(web, flavoured(web, "soft-404"), "/no/such/page")
    assert status == 200 and b"Not found" in body


def test_cookie_wall(web: SyntheticWeb) -> None:
    site = web.world.sites[0]
    status, headers, _ = fetch(web, site, "/wall")
    assert (status, headers["location"]) == (302, "/wall")
    assert fetch(web, site, "/wall", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200


def test_robots_oddities(web: SyntheticWeb) -> None:
    by_style = {site.robots.style: site for site in web.world.ordinary}
    assert fetch(web, by_style["missing"], "/robots.txt")[0] == 404
    assert [fetch(web, by_style["dead"], "/robots.txt")[0] for _ in range(4)] == [503] * 4
    assert fetch(web, by_style["moved"], "/robots.txt")[1]["location"] == "/robots/real.txt"
    assert fetch(web, by_style["bom"], "/robots.txt")[2].startswith(b"\xef\xbb\xbf")
    assert b"\r\nDisallow" in fetch(web, by_style["crlf"], "/robots.txt")[2]
    late = by_style["late"]
    statuses = [fetch(web, late, "/robots.txt")[0] for _ in range(late.robots.failures + 1)]
    assert statuses == [503] * late.robots.failures + [200]


# -- the log ------------------------------------------------------------------------------------------------------


def test_log_says_who_asked_what_and_when() -> None:
    with synthetic_web(hosts=2, pages=10) as web:
        site = web.world.sites[1]
        before = time.monotonic()
        fetch(web, site, "/?q=1", X_Test="yes")
        after = time.monotonic()
        assert web.stop() == 0
        (line,) = web.arrivals()
    assert before < line.t < line.end < after
    assert (line.host, line.port, line.method, line.path) == (site.host, web.port, "GET", "/?q=1")
    assert (line.status, line.note, line.aborted) == (404, "missing", False)
    assert ("X-Test", "yes") in line.headers
    assert line.bytes > 2000


def test_log_has_every_request_that_was_answered_while_it_runs() -> None:
    with synthetic_web(hosts=1, pages=5) as web:
        for count in range(1, 20):
            fetch(web, web.world.sites[0], "/")
            assert len(web.arrivals()) == count


def test_requests_that_overlap_are_marked() -> None:
    with synthetic_web(hosts=3, pages=10, latency_s=0.1) as web, ExitStack() as stack:
        site, other = web.world.sites[0], web.world.sites[1]
        os.kill(web.pid, signal.SIGSTOP)  # all are open at once, however busy the machine is
        asking = []
        for host, path in ((site.host, "/"), (other.host, "/"), (site.host, "/robots.txt")):
            asking.append(stack.enter_context(socket.create_connection((host, web.port))))
            asking[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        os.kill(web.pid, signal.SIGCONT)
        assert all(one.recv(9) == b"HTTP/1.1 " for one in asking)
        web.stop()
        marks = {(line.host, line.path): line.overlaps for line in web.arrivals()}
    assert marks == {(site.host, "/"): False, (other.host, "/"): False, (site.host, "/robots.txt"): True}


def test_a_request_the_client_gave_up_is_no_overlap_and_ends_before_it_left() -> None:
    with synthetic_web(hosts=1, pages=10, latency_s=0.2) as web:
        site = web.world.sites[0]
        with socket.create_connection((site.host, web.port)) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.05)
        left = time.monotonic()
        fetch(web, site, "/robots.txt")
        web.stop()
        first, second = web.arrivals()
    assert first.aborted and first.end < left
    assert not second.overlaps and not second.aborted


def test_a_request_that_is_read_after_its_client_has_left_binds_nobody() -> None:
    with synthetic_web(hosts=1, pages=10) as web:
        site = web.world.sites[0]
        os.kill(web.pid, signal.SIGSTOP)  # a busy machine: what is sent now is read much later
        with socket.create_connection((site.host, web.port)) as one:
            one.sendall(b"GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.3)
        os.kill(web.pid, signal.SIGCONT)
        fetch(web, site, "/robots.txt")
        web.stop()
        first, second = web.arrivals()
        delay_s = 2 * (second.t - first.t) + 0.01  # what came in together was not apart by that
        verdict = judge([first, second], web.expect(), delay_s=delay_s, complete=False)
    assert (first.abandoned, second.abandoned) == (True, False)
    assert first.end == first.t, "nobody was there to have an answer"
    assert verdict.delay == verdict.overlap == []


def test_an_open_request_is_logged_when_the_server_ends() -> None:
    with synthetic_web(hosts=1, pages=10, latency_s=60) as web:
        with socket.create_connection((web.world.sites[0].host, web.port)) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in range(5):  # each answer is a turn of the server's loop: it has accepted and read by then
                assert web.arrivals() == []
            assert web.stop() == 0
        (line,) = web.arrivals()
        assert line.aborted and line.status == 0


# -- a polite client and a rude one, judged -----------------------------------------------------------------------


def crawl_host(web: SyntheticWeb, site: SyntheticSite, urls: list[str], delay_s: float) -> None:
    """Asks for robots.txt and then for every URL, waiting the delay after the end of each."""
    connection = http.client.HTTPConnection(site.host, web.port, timeout=patience(10))
    for url in [site.origin + "/robots.txt", *urls]:
        connection.request("GET", url[len(site.origin) :])
        connection.getresponse().read()
        ended = time.monotonic()
        while time.monotonic() < ended + delay_s:
            time.sleep(0)
    connection.close()


def crawl(web: SyntheticWeb, expectation: Expectation, delay_s: float) -> None:
    threads = []
    for site in web.world.sites:
        urls = [
            url for url in expectation.must if url.startswith(site.origin + "/") and not url.endswith("/robots.txt")
        ]
        threads.append(threading.Thread(target=crawl_host, args=(web, site, urls, delay_s)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_client_that_waits_exactly_the_delay_is_acquitted() -> None:
    with synthetic_web(hosts=5, pages=100, seed=3) as web:
        expectation = web.expect()
        crawl(web, expectation, 0.01)
        verdict = web.judge(delay_s=0.01)
    assert verdict.ok, verdict
    assert verdict.requests > 200


def test_a_client_that_waits_less_is_found_out() -> None:
    with synthetic_web(hosts=3, pages=12, seed=3) as web:
        expectation = web.expect()
        crawl(web, expectation, 0.005)
        web.stop()
        verdict = judge(web.arrivals(), expectation, 0.01)
    assert set(verdict.faults()) == {"delay"}


# -- the process --------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_said_so() -> None:
    with socket.socket() as one:
        one.bind(("127.1.0.2", 0))
        one.listen()
        port = one.getsockname()[1]
        with (
            pytest.raises(Busy, match=f"port {port} is in use on 127.1.0.2"),
            synthetic_web(hosts=3, pages=3, port=port),
        ):
            pass


def test_the_server_ends_with_the_process_that_started_it() -> None:
    script = (
        "import time\nfrom weft.testing.web import synthetic_web\n"
        "with synthetic_web(hosts=1, pages=1) as web:\n    print(web.pid, flush=True)\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + patience(5)
    while not process.has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.has_ended(child)


def test_it_listens_on_loopback_only(web: SyntheticWeb) -> None:
    port = f"{web.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(":" + port)]
    addresses = [socket.inet_ntoa(struct.pack("<I", int(one.partition(":")[0], 16))) for one in listening]
    assert len(addresses) == len(web.world.sites)
    assert all(address.startswith("127.") for address in addresses)
