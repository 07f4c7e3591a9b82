"""Links met lately: who is looked at again, and under which reason the others are counted."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.engine.loop import familiar
from weft.engine.loop.familiar import Familiar
from weft.records import Reason

PAGE = "http://a.example/docs/page?x=1"
NEAR = "http://a.example/docs/other"
FAR = "http://a.example/news/"


def known(refused: Counter[str] | None = None) -> Familiar:
    return Familiar(Counter() if refused is None else refused)


def test_a_link_is_fresh_once_on_a_site_and_counted_from_then_on() -> None:
    refused: Counter[str] = Counter()
    links = known(refused)
    hrefs = ["/a", "//b.example/", "http://c.example/x", "/a?b"]
    assert links.fresh(PAGE, hrefs) == hrefs
    assert links.fresh(FAR, [*hrefs, "/new"]) == ["/new"]
    assert refused == {Reason.DUPLICATE: 4}
    assert links.fresh("http://other.example/", ["/a"]) == ["/a"], "another site's /a is another page"


def test_relative_links_are_known_in_their_folder_alone() -> None:
    links = known()
    assert links.fresh(PAGE, ["next", "?y", "/docs/next"]) == ["next", "?y", "/docs/next"]
    assert links.fresh(NEAR, ["next"]) == []
    assert links.fresh(FAR, ["next"]) == ["next"]


@pytest.mark.parametrize("href", ["/docs/z", "z", "//a.example/docs/z", "http://a.example/docs/z"])
def test_what_will_always_be_refused_is_counted_under_its_reason(href: str) -> None:
    refused: Counter[str] = Counter()
    links = known(refused)
    links.fresh(PAGE, [href, "/good"])
    links.refused(PAGE, "http://a.example/docs/z", Reason.EXTENSION)
    assert links.fresh(NEAR, ["/good", href]) == []
    assert refused == {Reason.EXTENSION: 1, Reason.DUPLICATE: 1}


@pytest.mark.parametrize("href", ["/docs/z", "z", "//a.example/docs/z", "http://a.example/docs/z"])
def test_what_may_be_let_in_later_is_looked_at_again(href: str) -> None:
    links = known()
    links.fresh(PAGE, [href])
    links.refused(PAGE, "http://a.example/docs/z", Reason.TRAP)
    assert links.fresh(NEAR, [href]) == [href]


def test_no_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familiar, "_KEPT", 10)
    links = known()
    for number in range(12):
        links.fresh(PAGE, [f"/{number}"])
    assert links.fresh(PAGE, ["/11", "/0"]) == ["/0"], "all before the last were forgotten"
    assert links.fresh(PAGE, ["/11", "/0"]) == []
