"""Conditions of stages: what they say, and that nothing else can be written in them."""

from __future__ import annotations

from typing import Any

import pytest

from weft.errors import BadInput
from weft.pipelines.spec.conditions import compile_condition

NAMES: dict[str, Any] = {
    "item": {"size": 5, "tags": ["a", "b"], "name": "x", "nothing": None, "deep": {"er": [1, 2]}},
    "results": {"fetch": {"status": 200}},
    "settings": {"least": 3},
    "config": {"strict": True},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("item.size > settings.least", True),
        ("item.size > 5", False),
        ("item.size >= 5", True),
        ("1 < item.size <= 5", True),
        ("1 < item.size < 5", False),
        ('item["name"] == "x"', True),
        ("item.name != 'x'", False),
        ("results.fetch.status == 200 and config.strict", True),
        ("results['fetch'].status == 404 or not config.strict", False),
        ('"a" in item.tags', True),
        ('"c" not in item.tags', True),
        ('"a" in item.missing', False),
        ("item.size in [4, 5]", True),
        ("len(item.tags) == 2", True),
        ("len(item.size) == 0", True),
        ("item.missing", False),
        ("item.missing.deeper is none", True),
        ("item.nothing is null", True),
        ("item.deep.er[1] == 2", True),
        ("item.deep.er[-3] is None", True),
        ("item.deep.er[9] is None", True),
        ("item.size > -1", True),
        ("item.name > 3", False),
        ("item.nothing < 3", False),
        ("true", True),
        ("false", False),
    ],
)
def test_a_condition_is_what_it_reads_like(text: str, expected: bool) -> None:
    assert bool(compile_condition(text, ["fetch"])(NAMES)) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no condition"),
        ("item.size >", "is no condition"),
        ("__import__('os').system('true')", "is not allowed"),
        ("item.size.__class__()", "is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("[one for one in item.tags]", "is not allowed"),
        ("item.size + 1 > 2", "is not allowed"),
        ("item := 3", "is no condition"),
        ("f'{item}'", "is not allowed"),
        ("open", "there is no 'open' here"),
        ("len(item.tags, 1)", "is not allowed"),
        ("results.parse.ok", "name that stage under needs"),
        ("results['parse']", "name that stage under needs"),
        ("(" * 500 + ")" * 500, "is no condition"),
        ("item.a or " * 500 + "true", "longer than"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        compile_condition(text, ["fetch"])


def test_attributes_of_python_objects_cannot_be_reached() -> None:
    assert compile_condition("item.__class__", [])(NAMES) is None
    assert compile_condition("item.name.__class__", [])(NAMES) is None
