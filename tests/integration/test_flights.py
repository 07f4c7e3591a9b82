"""What a kill excuses: the requests of the processes that it hit, by their own logs, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from crawling import COMMIT_WINDOW_S, Kill, Killed
from flights import Flights, read_flights

from weft.testing.arrivals import Arrival
from weft.testing.content.sites import WorldSpec
from weft.testing.oracle import CrawlPlan, expect
from weft.testing.world import World

ONE, TWO = "http://a/one", "http://a/two"


def logs(frontier: Path) -> Flights:
    """Fetcher 0 answered `one` at 11; fetcher 1 had `two` under way when it died, and asked again in its next life."""
    rest = "0\ta\t1\t1\t"
    by_slot = {
        "pod0-fetcher0": [f"S\t1\t10\t{rest}{ONE}", "E\t1\t11\t200", f"S\t3\t12\t{rest}/no", "E\t3\t12\tunasked"],
        "pod0-fetcher1": [f"S\t2\t20\t{rest}{TWO}", "B\tx\t30\t0", f"S\t2\t31\t{rest}{TWO}", "E\t2\t32\t200"],
        "pod0-orchestrator": ["E\t2\t25\texpired"],
    }
    for slot, lines in by_slot.items():
        folder = frontier / "pod_0" / "requests" / slot
        folder.mkdir(parents=True)
        (folder / "requests-00000.log").write_text("".join(f"{line}\n" for line in ["B\tx\t1\t0", *lines]))
    return Flights(read_flights(frontier))


def arrival(url: str, t: float) -> Arrival:
    return Arrival(t=t, end=t, host="a", port=80, method="GET", path=url[8:], status=200, bytes=1, note="page")


def killed(flights: Flights, kills: list[Kill], again: str) -> Killed:
    world = World(WorldSpec(hosts=1, pages=1))
    arrivals = [arrival(ONE, 10.5), arrival(TWO, 20.5), arrival(TWO, 31.5), arrival(again, 40.0)]
    return Killed(kills, flights, arrivals, expect(world, CrawlPlan(tuple(world.seeds()))))


def test_a_kill_excuses_what_was_under_way_by_its_own_process_log(tmp_path: Path) -> None:
    flights = logs(tmp_path)
    assert [(flight.url, flight.failed) for flight in flights.all] == [(ONE, False), (TWO, True), (TWO, False)]
    assert flights.of(arrival(TWO, 20.5)) is flights.all[1]
    found = killed(flights, [Kill(24.0, 24.1, ("pod0-fetcher1",))], again=TWO)
    assert found.in_flight == {TWO: 1}
    assert found.refetches == {TWO: 2}
    with pytest.raises(AssertionError, match="two"):
        found.check()


@pytest.mark.parametrize(
    ("kill", "excused"),
    [
        (Kill(11.5, 11.6, ("pod0-fetcher0",)), True),  # it had come, but not been written down
        (Kill(10.6, 35.0, ("pod0-fetcher0",)), True),  # it was stopped over its answer
        (Kill(11.5 + COMMIT_WINDOW_S, 39.0 + COMMIT_WINDOW_S, ("pod0-fetcher0",)), False),  # later, for however long
        (Kill(10.6, 35.0, ("pod0-fetcher1",)), False),  # another one was
        (Kill(10.6, 35.0, ("pod0-parser0",)), False),  # what parsers read is in the spool
        (Kill(11.1, 11.2, ("pod0-",)), True),  # the pod's server was killed
    ],
)
def test_a_stopped_process_excuses_only_what_it_had_under_way(tmp_path: Path, kill: Kill, excused: bool) -> None:
    found = killed(logs(tmp_path), [kill], again=ONE)
    assert found.refetches == {ONE: 1, TWO: 1}
    if excused:
        found.check()
    else:
        with pytest.raises(AssertionError, match="one"):
            found.check()


def test_what_a_busy_server_reads_after_its_senders_death_was_sent_before(tmp_path: Path) -> None:
    late, next_one = arrival(TWO, 31.4), arrival(TWO, 31.5)
    world = World(WorldSpec(hosts=1, pages=1))
    kill = Kill(24.0, 24.1, ("pod0-fetcher1",), "process")
    expectation = expect(world, CrawlPlan(tuple(world.seeds())))
    found = Killed([kill], logs(tmp_path), [arrival(ONE, 10.5), late, next_one], expectation)
    assert [found.as_sent(one).t for one in (late, next_one)] == [24.1, 31.5]
    assert found.as_sent(arrival(ONE, 10.5)).t == 10.5
    several = Killed([kill], logs(tmp_path / "b"), [late, next_one, arrival(TWO, 31.6)], expectation)
    assert several.as_sent(late).t == 31.4, "nobody knows which of them it was"
