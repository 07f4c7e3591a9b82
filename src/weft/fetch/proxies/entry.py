"""A proxy, and the forms in which lists contain one.

Lists of proxies exist in many forms: `host:port`, `host:port:user:password`, `user:password@host:port`, a URL; `tier=1`
and `country=DE` may follow. A password may contain `@` or `:`. An invalid entry is reported by its line number, never
by its text, which may contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
LONGEST_LINE = 2048
FIRST_TOLD = 5  # of the lines that cannot be read
_ALIASES = {"socks": "socks5", "ssl": "https"}
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})?")
_PLACE = re.compile(r"(?:\[[^\]@]*\]|[^:@]*):[0-9]+")
_TIER, _COUNTRY = re.compile(r"[0-9]{1,3}"), re.compile(r"[A-Za-z]{2}")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\]:([0-9]{1,5})")


class BadProxy(ValueError):
    """The error in an entry; the message contains no part of it that may be secret."""


class Proxy(Struct, frozen=True):
    """One proxy. With `socks4` and `socks5` names are resolved here, with `socks4a` and `socks5h` by the proxy."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""
    tier: int = 0  # 0: the cheapest
    country: str = ""

    @property
    def address(self) -> str:
        """Host and port, as in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def name(self) -> str:
        """Its name in messages: without its password."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        return f"{self.scheme}://{user}{self.address}"

    @property
    def url(self) -> str:
        """The URL with its password: two logins at one address are two proxies."""
        if not self.user and not self.password:
            return self.name
        return f"{self.scheme}://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{self.address}"

    @property
    def is_socks(self) -> bool:
        """Whether it relays bytes after a SOCKS handshake."""
        return self.scheme.startswith("socks")

    @property
    def resolves_names(self) -> bool:
        """Whether it is given names, and so reaches whatever they resolve to there."""
        return self.scheme not in ("socks4", "socks5")


class Listed(Struct):
    """The result of reading a list of proxies."""

    proxies: list[Proxy]
    duplicates: int = 0
    rejected: list[tuple[int, str]] = []  # line number and error

    @property
    def unreadable(self) -> str:
        """The invalid lines: their number, and the first of them; empty if all are valid."""
        if not self.rejected:
            return ""
        count = len(self.rejected)
        first = ", ".join(f"line {line} ({what})" for line, what in self.rejected[:FIRST_TOLD])
        more = f" and {count - FIRST_TOLD:,} more" if count > FIRST_TOLD else ""
        return f"{count:,} {'line' if count == 1 else 'lines'} cannot be read: {first}{more}"


def parse(text: str, *, scheme: str = "http", tier: int = 0) -> Proxy:
    """Parses an entry. `scheme`: the default."""
    if len(text) > LONGEST_LINE:
        raise BadProxy(f"is longer than {LONGEST_LINE} characters")
    named, mark, rest = text.strip().partition("://")
    if mark:
        scheme = named.lower()
        scheme = _ALIASES.get(scheme, scheme)
    else:
        rest = named
    if scheme not in SCHEMES:
        raise BadProxy(f"its scheme is none of {', '.join(SCHEMES)}")
    rest = rest.rstrip("/")
    login, _, where = rest.rpartition("@")
    if not _PLACE.fullmatch(where) and (found := _with_trailing_login(rest)) is not None:
        where, user, password = found
    else:
        user, _, password = (unquote(part) for part in login.partition(":"))
    host, port = _place(where)
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in user + password):
        raise BadProxy("its login has control characters")
    return Proxy(scheme, host, port, user, password, tier)


def parse_list(lines: Iterable[str], *, scheme: str = "http", tier: int = 0) -> Listed:
    """Every entry once, in order; empty lines and lines with a leading `#` are skipped."""
    listed, known = Listed([]), set[str]()
    for number, line in enumerate(lines, 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        try:
            proxy = _with_fields(entry, scheme, tier)
        except BadProxy as error:
            listed.rejected.append((number, str(error)))
            continue
        if proxy.url in known:
            listed.duplicates += 1
            continue
        known.add(proxy.url)
        listed.proxies.append(proxy)
    return listed


def with_facts(proxy: Proxy, facts: Mapping[str, str]) -> Proxy:
    """Adds the attributes of an entry: `tier`, `country`."""
    found: dict[str, str | int] = {}
    if "tier" in facts:
        if not _TIER.fullmatch(facts["tier"]):
            raise BadProxy("its tier is not a number from 0 to 999")
        found["tier"] = int(facts["tier"])
    if facts.get("country"):
        if not _COUNTRY.fullmatch(facts["country"]):
            raise BadProxy("its country is not a code of two letters")
        found["country"] = facts["country"].upper()
    return replace(proxy, **found) if found else proxy


def _with_fields(entry: str, scheme: str, tier: int) -> Proxy:
    """`ENTRY tier=1 country=DE`."""
    if " " not in entry and "\t" not in entry:
        return parse(entry, scheme=scheme, tier=tier)
    first, *fields = entry.split()
    if not all(field.startswith(("tier=", "country=")) for field in fields):
        return parse(entry, scheme=scheme, tier=tier)
    facts = dict(field.split("=", 1) for field in fields)
    return with_facts(parse(first, scheme=scheme, tier=tier), facts)


def _with_trailing_login(text: str) -> tuple[str, str, str] | None:
    """`host:port:user:password`, as sellers of proxies write it; the password is the rest of the text."""
    parts = text.split(":", 3)
    if len(parts) < 3 or text.startswith("[") or not parts[1].isdecimal():
        return None
    return f"{parts[0]}:{parts[1]}", parts[2], parts[3] if len(parts) > 3 else ""


def _place(text: str) -> tuple[str, int]:
    if found := _BRACKETED.fullmatch(text):
        host, port = found.groups()
    else:
        host, _, port = text.partition(":")
        if not _HOST.fullmatch(host):
            raise BadProxy("its host is not a name or an address")
    if not port:
        raise BadProxy("it has no port")
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise BadProxy("its port is not a number from 1 to 65535")
    return host.lower(), int(port)
