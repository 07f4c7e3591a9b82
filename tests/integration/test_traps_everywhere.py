"""Near-identical pages: what many pages link to is fetched, what only leads to more is not; on any kind of pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted import Ask, Page, Plan, Site, Web, crawled, linking, page

LEAVES = 30
SHELVES = 25  # each is found on the one before
FEW = 80  # of an endless space: what is read before it is known for one
# Two parsers count each for itself, and which of them reads a page is chance: each may see one of two patterns more.
FEW_SPLIT = 200
WORDS = " ".join(f"the same old word {letter}" for letter in "abcdefghijklmnopqrstuvwxyz")


def alike(title: str, *hrefs: str) -> Page:
    """A page that says what all of them say."""
    links = " ".join(f'<a href="{href}">more</a>' for href in hrefs)
    return page(f"<!doctype html><title>{title}</title><p>{WORDS}</p>{links}")


def leaf(ask: Ask) -> Page:
    return alike("Leaf " + ask.target.rpartition("/")[2], "/")


def card(ask: Ask) -> Page:
    number = int(ask.target.rpartition("/")[2])
    return alike(f"Card {number}", "/", f"/card/{number % LEAVES + 1}", f"/card/{(number - 2) % LEAVES + 1}")


def shelf(ask: Ask) -> Page:
    """A page of a list: three thin pages, and the next page of the list."""
    number = int(ask.target.rpartition("/")[2])
    thin = [f"/thin/{3 * number + at}" for at in range(3)]
    return alike(f"Shelf {number}", *thin, *([f"/shelf/{number + 1}"] if number < SHELVES else []))


def day(ask: Ask) -> Page:
    number = int(ask.target.rpartition("/")[2])
    return alike(f"Day {number}", f"/day/{number + 1}", f"/day/{number + 2}")


def month(ask: Ask) -> Page:
    return alike("Month", ask.target.replace("month", "view"))


def view(ask: Ask) -> Page:
    number = int(ask.target.rpartition("/")[2])
    return alike("View", f"/month/{number + 1}")


def hubs(site: Site, target: str) -> Site:
    """A chain of pages that differ, each with one leaf more than the one before: leaves are found while leaves are
    read."""
    for number in range(1, LEAVES + 1):
        known = [target.format(at) for at in range(1, number + 1)]
        site.on(f"/hub-{'a' * number}", linking(*known, *([f"/hub-{'a' * (number + 1)}"] if number < LEAVES else [])))
    return site.on("/", linking("/hub-a"))


class Sites:
    """The same sites for each plan."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.plan = plan = Plan(name, **settings)
        self.leaves = hubs(plan.site(f"leaves.{name}.test", "/"), "/leaf/{}")
        self.cards = hubs(plan.site(f"cards.{name}.test", "/"), "/card/{}")
        self.shelves = plan.site(f"shelves.{name}.test", "/").on("/", linking("/shelf/1"))
        self.days = plan.site(f"days.{name}.test", "/").on("/", linking("/day/1"))
        self.views = plan.site(f"views.{name}.test", "/").on("/", linking("/month/1"))
        for number in range(1, LEAVES + 1):
            self.leaves.on(f"/leaf/{number}", leaf)
            self.cards.on(f"/card/{number}", card)
        for number in range(1, SHELVES + 1):
            self.shelves.on(f"/shelf/{number}", shelf)
            for at in range(3):
                self.shelves.on(f"/thin/{3 * number + at}", leaf)
        for number in range(1, 400):
            self.days.on(f"/day/{number}", day)
            self.views.on(f"/month/{number}", month).on(f"/view/{number}", view)


ON_REDIS: dict[str, Any] = {"pods": ["managed"], "fetchers_per_pod": 1}
ALL = [
    Sites("embedded"),
    Sites("deep", max_depth=500),
    Sites("pods", num_pods=2),
    Sites("fused", **ON_REDIS, parsers_per_pod=0),
    Sites("split", **ON_REDIS, parsers_per_pod=2),
]


@pytest.fixture(scope="module", autouse=True)
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with crawled(tmp_path_factory.mktemp("traps"), *(sites.plan for sites in ALL)) as running:
        yield running


@pytest.mark.parametrize("sites", ALL, ids=lambda sites: sites.plan.name)
def test_leaves_that_many_pages_link_to_are_all_fetched(sites: Sites) -> None:
    for site, name in ((sites.leaves, "leaf"), (sites.cards, "card")):
        asked = [target for target in site.asked() if target.startswith(f"/{name}/")]
        assert sorted(asked) == sorted(f"/{name}/{number}" for number in range(1, LEAVES + 1))
        assert not [row.url for row in sites.plan.rows if name in row.url and row.error]
    assert len(sites.leaves.asked()) == 2 * LEAVES + 1


@pytest.mark.parametrize("sites", ALL, ids=lambda sites: sites.plan.name)
def test_thin_pages_of_a_list_that_differ_in_their_number_are_all_fetched(sites: Sites) -> None:
    asked = [target for target in sites.shelves.asked() if target.startswith(("/shelf/", "/thin/"))]
    assert len(asked) == len(set(asked)) == 4 * SHELVES


@pytest.mark.parametrize("sites", ALL, ids=lambda sites: sites.plan.name)
def test_pages_that_only_lead_to_more_of_them_are_stopped(sites: Sites) -> None:
    for site in (sites.days, sites.views):
        assert 12 <= len(site.asked()) <= (FEW_SPLIT if sites.plan.name == "split" else FEW)
    assert sites.plan.status["refused"]["trap"] >= 2
