"""Ways out: crawls that trust alike share one, those that do not share nothing; all are polled together."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from pace import patience

from weft.config import FetchSection
from weft.engine.transports.transports import Transports
from weft.fetch.contract import Done
from weft.fetch.dns.resolver import NameCounts


class Recorder:
    """A way out that answers when the test says so."""

    def __init__(self, section: FetchSection) -> None:
        self.section = section
        self.ready, self._ring = os.pipe()
        self.out: list[object] = []
        self.done: Done = []
        self.is_closed = False
        self.lookups = NameCounts()

    @property
    def free(self) -> int:
        return 10 - len(self.out)

    @property
    def in_flight(self) -> int:
        return len(self.out)

    def submit(self, url: str, headers: Sequence[tuple[str, str]], tag: object, **_: Any) -> None:
        del url, headers
        self.out.append(tag)

    def address_of(self, host: str) -> str | None:
        return host

    def answer(self, tag: object) -> None:
        self.out.remove(tag)
        self.done.append((tag, None))  # type: ignore[arg-type]
        os.write(self._ring, b"x")

    def poll(self, timeout_s: float) -> Done:
        del timeout_s
        if self.done:
            os.read(self.ready, 100)
        done, self.done = self.done, []
        return done

    def abort(self, tag: object) -> None:
        if tag in self.out:
            self.answer(tag)

    def fileno(self) -> int:
        return self.ready

    def timeout_s(self) -> float | None:
        return 0.0 if self.done else None

    def close(self) -> None:
        self.is_closed = True
        os.close(self.ready)
        os.close(self._ring)


@pytest.fixture
def made() -> list[Recorder]:
    return []


@pytest.fixture
def transports(made: list[Recorder]) -> Transports:
    def make(section: FetchSection) -> Recorder:
        made.append(Recorder(section))
        return made[-1]

    return Transports(make, slots=4)


def test_equal_settings_share_a_way_and_others_do_not(transports: Transports, made: list[Recorder]) -> None:
    first, second = transports.open(FetchSection()), transports.open(FetchSection())
    assert first is second and len(made) == 1
    differing: list[dict[str, Any]] = [
        {"resolve": {"a": "127.0.0.1"}}, {"tls_verify": False}, {"allow_private": True}, {"auth": {"a": "u:p"}},
        {"headers": {"X": "1"}},
    ]  # fmt: skip
    others = [transports.open(FetchSection(**settings)) for settings in differing]
    assert len({id(transport) for transport in [first, *others]}) == 6


def test_a_way_is_closed_with_its_last_user_but_one_stays(transports: Transports, made: list[Recorder]) -> None:
    plain, private = FetchSection(), FetchSection(allow_private=True)
    transports.open(plain), transports.open(plain), transports.open(private)
    transports.close(private)
    assert [transport.is_closed for transport in made] == [False, True]
    transports.close(plain)
    assert not made[0].is_closed, "one crawl still uses it"
    transports.close(plain)
    assert not made[0].is_closed, "it is there for the next crawl"
    assert transports.open(plain) is made[0]
    transports.close_all()
    assert made[0].is_closed


def test_slots_are_counted_over_all_of_them(transports: Transports, made: list[Recorder]) -> None:
    transports.open(FetchSection()), transports.open(FetchSection(allow_private=True))
    for at, transport in enumerate(made):
        transport.submit("", (), at)
    assert (transports.in_flight, transports.free_slots) == (2, 2)


def test_what_was_aborted_for_a_closed_way_is_told_all_the_same(transports: Transports, made: list[Recorder]) -> None:
    plain, private = FetchSection(), FetchSection(allow_private=True)
    transports.open(plain), transports.open(private)
    made[1].submit("", (), "tag")
    transports.abort("tag")
    transports.close(private)
    assert [tag for tag, _ in transports.poll(0.0)] == ["tag"]


def test_a_result_or_a_watched_descriptor_ends_the_wait(transports: Transports, made: list[Recorder]) -> None:
    transports.open(FetchSection()), transports.open(FetchSection(allow_private=True))
    readable, ring = os.pipe()
    heard: list[str] = []
    transports.watch(readable, lambda: heard.append(os.read(readable, 1).decode()))
    made[1].submit("", (), "late")
    threading.Timer(0.05, made[1].answer, ["late"]).start()
    assert [tag for tag, _ in transports.poll(patience(10))] == ["late"]
    threading.Timer(0.05, os.write, [ring, b"c"]).start()
    began = time.monotonic()
    assert transports.poll(patience(10)) == [] and heard == ["c"]
    assert time.monotonic() - began < patience(10), "it waited to the end"
    assert transports.poll(0.01) == []
    transports.close_all()
    os.close(readable)
    os.close(ring)
