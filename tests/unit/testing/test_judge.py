"""The judge acquits a right crawl and finds every planted fault."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from weft.errors import BadInput
from weft.testing.arrivals import Arrival, ArrivalLog, read_arrivals
from weft.testing.content.sites import WorldSpec
from weft.testing.judge import CrawlVerdict, judge
from weft.testing.oracle import CrawlPlan, Expectation, expect
from weft.testing.world import World

DELAY_S = 0.2
TOOK_S = 0.01


@pytest.fixture(scope="module")
def world() -> World:
    return World(WorldSpec(hosts=16, pages=120, seed=2, profile="messy"))


@pytest.fixture(scope="module")
def expectation(world: World) -> Expectation:
    return expect(world, CrawlPlan(tuple(world.seeds())))


def arrival(url: str, t: float, status: int = 200, **more: object) -> Arrival:
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    host, _, port = authority.partition(":")
    return Arrival(
        t=t,
        end=t + TOOK_S,
        host=host,
        port=int(port),
        method="GET",
        path="/" + path,
        status=status,
        bytes=100,
        note="page",
        scheme=scheme,
        **more,  # type: ignore[arg-type]
    )


def right_crawl(world: World, expectation: Expectation) -> list[Arrival]:
    """What a right crawl leaves in the log: per host robots.txt, then every URL, each after the full delay."""
    log = []
    must = [url for url in expectation.must if not url.endswith("/robots.txt")]
    for site in world.ordinary:
        now, wait = 100.0, max(DELAY_S, site.robots.crawl_delay_s) + 1e-9
        status = {"missing": 404, "dead": 503, "moved": 301}.get(site.robots.answer, 200)
        urls = [(site.origin + "/robots.txt", status)] * (3 if status == 503 else 1)
        if status == 301:
            urls.append((site.origin + "/robots/real.txt", 200))
        urls += [(url, 200) for url in must if url.startswith(site.origin + "/")]
        for url, answer in urls:
            log.append(arrival(url, now, answer))
            now += TOOK_S + wait
    return log


@pytest.fixture
def log(world: World, expectation: Expectation) -> list[Arrival]:
    return right_crawl(world, expectation)


def faults(log: list[Arrival], expectation: Expectation, delay_s: float = DELAY_S) -> dict[str, list[str]]:
    return judge(log, expectation, delay_s).faults()


def on_host(log: list[Arrival], world: World, index: int) -> list[Arrival]:
    return [one for one in log if one.host == world.sites[index].host]


def test_a_right_crawl_has_no_fault(log: list[Arrival], expectation: Expectation) -> None:
    verdict = judge(log, expectation, DELAY_S)
    assert verdict.ok, verdict
    assert verdict.requests == len(log) > 200
    assert "no fault" in str(verdict)


def test_a_longer_delay_than_was_kept_is_found_everywhere(log: list[Arrival], expectation: Expectation) -> None:
    found = faults(log, expectation, DELAY_S + 0.001)
    assert set(found) == {"delay"}
    assert len(found["delay"]) > 200


def test_missing_url(log: list[Arrival], expectation: Expectation) -> None:
    dropped = next(one for one in log if one.path != "/robots.txt")
    assert faults([one for one in log if one is not dropped], expectation) == {"missing": [dropped.url]}
    assert judge(log[:50], expectation, DELAY_S, complete=False).ok


def test_forbidden_url(log: list[Arrival], expectation: Expectation, world: World) -> None:
    url = world.sites[0].origin + "/never/nofollow-plain"
    assert url in expectation.never
    assert faults([*log, arrival(url, 1000)], expectation) == {"forbidden": [f"{url} (nofollow)"]}


def test_unexpected_url(log: list[Arrival], expectation: Expectation, world: World) -> None:
    url = world.sites[0].origin + "/made/up"
    assert faults([*log, arrival(url, 1000)], expectation) == {"unexpected": [url]}


def test_trap_urls_may_be_requested(log: list[Arrival], expectation: Expectation, world: World) -> None:
    inside = world.sites[4].origin + "/calendar/2055/11"
    beside = world.sites[3].origin + "/calendar/2055/11"
    assert judge([*log, arrival(inside, 1000)], expectation, DELAY_S).ok
    assert faults([*log, arrival(beside, 1000)], expectation) == {"unexpected": [beside]}


def test_duplicate_request(log: list[Arrival], expectation: Expectation, world: World) -> None:
    again = arrival(world.sites[0].home, 1000)
    found = faults([*log, again], expectation)
    assert found == {"duplicates": [f"{again.url} requested 2 times, 1 allowed"]}


def test_retries_that_the_server_caused_are_allowed(log: list[Arrival], expectation: Expectation, world: World) -> None:
    site = next(site for site in world.ordinary if site.flavour == "transient")
    flawed = site.origin + site.paths[2]
    twice = [*log, arrival(flawed, 1000, 500), arrival(flawed, 1010, 500)]
    assert expectation.requests[flawed] == 3
    assert judge(twice, expectation, DELAY_S).ok
    assert judge(twice, expectation, DELAY_S).refetches >= 2
    assert set(faults([*twice, arrival(flawed, 1020)], expectation)) == {"duplicates"}


def test_page_before_robots_txt(log: list[Arrival], expectation: Expectation, world: World) -> None:
    first, second = on_host(log, world, 0)[:2]
    first.t, second.t, first.end, second.end = second.t, first.t, second.end, first.end
    assert faults(log, expectation) == {"robots": [f"{second.url} requested before robots.txt was answered"]}


def test_page_while_robots_txt_still_fails(log: list[Arrival], expectation: Expectation, world: World) -> None:
    robots, page = on_host(log, world, 0)[:2]
    robots.status = 503
    found = faults(log, expectation)
    assert f"{page.url} requested before robots.txt was answered" in found["robots"]


def test_page_after_the_redirect_but_before_the_real_robots_txt(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    site = next(site for site in world.ordinary if site.robots.answer == "moved")
    real = next(one for one in log if one.host == site.host and one.path == "/robots/real.txt")
    real.t += 500
    real.end += 500
    assert len(faults(log, expectation)["robots"]) > 1


def test_disallowed_path(log: list[Arrival], expectation: Expectation, world: World) -> None:
    url = world.sites[0].origin + "/private/never-linked"
    found = faults([*log, arrival(url, 1000)], expectation)
    assert found["robots"] == [f"{url} requested though robots.txt forbids it"]


def test_page_of_a_host_whose_robots_txt_is_unreachable(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    dead = next(site for site in world.ordinary if site.role == "dead")
    found = faults([*log, arrival(dead.home, 1000)], expectation)
    assert set(found) == {"forbidden", "robots"}
    assert found["forbidden"] == [f"{dead.home} (robots-unreachable)"]


@pytest.mark.parametrize("early_s", [0.000_001, 0.05])
def test_delay_cut_short(log: list[Arrival], expectation: Expectation, world: World, early_s: float) -> None:
    last = on_host(log, world, 0)[-1]
    last.t -= early_s
    assert set(faults(log, expectation)) == {"delay"}


def test_delay_holds_after_robots_txt_and_after_errors(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    robots, page = on_host(log, world, 0)[:2]
    page.t = robots.end + 0.1
    assert set(faults(log, expectation)) == {"delay"}


def test_crawl_delay_counts_from_robots_txt_on(log: list[Arrival], expectation: Expectation, world: World) -> None:
    site = next(site for site in world.ordinary if site.robots.crawl_delay_s)
    robots, page = [one for one in log if one.host == site.host][:2]
    page.t = robots.end + site.robots.crawl_delay_s - 0.01
    page.end = page.t
    found = faults(log, expectation)
    assert set(found) == {"delay"}
    assert f"{site.robots.crawl_delay_s:g} required" in found["delay"][0]


def test_overlapping_requests(log: list[Arrival], expectation: Expectation, world: World) -> None:
    before, last = on_host(log, world, 0)[-2:]
    before.end = last.t + 0.5
    assert set(faults(log, expectation)) == {"overlap"}


def test_overlap_that_the_server_saw(log: list[Arrival], expectation: Expectation, world: World) -> None:
    on_host(log, world, 0)[-1].overlaps = True
    assert set(faults(log, expectation)) == {"overlap"}


def test_a_long_request_counts_even_when_a_shorter_one_came_between(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    first, _, third = on_host(log, world, 0)[-3:]
    first.end = third.t - 0.01
    assert {"overlap", "delay"} <= set(faults(log, expectation))


def test_retry_after(log: list[Arrival], expectation: Expectation, world: World) -> None:
    before = on_host(log, world, 0)[-2]
    before.retry_after_s = 1.0
    assert set(faults(log, expectation)) == {"retry_after"}
    before.retry_after_s = 0.1
    assert judge(log, expectation, DELAY_S).ok


def test_a_request_whose_client_had_left_binds_nobody(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    last = on_host(log, world, 0)[-1]
    late = msgspec.structs.replace(last, end=last.t, retry_after_s=5.0)
    last.t, last.end = last.t + 0.05, last.end + 0.05
    assert set(faults([*log, late], expectation)) == {"delay", "duplicates", "retry_after"}
    late.abandoned = True
    assert set(faults([*log, late], expectation)) == {"duplicates"}
    late.t -= 0.01
    assert set(faults([*log, late], expectation)) == {"delay", "duplicates"}, "it must keep the delay itself"


def test_several_places_only_limit_how_many_are_open(
    log: list[Arrival], expectation: Expectation, world: World
) -> None:
    third, second, last = on_host(log, world, 0)[-3:]
    second.end = third.end = last.t + 1
    assert judge(log, expectation, DELAY_S, places=3).ok
    assert set(judge(log, expectation, DELAY_S, places=2).faults()) == {"overlap"}


def test_one_key_for_all_hosts(log: list[Arrival], expectation: Expectation) -> None:
    assert {"overlap"} <= set(judge(log, expectation, DELAY_S, "all").faults())
    assert judge(log, expectation, DELAY_S, lambda one: one.host + "!").ok


def test_excluded_host(log: list[Arrival], world: World) -> None:
    host = world.sites[2].host
    expectation = expect(world, CrawlPlan(tuple(world.seeds()), exclude_domains=(host,)))
    found = judge(log, expectation, DELAY_S, complete=False).faults()
    assert {url.split("/")[2].split(":")[0] for url in found["forbidden"]} == {host}
    assert any("/robots.txt" in url for url in found["forbidden"])


def test_budget_per_host(log: list[Arrival], world: World) -> None:
    expectation = expect(world, CrawlPlan(tuple(world.seeds()), max_pages_per_domain=5))
    found = judge(log, expectation, DELAY_S, complete=False).faults()
    assert len(found["over_budget"]) > 5


def test_verdict_lists_every_fault_in_words() -> None:
    text = str(CrawlVerdict(missing=["http://a/"], delay=["x"] * 20, requests=3))
    assert "missing: 1" in text and "delay: 20" in text and "http://a/" in text


def test_log_is_read_back_as_written_in_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.jsonl"
    writer = ArrivalLog(path)
    late, early = arrival("http://127.1.0.1:8400/b?c=d", 2.0), arrival("http://127.1.0.1:8400/a", 1.0)
    early.headers = [("Host", "127.1.0.1"), ("Cookie", "a"), ("Cookie", "b")]
    writer.add(late)
    writer.add(early)
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"t": 3.0, "end"')
    assert read_arrivals(path) == [early, late]
    assert late.url == "http://127.1.0.1:8400/b?c=d"
    line = msgspec.json.decode(path.read_bytes().splitlines()[0])
    assert {"t", "end", "host", "port", "method", "path", "headers", "status", "bytes", "note"} <= {*line, "headers"}


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")
    with pytest.raises(BadInput, match="not an arrival log"):
        read_arrivals(path)
