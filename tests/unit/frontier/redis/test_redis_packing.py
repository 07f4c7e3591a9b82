"""How URLs lie in Redis."""

from __future__ import annotations

import pytest

from weft.frontier.redis.item_packing import OriginCodes, origin_code, parent_code, unpack_entry, unpacked_item


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
    assert unpack_entry(rest, key) == (origin, path, parent, offsite)


def test_a_scripts_lists_are_read_whatever_bytes_are_in_them() -> None:
    packed = bytes.fromhex("97 01 ff cd0400 d3ffffffffffff0000 a2ff00 92 7f a0 d90121")
    assert unpacked_item(packed) == [1, -1, 1024, -65536, b"\xff\x00", [127, b""], b"!"]


def test_keys_follow_the_politeness_scope_and_are_forgotten_when_there_are_too_many() -> None:
    by_domain, by_host = OriginCodes("domain", most=2), OriginCodes("host")
    assert by_domain.key_and_code("http://www.example.co.uk") == ("example.co.uk", b"\x02")
    assert by_host.key_and_code("http://www.example.co.uk") == ("www.example.co.uk", b"\x00")
    for number in range(5):
        assert by_domain.key_and_code(f"https://site{number}.com") == (f"site{number}.com", b"\x01")
    assert len(by_domain._cached_codes) <= 2


@pytest.mark.parametrize(
    ("packed", "value"),
    [
        ("90", []), ("9f" + "01" * 15, [1] * 15), ("00", 0), ("7f", 127), ("e0", -32), ("a0", b""),
        ("bf" + "61" * 31, b"a" * 31), ("d9ff" + "61" * 255, b"a" * 255), ("da0100" + "61" * 256, b"a" * 256),
        ("db00000002" + "6162", b"ab"), ("ccff", 255), ("cdffff", 65535), ("ceffffffff", 2**32 - 1),
        ("cf" + "ff" * 8, 2**64 - 1), ("d080", -128), ("d18000", -(2**15)), ("d280000000", -(2**31)),
        ("d3" + "80" + "00" * 7, -(2**63)),
    ],
)  # fmt: skip
def test_each_kind_of_field_is_read_to_its_end(packed: str, value: object) -> None:
    assert unpacked_item(bytes.fromhex("93 01" + packed + "02")) == [1, value, 2]


def test_hops_outside_the_scope_are_kept_as_far_as_a_byte_goes() -> None:
    for offsite, kept in ((1, 1), (254, 254), (255, 255), (256, 255), (1000, 255)):
        rest = origin_code("http://a", "a") + parent_code(7, offsite) + b"/x"
        assert unpack_entry(rest, "a") == ("http://a", "/x", 7, kept)


@pytest.mark.parametrize(
    ("origin", "key", "code"),
    [
        ("http://a.test", "a.test", b"\0"),
        ("https://a.test", "a.test", b"\1"),
        ("http://www.a.test", "a.test", b"\2"),
        ("https://www.a.test", "a.test", b"\3"),
        ("http://x.y.a.test", "a.test", b"\4\0\4x.y."),
        ("https://x.a.test", "a.test", b"\5\0\2x."),
        ("https://a.test:8443", "a.test", b"\6\0\x13https://a.test:8443"),
        ("http://other", "a.test", b"\6\0\x0chttp://other"),
    ],
)
def test_origins_lie_in_redis_as_in_crawls_that_are_there_already(origin: str, key: str, code: bytes) -> None:
    assert origin_code(origin, key) == code
    assert unpack_entry(code + parent_code(0) + b"/x", key) == (origin, "/x", 0, 0)


@pytest.mark.parametrize(
    ("parent", "offsite", "code"),
    [
        (0, 0, b"\0"), (1, 0, b"\1\1"), (255, 0, b"\1\xff"), (256, 0, b"\2\1\0"),
        ((3 << 48) + 5, 0, b"\7\3\0\0\0\0\0\5"),
        (0, 1, b"\x10\1"), (7, 3, b"\x11\7\3"), (7, 255, b"\x11\7\xff"), (7, 999, b"\x11\7\xff"),
    ],
)  # fmt: skip
def test_parents_lie_in_redis_as_in_crawls_that_are_there_already(parent: int, offsite: int, code: bytes) -> None:
    assert parent_code(parent, offsite) == code
    assert unpack_entry(b"\0" + code + b"/", "a") == ("http://a", "/", parent, min(offsite, 255))
