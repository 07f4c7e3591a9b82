"""The client's asyncio face: results, many at once, cancellation, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pace import patience
from wire_server import Server, Visit, page

from weft.config import FetchSection
from weft.fetch.curl.async_client import AsyncClient

HASTY = FetchSection(connect_timeout_s=0.5, read_timeout_s=0.5, total_timeout_s=1)
PATIENT = FetchSection(connect_timeout_s=patience(1), read_timeout_s=patience(1), total_timeout_s=patience(1))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        running.on("/", page(b"hi"))
        running.on("/never", _never)
        yield running


async def _never(visit: Visit) -> None:
    await visit.wait_for_the_end()


def client(handles: int = 10, section: FetchSection = PATIENT) -> AsyncClient:
    return AsyncClient(section, refusal=lambda a: "no" if a == "127.0.0.2" else None, handles=handles)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(work, patience(10))

    asyncio.run(in_time())


def test_a_page(server: Server) -> None:
    async def work() -> None:
        async with client() as web:
            result = await web.get(server.url("/"), [("X-A", "b")])
            assert (result.status, result.body, result.error) == (200, b"hi", None)
            assert server.heads[-1] == result.request_head and b"X-A: b" in result.request_head

    run(work())


def test_more_than_there_are_handles(server: Server) -> None:
    async def work() -> None:
        async with client(handles=7) as web:
            results = await asyncio.gather(*(web.get(server.url("/")) for _ in range(500)))
            assert {result.body for result in results} == {b"hi"}

    run(work())


def test_errors_are_results(server: Server) -> None:
    async def work() -> None:
        async with client() as web:
            urls = ["http://127.0.0.1:1/", "http://127.0.0.2/", "nonsense"]
            results = await asyncio.gather(*map(web.get, urls))
            assert [result.error for result in results] == ["connect", "address", "other"]
        async with client(section=HASTY) as web:
            assert (await web.get(server.url("/never"))).error == "timeout"

    run(work())


def test_other_tasks_run_meanwhile(server: Server) -> None:
    """What a transfer waits for is done by another task of the same loop: it would end in a timeout otherwise."""
    has_come, may_go = threading.Event(), threading.Event()

    async def when_it_may(visit: Visit) -> None:
        has_come.set()
        while not may_go.is_set():
            await asyncio.sleep(0.01)
        await visit.send(page(b"at last"))

    async def work() -> None:
        async with AsyncClient(PATIENT, refusal=lambda _: None, handles=1) as web:
            waiting = asyncio.create_task(web.get(server.on("/gate", when_it_may)))
            while not has_come.is_set() and not waiting.done():
                await asyncio.sleep(0.01)
            may_go.set()
            assert (await waiting).body == b"at last"

    run(work())


def test_cancelling_ends_the_transfer_and_frees_its_handle(server: Server) -> None:
    async def work() -> None:
        async with client(handles=1) as web:
            for _ in range(3):
                waiting = asyncio.create_task(web.get(server.url("/never")))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            assert (await web.get(server.url("/"))).body == b"hi"

    run(work())


def test_a_time_limit_of_the_caller(server: Server) -> None:
    async def work() -> None:
        async with client(handles=1) as web:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(web.get(server.url("/never")), 0.05)
            assert (await web.get(server.url("/"))).body == b"hi"

    run(work())


def test_closing_cancels_what_is_in_flight(server: Server) -> None:
    async def work() -> None:
        async with client(handles=2) as web:
            waiting = [asyncio.create_task(web.get(server.url("/never"))) for _ in range(4)]
            await asyncio.sleep(0.05)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2 + [RuntimeError] * 2
        with pytest.raises(RuntimeError, match="closed"):
            await web.get(server.url("/"))

    run(work())


class Echo(BaseHTTPRequestHandler):
    """Answers with the method, the headers and the body that have come."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        said = f"{self.command} {len(body)} {self.headers['Content-Type']} {self.headers['Expect']}".encode()
        self.send_response(307 if self.path == "/moved" else 200)
        self.send_header("Location", "/")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


def test_a_handle_that_has_posted_gets_again() -> None:
    echo = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, args=(0.02,), daemon=True).start()
    url, kind = f"http://127.0.0.1:{echo.server_port}/", [("Content-Type", "text/x")]

    async def work() -> None:
        async with AsyncClient(PATIENT, refusal=lambda _: None, handles=1) as web:
            large = b"x" * (2 << 20)
            results = [await web.post(url, large, kind), await web.get(url), await web.post(url, b"", kind)]
            assert [result.body for result in results] == [
                b"POST 2097152 text/x None", b"GET 0 None None", b"POST 0 text/x None",
            ]  # fmt: skip
            cut = await web.post(url, b"hi", kind, keep_bytes=4)
            assert (cut.status, cut.error, cut.body) == (200, "too_large", b"POST")
            moved = await web.post(url + "moved", b"hi", kind)
            assert moved.status == 307 and moved.request_head.startswith(b"POST /moved ")

    try:
        run(work())
    finally:
        echo.shutdown()
        echo.server_close()
