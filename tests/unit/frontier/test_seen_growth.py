"""The seen set over several doublings of its table, and what it knows a URL by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xxhash import xxh3_64_digest

from weft.frontier.seen import SeenSet, seen_key
from weft.records import Found, Purpose

COUNT = 150_000  # the table is doubled at 12,288, 24,576, 49,152 and 98,304
URLS = [f"https://example.com/page/{number}" for number in range(COUNT)]
OTHERS = [f"https://example.org/page/{number}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def grown() -> SeenSet:
    seen = SeenSet(3)
    assert seen.add_new(URLS) == URLS
    return seen


def sizes(seen: SeenSet) -> Iterator[int]:
    for piece_sizes, _ in seen.dump():
        yield from piece_sizes


def test_nothing_is_lost_or_found_twice_over_three_doublings(grown: SeenSet) -> None:
    assert len(grown) == COUNT
    assert grown.unknown(URLS) == []
    assert grown.add_new(URLS) == []
    assert all(url in grown for url in URLS[::7])


def test_nothing_is_known_that_was_not_added(grown: SeenSet) -> None:
    assert grown.unknown(OTHERS) == OTHERS
    assert not any(url in grown for url in OTHERS[::7])


def test_the_table_grows_with_what_is_in_it(grown: SeenSet) -> None:
    """A bucket is searched from end to end: with a table that stays small, or is filled unevenly, that takes long."""
    entries = [size // 7 for size in sizes(grown)]
    assert sum(entries) == COUNT
    assert 40 < COUNT / len(entries) <= 48
    assert max(entries) < 3 * 48


def test_a_dump_in_several_pieces_is_loaded_as_it_was(grown: SeenSet) -> None:
    pieces = list(grown.dump())
    assert len(pieces) > 1
    copy = SeenSet(3)
    copy.add_new(OTHERS[:10])
    assert copy.reset_to(grown.shape()) == len(pieces)
    for piece in pieces:
        copy.load(piece)
    assert len(copy) == COUNT
    assert copy.unknown(URLS[::5] + OTHERS[:50]) == OTHERS[:50]
    more = OTHERS[:20_000]
    assert copy.add_new(more) == more, "it goes on growing from there"
    assert copy.unknown(URLS + more) == []


def test_a_shape_tells_how_many_pieces_there_are() -> None:
    for buckets, pieces in ((1024, 1), (1025, 2), (2048, 2), (2049, 3)):
        assert SeenSet(1).reset_to((1023, 0, buckets)) == pieces


def test_a_url_that_is_forgotten_takes_no_other_with_it() -> None:
    seen = SeenSet(3)
    seen.add_new(URLS[:40_000])
    gone = URLS[:40_000:4]
    for url in gone:
        seen.discard(url)
    seen.discard("https://example.org/never-added")
    assert len(seen) == 30_000
    assert seen.unknown(URLS[:40_000]) == gone
    assert seen.add_new(URLS[:40_000]) == gone


def test_fingerprints_that_differ_in_any_one_bit_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.frontier.seen.xxh3_64_digest", lambda data, _seed: bytes.fromhex(data.decode()))
    there = [number.to_bytes(8, "big") for number in (0x0102030405060708 * step % 2**64 for step in range(1, 100))]
    seen = SeenSet(1)
    seen.add_new([one.hex() for one in there])
    for bit in range(64):
        near = [(int.from_bytes(one, "big") ^ 1 << bit).to_bytes(8, "big").hex() for one in there]
        assert seen.unknown(near) == near, bit
        assert not any(one in seen for one in near)
        copy = SeenSet(1)
        copy.add_new([one.hex() for one in there])
        assert copy.add_new(near) == near, bit
        copy.discard(near[0])
        assert len(copy) == 2 * len(there) - 1


def test_one_at_a_time() -> None:
    seen = SeenSet(3)
    assert (seen.add("http://a/"), seen.add("http://a/"), len(seen)) == (True, False, 1)


def test_the_table_is_as_large_for_few_at_a_time_as_for_all_at_once() -> None:
    urls, few, all_ = [f"http://a/{number}" for number in range(9000)], SeenSet(3), SeenSet(3)
    for at in range(0, len(urls), 90):
        few.add_new(urls[at : at + 90])
    all_.add_new(urls)
    assert few.shape() == all_.shape()


def test_the_end_of_one_fingerprint_and_the_start_of_the_next_are_no_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprints lie end to end: what is found across a border is none, but one may still come further on."""
    monkeypatch.setattr("weft.frontier.seen.xxh3_64_digest", lambda data, _seed: bytes.fromhex(data.decode()))
    first, second = "aabbccddeeff0100", "1122334455667700"
    across = "ccddeeff01112200"  # the last five bytes of the first as they are kept, and the first two of the second
    seen = SeenSet(1)
    assert seen.add_new([first, second]) == [first, second]
    assert across not in seen
    assert seen.unknown([across]) == [across]
    assert seen.add_new([across]) == [across]
    assert across in seen
    assert seen.unknown([across, first, second]) == []
    assert seen.add_new([across]) == []
    seen.discard(across)
    assert (across in seen, first in seen, second in seen) == (False, True, True)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (Found("http://a/1", 0), "http://a/1"),
        (Found("http://a/1", 0, purpose=Purpose.SITEMAP, about="http://a"), "sitemap http://a/1"),
        (Found("http://a/1", 0, hops=2, about="http://a/1 http://a/2"), "hop 2 http://a/1"),
        (Found("http://a/1", 0, hops=1, about="http://a/12"), "http://a/1"),
        (Found("http://a/1", 0, about="http://a/1"), "http://a/1"),
    ],
)
def test_a_sitemap_and_a_redirect_into_its_own_chain_are_known_for_themselves(found: Found, name: str) -> None:
    assert seen_key(found) == name


@pytest.mark.parametrize("at", range(15))
def test_a_fingerprint_is_found_on_the_grid_alone(at: int) -> None:
    """Fingerprints lie end to end: the end of one and the start of the next may look like a third."""
    url, filled = "http://a/1", SeenSet(5)
    entry = xxh3_64_digest(url.encode(), 5)[:7]
    place = filled._place(xxh3_64_digest(url.encode(), 5))
    filled._buckets[place] = b"x" * at + entry + b"y" * (21 - 7 - at if at < 15 else 0)
    is_there = at % 7 == 0
    assert (url in filled) == is_there
    assert filled.unknown([url]) == ([] if is_there else [url])
    assert filled.add(url) != is_there
    assert url in filled and filled.unknown([url]) == []


def test_what_was_looked_up_and_is_new_is_added_once() -> None:
    seen = SeenSet(5)
    seen.add_new(URLS[:300])
    assert seen.unknown([*URLS[298:302], URLS[301]]) == [URLS[300], URLS[301], URLS[301]]
    assert seen.add(URLS[301])
    assert seen.add_new([URLS[300], URLS[300], URLS[301], URLS[302]]) == [URLS[300], URLS[302]]
    assert len(seen) == 303
    seen.discard(URLS[300])
    assert (len(seen), seen.unknown([URLS[300]]), seen.add(URLS[300]), seen.add(URLS[300])) == (
        302,
        [URLS[300]],
        True,
        False,
    )


def test_what_was_looked_up_is_not_remembered_for_ever() -> None:
    seen = SeenSet(5)
    for start in range(0, 50_000, 500):
        assert len(seen.unknown(URLS[start : start + 500])) == 500
        assert len(seen._missed) <= 4096 + 500
    seen.forget_missed()
    assert (len(seen._missed), seen.add_new(URLS[49_990:50_010]), len(seen)) == (0, URLS[49_990:50_010], 20)
