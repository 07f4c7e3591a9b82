"""The results of tests, of a chunk or of all: added up, and published as the live proxies. Pure, except `publish`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from weft.errors import WeftError
from weft.fetch.proxies import live as live_file
from weft.fetch.proxies.live import Live, LiveFile
from weft.fetch.proxies.probe import ProxyVerdict

MOST_REASONS = 20  # why proxies failed


class FailedProxies(msgspec.Struct):
    """The proxies that failed for one reason."""

    count: int
    example: str  # the first of them, without its password


class ProxyTally(msgspec.Struct):
    """The verdicts of one or several chunks."""

    passed: list[Live] = []
    failures: dict[str, FailedProxies] = {}
    tested: int = 0
    answers: bool = False  # the test URL answered without a proxy

    def add(self, verdict: ProxyVerdict) -> None:
        """Counts one proxy."""
        self.tested += 1
        if verdict.why:
            self._failed(reason_of(verdict), 1, verdict.proxy.name)
        else:
            self.passed.append(verdict.live())

    def merge(self, other: ProxyTally) -> None:
        """Adds the results of another chunk."""
        self.passed += other.passed
        self.tested += other.tested
        self.answers = self.answers or other.answers
        for why, failed in other.failures.items():
            self._failed(why, failed.count, failed.example)

    def _failed(self, why: str, count: int, example: str) -> None:
        known = self.failures.setdefault(why, FailedProxies(0, example))
        known.count += count

    @property
    def reasons(self) -> dict[str, FailedProxies]:
        """The most frequent reasons first; their number is bounded."""
        return dict(sorted(self.failures.items(), key=lambda one: -one[1].count)[:MOST_REASONS])


def publish(path: Path, tested: ProxyTally, test_url: str | None, kept: tuple[Live, ...] = ()) -> str:
    """Replaces the live proxies by those that have passed, the fastest first; returns the time. `kept`: others that
    could not be tested, and are kept unchanged. WeftError if the test URL does not answer: then nothing changes.
    """
    if not tested.passed and not tested.answers:
        raise WeftError(f"{test_url}: gives no answer, directly or by a proxy; the old list stays")
    now = datetime.now(UTC).isoformat()
    passed = sorted((*tested.passed, *kept), key=lambda one: one.latency_s)
    live_file.write(path, LiveFile(tested_at=now, tested=tested.tested + len(kept), proxies=tuple(passed)))
    return now


def reason_of(verdict: ProxyVerdict) -> str:
    """The reason of a failure, without the parts that differ for each proxy."""
    return verdict.why.removeprefix(f"{verdict.proxy.name}: ").replace(verdict.proxy.host, "HOST")[:100]
