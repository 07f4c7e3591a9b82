"""Sitemaps without end: each index names more of them. Pages are fetched all the same, and the rest is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from crawling import weft
from scripted import Ask, Page, Plan, Site, Web, crawled, linking, page

NAMED = 300  # by each index
FEW = 20  # of one site, for a crawl of few pages
MAX_PAGES = 5
REDIS: dict[str, Any] = {"pods": ["managed"], "fetchers_per_pod": 1, "parsers_per_pod": 1}


def index(ask: Ask) -> Page:
    """An index of indexes that nobody has seen before."""
    name = ask.target.removesuffix(".xml")
    locs = "".join(
        f"<sitemap><loc>http://{ask.host}:PORT{name}-{number}.xml</loc></sitemap>" for number in range(NAMED)
    )
    return page(f"<sitemapindex>{locs}</sitemapindex>", "Content-Type: text/xml")


def next_index(ask: Ask) -> Page:
    """An index of one other, and so on."""
    loc = f"http://{ask.host}:PORT{ask.target.removesuffix('.xml')}x.xml"
    return page(f"<sitemapindex><sitemap><loc>{loc}</loc></sitemap></sitemapindex>", "Content-Type: text/xml")


def sitemaps(site: Site) -> list[str]:
    return [ask.target for ask in site.arrivals if ask.target.endswith(".xml")]


class Flooded:
    """Sites that name sitemaps without end, for one plan."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.rich = Plan(f"{name}-rich", max_pages=MAX_PAGES, exit_code=3, **settings)
        self.poor = Plan(f"{name}-poor", max_pages=MAX_PAGES, **settings)
        self.site = self._site(self.rich, f"rich.{name}.test")
        for number in range(30):
            self.site.on(f"/page-{number}", linking("/"))
        self.site.on("/", linking(*(f"/page-{number}" for number in range(30))))
        self.lonely = self._site(self.poor, f"lonely.{name}.test").on("/", linking("/"))
        self.chain = self.poor.site(f"chain.{name}.test", "/").on("/", linking("/")).on("*", next_index)
        self.chain.on("/robots.txt", page("User-agent: *\nDisallow:\n"))

    def _site(self, plan: Plan, host: str) -> Site:
        return plan.site(host, "/").on("*", index).on("/robots.txt", page("User-agent: *\nDisallow:\n"))


ALL = [Flooded("embedded"), Flooded("pods", num_pods=2), Flooded("redis", **REDIS)]
IDS = ["embedded", "pods", "redis"]


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    plans = [plan for flooded in ALL for plan in (flooded.rich, flooded.poor)]
    with crawled(tmp_path_factory.mktemp("sitemaps"), *plans) as running:
        yield running


@pytest.mark.parametrize("flooded", ALL, ids=IDS)
def test_a_crawl_of_few_pages_has_them_after_a_handful_of_sitemaps(flooded: Flooded) -> None:
    flooded.rich.wait()
    assert flooded.rich.status["pages"] == MAX_PAGES
    assert len(sitemaps(flooded.site)) <= MAX_PAGES
    assert [ask.target for ask in flooded.site.arrivals][:2] == ["/robots.txt", "/"]


@pytest.mark.parametrize("flooded", ALL, ids=IDS)
def test_a_site_without_pages_ends_and_what_was_refused_has_its_reason(flooded: Flooded) -> None:
    flooded.poor.wait()
    asked, status = sitemaps(flooded.lonely), flooded.poor.status
    assert asked[0] == "/sitemap.xml"
    assert len(asked) == len(set(asked)) == FEW
    assert status["state"] == "finished"
    assert status["refused"]["budget"] >= NAMED - FEW
    refused = flooded.lonely.url(f"/sitemap-{NAMED - 1}.xml")
    (told,) = json.loads(weft("explain", flooded.poor.data_dir, refused, "--json").stdout)["urls"]
    assert (told["crawled"], told["reason"]) == (False, "budget"), told


@pytest.mark.parametrize("flooded", ALL, ids=IDS)
def test_indexes_of_indexes_of_indexes_are_not_followed_for_ever(flooded: Flooded) -> None:
    flooded.poor.wait()
    assert sitemaps(flooded.chain) == ["/sitemap.xml", "/sitemapx.xml", "/sitemapxx.xml", "/sitemapxxx.xml"]
    beyond = flooded.chain.url("/sitemapxxxx.xml")
    (told,) = json.loads(weft("explain", flooded.poor.data_dir, beyond, "--json").stdout)["urls"]
    assert told["reason"] == "budget"
