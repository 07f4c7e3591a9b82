"""Sitemaps for which a crawl of few pages had no room are read when a resume lets it have more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted import Ask, Page, Plan, Web, crawled, linking, page

NAMED = 45  # by the index; of one site, 20 are let in for a crawl of few pages
KINDS: dict[str, dict[str, Any]] = {
    "embedded": {},
    "redis": {"pods": ["managed"], "fetchers_per_pod": 1, "parsers_per_pod": 1},
}


def index(ask: Ask) -> Page:
    locs = "".join(f"<sitemap><loc>http://{ask.host}:PORT/map-{number}.xml</loc></sitemap>" for number in range(NAMED))
    return page(f"<sitemapindex>{locs}</sitemapindex>", "Content-Type: text/xml")


def sitemap(ask: Ask) -> Page:
    """One page each."""
    number = ask.target.removeprefix("/map-").removesuffix(".xml")
    return page(
        f"<urlset><url><loc>http://{ask.host}:PORT/page-{number}</loc></url></urlset>", "Content-Type: text/xml"
    )


def twice(plan: Plan) -> None:
    plan.run(exit_code=3, max_pages=5)
    plan.run("--resume", exit_code=0, max_pages=1000)


PLANS = [Plan(f"again-{name}", drive=twice, **settings) for name, settings in KINDS.items()]
for plan in PLANS:
    site = plan.site(f"{plan.name}.test", "/").on("/", linking("/")).on("*", sitemap).on("/sitemap.xml", index)
    site.on("/robots.txt", page("User-agent: *\nDisallow:\n"))
    for number in range(NAMED):
        site.on(f"/page-{number}", linking("/"))


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("again"), *PLANS) as running:
        yield running


@pytest.mark.parametrize("plan", PLANS, ids=[*KINDS])
def test_what_was_refused_comes_in_when_there_is_room(plan: Plan) -> None:
    plan.wait()
    (site,) = plan.sites.values()
    asked = [ask.target for ask in site.arrivals]
    assert sorted(target for target in asked if target.startswith("/map-")) == sorted(
        f"/map-{number}.xml" for number in range(NAMED)
    ), "each of them once"
    assert plan.status["pages"] == NAMED + 1
