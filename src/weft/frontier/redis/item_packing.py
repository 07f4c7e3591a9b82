"""How a URL is encoded in Redis: without its site's key, and with a byte for the usual origins.

    rest = origin code, parent, path
    origin code   one byte: http or https, the key or www. and the key; else a byte, a length, the host's part before
                  the key
    parent        its length, its bytes (and one more for a URL outside the scope: its hops there)

Scripts read only the origin code, to look up its robots.txt. Nothing here is pickled.
"""

from __future__ import annotations

from typing import Any

from weft import urls

_SCHEMES = ("http://", "https://")
_BEFORE, _WHOLE = 4, 6  # the host's part before the key follows (4: http, 5: https), or the whole origin
_OFFSITE_BIT = 0x10


def origin_code(origin: str, key: str) -> bytes:
    """The code of an origin at a site."""
    secure = origin.startswith("https:")
    host = origin[8 if secure else 7 :]
    if host == key:
        return bytes((secure,))
    if not host.endswith("." + key):
        return _prefix_length(_WHOLE, origin)
    before = host[: -len(key)]
    return bytes((2 + secure,)) if before == "www." else _prefix_length(_BEFORE + secure, before)


def parent_code(parent: int, offsite: int = 0) -> bytes:
    """The code of a parent and of the hops outside the scope."""
    size = (parent.bit_length() + 7) // 8
    code = bytes((size | (_OFFSITE_BIT if offsite else 0),)) + parent.to_bytes(size, "big")
    return code + bytes((min(offsite, 255),)) if offsite else code


def unpack_entry(rest: bytes, key: str) -> tuple[str, str, int, int]:
    """Origin, path, parent and hops outside the scope."""
    kind = rest[0]
    if kind < _BEFORE:
        at = 1
        origin = _SCHEMES[kind & 1] + ("www." if kind > 1 else "") + key
    else:
        at = 3 + int.from_bytes(rest[1:3], "big")
        text = rest[3:at].decode()
        origin = text if kind == _WHOLE else _SCHEMES[kind & 1] + text + key
    size, offsite = rest[at] & 0x0F, 0
    parent = int.from_bytes(rest[at + 1 : at + 1 + size], "big")
    end = at + 1 + size
    if rest[at] & _OFFSITE_BIT:
        offsite = rest[end]
        end += 1
    return origin, rest[end:].decode(), parent, offsite


class OriginCodes:
    """A cache of politeness keys and origin codes by origin."""

    def __init__(self, scope: str, most: int = 200_000) -> None:
        self._by_domain = scope == "domain"
        self._most_cached = most
        self._cached_codes: dict[str, tuple[str, bytes]] = {}

    def key_and_code(self, origin: str) -> tuple[str, bytes]:
        """The key of an origin's site, and its code there."""
        key_and_code = self._cached_codes.get(origin)
        if key_and_code is None:
            if len(self._cached_codes) >= self._most_cached:
                self._cached_codes.clear()
            host = urls.host_of(origin + "/")
            key = urls.domain(host) if self._by_domain else host
            key_and_code = self._cached_codes[origin] = (key, origin_code(origin, key))
        return key_and_code


def _prefix_length(kind: int, text: str) -> bytes:
    data = text.encode()
    return bytes((kind,)) + len(data).to_bytes(2, "big") + data


def unpacked_breakers(data: bytes, key: str) -> dict[str, tuple[int, int]]:
    """A site's breakers as scripts pack them: by origin, until when each is open (0: closed), and failed probes."""
    breakers: dict[bytes, list[Any]] = _read_field(data, 0)[0]
    return {unpack_entry(code + b"\0", key)[0]: (one[0], one[1]) for code, one in breakers.items()}


def unpacked_item(data: bytes) -> list[Any]:
    """An item as a script packed it: integers, lists, and strings of any bytes, which msgpack decoders refuse."""
    fields: list[Any] = _read_field(data, 0)[0]
    return fields


def _read_field(data: bytes, at: int) -> tuple[Any, int]:
    kind = data[at]
    at += 1
    if kind < 0x80 or kind >= 0xE0:
        return (kind if kind < 0x80 else kind - 256), at
    if 0x90 <= kind < 0xA0:
        fields = []
        for _ in range(kind & 0x0F):
            field, at = _read_field(data, at)
            fields.append(field)
        return fields, at
    if 0x80 <= kind < 0x90 or kind == 0xDE:
        size = kind & 0x0F if kind != 0xDE else int.from_bytes(data[at : at + 2], "big")
        at += 2 if kind == 0xDE else 0
        named: dict[bytes, Any] = {}
        for _ in range(size):
            name, at = _read_field(data, at)
            named[name], at = _read_field(data, at)
        return named, at
    if 0xA0 <= kind < 0xC0:
        size = kind & 0x1F
        return data[at : at + size], at + size
    if 0xD9 <= kind <= 0xDB:
        width = 1 << (kind - 0xD9)
        size = int.from_bytes(data[at : at + width], "big")
        return data[at + width : at + width + size], at + width + size
    width = 1 << ((kind - 0xCC) & 3)
    return int.from_bytes(data[at : at + width], "big", signed=kind >= 0xD0), at + width
