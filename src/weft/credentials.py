"""Where request headers and logins may go: the origins of a crawl's seeds, or the host that a setting names.

`headers` maps a header's name, or `HOST:Name`, to its value; `auth` maps a host to `USER:PASSWORD`. A header whose name
is known to be harmless goes to every site. Every other header is a credential, and so is a login.

- A credential without a host goes to the origins of the crawl's seeds, and to their https upgrade on the same host.
- `HOST` names https://HOST, and the seeds' origins on that host. `HOST:PORT` names one port of it.
- `http://HOST` and `https://HOST:PORT` name exactly one origin; one of http includes its https upgrade.

Invariant: no credential is sent to another host or port, nor from https to http, however a site links or redirects: the
origin of each single request decides. Which seeds count is the caller's decision (docs/decisions/0052); the caller also
keeps their origins, so that a resumed crawl has the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from weft import urls
from weft.errors import BadInput, BadUrl

MOST_ORIGINS = 1000
HARMLESS = frozenset({
    "accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "dnt", "from",
    "host", "if-modified-since", "if-none-match", "pragma", "priority", "range", "referer", "te",
    "upgrade-insecure-requests", "user-agent",
})  # fmt: skip
# Set by the client alone: callers may not choose where a request goes or how its connection is used.
OURS = frozenset({"host", "connection", "keep-alive", "content-length", "transfer-encoding", "te", "upgrade", "expect"})
_KNOWN = HARMLESS | {"authorization", "cookie", "proxy-authorization"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PORTS = {"http": "80", "https": "443"}
Header = tuple[str, str]


class Target:
    """The host that a setting names."""

    __slots__ = ("_host", "_is_exact", "_port", "origin")

    def __init__(self, text: str) -> None:
        """BadUrl for a text that names no host."""
        self._is_exact = "://" in text
        rest = text.partition("://")[2] if self._is_exact else text
        if not rest or re.search(r"[/?#@\\*\s]", rest):
            raise BadUrl(text, "syntax", "not a host: write HOST, HOST:PORT or https://HOST")
        self.origin = urls.origin_of(urls.canonical(text if self._is_exact else f"https://{text}"))
        self._host = urls.host_of(self.origin + "/")
        self._port = _port_of(self.origin) if re.search(r":[0-9]+\Z", rest) else ""

    def admits(self, seed_origin: str) -> bool:
        """Whether it means the origin of a seed, too."""
        return (
            not self._is_exact
            and urls.host_of(seed_origin + "/") == self._host
            and self._port in ("", _port_of(seed_origin))
        )


class Credentials:
    """The headers and logins of one crawl, by the origins that they go to."""

    def __init__(self, headers: Mapping[str, str], logins: Mapping[str, str], origins: Iterable[str] = ()) -> None:
        """`origins`: of the seeds, as `seed_origins` returns them."""
        self._open: list[Header] = []  # credentials without a host
        self._named: list[tuple[Target, Header]] = []
        for key, value in headers.items():
            host, name = split_name(key)
            if host:
                self._named.append((Target(host), (name, value)))
            elif name.lower() not in HARMLESS:
                self._open.append((name, value))
        self._logins = [(Target(host), login) for host, login in logins.items()]
        self._trusted: set[str] = set()
        self._named_of: dict[str, list[Header]] = {}
        self._login_of: dict[str, str] = {}
        for target, header in self._named:
            self._add_header(target.origin, header)
        for target, login in self._logins:
            self._add_login(target.origin, login)
        for origin in origins:
            self.trust(origin)

    def trust(self, origin: str) -> None:
        """Adds the origin of a seed."""
        self._trusted.update(with_upgrade(origin))
        for target, header in self._named:
            if target.admits(origin):
                self._add_header(origin, header)
        for target, login in self._logins:
            if target.admits(origin):
                self._add_login(origin, login)

    def headers_for(self, origin: str) -> Sequence[Header]:
        """The headers sent to this origin beyond those that go to every site; one that names the host comes first."""
        named = self._named_of.get(origin, [])
        if not self._open or origin not in self._trusted:
            return named
        names = {name.lower() for name, _ in named}
        return [*named, *(header for header in self._open if header[0].lower() not in names)]

    def login_for(self, origin: str) -> str | None:
        """The login for this origin, `USER:PASSWORD`."""
        return self._login_of.get(origin)

    def _add_header(self, origin: str, header: Header) -> None:
        for one in with_upgrade(origin):
            others = [other for other in self._named_of.get(one, ()) if other[0].lower() != header[0].lower()]
            self._named_of[one] = [*others, header]

    def _add_login(self, origin: str, login: str) -> None:
        for one in with_upgrade(origin):
            self._login_of[one] = login


def split_name(key: str) -> tuple[str, str]:
    """The host, or nothing, and the header's name in a key of `headers`."""
    host, _, name = key.rpartition(":")
    return host.strip(), name.strip()


def exact_host(text: str) -> str:
    """A host as one origin, so that no seed adds another: for credentials whose owner does not choose the seeds."""
    return Target(text).origin


def exact_name(key: str) -> str:
    """A key of `headers` with its host, if it has one, as one origin."""
    host, name = split_name(key)
    return f"{exact_host(host)}:{name}" if host else key


def harmless(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that go to every site."""
    return {key: value for key, value in headers.items() if key.strip().lower() in HARMLESS}


def without_host(headers: Mapping[str, str]) -> list[str]:
    """The names of credentials among the headers that name no host."""
    return [key for key in headers if ":" not in key and key.strip().lower() not in HARMLESS]


def wrong_header(key: str, value: str) -> str:
    """The error in a header of the settings; empty if it can be sent."""
    host, name = split_name(key)
    if not _NAME.fullmatch(name) or re.search(r"[\r\n\0]", value):
        return f"{key!r} is not a header that can be sent"
    if name.lower() in OURS:
        other = "; `resolve` sends the requests for a host elsewhere" if name.lower() == "host" else ""
        return f"{key!r}: {name} is set for each request, and cannot be given{other}"
    if host.lower() in _KNOWN or host.lower().startswith("x-"):  # `Cookie:a=b`
        return f"{key!r} reads as the header {name} for the host {host}: write {host}=VALUE, or HOST:{host}=VALUE"
    return wrong_host(host) if ":" in key else ""


def wrong_host(text: str) -> str:
    """The error in the host of a header or login; empty if there is none."""
    try:
        Target(text)
    except BadUrl as bad:
        return str(bad)
    return ""


def seed_origins(
    seeds: Iterable[str], headers: Mapping[str, str], logins: Mapping[str, str], known: Iterable[str] = ()
) -> list[str]:
    """The origins of seeds that credentials go to, added to those that are `known`; BadInput if they are too many.

    Reads no seed if no credential depends on them.
    """
    open_ones = without_host(headers)
    hosts = [split_name(key)[0] for key in headers if ":" in key]
    targets = [Target(host) for host in (*hosts, *logins)]
    origins = dict.fromkeys(known)
    if not open_ones and not targets:
        return list(origins)
    for seed in seeds:
        origin = urls.origin_of(seed)
        if origin in origins or not (open_ones or any(target.admits(origin) for target in targets)):
            continue
        origins[origin] = None
        if len(origins) > MOST_ORIGINS:
            raise BadInput(
                f"{open_ones[0] if open_ones else 'a login'} would go to more than {MOST_ORIGINS:,} hosts: the seeds "
                "have so many, and it may be a credential. Name its host: `headers={'HOST:NAME': 'VALUE'}`"
            )
    return list(origins)


def with_upgrade(origin: str) -> tuple[str, ...]:
    """An origin and, if it is http, the same host and port over https. Port 80 becomes 443 (RFC 6797)."""
    if origin.startswith("https:"):
        return (origin,)
    return origin, ("https" + origin.removeprefix("http")).removesuffix(":443")


def _port_of(origin: str) -> str:
    scheme, _, authority = origin.partition("://")
    port = authority.rpartition(":")[2] if not authority.endswith("]") and ":" in authority else ""
    return port or _PORTS[scheme]
