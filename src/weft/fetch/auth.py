"""Answers a 401: Basic (RFC 7617) and Digest (RFC 7616: MD5, SHA-256 and their -sess forms, qop auth).

The strongest challenge that is offered and understood is answered, Digest before Basic. The module is stateless: the
caller counts its answers to a challenge, each of which is for one URL, and decides whether a host may get these
credentials at all. Values from a server's challenge are sent back quoted and escaped, so they cannot inject headers.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import md5, sha256
from urllib.parse import urlsplit

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's token
_ITEM = re.compile(
    rf'(?P<name>{_TOKEN})[ \t]*=[ \t]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"=]+)(?=[ \t]*(?:,|$)))'
    rf"|(?P<scheme>{_TOKEN})(?:[ \t]+[0-9A-Za-z._~+/-]+=*(?=[ \t]*(?:,|$)))?"
)
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f]")
_HASHES: dict[str, Callable[[bytes], str]] = {
    "md5": lambda data: md5(data, usedforsecurity=False).hexdigest(),
    "sha-256": lambda data: sha256(data).hexdigest(),
}
_BASIC, _MD5, _SHA256 = 1, 2, 3
_STRENGTH = {"md5": _MD5, "md5-sess": _MD5, "sha-256": _SHA256, "sha-256-sess": _SHA256}


@dataclass(frozen=True, slots=True)
class Challenge:
    """A scheme of authentication that a server offers."""

    scheme: str
    params: dict[str, str] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """Digest's hash, in lower case."""
        return self.params.get("algorithm", "MD5").lower()

    @property
    def strength(self) -> int:
        """Higher is safer; 0: not supported."""
        if self.scheme == "basic":
            return _BASIC
        qop = self.params.get("qop")
        if self.scheme != "digest" or "nonce" not in self.params or (qop and "auth" not in _list(qop)):
            return 0
        return _STRENGTH.get(self.algorithm, 0)


def authorization(
    www_authenticate_values: Sequence[str],
    user: str,
    password: str,
    method: str,
    url: str,
    *,
    count: int = 1,
    cnonce: str | None = None,
) -> str | None:
    """The Authorization header for the strongest challenge, or None if none is understood.

    `count` is 1 for the first answer to a challenge and grows by one with each further one: servers refuse repetitions.
    """
    challenges = [c for value in www_authenticate_values for c in parse(value)]
    best = max(challenges, key=lambda c: c.strength, default=None)
    if best is None or best.strength == 0:
        return None
    if best.scheme == "basic":
        return "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    return _digest(best, user, password, method, url, count, cnonce or secrets.token_hex(16))


def parse(value: str) -> Iterator[Challenge]:
    """The challenges in one WWW-Authenticate value."""
    current: Challenge | None = None
    for item in _ITEM.finditer(value):
        if item["scheme"] is not None:
            if current is not None:
                yield current
            current = Challenge(item["scheme"].lower())
        elif current is not None:
            text = item["bare"] if item["quoted"] is None else re.sub(r"\\(.)", r"\1", item["quoted"])
            current.params.setdefault(item["name"].lower(), _UNSENDABLE.sub("", text))
    if current is not None:
        yield current


def _digest(challenge: Challenge, user: str, password: str, method: str, url: str, count: int, cnonce: str) -> str:
    params, uri = challenge.params, _target(url)
    session = challenge.algorithm.endswith("-sess")
    digest = _HASHES[challenge.algorithm.removesuffix("-sess")]
    realm, nonce = params.get("realm", ""), params["nonce"]
    secret = digest(f"{user}:{realm}:{password}".encode())
    if session:
        secret = digest(f"{secret}:{nonce}:{cnonce}".encode())
    request = digest(f"{method}:{uri}".encode())
    fields = [("username", user), ("realm", realm), ("nonce", nonce), ("uri", uri)]
    plain = []
    if params.get("qop"):
        response = digest(f"{secret}:{nonce}:{count:08x}:{cnonce}:auth:{request}".encode())
        plain = ["qop=auth", f"nc={count:08x}"]
        fields.append(("cnonce", cnonce))
    else:  # RFC 2069, still in use
        response = digest(f"{secret}:{nonce}:{request}".encode())
        if session:
            fields.append(("cnonce", cnonce))
    fields.append(("response", response))
    if "opaque" in params:
        fields.append(("opaque", params["opaque"]))
    if "algorithm" in params:
        plain.append(f"algorithm={params['algorithm']}")
    return "Digest " + ", ".join([f"{name}={_quoted(value)}" for name, value in fields] + plain)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query or "?" in url.partition("#")[0] else "")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(value: str) -> list[str]:
    return [part.strip().lower() for part in value.split(",")]
