"""What a process remembers of the URLs that its pod has seen: two generations, so that it has a bound."""

from __future__ import annotations

from weft.frontier.redis.known import KnownUrls


def test_a_full_generation_is_kept_beside_the_next_one_and_then_dropped() -> None:
    known = KnownUrls(7, most=3)
    assert known.unknown(["a", "b"]) == ["a", "b"]
    known.add(["a", "b"])
    known.add(["c"])  # the generation is full: from now on it is the older one
    known.add(["d", "e"])
    assert known.unknown(["x", "a", "b", "c", "d", "e", "y"]) == ["x", "y"]
    known.add(["f"])
    assert known.unknown(["a", "b", "c", "d", "e", "f"]) == ["a", "b", "c"]
    known.forget()
    assert known.unknown(["d", "f"]) == ["d", "f"]
