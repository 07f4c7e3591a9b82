"""Both clients against the real HTTP server, over a service in memory."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from scripted_service import ScriptedService
from served import Server, served

from weft.client import AsyncWeft, Weft
from weft.client.errors import NoAnswer, NotWeft, Refused
from weft.client.progress_display import progress_text
from weft.client.sse import EventParser
from weft.errors import BadInput
from weft.jobs.api.access.keys import Keyring
from weft.scraping import FinishReason, TaskState

SITE = "https://example.com/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(ScriptedService(), tmp_path_factory.mktemp("service")) as server:
        yield server


@pytest.fixture
def weft(server: Server) -> Iterator[Weft]:
    with Weft(server.url, patience=0) as weft:
        yield weft


def scripted(server: Server, task_id: str) -> None:
    """A task that runs: three pages, an error, and its end."""

    def all_of_it() -> None:
        server.service.move(task_id, TaskState.RUNNING)
        for number in range(3):
            server.service.page(task_id, f"{SITE}{number}", markdown=f"# {number}", fields={"price": number})
        server.service.error(task_id, f"{SITE}bad")
        server.service.move(task_id, TaskState.PARTIAL, FinishReason.DONE)

    server.do(all_of_it)


def when_submitted(server: Server, url: str) -> threading.Thread:
    """Runs the next task of that URL as soon as it is there."""

    def run() -> None:
        while not (found := [task.id for task in list(server.service.tasks.values()) if task.url == url]):
            time.sleep(0.005)
        scripted(server, found[0])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_scrape_returns_pages_errors_and_status(server: Server, weft: Weft) -> None:
    thread = when_submitted(server, f"{SITE}sync")
    seen: list[str] = []
    pages = weft.scrape(f"{SITE}sync", max_depth=1, progress=lambda status: seen.append(status.status))
    thread.join()
    assert [(page.url, page.markdown, page.fields) for page in pages] == [
        (f"{SITE}{number}", f"# {number}", {"price": number}) for number in range(3)
    ]
    assert [error.url for error in pages.errors] == [f"{SITE}bad"]
    assert (pages.status.status, pages.status.progress.completed, seen[-1]) == ("PARTIAL", 3, "PARTIAL")


def test_the_same_from_asyncio(server: Server) -> None:
    thread = when_submitted(server, f"{SITE}async")

    async def main() -> None:
        async with AsyncWeft(server.url, patience=0) as weft:
            pages = await weft.scrape(f"{SITE}async", progress=False)
            task_id = pages.status.task_id
            assert [page.number for page in pages] == [2, 3, 4]
            assert [event.number async for event in weft.events(task_id, after=2) if event.number] == [3, 4, 5, 6]
            assert [page.url async for page in weft.pages(task_id)] == [f"{SITE}{number}" for number in range(3)]
            assert [error.status async for error in weft.errors(task_id)] == [500]
            assert (await weft.cancel(task_id)).status == "PARTIAL"
            assert task_id in [task.task_id async for task in weft.tasks("PARTIAL")]
            assert (await weft.export(task_id, "jsonl", limit=2))[1] is not None
            assert (await weft.health())["slots"] == 5
            with pytest.raises(Refused) as refused:
                await weft.submit("nonsense")
            assert list(refused.value.fields) == ["url"]

    asyncio.run(main())
    thread.join()


def test_a_task_is_stopped_and_looked_at(server: Server, weft: Weft) -> None:
    task_id = weft.submit(f"{SITE}stops").task_id
    server.do(lambda: server.service.move(task_id, TaskState.RUNNING))
    assert weft.pause(task_id).status == "PAUSED"
    assert weft.resume(task_id).status == "RUNNING"
    with pytest.raises(TimeoutError):
        weft.wait(task_id, timeout=0.01, progress=False)
    assert weft.cancel(task_id).finish_reason == "cancelled"
    assert weft.status(task_id).has_ended
    assert weft.wait(task_id).status == "CANCELLED"
    assert next(iter(weft.tasks())).task_id == task_id
    assert weft.results(task_id).pages == ()


def test_a_repeated_submit_is_one_task(weft: Weft) -> None:
    ids = {weft.submit(f"{SITE}twice", idempotency_key="one").task_id for _ in range(3)}
    assert len(ids) == 1
    with pytest.raises(Refused) as refused:
        weft.submit(f"{SITE}other", idempotency_key="one")
    assert refused.value.status == 409


def test_what_is_refused_says_why(weft: Weft) -> None:
    with pytest.raises(Refused, match="timeout_minutes: 3 is not accepted; use a whole number from 5 to 120"):
        weft.submit(SITE, timeout_minutes=3)
    with pytest.raises(Refused, match="there is no such route"):
        weft.status("../../etc/passwd")
    with pytest.raises(Refused, match="there is no task"):
        weft.status("")


def test_events_go_on_after_the_server_was_away(tmp_path: Path) -> None:
    service, seen = ScriptedService(), list[int]()
    with served(service, tmp_path) as server:
        weft = Weft(server.url, patience=patience(30))
        task_id, port = weft.submit(SITE).task_id, server.port
        server.do(lambda: service.move(task_id, TaskState.RUNNING))

        def read() -> None:
            seen.extend(event.number for event in weft.events(task_id) if event.number)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for number in range(20):
            server.do(lambda number=number: service.page(task_id, f"{SITE}{number}"))  # type: ignore[misc]
    with served(service, tmp_path, port) as server:
        for number in range(20, 40):
            server.do(lambda number=number: service.page(task_id, f"{SITE}{number}"))  # type: ignore[misc]
        server.do(lambda: service.move(task_id, TaskState.COMPLETED, FinishReason.DONE))
        reader.join(patience(30))
        assert seen == list(range(1, 43)), "none is missing, none came twice"


def test_a_key_is_sent(tmp_path: Path) -> None:
    text, _ = Keyring(tmp_path / "api-keys.json").create("one")
    with served(ScriptedService(), tmp_path) as server:
        with pytest.raises(Refused, match="an API key is needed"):
            Weft(server.url, patience=0).submit(SITE)
        assert Weft(server.url, key=text, patience=0).submit(SITE).status == "PENDING"


def test_a_service_that_is_full_is_waited_for_as_it_asks(tmp_path: Path) -> None:
    with served(ScriptedService(), tmp_path, submits_per_s=5.0, submit_burst=1) as server:
        weft = Weft(server.url, patience=patience(10))
        assert len({weft.submit(SITE).task_id for _ in range(3)}) == 3
        impatient = Weft(server.url, patience=0)
        with pytest.raises(Refused) as refused:
            [impatient.submit(SITE) for _ in range(3)]
        assert (refused.value.status, refused.value.may_pass) == (429, True)


@pytest.mark.parametrize(
    "url",
    ["", "ftp://localhost", "http://", "http://localhost:x", "http://a b/", "http://localhost/?x", "http://me@host/"],
)
def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    for make in (Weft, AsyncWeft):
        with pytest.raises(BadInput, match="is not the URL of a service"):
            make(url)
    with pytest.raises(BadInput, match="API key"):
        Weft(key="a\nb")


def test_nobody_there_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    calls: list[Callable[[], Any]] = [
        lambda: Weft(f"localhost:{port}", patience=0).health(),
        lambda: asyncio.run(AsyncWeft(f"localhost:{port}", patience=0).health()),
    ]
    for call in calls:
        with pytest.raises(NoAnswer, match=r"does not answer: .*; is it running\? `weft serve` starts one"):
            call()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", NotWeft),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi", NotWeft),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{}", NoAnswer),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", NoAnswer),
        (b"", NoAnswer),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", NoAnswer),
    ],
)
def test_what_is_no_service_is_told_apart(reply: bytes, error: type[Exception]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        calls: list[Callable[[], Any]] = [
            lambda: Weft(url, patience=0).health(), lambda: asyncio.run(AsyncWeft(url, patience=0).health())
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(error):
                call()
        thread.join()


def test_events_are_read_however_they_are_cut() -> None:
    page = 'id: 7\r\nevent: page\r\ndata: {"url":\r\ndata: "é"}\r\n\r\n'
    raw = f"retry: 1000\n\n{page}: \n\nevent: progress\ndata: {{}}\n\nid: 8\n".encode()
    for size in (1, 2, 5, len(raw)):
        parser = EventParser()
        found = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])]
        assert [(event.kind, event.number, event.data) for event in found] == [
            ("page", 7, {"url": "é"}),
            ("progress", None, {}),
        ], size


def test_a_status_is_said_in_a_line(server: Server, weft: Weft) -> None:
    task_id = weft.submit(f"{SITE}line").task_id
    assert progress_text(weft.status(task_id)) == "PENDING 0 % · 0 pages · 0 tasks before it"
    scripted(server, task_id)
    assert progress_text(weft.status(task_id)).startswith("PARTIAL 100 % · 3 pages, 1 failed · 0:0")
