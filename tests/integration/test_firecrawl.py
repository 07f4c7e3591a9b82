"""The service as Firecrawl's own clients see it, unmodified: Python and JavaScript, versions 1 and 2; its webhooks; and
WebSocket clients that do not behave."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import firecrawl_smoke
import pytest
from crawling import until
from firecrawl_sdks import javascript, run_javascript
from holding_site import holding_site
from pace import patience
from receiver import receiver
from served_http import Service, service_in

from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.settings import KEYS_FILE
from weft.testing.web import synthetic_web


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    with synthetic_web(hosts=1, pages=60, profile="calm", seed=5) as web:
        yield f"http://127.1.0.1:{web.port}/"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("service") / "data", "--max-concurrent-tasks", 20) as service:
        yield service


@pytest.fixture(scope="module")
def holding() -> Iterator[str]:
    with holding_site() as site:
        yield site


@pytest.mark.parametrize("part", ["sync", "asynchronous", "version_1"])
def test_the_python_client(service: Service, home: str, holding: str, part: str) -> None:
    firecrawl_smoke.PARTS[part](service.url, home, holding)


def test_a_watcher_of_the_python_client_misses_nothing(service: Service, home: str) -> None:
    for limit in range(8, 14):  # equal orders within five seconds are one job
        found = firecrawl_smoke.watched(service.url, home, limit=limit)
        assert len(found) == len(set(found)) == limit


def test_the_javascript_client(service: Service, home: str, holding: str) -> None:
    run_javascript(javascript(), service.url, home, holding)


def _call(service: Service, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    sent = None if body is None else json.dumps(body).encode()
    kind = {} if body is None else {"Content_Type": "application/json"}
    status, _, found = service.ask(method, path, sent, **kind, **headers)
    return status, json.loads(found)


def test_webhooks_have_firecrawls_own_form(service: Service, home: str) -> None:
    with receiver() as to:
        hook = {"url": to.url, "events": ["started", "page", "completed"], "metadata": {"mine": 1}}
        _, made = _call(service, "POST", "/v2/batch/scrape", {"urls": [home], "webhook": hook})
        to.until(3)
        secret = _call(service, "GET", "/scraping/webhook-secret")[1]["secret"]
    assert [one.body["type"] for one in to.received] == [f"batch_scrape.{name}" for name in hook["events"]]
    for one in to.received:
        signed = "sha256=" + hmac.new(secret.encode(), one.raw, hashlib.sha256).hexdigest()
        assert one.headers["x-firecrawl-signature"] == signed
        assert (one.body["success"], one.body["id"], one.body["metadata"]) == (True, made["id"], {"mine": 1})
        assert one.body["webhookId"] == one.id
    assert to.received[1].body["data"][0]["metadata"]["sourceURL"] == home


def test_a_document_names_what_was_asked_for_and_where_redirects_have_led(service: Service, holding: str) -> None:
    _, found = _call(service, "POST", "/v2/scrape", {"url": f"{holding}/moved"})
    metadata = found["data"]["metadata"]
    assert (metadata["sourceURL"], metadata["url"]) == (f"{holding}/moved", f"{holding}/moved/there")


def test_next_is_given_only_while_more_exists_now(service: Service, home: str) -> None:
    _, made = _call(service, "POST", "/v2/crawl", {"url": home, "limit": 25})
    seen = []
    while True:
        _, status = _call(service, "GET", f"/v2/crawl/{made['id']}?limit=10")
        assert ("next" in status) == (status["completed"] > 10) or status["status"] == "scraping"
        if status["status"] == "completed":
            break
    while True:
        seen += [one["url"] for one in status["data"]]
        if "next" not in status:
            break
        status = _call(service, "GET", status["next"].removeprefix(service.url))[1]
    assert len(seen) == len(set(seen)) == 25
    rest = _call(service, "GET", f"/v2/crawl/{made['id']}?skip=20")[1]["data"]
    assert [one["url"] for one in rest] == seen[20:]


class RawSocket:
    """A WebSocket's client that can do what no library would."""

    def __init__(self, service: Service, path: str, *headers: str, receive_bytes: int = 0) -> None:
        self.connection = socket.socket()
        if receive_bytes:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.connection.settimeout(patience(20))
        self.connection.connect(("127.0.0.1", service.port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{service.port}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *headers,
        ]  # fmt: skip
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode())
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            piece = self.connection.recv(1)
            assert piece, self.head
            self.head += piece

    def frame(self) -> tuple[int, bytes]:
        """The next one: its kind and what is in it."""
        first, length = self._read(2)
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8))
        return first & 15, self._read(length)

    def close_code(self) -> int:
        """Reads to the end; 1006 where the connection ends without a word."""
        try:
            while True:
                kind, body = self.frame()
                if kind == 8:
                    return int(struct.unpack("!H", body[:2])[0])
        except ConnectionError:
            return 1006

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.connection.recv(size - len(found))
            if not piece:
                raise ConnectionResetError
            found += piece
        return found


def _frame(kind: int, body: bytes, *, masked: bool = True) -> bytes:
    length = bytes([len(body)]) if len(body) < 126 else b"\x7e" + struct.pack("!H", len(body))
    if not masked:
        return bytes([0x80 | kind]) + length + body
    return bytes([0x80 | kind, length[0] | 0x80]) + length[1:] + b"\0\0\0\0" + body


def test_what_a_watcher_says_is_not_read(service: Service, home: str) -> None:
    _, made = _call(service, "POST", "/v2/crawl", {"url": home, "limit": 9})
    path = f"/v2/crawl/{made['id']}"
    talks = RawSocket(service, path)
    talks.connection.sendall(_frame(1, b'{"type": "nonsense"}') + _frame(2, os.urandom(100)) + _frame(1, b"x" * 5000))
    kinds, reason = list[str](), b""
    while not reason:
        kind, body = talks.frame()
        if kind == 8:
            reason = body[2:]
        else:
            kinds.append(json.loads(body)["type"])
    assert kinds[0] == "catchup" and kinds[-1] == "done" and json.loads(reason) == {"type": "done"}
    _, made = _call(service, "POST", "/v2/crawl", {"url": home, "limit": 50, "delay": 20})
    path = f"/v2/crawl/{made['id']}"
    unmasked = RawSocket(service, path)
    unmasked.connection.sendall(_frame(1, b"not masked", masked=False))
    assert unmasked.close_code() in (1002, 1006)
    huge = RawSocket(service, path)
    huge.connection.sendall(bytes([0x81, 0xFF]) + struct.pack("!Q", 1 << 40) + b"\0\0\0\0" + b"x" * 70_000)
    assert huge.close_code() in (1006, 1009)
    assert RawSocket(service, f"/v2/crawl/{'0' * 32}").close_code() == 1008
    assert RawSocket(service, "/v1/crawl/nonsense").close_code() == 1008
    assert b" 403 " in RawSocket(service, path, "Origin: https://evil.example").head.splitlines()[0]
    assert b" 403 " in RawSocket(service, "/scraping/tasks").head.splitlines()[0]
    assert _call(service, "DELETE", path) == (200, {"success": True, "status": "cancelled"})


def test_a_watcher_that_never_reads_is_cut_off_and_holds_up_nobody(service: Service, home: str) -> None:
    body = {"url": home, "limit": 50, "scrapeOptions": {"formats": ["rawHtml", "html", "markdown"]}}
    _, made = _call(service, "POST", "/v2/crawl", body)
    path = f"/v2/crawl/{made['id']}"
    silent = [RawSocket(service, path, receive_bytes=4096) for _ in range(20)]
    until(lambda: _call(service, "GET", f"{path}?limit=1")[1]["status"] == "completed", what="the end of the crawl")
    reads = RawSocket(service, path)
    assert reads.close_code() == 1000
    before = service.memory_bytes()
    time.sleep(1)
    assert service.memory_bytes() < before + (20 << 20), "what nobody reads is not kept"
    for one in silent:
        one.connection.close()


def test_with_keys_each_request_needs_one(tmp_path: Path, home: str) -> None:
    keyring = Keyring(tmp_path / KEYS_FILE)
    mine, _ = keyring.create("mine")
    other, _ = keyring.create("other")
    reads, _ = keyring.create("reads", (KeyScope.READ,))
    with service_in(tmp_path) as service:
        order = {"url": home, "limit": 3}
        assert _call(service, "POST", "/v2/crawl", order) == (
            401, {"success": False, "error": "an API key is needed: send `Authorization: Bearer KEY`"},
        )  # fmt: skip
        assert _call(service, "POST", "/v2/crawl", order, Authorization=f"Bearer {reads}")[0] == 403
        made = _call(service, "POST", "/v2/crawl", order, Authorization=f"Bearer {mine}")[1]
        path = f"/v2/crawl/{made['id']}"
        status, said = _call(service, "GET", path, Authorization=f"Bearer {other}")
        assert (status, said["success"]) == (404, False)
        for headers, code in (
            ((), 3000),
            (("Sec-WebSocket-Protocol: nonsense",), 3000),
            ((f"Sec-WebSocket-Protocol: {other}",), 1008),
            ((f"Authorization: Bearer {mine}",), 1000),
            ((f"Sec-WebSocket-Protocol: {mine}",), 1000),
        ):
            watcher = RawSocket(service, path, *headers)
            assert watcher.close_code() == code, headers
        assert f"sec-websocket-protocol: {mine}".encode() in watcher.head.lower().replace(
            mine.lower().encode(), mine.encode()
        )
