"""Collects proxies from files, URLs of lists, and entries in the settings, each of them once.

A source may say more about its proxies after a `#`: `premium.txt#tier=1&country=DE&scheme=socks5`. A list of such URLs
is asked for as any page is: behind the address guard, with limits of size and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from weft.bodies import first_of
from weft.errors import BadInput
from weft.fetch.decode import decode
from weft.fetch.headers import Head
from weft.fetch.proxies.entry import SCHEMES, BadProxy, Listed, Proxy, parse, parse_list, with_facts
from weft.fetch.proxies.live import LARGEST_BYTES
from weft.records import FetchResult

Get = Callable[[Sequence[str]], list[FetchResult]]  # asks for URLs, in their order
_MORE = re.compile(r"(.*)#((?:(?:tier|country|scheme)=[^&=]*&?)+)")


class ProxySource(Struct, frozen=True):
    """A source, and the attributes of all its proxies."""

    place: str
    scheme: str = "http"
    tier: int = 0
    country: str = ""

    @property
    def is_url(self) -> bool:
        """Whether its list must be downloaded: a proxy has a port and no path."""
        return bool(re.match(r"https?://[^/]+/.", self.place))


class Collected(Struct):
    """The proxies of all sources."""

    proxies: list[Proxy]
    duplicates: int = 0
    rejected: int = 0
    problems: list[str] = []  # sources that yielded nothing, or have invalid lines


def source_of(text: str) -> ProxySource:
    """Parses a source; BadInput names its error."""
    found = _MORE.fullmatch(text.strip())
    if found is None:
        return ProxySource(text.strip())
    facts = dict(part.split("=", 1) for part in found[2].split("&") if part)
    tier = facts.get("tier", "0")
    if not tier.isascii() or not tier.isdecimal() or len(tier) > 3:
        raise BadInput(f"proxy_sources: tier={tier!r} is no number from 0 to 999")
    if (scheme := facts.get("scheme", "http")) not in SCHEMES:
        raise BadInput(f"proxy_sources: scheme={scheme!r} is none of {', '.join(SCHEMES)}")
    return ProxySource(found[1], scheme, int(tier), facts.get("country", ""))


def collect(sources: Sequence[str], get: Get) -> Collected:
    """Reads the sources; an unreadable one is reported, and the others count."""
    found, known = Collected([]), set[str]()
    parsed = [source_of(text) for text in sources if text.strip()]
    wanted = [source.place for source in parsed if source.is_url]
    answers = dict(zip(wanted, get(wanted), strict=True)) if wanted else {}
    for source in parsed:
        listed = _listed(source, answers.get(source.place), found.problems)
        found.rejected += len(listed.rejected)
        found.duplicates += listed.duplicates
        if listed.unreadable:
            found.problems.append(f"{_shown(source)}: {listed.unreadable}")
        for proxy in listed.proxies:
            if proxy.url in known:
                found.duplicates += 1
                continue
            known.add(proxy.url)
            found.proxies.append(with_facts(proxy, {"country": source.country} if not proxy.country else {}))
    return found


def _listed(source: ProxySource, answer: FetchResult | None, problems: list[str]) -> Listed:
    if answer is not None:
        if answer.error or answer.status != 200:
            problems.append(f"{_shown(source)}: {answer.error or f'HTTP {answer.status}'} {answer.detail}".rstrip())
            return Listed([])
        body = decode(first_of(answer.body, LARGEST_BYTES), Head(answer.head).content_encoding, LARGEST_BYTES).body
        return parse_list(body.decode("utf-8", "replace").splitlines(), scheme=source.scheme, tier=source.tier)
    path = Path(source.place)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return parse_list(file, scheme=source.scheme, tier=source.tier)
    except (OSError, ValueError) as error:
        try:
            return Listed([parse(source.place, scheme=source.scheme, tier=source.tier)])
        except BadProxy:
            problems.append(f"{_shown(source)}: {getattr(error, 'strerror', None) or 'is no file, URL or proxy'}")
            return Listed([])


def _shown(source: ProxySource) -> str:
    """The source without a login, for messages."""
    return source.place.rpartition("@")[2]
