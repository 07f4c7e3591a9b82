"""How URLs lie in Redis."""

from __future__ import annotations

import pytest

from weft.frontier.redis.packing import Keys, origin_code, parent_code, unpacked, unpacked_item


@pytest.mark.parametrize(
    ("origin", "key", "size"),
    [
        ("http://example.com", "example.com", 1),
        ("https://example.com", "example.com", 1),
        ("http://www.example.com", "example.com", 1),
        ("https://www.example.com", "example.com", 1),
        ("https://blog.example.com", "example.com", 8),
        ("http://a.b.example.com", "example.com", 7),
        ("https://example.com:8443", "example.com", 27),
        ("http://[::1]", "[::1]", 1),
        ("http://www.example.com", "www.example.com", 1),
        ("https://notexample.com", "example.com", 25),
    ],
)
@pytest.mark.parametrize("path", ["/", "/a/b.html?q=1", "/ünïcode/" + "x" * 1900])
@pytest.mark.parametrize(("parent", "offsite"), [(0, 0), (255, 0), ((15 << 48) + 7, 0), (1 << 62, 3)])
def test_what_is_packed_comes_out_again(origin: str, key: str, size: int, path: str, parent: int, offsite: int) -> None:
    code = origin_code(origin, key)
    assert len(code) == size
    rest = code + parent_code(parent, offsite) + path.encode()
    assert unpacked(rest, key) == (origin, path, parent, offsite)


def test_a_scripts_lists_are_read_whatever_bytes_are_in_them() -> None:
    packed = bytes.fromhex("97 01 ff cd0400 d3ffffffffffff0000 a2ff00 92 7f a0 d90121")
    assert unpacked_item(packed) == [1, -1, 1024, -65536, b"\xff\x00", [127, b""], b"!"]


def test_keys_follow_the_politeness_scope_and_are_forgotten_when_there_are_too_many() -> None:
    by_domain, by_host = Keys("domain", most=2), Keys("host")
    assert by_domain.of("http://www.example.co.uk") == ("example.co.uk", b"\x02")
    assert by_host.of("http://www.example.co.uk") == ("www.example.co.uk", b"\x00")
    for number in range(5):
        assert by_domain.of(f"https://site{number}.com") == (f"site{number}.com", b"\x01")
    assert len(by_domain._known) <= 2
