"""Tests proxies: whether each answers, how fast, how much it reveals of us, and whether it passes TLS.

The test URL is asked for directly first. If it shows the request (an echo), a proxy must show the same mark of ours, so
that one which answers with something of its own fails; and the other content reveals its anonymity:

    transparent   our own address is in it
    anonymous     that somebody stands between us is in it, but not who we are
    elite         neither
    unknown       the page does not show the request

If it does not, an answer counts that has the same status. All tests share one client: a proxy that hangs costs only its
own time limit.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.bodies import first_of
from weft.config import FetchSection, ProxySection
from weft.errors import BadInput
from weft.fetch.curl.client import Client, Refusal
from weft.fetch.decode import decode
from weft.fetch.headers import Head
from weft.fetch.proxies.entry import Proxy
from weft.fetch.proxies.live import Live
from weft.fetch.proxies.proxied_client import ProxyClient
from weft.records import FetchResult

ECHO_BYTES = 256 * 1024
MARK = "X-Weft-Test"
_ADDRESS = re.compile(rb"(?<![0-9A-Fa-f.:])(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:]+:[0-9A-Fa-f]+)")
# Headers that proxies add to a request, in the form of an echo.
_BETWEEN = re.compile(
    rb"(?i)\b(?:via|forwarded|x-forwarded-[a-z]+|x-real-ip|client-ip|x-client-ip|x-proxy-[a-z]+|proxy-connection|"
    rb"x-tinyproxy|x-cache|x-bluecoat-via|x-proxyuser-ip)\b[\"']?\s*[:=]"
)


class ProxyVerdict(Struct, frozen=True):
    """The result of a test; `why` is the reason of a failure, or empty."""

    proxy: Proxy
    why: str = ""
    status: int = 0  # of the page, where it has passed
    latency_s: float = 0.0
    anonymity: str = "unknown"
    tls: bool | None = None

    def live(self) -> Live:
        """The entry of the live file."""
        proxy = self.proxy
        return Live(
            url=proxy.url, latency_s=round(self.latency_s, 4), anonymity=self.anonymity, tls=self.tls,
            tier=proxy.tier, country=proxy.country,
        )  # fmt: skip


class Expected(Struct, frozen=True):
    """The test URL's answer without a proxy."""

    status: int
    answers: bool = True
    is_echo: bool = False
    own: frozenset[bytes] = frozenset()  # our addresses, as it sees them


class _Given:
    """Chooses the proxy that is the tag of the test."""

    def choose(self, _host: str, tag: object, _now: float) -> Proxy | None:
        assert isinstance(tag, _Test)
        return tag.proxy

    def ended(self, *_: object) -> None:
        pass


class _Test:
    """One request of a proxy's test."""

    __slots__ = ("proxy", "url")

    def __init__(self, proxy: Proxy, url: str) -> None:
        self.proxy, self.url = proxy, url


class Probe:
    """Tests proxies with the settings' URLs. `fetch` sets the user agent, `refusal` the permitted addresses."""

    def __init__(
        self, section: ProxySection, fetch: FetchSection, refusal: Refusal, named: str = "`proxy_test_url`"
    ) -> None:
        """`named`: the test URL as the user has written it."""
        if section.test_url is None:
            raise BadInput(
                "proxies cannot be tested without a page to ask for: set `proxy_test_url`, best to one of yours that "
                "shows the request"
            )
        self._url, self._tls_url, self._parallel = section.test_url, section.tls_url, section.parallel
        limit_s = section.timeout_s
        self._fetch = replace(
            fetch, connect_timeout_s=limit_s, first_connect_s=limit_s, read_timeout_s=limit_s, total_timeout_s=limit_s,
            max_body_bytes=ECHO_BYTES, accept=("*/*",), headers=dict(fetch.headers), auth={},
        )  # fmt: skip
        self._refusal, self._named = refusal, named
        self._mark = secrets.token_hex(8)

    def expect(self) -> Expected:
        """Requests the test URL directly; BadInput if that is not permitted."""
        client = Client(self._fetch, refusal=self._refusal, handles=1)
        try:
            result = get(client, [self._url], self._headers)[0]
        finally:
            client.close()
        if result.error in ("address", "dns", "other"):
            # A refusal for lack of `email` explains itself.
            is_private = result.error == "address" and "`email`" not in result.detail
            helps = "; `allow_private=True` lets such addresses in" if is_private else ""
            raise BadInput(
                f"{self._named} {self._url} cannot be requested directly, as a test of proxies must do first: "
                f"{result.error}: {result.detail}{helps}"
            )
        if not result.status:
            return Expected(200, answers=False)  # it may be reachable only through proxies
        body = _body(result)
        is_echo = self._mark.encode() in body
        own = frozenset(_ADDRESS.findall(body)) - set(_ADDRESS.findall(self._url.encode())) if is_echo else frozenset()
        return Expected(result.status, is_echo=is_echo, own=own)

    def run(self, proxies: Iterable[Proxy], expected: Expected) -> Iterator[ProxyVerdict]:
        """Yields a verdict for each proxy, in the order of their completion."""
        client = ProxyClient(self._fetch, refusal=self._refusal, handles=self._parallel, chooser=_Given())
        waiting, passed = iter(proxies), dict[str, ProxyVerdict]()
        try:
            has_more = True
            while has_more or client.in_flight:
                while has_more and client.free:
                    proxy = next(waiting, None)
                    has_more = proxy is not None
                    if proxy is not None:
                        client.submit(self._url, self._headers, _Test(proxy, self._url), keep_bytes=ECHO_BYTES)
                for tag, result in client.poll(1.0):
                    assert isinstance(tag, _Test)
                    verdict = self._judged(tag, result, expected, passed)
                    if verdict is None:
                        assert self._tls_url is not None
                        client.submit(self._tls_url, self._headers, _Test(tag.proxy, self._tls_url), keep_bytes=1024)
                    else:
                        yield verdict
        finally:
            client.close()

    @property
    def _headers(self) -> Sequence[tuple[str, str]]:
        return ((MARK, self._mark),)

    def _judged(
        self, test: _Test, result: FetchResult, expected: Expected, passed: dict[str, ProxyVerdict]
    ) -> ProxyVerdict | None:
        """The verdict; None if it has passed the first test, and TLS comes next."""
        proxy = test.proxy
        if test.url != self._url:
            return replace(passed.pop(proxy.url), tls=200 <= result.status < 400)
        if why := self._wrong(result, expected):
            return ProxyVerdict(proxy, why)
        verdict = ProxyVerdict(
            proxy, status=result.status, latency_s=result.ended - result.started,
            anonymity=_anonymity(_body(result), expected),
            tls=True if self._url.startswith("https:") else None,
        )  # fmt: skip
        if self._tls_url is None or verdict.tls:
            return verdict
        passed[proxy.url] = verdict
        return None

    def _wrong(self, result: FetchResult, expected: Expected) -> str:
        if result.error and result.error != "too_large":
            return result.detail.removeprefix("proxy: ") or result.error
        if result.status != expected.status:
            return f"HTTP {result.status} instead of {expected.status}"
        if expected.is_echo and self._mark.encode() not in _body(result):
            return "it answers with something else than the page"
        return ""


def get(client: Client, urls: Sequence[str], headers: Sequence[tuple[str, str]] = ()) -> list[FetchResult]:
    """Requests some URLs, and waits for all of them."""
    results: dict[object, FetchResult] = {}
    waiting = list(enumerate(urls))
    while len(results) < len(urls):
        while waiting and client.free:
            number, url = waiting.pop()
            client.submit(url, headers, number)
        results.update(client.poll(1.0))
    return [results[number] for number in range(len(urls))]


def _body(result: FetchResult) -> bytes:
    return decode(first_of(result.body, ECHO_BYTES), Head(result.head).content_encoding, ECHO_BYTES).body


def _anonymity(body: bytes, expected: Expected) -> str:
    if not expected.is_echo:
        return "unknown"
    if expected.own & set(_ADDRESS.findall(body)):
        return "transparent"
    return "anonymous" if _BETWEEN.search(body) else "elite"
