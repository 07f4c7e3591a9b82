"""Links met lately: who is looked at again, and under which reason the others are counted."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.engine.admission import recent_links
from weft.engine.admission.recent_links import RecentLinks
from weft.records import Reason

PAGE = "http://a.example/docs/page?x=1"
NEAR = "http://a.example/docs/other"
FAR = "http://a.example/news/"


def known(refused: Counter[str] | None = None) -> RecentLinks:
    return RecentLinks(Counter() if refused is None else refused)


def test_a_link_is_fresh_once_on_a_site_and_counted_from_then_on() -> None:
    refused: Counter[str] = Counter()
    links = known(refused)
    hrefs = ["/a", "//b.example/", "http://c.example/x", "/a?b"]
    assert links.select_unseen_links(PAGE, hrefs) == hrefs
    assert links.select_unseen_links(FAR, [*hrefs, "/new"]) == ["/new"]
    assert refused == {Reason.DUPLICATE: 4}
    assert links.select_unseen_links("http://other.example/", ["/a"]) == ["/a"], "another site's /a is another page"


def test_relative_links_are_known_in_their_folder_alone() -> None:
    links = known()
    assert links.select_unseen_links(PAGE, ["next", "?y", "/docs/next"]) == ["next", "?y", "/docs/next"]
    assert links.select_unseen_links(NEAR, ["next"]) == []
    assert links.select_unseen_links(FAR, ["next"]) == ["next"]


@pytest.mark.parametrize("href", ["/docs/z", "z", "//a.example/docs/z", "http://a.example/docs/z"])
def test_what_will_always_be_refused_is_counted_under_its_reason(href: str) -> None:
    refused: Counter[str] = Counter()
    links = known(refused)
    links.select_unseen_links(PAGE, [href, "/good"])
    links.record_refusal(PAGE, "http://a.example/docs/z", Reason.EXTENSION)
    assert links.select_unseen_links(NEAR, ["/good", href]) == []
    assert refused == {Reason.EXTENSION: 1, Reason.DUPLICATE: 1}


@pytest.mark.parametrize("href", ["/docs/z", "z", "//a.example/docs/z", "http://a.example/docs/z"])
def test_what_may_be_let_in_later_is_looked_at_again(href: str) -> None:
    links = known()
    links.select_unseen_links(PAGE, [href])
    links.record_refusal(PAGE, "http://a.example/docs/z", Reason.TRAP)
    assert links.select_unseen_links(NEAR, [href]) == [href]


def test_no_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_links, "_MOST_LINKS_KEPT", 10)
    monkeypatch.setattr(recent_links, "_MOST_UNKNOWN_PAGES", 100)
    links = known()
    for number in range(12):
        links.select_unseen_links(PAGE, [f"/{number}"])
    assert links.select_unseen_links(PAGE, ["/11", "/0"]) == ["/0"], "all before the last were forgotten"
    assert links.select_unseen_links(PAGE, ["/11", "/0"]) == []


def test_where_every_link_is_new_one_page_in_eight_is_looked_at() -> None:
    refused: Counter[str] = Counter()
    links = known(refused)
    pages = [[f"/{page}/{link}" for link in range(5)] for page in range(9)]
    for page in pages:
        assert links.select_unseen_links(PAGE, page) == page
    again = [links.select_unseen_links(NEAR, page) for page in (pages[0], pages[8], pages[5])]
    assert again == [pages[0], pages[8], pages[5]], "after four strange pages only the ninth was looked at"
    for _ in range(4):
        links.select_unseen_links(PAGE, ["/strange"])
    assert links.select_unseen_links(NEAR, pages[8]) == [], "and the seventeenth, which has links of the ninth"
    assert links.select_unseen_links(NEAR, [*pages[2], *pages[5], *pages[3]]) == pages[5], "from then on each one is"
    assert refused == {Reason.DUPLICATE: 15}


def test_which_sites_are_strange_is_known_when_there_is_no_more_room_for_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_links, "_MOST_LINKS_KEPT", 20)
    links = known()
    for number in range(4):
        links.select_unseen_links(PAGE, [f"/{number}"])
    for number in range(30):
        links.select_unseen_links("http://b.example/", [f"/{number}", "/"])  # its pages have a link in common
    links.select_unseen_links(PAGE, ["/5"])
    assert links.select_unseen_links(PAGE, ["/5"]) == ["/5"], (
        "nothing of this site was looked at, though others took all the room"
    )


def test_another_site_is_not_strange_and_an_empty_page_tells_nothing() -> None:
    links = known()
    for number in range(6):
        links.select_unseen_links(PAGE, [f"/{number}"])
    assert links.select_unseen_links("http://b.example/", ["/x"]) == ["/x"]
    assert links.select_unseen_links("http://b.example/", ["/x"]) == []
    for _ in range(9):
        links.select_unseen_links("http://b.example/", [])
    assert links.select_unseen_links("http://b.example/", ["/x"]) == []


def test_sites_that_are_all_strange_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_links, "_MOST_LINKS_KEPT", 100)
    links = known()
    for site in range(500):
        for page in range(6):
            links.select_unseen_links(f"http://s{site}.example/", [f"/{page}"])
        assert len(links._strange) <= 101 and sum(map(len, links._sites.values())) <= 101
