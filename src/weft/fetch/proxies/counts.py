"""Counts of proxies, for metrics: plain numbers of one process, which the owner of the metrics copies.

A proxy's label is its scheme, host and port: no login, and so one for all logins at an address. Labels are bounded:
proxies after the first MOST_LABELS are counted together, as `other`.
"""

from __future__ import annotations

from collections import Counter

from weft.fetch.proxies.entry import Proxy
from weft.telemetry import Metrics

MOST_LABELS = 100
OTHER = "other"


class ProxyCounts:
    """Counts of the proxies in use."""

    def __init__(self) -> None:
        self.listed = self.usable = self.resting = 0  # now
        self.rests = self.bans = 0  # since the process began, as all below
        self.requests: Counter[tuple[str, str]] = Counter()  # by label and outcome
        self.refreshes: Counter[str] = Counter()  # by status
        self.tests: Counter[str] = Counter()  # by `passed` and `failed`
        self.refresh_s = 0.0
        self._labels: set[str] = set()

    def requested(self, proxy: Proxy, outcome: str) -> None:
        """A request through a proxy has ended."""
        self.requests[self._label(proxy), outcome] += 1

    def refreshed(self, status: str, seconds: float, passed: int = 0, failed: int = 0) -> None:
        """A refresh has ended."""
        self.refreshes[status] += 1
        self.tests.update(passed=passed, failed=failed)
        self.refresh_s += seconds

    def _label(self, proxy: Proxy) -> str:
        label = f"{proxy.scheme}://{proxy.address}"
        if label not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                return OTHER
            self._labels.add(label)
        return label

    def copy_to(self, metrics: Metrics) -> None:
        """Copies the counts; called before the metrics are saved."""
        for name, said, value in (
            ("weft_proxies_listed", "Proxies that there are.", self.listed),
            ("weft_proxies_usable", "Proxies that may be used now.", self.usable),
            ("weft_proxies_resting", "Proxies that rest after a failure.", self.resting),
        ):
            metrics.gauge(name, said).set(value)
        metrics.grown("weft_proxy_rests_total", "Times that a proxy was made to rest.", self.rests)
        metrics.grown("weft_proxy_bans_total", "Times that a site has blocked a proxy.", self.bans)
        for (proxy, outcome), number in self.requests.items():
            said = "Requests through a proxy, by how they ended."
            metrics.grown("weft_proxy_requests_total", said, number, proxy=proxy, outcome=outcome)
        for status, number in self.refreshes.items():
            metrics.grown("weft_proxy_refreshes_total", "Tests of all proxies.", number, status=status)
        for outcome, number in self.tests.items():
            metrics.grown("weft_proxy_tests_total", "Proxies tested.", number, outcome=outcome)
        metrics.grown("weft_proxy_refresh_seconds_total", "Time that tests of all proxies took.", self.refresh_s)
