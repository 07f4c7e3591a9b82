"""What a flag's text means."""

from __future__ import annotations

import click
import pytest

from weft.cli.terminal.settings import given


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("Cookie=a=b", "Cookie", "a=b"),
        ("Cookie: a=b; c=d", "Cookie", "a=b; c=d"),
        ("Authorization: Basic bWU6==", "Authorization", "Basic bWU6=="),
        ("a.test:Cookie=a=b", "a.test:Cookie", "a=b"),
        ("a.test:Cookie: a=b", "a.test:Cookie", "a=b"),
        ("http://a.test:81:X-Key=b c: d", "http://a.test:81:X-Key", "b c: d"),
        ("X-Key=b: c", "X-Key", "b: c"),
    ],
)
def test_a_header_is_taken_as_name_and_value_or_as_it_is_sent(text: str, name: str, value: str) -> None:
    assert given({"headers": (text,)}) == {"headers": {name: value}}


@pytest.mark.parametrize(
    ("name", "texts"), [("headers", ("Cookie=a=b", "Cookie: c=d")), ("auth", ("a.test=me:1", "a.test=me:2"))]
)
def test_a_name_that_is_given_twice_is_refused(name: str, texts: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="is given twice"):
        given({name: texts})
