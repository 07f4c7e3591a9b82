"""The graph of stages: order, mistakes, dependents, and its picture."""

from __future__ import annotations

from weft.pipelines.spec.graph import dependents, order_of, picture


class Stage:
    def __init__(self, *needs: str, after: list[str] | None = None) -> None:
        self.after = after or []
        self.before = [*needs, *self.after]


DIAMOND = {
    "publish": Stage("enrich", "analyse"),
    "clone": Stage(),
    "enrich": Stage("clone"),
    "analyse": Stage("clone"),
    "alone": Stage(),
}


def test_a_stage_comes_after_those_it_depends_on_and_else_as_in_the_file() -> None:
    assert order_of(DIAMOND) == (["clone", "enrich", "analyse", "publish", "alone"], [])


def test_an_unknown_stage_is_named_with_the_nearest() -> None:
    _, problems = order_of({"clone": Stage(), "parse": Stage("clnoe"), "join": Stage(after=["prase"])})
    assert problems == [
        "stages.parse.needs: there is no stage 'clnoe'; did you mean 'clone'?",
        "stages.join.after: there is no stage 'prase'; did you mean 'parse'?",
    ]


def test_a_cycle_is_shown() -> None:
    _, problems = order_of({"a": Stage("c"), "b": Stage("a"), "c": Stage("b"), "d": Stage("a")})
    assert problems == ["stages.a: the stages form a cycle: a → c → b → a"]
    assert order_of({"a": Stage("a")})[1] == ["stages.a: the stages form a cycle: a → a"]


def test_a_stage_named_twice_is_told() -> None:
    assert order_of({"a": Stage(), "b": Stage("a", "a")})[1] == ["stages.b.needs: 'a' is named twice"]


def test_dependents_reach_all_the_way_down() -> None:
    assert dependents(DIAMOND, "clone") == {"enrich", "analyse", "publish"}
    assert dependents(DIAMOND, "enrich") == {"publish"}
    assert dependents(DIAMOND, "alone") == set()


def test_the_picture_shows_every_stage_once_under_what_it_needs() -> None:
    assert picture(DIAMOND, order_of(DIAMOND)[0]) == [
        "clone",
        "├─ enrich",
        "└─ analyse",
        "   └─ publish  (and enrich)",
        "alone",
    ]
