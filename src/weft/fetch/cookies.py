"""Keeps the cookies of one crawl (RFC 6265) and selects those for a request. No I/O; the clock is passed in.

Cookies are stored by the host or domain they are for. A host without any costs a dict miss for each of its labels.

What must stay true: a cookie is only ever sent to the host that set it or, with a Domain attribute, to hosts under the
same registrable domain; it contains no control character; and memory is bounded: 50 cookies of 4,096 bytes for each
host or domain, 16 MiB in all. Over that, the least recently used hosts and domains are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

MAX_COOKIES = 50  # of one host or domain
MAX_COOKIE_BYTES = 4096  # name and value
MAX_PATH_BYTES = 1024
MAX_TOTAL_BYTES = 16 * 1024 * 1024
MAX_AGE_S = 400 * 86400  # RFC 6265bis: no cookie outlives this
COOKIE_OVERHEAD_BYTES = 300

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DATE_SPLIT = re.compile(r"[\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_CLOCK = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


class Cookie(msgspec.Struct, frozen=True, array_like=True):
    """One cookie of a host or domain."""

    name: str
    value: str
    path: str
    wide: bool  # also sent to subdomains
    secure: bool
    expires: float | None  # None: at the end of the crawl
    created: float

    @property
    def size(self) -> int:
        return len(self.name) + len(self.value) + len(self.path) + COOKIE_OVERHEAD_BYTES


class CookieJar:
    """`registrable(host)` returns the registrable domain; hosts that have none (addresses, suffixes) are their own."""

    def __init__(self, registrable: Callable[[str], str], max_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._registrable = registrable
        self._max_bytes = max_bytes
        self._size = 0
        # Least recently used first. The inner key identifies a cookie, for replacement: its name and path.
        self._cookies: dict[str, dict[tuple[str, str], Cookie]] = {}
        self._within: dict[str, set[str]] = {}  # by registrable domain: the hosts and domains that have cookies

    def __len__(self) -> int:
        return sum(map(len, self._cookies.values()))

    def store(self, host: str, path: str, secure: bool, set_cookie: Iterable[str], now: float) -> None:
        """Stores the Set-Cookie values of one response; invalid ones are ignored. `path` may include a query."""
        for header in set_cookie:
            parsed = self._parse(host, path, secure, header, now)
            if parsed is not None:
                self._put(*parsed, secure, now)

    def header(self, host: str, path: str, secure: bool, now: float) -> str | None:
        """The value of the Cookie header for a request; None if it has none."""
        if not self._cookies:
            return None
        found = list(self._matching(host, path.partition("?")[0], secure, now))
        if not found:
            return None
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.created))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in found)

    def to_bytes(self) -> bytes:
        """All cookies, for `from_bytes`."""
        return msgspec.msgpack.encode([(name, list(cookies.values())) for name, cookies in self._cookies.items()])

    @classmethod
    def from_bytes(cls, data: bytes, registrable: Callable[[str], str], max_bytes: int = MAX_TOTAL_BYTES) -> CookieJar:
        """The jar that `to_bytes` saved; raises `msgspec.DecodeError` for other bytes."""
        jar = cls(registrable, max_bytes)
        for name, cookies in msgspec.msgpack.decode(data, type=list[tuple[str, list[Cookie]]]):
            jar._keep(name, {(cookie.name, cookie.path): cookie for cookie in cookies})
        jar._size = sum(cookie.size for cookies in jar._cookies.values() for cookie in cookies.values())
        jar._forget_unused()
        return jar

    def values(self) -> dict[str, str]:
        """The value of each cookie by its name; of several of one name the last that was used."""
        return {cookie.name: cookie.value for cookies in self._cookies.values() for cookie in cookies.values()}

    def contents(self, base: str) -> frozenset[tuple[str, str, str, str]]:
        """The cookies of a domain and its subdomains: host or domain, name, path and value of each."""
        return frozenset(
            (name, cookie.name, cookie.path, cookie.value)
            for name in self._within.get(base, ())
            for cookie in self._cookies[name].values()
        )

    def dump(self, base: str) -> bytes:
        """The cookies of a domain and its subdomains, for `load`."""
        kept = [(name, list(self._cookies[name].values())) for name in sorted(self._within.get(base, ()))]
        return msgspec.msgpack.encode((base, kept))

    def load(self, data: bytes) -> None:
        """Replaces a domain's cookies by dumped ones."""
        base, kept = msgspec.msgpack.decode(data, type=tuple[str, list[tuple[str, list[Cookie]]]])
        for name in list(self._within.get(base, ())):
            self._forget(name)
        for name, cookies in kept:
            self._keep(name, {(cookie.name, cookie.path): cookie for cookie in cookies})
            self._size += sum(cookie.size for cookie in cookies)
        self._forget_unused()

    def _parse(self, host: str, path: str, secure: bool, header: str, now: float) -> tuple[str, Cookie] | None:
        """A cookie and the host or domain it is for; None when it may not be set."""
        pair, *rest = header.split(";")
        name, equals, value = (part.strip(" \t") for part in pair.partition("="))
        if not equals or not name or len(name) + len(value) > MAX_COOKIE_BYTES or _CONTROL.search(header):
            return None
        attributes = {
            key.strip(" \t").lower(): text.strip(" \t") for key, _, text in (part.partition("=") for part in rest)
        }
        domain = attributes.get("domain", "").lower().removeprefix(".")
        under = self._under(host, domain)
        cookie = Cookie(
            name=name,
            value=value,
            path=_cookie_path(attributes.get("path", ""), path),
            wide=bool(domain),
            secure="secure" in attributes,
            expires=_expiry(attributes, now),
            created=now,
        )
        return (under, cookie) if under is not None and _permitted(cookie, secure, attributes) else None

    def _under(self, host: str, domain: str) -> str | None:
        """The host or domain that a cookie is for; None when this host may not set it."""
        if not domain or domain == host:
            return host
        base = self._registrable(host)
        inside = host.endswith("." + domain) and (domain == base or domain.endswith("." + base))
        return domain if inside else None

    def _put(self, under: str, cookie: Cookie, secure: bool, now: float) -> None:
        """Adds or replaces a cookie; one that has expired only removes its predecessor."""
        cookies = self._cookies.pop(under, {})
        key = (cookie.name, cookie.path)
        old = cookies.get(key)
        if old is not None and old.secure and not secure:
            self._cookies[under] = cookies  # plain HTTP may not replace what was set over TLS
            return
        self._drop(cookies, key)
        if cookie.expires is None or cookie.expires > now:
            cookies[key] = cookie if old is None else msgspec.structs.replace(cookie, created=old.created)
            self._size += cookie.size
            if len(cookies) > MAX_COOKIES:
                self._drop(cookies, min(cookies, key=lambda each: _staleness(cookies[each], now)))
        self._keep(under, cookies)
        if cookies:
            self._forget_unused()
        else:
            self._forget(under)

    def _drop(self, cookies: dict[tuple[str, str], Cookie], key: tuple[str, str]) -> None:
        if key in cookies:
            self._size -= cookies.pop(key).size

    def _forget_unused(self) -> None:
        """Keeps to the total size by dropping the least recently used hosts and domains."""
        while self._size > self._max_bytes:
            self._forget(next(iter(self._cookies)))

    def _keep(self, name: str, cookies: dict[tuple[str, str], Cookie]) -> None:
        self._cookies[name] = cookies
        self._within.setdefault(self._registrable(name), set()).add(name)

    def _forget(self, name: str) -> None:
        self._size -= sum(cookie.size for cookie in self._cookies.pop(name).values())
        base = self._registrable(name)
        self._within[base].discard(name)
        if not self._within[base]:
            del self._within[base]

    def _matching(self, host: str, path: str, secure: bool, now: float) -> Iterator[Cookie]:
        """The cookies for a request, those of the domains above the host included."""
        name, dot = host, "."
        while dot:
            cookies = self._cookies.get(name)
            if cookies and (name == host or self._above(name, host)):
                self._cookies[name] = self._cookies.pop(name)
                for cookie in list(cookies.values()):
                    if cookie.expires is not None and cookie.expires <= now:
                        self._drop(cookies, (cookie.name, cookie.path))
                    elif (cookie.wide or name == host) and (secure or not cookie.secure) and _covers(cookie.path, path):
                        yield cookie
                if not cookies:
                    self._forget(name)
            _, dot, name = name.partition(".")

    def _above(self, domain: str, host: str) -> bool:
        """Whether a domain above the host is still within its registrable domain."""
        base = self._registrable(host)
        return domain == base or domain.endswith("." + base)


def with_cookies(given: str, stored: str) -> str:
    """Merges the Cookie header of a crawl's settings with that of its jar: a cookie set by the site replaces a
    configured one of the same name.
    """
    names = {pair.partition("=")[0].strip() for pair in stored.split(";")}
    kept = [pair.strip() for pair in given.split(";") if pair.strip() and pair.partition("=")[0].strip() not in names]
    return "; ".join([*kept, stored])


def _staleness(cookie: Cookie, now: float) -> tuple[bool, float]:
    """Sort key for eviction: the expired first, then the oldest."""
    return cookie.expires is None or cookie.expires > now, cookie.created


def _permitted(cookie: Cookie, secure: bool, attributes: dict[str, str]) -> bool:
    """The rules for Secure and for the prefixes __Host- and __Secure- (RFC 6265bis §4.1.3)."""
    if cookie.secure and not secure:
        return False
    prefix = cookie.name.lower()
    if prefix.startswith("__host-"):
        return cookie.secure and not attributes.get("domain") and attributes.get("path") == "/"
    return cookie.secure or not prefix.startswith("__secure-")


def _cookie_path(wanted: str, request_path: str) -> str:
    """The path that a cookie is for: the one it names, else the directory of the page that set it."""
    if wanted.startswith("/") and len(wanted) <= MAX_PATH_BYTES:
        return wanted
    directory = request_path.partition("?")[0].rpartition("/")[0]
    return directory if directory.startswith("/") and len(directory) <= MAX_PATH_BYTES else "/"


def _covers(cookie_path: str, path: str) -> bool:
    """Whether a path is the cookie's, or below it."""
    if not path.startswith(cookie_path):
        return False
    return cookie_path.endswith("/") or path[len(cookie_path) :][:1] in ("", "/")


def _expiry(attributes: dict[str, str], now: float) -> float | None:
    """When the cookie ends: Max-Age before Expires; None for the end of the crawl."""
    age = attributes.get("max-age", "")
    if re.fullmatch(r"-?[0-9]+", age):
        return now + min(int(age[:10]), MAX_AGE_S) if age[0] != "-" else now
    moment = _moment(attributes.get("expires", ""))
    return None if moment is None else min(moment, now + MAX_AGE_S)


def _moment(text: str) -> float | None:
    """A cookie date (RFC 6265 §5.1.1): clock, day, month and year in any order and with anything between them."""
    clock: list[int] = []
    day = month = year = 0
    for token in _DATE_SPLIT.split(text[:100]):
        if not clock and (match := _CLOCK.match(token)):
            clock = [int(number) for number in match.groups()]
        elif not day and (match := _DAY.match(token)):
            day = int(match[1])
        elif not month and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif not year and (match := _YEAR.match(token)):
            year = int(match[1])
            year += 1900 if 70 <= year <= 99 else 2000 if year < 70 else 0
    if not clock or year < 1601:
        return None
    try:
        return datetime(year, month, day, clock[0], clock[1], clock[2], tzinfo=UTC).timestamp()
    except ValueError:
        return None
