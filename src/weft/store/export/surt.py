"""The sort-friendly key of a URL, as the Internet Archive's tools make it: `com,example)/path?a=1`.

Keys must equal those of other tools, or a page is not found: so a URL is unescaped repeatedly until that changes
nothing, escaped once, stripped of `www.`, session ids and a last slash, lower-cased, and its query is sorted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SAFE_CHARS = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_match_plain = re.compile(r"[a-z0-9/._~-]*").fullmatch
_match_www = re.compile(r"www\d*\.").match
_PATH_SESSIONS = (
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)", re.IGNORECASE | re.DOTALL),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)", re.IGNORECASE | re.DOTALL),
)
_QUERY_SESSIONS = tuple(
    re.compile(rf"(.*){name}(?:&(.*))?", re.IGNORECASE | re.DOTALL)
    for name in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
)


def surt_key(url: str) -> str:
    """The key of a canonical URL."""
    start = url.index("//") + 2
    end = url.index("/", start)
    path, mark, query = url[end:].partition("?")
    key = _authority_part(url[start:end], url[: start - 3]) + ")" + _path_part(path)
    query = _query_part(query) if mark else ""
    return f"{key}?{query}" if query else key


@lru_cache(maxsize=4096)
def _authority_part(authority: str, scheme: str) -> str:
    """The host's labels from last to first, and the port if it is not the scheme's default."""
    host, _, port = authority.partition(":") if not authority.startswith("[") else (authority, "", "")
    host = host.replace("..", ".").strip(".")
    if www := _match_www(host):
        host = host[www.end() :]
    usual = {"http": "80", "https": "443"}.get(scheme)
    return ",".join(reversed(host.split("."))) + (f":{port}" if port and port != usual else "")


def _path_part(path: str) -> str:
    if _match_plain(path) and "//" not in path and "/." not in path:
        key = path
    else:
        key = _escape(_normal_path(_unescape(path))).lower()
        for pattern in _PATH_SESSIONS:
            if session := pattern.fullmatch(key):
                key = session[1] + session[2]
    return key[:-1] if key.endswith("/") and len(key) > 1 else key


def _normal_path(path: bytes) -> bytes:
    """The path without empty segments, `.` and `..`; a last slash is kept."""
    kept: list[bytes] = []
    for part in path.split(b"/")[1:]:
        if part == b".." and kept:
            kept.pop()
        elif part != b".":
            kept.append(part)
    middle = [part for part in kept[:-1] if part]
    return b"/" + b"/".join([*middle, *kept[-1:]])


def _query_part(query: str) -> str:
    key = _escape(_unescape(query))
    for pattern in _QUERY_SESSIONS:
        if session := pattern.fullmatch(key):
            key = session[1] + (session[2] or "")
    key = key.lower()
    if len(key) <= 1:
        return key
    return "&".join("=".join(pair) for pair in sorted(tuple(part.split("=", 1)) for part in key.split("&")))


def _unescape(text: str) -> bytes:
    data = text.encode()
    while b"%" in data:
        plain = unquote_to_bytes(data)
        if plain == data:
            break
        data = plain
    return data


def _escape(data: bytes) -> str:
    return quote_from_bytes(data, safe=_SAFE_CHARS)
