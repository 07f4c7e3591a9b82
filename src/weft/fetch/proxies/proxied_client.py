"""Requests through proxies: libcurl as in `fetch/curl/client.py`, with a proxy between.

What must stay true, besides what `fetch/curl/client.py` promises:
- The name of the site is resolved and every address checked here before a proxy is asked, also where the proxy
  resolves it again; a proxy with local names (`socks4`, `socks5`) is given the checked address. A proxy's own address
  is checked in the same way.
- Nothing goes out directly, unless that was allowed (`direct_fallback`). A request for which no proxy is free waits
  here; when it has waited for WAIT_S, or too many wait, it ends as aborted, which gives its URL back unasked.
- No login of a proxy is in a result: the head that is kept is the one that the site gets.
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

import msgspec
import pycurl

from weft.fetch.curl.client import Client
from weft.fetch.curl.handles import Transfer, detail_of, kind, set_up
from weft.fetch.dns.resolver import ResolvedName
from weft.fetch.proxies.entry import Proxy
from weft.fetch.proxies.rotation import ProxyOutcome
from weft.fetch.proxies.verdict import BAD_PROXY, PROXY, TransferFacts, judge

WAIT_S = 3.0  # short, so that a crawl that is stopped has not to wait for it
MOST_WAITING = 128  # half of a fetcher's first number in flight: crawls without proxies continue beside them
_SUPPRESS_CONNECT_HEADERS = 265  # of libcurl; pycurl has no name for it
_NO_PROXY = ("aborted", "no proxy is free")


class Chooser(Protocol):
    """Chooses proxies, and records their results."""

    def choose(self, host: str, tag: object, now: float) -> Proxy | None:
        """The proxy for a request to a host; None if none is free."""

    def ended(self, proxy: Proxy, host: str, outcome: ProxyOutcome, took_s: float, now: float) -> None:
        """Records how that request ended."""


class ProxiedTransfer(Transfer):
    """A handle that is set to a proxy, or to none."""

    __slots__ = ("_set_to", "link", "proxy", "sought", "waits_since")

    def __init__(self, *args: Any) -> None:
        self._set_to: tuple[str, str, str] | None = None  # the handle's current URL, user and password
        super().__init__(*args)

    def clear(self) -> None:
        """Resets the transfer's state."""
        super().clear()
        self.proxy: Proxy | None = None
        self.sought = ""  # the name of the proxy that is being looked up
        self.waits_since: float | None = None  # since when it waits for a free proxy
        self.link: socket.socket | None = None  # to the proxy, if it was opened for this transfer

    @property
    def has_connected(self) -> bool:
        """Whether the proxy has accepted the connection. (libcurl reports its times only at the end of a transfer.)"""
        if self.link is None:
            return self.running and self.not_sent is None  # it was a kept one, or refused
        try:
            return bool(self.link.getpeername())
        except OSError:
            return False

    @property
    def is_plain(self) -> bool:
        """Whether the proxy is asked for the whole URL, and answers itself."""
        return self.proxy is not None and self.proxy.scheme in ("http", "https") and self.origin.startswith("http:")

    def go_by(self, proxy: Proxy | None, address: str) -> None:
        """Sets the handle to a proxy at this address; None: to no proxy."""
        url, user, password = "", "", ""
        if proxy is not None:
            shown = f"[{address}]" if ":" in address else address
            url, user, password = f"{proxy.scheme}://{shown}:{proxy.port}", proxy.user, proxy.password
            if proxy.scheme == "https":  # its certificate is for its name
                url = f"https://{proxy.address}"
                self.curl.setopt(pycurl.RESOLVE, [f"{proxy.host}:{proxy.port}:{shown}"])
        if self._set_to == (url, user, password):
            return
        self._set_to = url, user, password
        self.curl.setopt(pycurl.PROXY, url)
        for option, value in ((pycurl.PROXYUSERNAME, user), (pycurl.PROXYPASSWORD, password)):
            if user or password:
                self.curl.setopt(option, value)
            else:
                self.curl.unsetopt(option)

    def unpin(self) -> None:
        """Passes the name to the proxy. (With an HTTP proxy a pinned address would make libcurl request a tunnel.)"""
        if self.pinned:
            self.curl.unsetopt(pycurl.CONNECT_TO)  # an empty list changes nothing
            self.pinned = ""


class ProxyClient(Client):
    """GETs many URLs at once, each through the proxy that is chosen for it."""

    def __init__(self, *args: Any, chooser: Chooser, direct_fallback: bool = False, **more: Any) -> None:
        """See `Client`."""
        super().__init__(*args, **more)
        self._chooser = chooser
        self._direct_fallback = direct_fallback
        self._parked: dict[ProxiedTransfer, None] = {}  # transfers that wait for a free proxy

    def _make_transfer(self) -> Transfer:
        self._unmade -= 1
        transfer = ProxiedTransfer(self._sessions, self._clock, self._spool)
        set_up(transfer, self._section, self._usual_lines, self._ca_file)
        curl = transfer.curl
        curl.setopt(pycurl.OPENSOCKETFUNCTION, lambda *opened: self._open_socket(transfer, *opened))
        curl.setopt(pycurl.NOPROXY, "")
        curl.setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        curl.setopt(pycurl.PROXY_SSL_VERIFYPEER, int(self._section.tls_verify))
        curl.setopt(pycurl.PROXY_SSL_VERIFYHOST, 2 if self._section.tls_verify else 0)
        if self._ca_file is not None:
            curl.setopt(pycurl.PROXY_CAINFO, self._ca_file)
        return transfer

    # -- the beginning of a transfer

    def _route(self, transfer: Transfer, answer: ResolvedName) -> None:
        assert isinstance(transfer, ProxiedTransfer)
        if not transfer.sought:
            super()._route(transfer, answer)  # of the site: checks its addresses
            return
        transfer.sought = ""
        self._connect(transfer, answer)

    def _start(self, transfer: Transfer) -> None:
        """Chooses the proxy of a transfer that may start."""
        assert isinstance(transfer, ProxiedTransfer)
        now = self._clock()
        proxy = self._chooser.choose(transfer.host, transfer.tag, now)
        if proxy is not None:
            self._leave(transfer, now)
            transfer.proxy = proxy
            self._seek(transfer, proxy)
        elif self._direct_fallback:
            self._leave(transfer, now)
            transfer.go_by(None, "")
            super()._start(transfer)
        elif transfer.waits_since is None:
            self._park(transfer, now)

    def _seek(self, transfer: ProxiedTransfer, proxy: Proxy) -> None:
        name = f"[{proxy.host}]" if ":" in proxy.host else proxy.host
        answer = self._resolver.find_proxy(name)
        if answer is not None:
            self._connect(transfer, answer)
            return
        transfer.sought = name
        self._waiting.setdefault(name, []).append(transfer)
        self._resolver.ask(name)

    def _connect(self, transfer: ProxiedTransfer, answer: ResolvedName) -> None:
        """Hands the transfer to libcurl, with the proxy at its first permitted address."""
        proxy = transfer.proxy
        assert proxy is not None
        at = next((address for address in answer.addresses if self._refusal(address) is None), None)
        if at is None:
            first = next(iter(answer.addresses), "")
            why = f"its address {first}: {self._refusal(first)}" if first else f"its name: {answer.error}"
            self._end(transfer, PROXY, why)
            return
        site = transfer.addresses
        if proxy.scheme == "socks4":  # knows IPv4 alone
            site = tuple(address for address in site if ":" not in address)
        if not site:
            self._end(transfer, PROXY, "the site has no IPv4 address, which socks4 needs")
            return
        if proxy.resolves_names:
            transfer.unpin()
        else:
            transfer.pin(site[0])
        transfer.addresses = ()  # a failed connection is the proxy's, not the site's
        transfer.go_by(proxy, at)
        path = transfer.target
        transfer.aim(transfer.origin, transfer.origin + path if transfer.is_plain else path)
        transfer.connect_by = self._clock() + self._section.connect_timeout_s
        transfer.running = True
        transfer.pool = self._pools.add(transfer.curl, transfer.host)

    def _open_socket(self, transfer: Transfer, _purpose: int, target: Any) -> Any:
        assert isinstance(transfer, ProxiedTransfer)
        made = super()._open_socket(transfer, _purpose, target)
        transfer.link = made if isinstance(made, socket.socket) else None
        return made

    # -- waiting for a proxy

    def _park(self, transfer: ProxiedTransfer, now: float) -> None:
        if len(self._parked) >= MOST_WAITING:
            self._end(transfer, *_NO_PROXY)
            return
        transfer.waits_since = now
        self._parked[transfer] = None

    def _leave(self, transfer: ProxiedTransfer, now: float) -> None:
        self._parked.pop(transfer, None)
        transfer.waits_since = None
        transfer.started = transfer.moved = now

    def _sweep(self, now: float) -> None:
        super()._sweep(now)
        for transfer in list(self._parked):
            self._start(transfer)
            if transfer.waits_since is not None and now - transfer.waits_since >= WAIT_S:
                self._end(transfer, *_NO_PROXY)

    def _out_of_time(self, transfer: Transfer, now: float) -> str:
        assert isinstance(transfer, ProxiedTransfer)
        return "" if transfer.waits_since is not None else super()._out_of_time(transfer, now)

    # -- its end

    def _fail(self, transfer: Transfer, code: int, message: str) -> None:
        """Ends it as usual, but never reads leniently: that would need a connection of our own."""
        assert isinstance(transfer, ProxiedTransfer)
        if transfer.proxy is not None and code == pycurl.E_COULDNT_CONNECT:
            message = "it accepts no connection"  # libcurl names the site, and the proxy without its port
        elif transfer.proxy is not None and transfer.proxy.is_socks and message.startswith("User was rejected"):
            message = "it refuses the login"
        if transfer.not_sent is None and not transfer.is_full:
            self._end(transfer, kind(code, message), detail_of(message))
        else:
            super()._fail(transfer, code, message)

    def _end(self, transfer: Transfer, error: str | None, detail: str) -> None:
        assert isinstance(transfer, ProxiedTransfer)
        self._parked.pop(transfer, None)
        if transfer.sought and transfer in (waiting := self._waiting.get(transfer.sought, [])):
            waiting.remove(transfer)
        proxy, host, facts = transfer.proxy, transfer.host, self._facts(transfer, error)
        if proxy is not None and proxy.is_socks:
            transfer.hold(None)  # bytes of the handshake are counted too, so they do not measure the response
        super()._end(transfer, error, detail)
        if proxy is None:
            return
        tag, result = self._done.pop()
        outcome, why = judge(result, facts)
        if outcome is not None:
            self._chooser.ended(proxy, host, outcome, result.ended - result.started, result.ended)
        result = msgspec.structs.replace(result, ip="")  # it was the proxy's, and is not the site's
        if why:
            error = BAD_PROXY if outcome is ProxyOutcome.FAILED else PROXY
            result = msgspec.structs.replace(
                result, status=0, head=b"", body=b"", error=error, detail=f"{proxy.name}: {why}"
            )
        self._done.append((tag, result))

    def _facts(self, transfer: ProxiedTransfer, error: str | None) -> TransferFacts:
        if not transfer.running or transfer.proxy is None:
            return TransferFacts(transfer.is_plain, asked=False, connected=False)
        info = transfer.curl.getinfo
        return TransferFacts(
            transfer.is_plain,
            asked=transfer.asked,
            connected=transfer.has_connected,
            connect_code=info(pycurl.HTTP_CONNECTCODE),
            socks_code=info(pycurl.PROXY_ERROR),
            is_tls=error == "tls" and transfer.proxy.scheme != "https",
        )
