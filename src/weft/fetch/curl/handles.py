"""The libcurl handles of the client: their options, the state of a transfer, and the names of libcurl's errors here.

A handle is set up once and reused. What differs between transfers is set through `Transfer` alone, which remembers what
the handle is set to; everything else is the same for every host, so nothing can leak from one to another.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pycurl

from weft.bodies import Arriving, Spool
from weft.config import FetchSection
from weft.fetch.content_types import Accepting
from weft.fetch.contract import NOT_TLS
from weft.fetch.headers import Head, final_head

RECEIVE_BYTES = 128 * 1024
SESSION_CACHES = 64
DRAIN_BYTES = 64 * 1024  # of a body that is not stored
CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)

_E_WEIRD_SERVER_REPLY = 8
_E_TOO_LARGE = 100
_KINDS = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "protocol",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    _E_WEIRD_SERVER_REPLY: "protocol",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_GOT_NOTHING: "reset",
    pycurl.E_SEND_ERROR: "reset",
    pycurl.E_RECV_ERROR: "reset",
    pycurl.E_BAD_CONTENT_ENCODING: "protocol",
    pycurl.E_FILESIZE_EXCEEDED: "too_large",
    _E_TOO_LARGE: "headers_too_large",
}
_TLS_CODES = frozenset({35, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91, 98})
# OpenSSL's messages for an answer that is no TLS record, such as plain HTTP.
_NO_TLS_RECORD = ("wrong version number", "packet length too long")
_SLOPPY = ("header without colon", "nul byte in header", "carriage return found in header")


STALE = ("stale", "the kept connection ended before an answer; another one is needed")
LEFT_OUT = "content-type"
OVERDUE = ("aborted", "its deadline has passed")


class Transfer:
    """A reusable handle, and the state of its current transfer."""

    __slots__ = (
        "_clock",
        "_dropped",
        "_sessions",
        "_shared",
        "accepting",
        "addresses",
        "asked",
        "body",
        "connect_by",
        "connect_s",
        "curl",
        "cuts",
        "host",
        "keep_bytes",
        "left_out",
        "lenient",
        "lines",
        "mark",
        "moved",
        "not_sent",
        "opened",
        "origin",
        "pinned",
        "pool",
        "posts",
        "quiet_s",
        "request_head",
        "running",
        "started",
        "tag",
        "target",
        "total_s",
        "until",
        "url",
        "usual",
    )  # fmt: skip

    def __init__(self, sessions: Sequence[Any], clock: Callable[[], float], spool: Spool) -> None:
        self.curl = pycurl.Curl()
        self._clock = clock
        self._sessions = sessions
        self._shared: Any = None  # the TLS session cache that the handle uses
        self.lines: list[bytes] = []
        self.body = Arriving(spool)
        self.origin = ""  # the handle's current settings: origin, request target, address
        self.target = ""
        self.pinned = ""
        self.usual = True  # the handle has the usual headers
        self.lenient = False  # libcurl only connects; the answer is read by us
        self.posts = False  # the handle has another method than GET
        self.cuts = False  # the handle ends a body after `keep_bytes`
        self.opened: socket.socket | None = None  # the connection, if it was opened for this transfer
        self.clear()

    def clear(self) -> None:
        """Resets the transfer's state; the settings of the handle are kept."""
        self.url = self.host = ""
        self.not_sent: tuple[str, str] | None = None  # why the request was not sent, or ended here: error and detail
        self.tag: object = None
        self.request_head = b""
        self.addresses: tuple[str, ...] = ()  # those still to try
        self.pool = 0  # the number of its pool
        self.started = self.moved = self.connect_by = self.connect_s = 0.0
        self.until = math.inf  # nothing is sent from then on
        self.total_s = self.quiet_s = math.inf  # its time limits: in total, and without a byte
        self.accepting: Accepting | None = None  # which content types are wanted; None: all
        self.left_out = ""  # the content type, if it is not accepted
        self.mark = self.keep_bytes = self._dropped = 0
        self.asked = False  # the request was sent
        self.running = False  # the handle is in libcurl's multi
        self.lines.clear()
        self.body.clear()
        self.hold(None)

    def aim(self, origin: str, target: str) -> None:
        """Sets origin and target. The target is set apart, because libcurl rewrites the escapes in a URL."""
        if origin != self.origin:
            self.curl.setopt(pycurl.URL, origin + "/")
            self.origin = origin
            self._share_sessions()
        if target != self.target:
            self.curl.setopt(pycurl.REQUEST_TARGET, target)
            self.target = target

    def _share_sessions(self) -> None:
        share = self._sessions[hash(self.origin) % len(self._sessions)]
        if self.origin.startswith("https") and share is not self._shared:
            self.curl.unsetopt(pycurl.SHARE)
            self.curl.setopt(pycurl.SHARE, share)
            self._shared = share

    def pin(self, address: str) -> None:
        """Makes the next connection use this address, whatever the URL's host."""
        if address != self.pinned:
            shown = f"[{address}]" if ":" in address else address
            self.curl.setopt(pycurl.CONNECT_TO, [f"::{shown}:"])
            self.pinned = address

    def ask(self, method: str, body: bytes | None, *, alone: bool = False) -> None:
        """Sets the method and body of the next request. `alone`: over a connection that no other request has used."""
        is_get = method == "GET" and body is None
        if self.posts:
            self.curl.unsetopt(pycurl.CUSTOMREQUEST)
            self.curl.setopt(pycurl.NOBODY, 0)
            self.curl.setopt(pycurl.FRESH_CONNECT, 0)
            self.curl.setopt(pycurl.HTTPGET, 1)
        if not is_get:
            if method == "HEAD" and body is None:
                self.curl.setopt(pycurl.NOBODY, 1)
            else:
                if body is not None or method == "POST":
                    self.curl.setopt(pycurl.POSTFIELDS, body or b"")
                self.curl.setopt(pycurl.CUSTOMREQUEST, method)
            self.curl.setopt(pycurl.FRESH_CONNECT, int(alone))
        self.posts = not is_get

    def hold(self, opened: socket.socket | None) -> None:
        """Keeps a connection's socket for `has_surplus`, which needs it for plain HTTP only."""
        if self.opened is not None:
            self.opened.close()
        self.opened = opened if opened is None or self.origin.startswith("http:") else None

    def ask_once(self, *_connection: object) -> int:
        """Called by libcurl before each request. On a kept connection that turns out dead, libcurl would repeat the
        request at once, without the site's delay: only the frontier may decide on a second request."""
        if self.asked or self._clock() >= self.until:
            self.not_sent = STALE if self.asked else OVERDUE
            return int(pycurl.PREREQFUNC_ABORT)
        self.asked = True
        return int(pycurl.PREREQFUNC_OK)

    def keep(self, keep_bytes: int, max_body_bytes: int) -> None:
        """Reads only the first `keep_bytes` of a body, whatever its Content-Length; 0: all of it, up to the maximum."""
        self.keep_bytes = keep_bytes
        if bool(keep_bytes) != self.cuts:
            self.cuts = bool(keep_bytes)
            self.curl.setopt(pycurl.WRITEFUNCTION, self._receive_some if self.cuts else self.receive)
            self.curl.setopt(pycurl.MAXFILESIZE_LARGE, 0 if self.cuts else max_body_bytes)

    @property
    def is_full(self) -> bool:
        """Whether `keep_bytes` of the body have arrived."""
        return self.cuts and self.body.size >= self.keep_bytes

    def receive(self, chunk: bytes) -> int:
        """Called by libcurl with a chunk of the body. A return value other than the length ends the transfer."""
        if self.left_out or (self.accepting is not None and not self.body.size and self._leaves_out(chunk)):
            return self._drop(len(chunk))
        try:
            self.body.add(chunk)
        except OSError as error:
            self.not_sent = ("other", f"the body could not be kept: {error.strerror or error}")
            return 0
        return len(chunk)

    def _leaves_out(self, chunk: bytes) -> bool:
        """Judges the head at the first chunk of the body; only pages are filtered by type."""
        assert self.accepting is not None
        head, _ = final_head(self.lines)
        if head[9:10] != b"2":
            self.accepting = None
            return False
        self.left_out = self.accepting.left_out(head, chunk)
        if self.left_out and _announced(head) > DRAIN_BYTES:
            self._dropped = DRAIN_BYTES
        return bool(self.left_out)

    def judge(self, status: int, head: bytes, body: bytes) -> None:
        """Judges the head of a response that was read to its end."""
        if self.accepting is not None and 200 <= status < 300 and body:
            self.left_out = self.accepting.left_out(head, body)

    def _drop(self, size: int) -> int:
        """Reads and drops a short rest, which keeps the connection: that costs less than a new one."""
        self._dropped += size
        return size if self._dropped <= DRAIN_BYTES else 0

    @property
    def arrived(self) -> int:
        """A counter that grows with every arriving byte."""
        return len(self.lines) + self.body.size + self._dropped

    def _receive_some(self, chunk: bytes) -> int:
        self.body.add(chunk, may_spool=False)
        return 0 if self.is_full else len(chunk)

    def connect_only(self, lenient: bool) -> None:
        """Whether libcurl stops after connecting."""
        if lenient != self.lenient:
            self.curl.setopt(pycurl.CONNECT_ONLY, int(lenient))
            self.lenient = lenient


def _announced(head: bytes) -> int:
    """The Content-Length; 0 if there is none."""
    length = Head(head).get("content-length") or ""
    return int(length) if length.isdecimal() and len(length) < 16 else 0


def session_caches() -> list[Any]:
    """Caches of TLS sessions for resumption: several, because libcurl keeps only 25 hosts in one."""
    shares = [pycurl.CurlShare() for _ in range(SESSION_CACHES)]
    for share in shares:
        share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
    return shares


def set_up(transfer: Transfer, section: FetchSection, headers: Sequence[bytes], ca_file: str | None) -> None:
    """Sets the options that are the same for all transfers."""
    options = [
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.PATH_AS_IS, 1),
        (pycurl.PROXY, ""),
        (pycurl.NOPROXY, "*"),
        (pycurl.NETRC, pycurl.NETRC_IGNORED),
        (pycurl.HTTP09_ALLOWED, 0),
        (pycurl.NOSIGNAL, 1),
        (pycurl.DNS_CACHE_TIMEOUT, 0),  # it is given addresses; with each request it would look through all it had
        (pycurl.TCP_NODELAY, 1),
        (pycurl.TCP_KEEPALIVE, 1),
        (pycurl.BUFFERSIZE, RECEIVE_BYTES),
        (pycurl.MAXFILESIZE_LARGE, section.max_body_bytes),
        (pycurl.HTTPHEADER, list(headers)),
        (pycurl.PREREQFUNCTION, transfer.ask_once),
        (pycurl.HEADERFUNCTION, transfer.lines.append),
        (pycurl.WRITEFUNCTION, transfer.receive),
        (pycurl.SSL_VERIFYPEER, int(section.tls_verify)),
        (pycurl.SSL_VERIFYHOST, 2 if section.tls_verify else 0),
    ]
    if ca_file is not None:
        options.append((pycurl.CAINFO, ca_file))
        options.append((pycurl.CAPATH, None))  # with a folder libcurl reads the bundle again for every connection
    for option, value in options:
        transfer.curl.setopt(option, value)


def ca_bundle() -> str | None:
    """The file of trusted authorities: SSL_CERT_FILE, or the system's; pycurl's wheel contains none."""
    chosen = os.environ.get("SSL_CERT_FILE")
    if chosen:
        return chosen
    system = ssl.get_default_verify_paths()
    places = [system.cafile, system.openssl_cafile, *CA_BUNDLES]
    return next((place for place in places if place and Path(place).is_file()), None)


def kind(code: int, message: str) -> str:
    """The kind of an error of libcurl, as it is stored and counted."""
    if "reset by peer" in message:
        return "reset"
    if code == pycurl.E_PARTIAL_FILE:
        return "protocol" if "outstanding read data" in message else "truncated"
    if "Too large response headers" in message:
        return "headers_too_large"
    if code == pycurl.E_RECV_ERROR and "chunk" in message.lower():
        return "protocol"
    return "tls" if code in _TLS_CODES else _KINDS.get(code, "other")


def detail_of(message: str) -> str:
    """libcurl's error message; one that is misleading is replaced."""
    return NOT_TLS if any(sign in message for sign in _NO_TLS_RECORD) else message


def is_sloppy(code: int, message: str) -> bool:
    """Whether libcurl stopped at an invalid header line that browsers ignore."""
    return code == _E_WEIRD_SERVER_REPLY and message.lower() in _SLOPPY
