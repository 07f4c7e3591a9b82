"""URLs whose pages are gone are queued once more, and once only, whoever dies between the frontier and the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from harnesses import RedisHarness, done, no_robots, page, stored, urls_of, walked

from weft.records import Found

if TYPE_CHECKING:
    from harnesses import Harness

NAME = "lost:pod0-fetcher0"


def lost(*numbers: int) -> list[tuple[int, Found]]:
    return [(number, page(f"http://a/{number}")) for number in numbers]


def test_what_was_queued_again_is_not_after_a_kill(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    for lease in frontier.leases.claim("me", 9):
        done(harness, lease)
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(lost(1, 2))))
    frontier.durability.commit()
    frontier = harness.crash()
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(lost(1, 2))))
    frontier.durability.commit()
    harness.advance(1000)
    assert sorted(urls_of(frontier.leases.claim("me", 9))) == ["http://a/1", "http://a/2"]


def test_others_that_are_lost_later_are_queued(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(lost(1))))
    frontier.durability.commit()
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "those", stored(lost(2))))
    frontier.notes.note(NAME, "")
    frontier.durability.commit()
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(lost(3))))
    assert sorted(urls_of(frontier.leases.claim("me", 9))) == ["http://a/1", "http://a/2", "http://a/3"]


def test_a_kill_among_many_goes_on_behind_those_that_are_queued(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis hears of a thousand at a time; another process may have fetched some of them before this one is back."""
    harness = make(delay_s=0.0, places=9)
    if not isinstance(harness, RedisHarness):
        pytest.skip("an embedded frontier commits all of them together")
    frontier = harness.start()
    no_robots(harness, "a")
    many = lost(*range(1, 2500))
    call, left = frontier.link.call_script, [2]

    def dies(name: str, arguments: Any) -> Any:
        if name == "admit" and left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= name == "admit"
        return call(name, arguments)

    monkeypatch.setattr(frontier.link, "call_script", dies)
    with pytest.raises(KeyboardInterrupt):
        walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(many)))
    assert frontier.status.stats().queued == 2000
    frontier = harness.crash()
    walked(frontier.revisits.readmit_once(harness.crawl, NAME, "these", stored(many[:500] + many[1500:])))
    assert frontier.status.stats().queued == 2499


def test_who_opens_the_store_hears_what_is_finished(make: Callable[..., Harness]) -> None:
    harness = make(delay_s=0.0, places=9)
    frontier = harness.start()
    no_robots(harness, "a")
    frontier.queue.admit(harness.crawl, [page("http://a/1"), page("http://a/2")])
    first, second = frontier.leases.claim("me", 9)
    done(harness, first)
    frontier.durability.commit()
    knows = harness.crash().durability.knows_finished()
    if isinstance(harness, RedisHarness):
        assert knows is None, "a server forgets what is finished"
    else:
        assert knows is not None
        assert (knows(first.item), knows(second.item), knows(99)) == (True, False, False)
