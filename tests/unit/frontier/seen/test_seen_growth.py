"""The seen set over several doublings of its table, and what it knows a URL by; on both of its tables."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from written_twice import WAYS, in_c
from xxhash import xxh3_64_intdigest

from weft.frontier.seen import seen_set as seen_module
from weft.frontier.seen import seen_table
from weft.frontier.seen.seen_set import SeenSet, seen_key
from weft.records import Found, Purpose

COUNT = 150_000  # the table is doubled at 12,288, 24,576, 49,152 and 98,304
URLS = [f"https://example.com/page/{number}" for number in range(COUNT)]
OTHERS = [f"https://example.org/page/{number}" for number in range(COUNT)]


def compiled_table() -> Any:
    return in_c("weft.frontier.seen._seen_table").Table


@pytest.fixture(scope="module", params=WAYS, autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    chosen = compiled_table() if request.param == "compiled" else seen_table.Table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_module, "Table", chosen)
        yield chosen


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fingerprint of a text is the number that it writes, in hexadecimal digits."""
    monkeypatch.setattr(seen_module, "xxh3_64_intdigest", lambda data, _seed: int(data, 16))


@pytest.fixture(scope="module")
def grown(table: Any) -> SeenSet:
    seen = SeenSet(3)
    assert seen.add_new(URLS) == URLS
    return seen


def test_nothing_is_lost_or_found_twice_over_three_doublings(grown: SeenSet) -> None:
    assert len(grown) == COUNT
    assert grown.unknown(URLS) == []
    assert grown.add_new(URLS) == []
    assert all(url in grown for url in URLS[::7])


def test_nothing_is_known_that_was_not_added(grown: SeenSet) -> None:
    assert grown.unknown(OTHERS) == OTHERS
    assert not any(url in grown for url in OTHERS[::7])


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


@pytest.mark.usefixtures("written")
def test_fingerprints_that_differ_in_any_one_bit_are_two() -> None:
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


@pytest.mark.usefixtures("written")
def test_the_end_of_one_fingerprint_and_the_start_of_the_next_are_no_third() -> None:
    """Fingerprints lie end to end: what is found across a border is none, but one may still come further on."""
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


def test_what_was_looked_up_is_not_hashed_again_to_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def counting(data: bytes, seed: int) -> int:
        hashed.append(data)
        return xxh3_64_intdigest(data, seed)

    monkeypatch.setattr("weft.frontier.seen.seen_set.xxh3_64_intdigest", counting)
    seen = SeenSet(5)
    assert seen.unknown(URLS[:9]) == URLS[:9] and len(hashed) == 9
    assert (seen.add_new(URLS[:5]), seen.add(URLS[5]), len(hashed)) == (URLS[:5], True, 9)
    assert (seen.add_new(URLS[4:8]), len(seen)) == (URLS[6:8], 8), "some of them were added before"


def test_what_was_looked_up_is_not_remembered_for_ever() -> None:
    seen = SeenSet(5)
    for start in range(0, 50_000, 500):
        assert len(seen.unknown(URLS[start : start + 500])) == 500
        assert len(seen._missed) <= 4096 + 500
    seen.forget_missed()
    assert (len(seen._missed), seen.add_new(URLS[49_990:50_010]), len(seen)) == (0, URLS[49_990:50_010], 20)


def test_the_seen_set_keeps_every_url_while_it_grows() -> None:
    seen = SeenSet(1)
    urls = [f"https://example.com/page/{n}" for n in range(60_000)]
    assert seen.add_new(urls) == urls
    assert seen.add_new(urls) == []
    assert all(url in seen for url in urls[::97])
    assert "https://example.com/other" not in seen
    seen.discard(urls[5])
    assert (urls[5] in seen, len(seen)) == (False, 59_999)
    assert seen.add_new(urls) == [urls[5]]


@pytest.mark.usefixtures("written")
def test_all_64_bits_of_a_fingerprint_count() -> None:
    chance = random.Random(5)
    fingerprints = [chance.randbytes(8) for _ in range(3000)]
    for bit in range(64):  # each has neighbours that differ from it in one bit
        fingerprints += [(int.from_bytes(one, "big") ^ 1 << bit).to_bytes(8, "big") for one in fingerprints[:700]]
    urls = [fingerprint.hex() for fingerprint in fingerprints]
    seen = SeenSet(1)
    assert seen.add_new(urls[::2]) == urls[::2]
    assert seen.unknown(urls) == urls[1::2]
    assert seen.add_new(urls) == urls[1::2]
    assert len(seen) == len(urls)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("start", [at for at in range(1, 14) if at % 7])
def test_the_end_of_one_fingerprint_and_the_beginning_of_the_next_are_none(start: int) -> None:
    """They lie end to end in their bucket, whose number their last byte tells."""
    stored = [bytes(range(first, first + 7)).hex() + "00" for first in (1, 8, 15)]
    between = bytes(range(1 + start, 8 + start)).hex() + "00"
    seen = SeenSet(1)
    seen.add_new(stored)
    assert seen.add_new([stored[0], between, between]) == [between]
    assert len(seen) == 4


def test_fingerprints_of_two_crawls_differ() -> None:
    assert SeenSet(1).fingerprint("http://a/") != SeenSet(2).fingerprint("http://a/")


def test_a_random_life_is_that_of_a_set(table: Any) -> None:
    chance, ours, model = random.Random(11), SeenSet(4), set[str]()
    urls = [f"http://a/{number}" for number in range(3000)]
    for _ in range(4000):
        some = chance.choices(urls, k=chance.randrange(1, 12))
        if chance.random() < 0.2:
            ours.discard(some[0])
            model.discard(some[0])
        new = ours.unknown(some)
        assert new == [url for url in some if url not in model]
        if chance.random() < 0.5:
            some = list(dict.fromkeys(new if chance.random() < 0.5 else some))
            assert ours.add_new(some) == [url for url in some if url not in model]
            model.update(some)
        assert len(ours) == len(model)
    assert sorted(url for url in urls if url in ours) == sorted(model)


def test_what_the_compiled_table_cannot_take_is_refused() -> None:
    compiled = compiled_table()
    with pytest.raises(ValueError, match="length"):
        compiled().add_new(["a"], [])
    for runs in ("no runs", (1,)):
        with pytest.raises(TypeError, match=r"tuple|Run"):
            compiled().unknown(["a"], [1], {}, runs)
    with pytest.raises(TypeError, match="gone"):
        compiled().unknown(["a"], [1], {}, (), {1})
    with pytest.raises(OverflowError):
        compiled().add_new(["a"], [1 << 64])


@pytest.mark.parametrize(
    ("setting", "name"), [("1", "weft.frontier.seen.seen_table"), ("", "weft.frontier.seen._seen_table")]
)
def test_the_compiled_table_is_used_unless_python_is_asked_for(setting: str, name: str) -> None:
    compiled_table()
    code = "from weft.frontier.seen.seen_set import Table; print(Table.__module__)"
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "WEFT_PURE_PYTHON": setting}, capture_output=True, text=True
    )
    assert told.stdout.split() == [name]
