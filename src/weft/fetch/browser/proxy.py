"""The only network access of a browser: a proxy on loopback that connects only to checked addresses of permitted hosts.

Each rendered page has a pass: a login that Chromium presents for its requests, and the list of what may be asked with
it. A connection without a pass, to a host that no permitted request explains, or to an address that the guard refuses
is refused, and counted. TLS passes through unread: requests are judged before, through DevTools.

A plain request is forwarded alone, on a connection of its own: one that was kept open for another host would carry the
next request past this check.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from secrets import token_urlsafe

from weft import urls
from weft.errors import BadUrl
from weft.fetch.browser.names import AwaitedNames

HEAD_BYTES = 64 << 10
HEAD_S = 15.0
CONNECT_S = 10.0
IDLE_S = 60.0
MOST_SENT_BYTES = 1 << 20  # in one request of a page
_CHUNK = 64 << 10
_NEEDS_LOGIN = b'HTTP/1.1 407 Login needed\r\nProxy-Authenticate: Basic realm="weft"\r\nContent-Length: 0\r\n\r\n'
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade"})
Refusal = Callable[[str], str | None]


class ProxyPass:
    """The connections that one rendered page may make, and the bytes that it has received."""

    def __init__(self, names: AwaitedNames, refusal: Refusal, most_bytes: int) -> None:
        self.names = names
        self.refusal = refusal
        self.secret = token_urlsafe(18)
        self.left_bytes = most_bytes
        self.refused: Counter[str] = Counter()
        self._hosts: set[tuple[str, int]] = set()  # and port, over TLS
        self._requests: Counter[tuple[str, str]] = Counter()  # method and URL
        self._tasks: set[asyncio.Task[None]] = set()

    def permit(self, method: str, url: str) -> None:
        """Permits a request: one plain request and its preflight, or connections to its host and port."""
        if url.startswith("https:"):  # a tunnel for plain http would carry anything: a WebSocket
            self._hosts.add(_host_and_port(url))
            return
        for one in {method, "OPTIONS"}:  # the browser does not report a preflight
            self._requests[one, _plain(url)] += 1

    def explains(self, host: str, port: int) -> bool:
        """Whether a permitted request goes to this host and port over TLS."""
        return (host, port) in self._hosts

    def permits(self, method: str, url: str) -> bool:
        """Whether this plain request is permitted; once for each permission."""
        if self._requests[method, _plain(url)] <= 0:
            return False
        self._requests[method, _plain(url)] -= 1
        return True

    def keep(self, task: asyncio.Task[None]) -> None:
        """Registers a connection, which ends with the page."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Ends its connections, and permits no others."""
        self._hosts.clear()
        self._requests.clear()
        for task in self._tasks:
            task.cancel()


class GuardProxy:
    """Serves the browsers of a process."""

    def __init__(self) -> None:
        self._passes: dict[str, ProxyPass] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self.refused: Counter[str] = Counter()  # of all passes, and without one

    async def start(self) -> None:
        """Listens on a free port of loopback."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    def add(self, name: str, one: ProxyPass) -> None:
        """Registers a pass under its name."""
        self._passes[name] = one

    def remove(self, name: str) -> None:
        """Removes a pass after its page: its connections end."""
        if (one := self._passes.pop(name, None)) is not None:
            self.refused.update(one.refused)
            one.close()

    def close(self) -> None:
        """Ends all connections."""
        for name in list(self._passes):
            self.remove(name)
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            pass  # one side has closed, or has sent an invalid request
        except asyncio.CancelledError:
            pass  # its page has ended
        finally:
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            method, target, headers = _parsed(head)
            one = self._pass_of(headers)
            if one is not None:
                break
            self.refused["no login"] += "proxy-authorization" in dict(headers)
            # Chromium repeats the request on the same connection, with the same body behind it.
            await asyncio.wait_for(reader.readexactly(_body_bytes(dict(headers))), HEAD_S)
            writer.write(_NEEDS_LOGIN)
            await writer.drain()
        task = asyncio.current_task()
        assert task is not None
        one.keep(task)
        if method == "CONNECT":
            await self._tunnel(one, target, reader, writer)
        else:
            await self._forward(one, method, target, headers, reader, writer)

    def _pass_of(self, headers: list[tuple[str, str]]) -> ProxyPass | None:
        for name, value in headers:
            if name == "proxy-authorization" and value.startswith("Basic "):
                user, _, secret = base64.b64decode(value[6:]).decode("latin-1").partition(":")
                one = self._passes.get(user)
                if one is not None and hmac.compare_digest(secret, one.secret):
                    return one
        return None

    async def _tunnel(
        self, one: ProxyPass, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = target.rpartition(":")
        host = host.strip("[]").lower()
        if not one.explains(host, int(port)):
            return _refuse(one, writer, "not asked for")
        site = await self._connected(one, host, int(port), writer)
        if site is None:
            return None
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await _joined(one, (reader, writer), site)
        return None

    async def _forward(
        self,
        one: ProxyPass,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            host, port = _host_and_port(url)
            is_explained = one.permits(method, url)
        except (BadUrl, ValueError):
            return _refuse(one, writer, "no address")
        if not is_explained:
            return _refuse(one, writer, "not asked for")
        site = await self._connected(one, host, port, writer)
        if site is None:
            return None
        path = "/" + url.split("/", 3)[3] if url.count("/") > 2 else "/"
        kept = [f"{name}: {value}" for name, value in headers if name not in _HOP_BY_HOP]
        site[1].write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1"))
        try:
            await asyncio.gather(_pass_on_body(dict(headers), reader, site[1]), _answer(one, site[0], writer))
        finally:
            site[1].close()
        return None

    async def _connected(
        self, one: ProxyPass, host: str, port: int, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connects to the first permitted address that answers; None: the refusal was sent."""
        why = "no such name"
        for address in await one.names.addresses(host):
            if refused := one.refusal(address):
                why = f"address: {refused}"
                continue
            try:
                opening = asyncio.open_connection(address, port, limit=HEAD_BYTES)
                return await asyncio.wait_for(opening, CONNECT_S)
            except (OSError, TimeoutError):
                why = "connect"
        _refuse(one, writer, why)
        return None


def _refuse(one: ProxyPass, writer: asyncio.StreamWriter, why: str) -> None:
    one.refused[why] += 1
    status = "502 Bad Gateway" if why in ("connect", "no such name") else "403 Forbidden"
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())


async def _joined(
    one: ProxyPass,
    browser: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    site: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Passes bytes on in both directions until one side has closed."""
    there = asyncio.ensure_future(_copy(browser[0], site[1], None))
    back = asyncio.ensure_future(_copy(site[0], browser[1], one))
    try:
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((there, back), timeout=1.0)
    finally:
        there.cancel()
        back.cancel()
        site[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one: ProxyPass | None) -> None:
    with suppress(OSError, TimeoutError):
        while data := await asyncio.wait_for(reader.read(_CHUNK), IDLE_S):
            if one is not None:
                one.left_bytes -= len(data)
                if one.left_bytes < 0:
                    one.refused["too many bytes"] += 1
                    return
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _pass_on_body(headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on exactly a request's body, so that no further bytes reach this site."""
    left = _body_bytes(headers)
    while left > 0 and (data := await asyncio.wait_for(reader.read(min(left, _CHUNK)), IDLE_S)):
        left -= len(data)
        writer.write(data)
        await writer.drain()


async def _answer(one: ProxyPass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on a response, after which the browser must not reuse the connection."""
    status = "1"
    while status.startswith("1"):  # interim responses are dropped: only the last one's head is rewritten
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_S)
        first, *lines = head.decode("latin-1").split("\r\n")
        status = first.split(" ", 2)[1]
    if status == "407":  # a site that imitates the proxy
        return _refuse(one, writer, "asks for a proxy's login")
    kept = [line for line in lines if line and line.partition(":")[0].strip().lower() not in _HOP_BY_HOP]
    writer.write("\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1"))
    await _copy(reader, writer, one)
    return None


def _body_bytes(headers: dict[str, str]) -> int:
    """The length of a request's body. ValueError: more than a page may send."""
    length = int(headers.get("content-length", 0))
    if not 0 <= length <= MOST_SENT_BYTES:
        raise ValueError("the body is too long")
    return length


def _parsed(head: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if ":" in line)
    return method, target, [(name.strip().lower(), value.strip()) for name, _, value in pairs]


def _host_and_port(url: str) -> tuple[str, int]:
    parsed = urls.parse(url)
    return parsed.hostname.strip("[]"), int(parsed.port or (443 if parsed.protocol == "https:" else 80))


def _plain(url: str) -> str:
    """A URL in the form of a request: without its fragment, in one spelling."""
    return str(urls.parse(url).href).partition("#")[0]
