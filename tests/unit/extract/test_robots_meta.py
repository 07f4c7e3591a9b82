"""What X-Robots-Tag headers and robots directives ask."""

from __future__ import annotations

import pytest

from weft.extract.robots_meta import directives, robots_tag


@pytest.mark.parametrize(
    ("content", "wishes"),
    [
        ("", (False, False)),
        ("noindex", (True, False)),
        (" NOINDEX ,nofollow", (True, True)),
        ("none", (True, True)),
        ("all", (False, False)),
        ("all, noindex", (True, False)),
        ("index, noindex", (True, False)),
        ("noarchive, nosnippet", (False, False)),
    ],
)
def test_directives(content: str, wishes: tuple[bool, bool]) -> None:
    assert directives(content) == wishes


@pytest.mark.parametrize(
    ("values", "wishes"),
    [
        ([], (False, False)),
        (["noindex"], (True, False)),
        (["noindex", "nofollow"], (True, True)),
        (["NoIndex, NoFollow"], (True, True)),
        (["none"], (True, True)),
        (["all"], (False, False)),
        (["googlebot: noindex, nofollow"], (False, False)),
        (["googlebot: nofollow", "noindex"], (True, False)),
        (["weft: noindex"], (True, False)),
        (["Weft : none"], (True, True)),
        (["weft: nofollow, noindex"], (True, True)),
        (["googlebot: noindex, weft: nofollow"], (False, True)),
        (["noindex, googlebot: nofollow"], (True, False)),
        (["weftbot: noindex"], (False, False)),
        (["*: noindex"], (True, False)),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], (False, False)),
        (["unavailable_after: Wed, 25 Jun 2010 15:00:00 PST, noindex"], (True, False)),
        (["max-snippet: 20, nofollow"], (False, True)),
        (["googlebot: max-snippet: 20, noindex"], (False, False)),
        ([":", ",,", "::noindex"], (False, False)),
    ],
)
def test_header_directives_for_everyone_and_for_us(values: list[str], wishes: tuple[bool, bool]) -> None:
    assert robots_tag(values, "Weft/1.2 (+mail@example.org)") == wishes
