"""Hosts that hang beside hosts that answer, in one crawl with few slots; and servers that are ill for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pace import patience
from scripted import Page, Plan, Visit, Web, crawled, linking, robots

SLOTS, SILENT, FINE, PAGES = 8, 12, 6, 12


async def never(visit: Visit) -> None:
    await visit.wait_for_the_end()


class Hanging:
    """A crawl of hosts that answer and of hosts that never do."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.asked_meanwhile = 0  # silent hosts, by the time that the others were done
        self.plan = Plan(
            name, drive=self._until_the_fine_ones_are_done, fetcher_workers=SLOTS, read_timeout=600, total_timeout=800,
            lease_seconds=900, **settings,
        )  # fmt: skip
        self.fine = [self.plan.site(f"{name}-fine{number}.test", "/0") for number in range(FINE)]
        for site in self.fine:
            site.on("/robots.txt", robots("User-agent: *"))
            for number in range(PAGES):
                site.on(f"/{number}", linking(f"/{number + 1}" if number + 1 < PAGES else "/0"))
        silent = range(SILENT)
        self.silent = [self.plan.site(f"{name}-silent{number}.test", "/").on("*", never) for number in silent]

    def _until_the_fine_ones_are_done(self, plan: Plan) -> None:
        """Nobody waits for the silent ones, whose time limits are longer than the test."""
        process, limit = plan.start(), time.monotonic() + patience(20)
        try:
            while time.monotonic() < limit and not all(len(site.asked_so_far()) == PAGES for site in self.fine):
                time.sleep(0.02)
            self.asked_meanwhile = sum(bool(site.arrivals) for site in self.silent)
        finally:
            process.kill()
            process.wait()


HANGING = {
    "embedded": Hanging("hanging"),
    "redis": Hanging("hanging-pods", pods=["managed"], fetchers_per_pod=1, parsers_per_pod=0),
}
ILL = Page(b"", (), "500 Internal Server Error")
PATIENT = Plan("patient", robots_patience_seconds=2)
recovering = PATIENT.site("recovering.test", "/").on("/robots.txt", *[ILL] * 5, robots("User-agent: *")).pages("/")
hopeless = PATIENT.site("hopeless.test", "/").on("/robots.txt", ILL).pages("/")
well = PATIENT.site("well.test", "/").on("/robots.txt", robots("User-agent: *")).pages("/")


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    plans = [one.plan for one in HANGING.values()]
    with crawled(tmp_path_factory.mktemp("dead"), *plans, PATIENT) as running:
        yield running


@pytest.mark.parametrize("frontier", HANGING)
def test_hosts_that_hang_cannot_take_the_slots_of_those_that_answer(frontier: str) -> None:
    hanging = HANGING[frontier]
    hanging.plan.wait()
    assert [len(site.asked_so_far()) for site in hanging.fine] == [PAGES] * FINE
    assert 0 < hanging.asked_meanwhile <= SLOTS // 2


def test_pages_wait_for_a_robots_txt_whose_server_is_ill_and_not_for_ever() -> None:
    assert recovering.asked() == ["/"]
    assert len(recovering.asks("/robots.txt")) == 6
    assert well.asked() == ["/"]
    assert hopeless.asked() == []
    assert len(hopeless.asks("/robots.txt")) == 7
    assert hopeless.row("/").error == "robots-unreachable: HTTP 500"
