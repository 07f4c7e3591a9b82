"""Values that nobody means: each is refused with one message, and none is an error of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pace import patience

from weft.config import keys, load
from weft.errors import BadConfig

NOT_UTF_8 = "caf\udce9"  # as Python hands on a byte E9 of the command line


def _is_number(schema: dict[str, Any]) -> bool:
    return any(one.get("type") in ("integer", "number") for one in schema.get("anyOf", [schema]))


KNOWN = keys()
NUMBERS = [name for name, item in KNOWN.items() if _is_number(item.schema)]
OTHERS = [name for name in KNOWN if name not in NUMBERS]
EXTREMES: list[Any] = [
    10**23, 2**64, 2**63, 2**53, -(2**63), -(2**63) - 1, 10**400, 10**5000, float("inf"), float("-inf"), float("nan"),
    -1e308, 1e308, -5e-324, "99999999999999999999999", "9" * 5000, "1e400", "inf", "nan", "-inf", "Infinity", "-1",
    "1e308", "0x10", "", " ", "a\0b",
]  # fmt: skip


def said(**flags: Any) -> str | None:
    """What is said against flags; None if they are accepted, and then another process can be handed them."""
    try:
        found = load(environment={}, flags=flags)
    except BadConfig as bad:
        return str(bad)
    msgspec.msgpack.encode(found.config)
    return None


def complaints(flags: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, str]:
    """What is said against each of many settings, by its name or variable."""
    with pytest.raises(BadConfig) as caught:
        load(environment=environment or {}, flags=flags)
    return {problem.partition(":")[0]: problem for problem in caught.value.problems}


@pytest.mark.parametrize("value", EXTREMES, ids=range(len(EXTREMES)))
def test_a_number_beyond_all_use_is_refused(value: Any) -> None:
    told = complaints(dict.fromkeys(NUMBERS, value))
    assert set(told) == {f"`{name}`" for name in NUMBERS}
    assert all("is not accepted; use " in text and len(text) < 300 for text in told.values()), told


HARD = [*EXTREMES, [NOT_UTF_8], {"a": "b\0"}, {NOT_UTF_8: "1"}]


@pytest.mark.parametrize("value", HARD, ids=range(len(HARD)))
def test_any_other_key_has_an_answer_to_it_too(value: Any) -> None:
    """Some take it: a folder may be called `inf`."""
    told = complaints(dict.fromkeys(OTHERS, value))
    assert "is not accepted; use one of jar, off" in told["`cookies`"]


def test_the_message_names_the_range() -> None:
    huge = "99999999999999999999999"
    assert said(fetcher_workers=huge) == (
        f"`fetcher_workers`: '{huge}' is not accepted; use a whole number from 1 to 10,000 or nothing"
    )
    assert said(max_pages=huge) == (
        f"`max_pages`: '{huge}' is not accepted; use a whole number from 1 up or nothing, at most 1,000,000,000,000,000"
    )
    assert said(politeness_delay_seconds="inf") == (
        "`politeness_delay_seconds`: 'inf' is not accepted; use a number from 0 up, at most 1,000,000,000"
    )
    assert said(redis_socket_timeout="1e7") == (
        "`redis_socket_timeout`: '1e7' is not accepted; use a number above 0, at most 1,000,000"
    )
    assert said(only_pods="0-99999999999", pods="managed") == (
        "`only_pods`: '0-99999999999' names no pods; write 0-3, or 0,2"
    )
    assert said(max_pages=10**15, fetcher_workers=10_000, politeness_delay_seconds=1e9) is None


def test_a_value_that_is_not_utf_8_is_refused_for_every_key() -> None:
    known = KNOWN
    mapping: dict[str, Any] = {"x": NOT_UTF_8}
    told = complaints(
        {name: mapping if item.schema.get("type") == "object" else NOT_UTF_8 for name, item in known.items()}
    )
    assert set(told) == {f"`{name}`" for name in known}
    assert all("is not UTF-8 text" in text for text in told.values()), told
    told = complaints({}, {"WEFT_" + name.upper(): NOT_UTF_8 for name in known})
    assert set(told) == {"WEFT_" + name.upper() for name in known}
    # A mapping is written as YAML, which such a text is not.
    assert {name for name, text in told.items() if "UTF-8" not in text} <= {
        "WEFT_HEADERS", "WEFT_AUTH", "WEFT_RESOLVE", "WEFT_SCRAPY_ARGUMENTS", "WEFT_SCRAPY_SETTINGS",
    }  # fmt: skip


LAUGHS = "headers:\n  a: &l0 [x, x]\n" + "".join(
    f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("headers: &a\n  x: *a\n", "F:1: this value holds itself, by an alias (*name); write it out"),
        ("include: &a [*a]\n", "F:1: this value holds itself, by an alias (*name); write it out"),
        ("headers: &a\n  <<: *a\n", "F:1: this value holds itself, by an alias (*name); write it out"),
        ("&r\nheaders: *r\n", "F:1: this value holds itself, by an alias (*name); write it out"),
        ("headers: &a\n  ? [*a]\n  : x\n", "F:1: this value holds itself, by an alias (*name); write it out"),
        ("include: " + "[" * 1500 + "]" * 1500, "F: is nested too deeply"),
        ("email: 2020-99-99\n", "F:1: email: month must be in 1..12"),
        ('email: "\\uD800"\n', "F:1: email: '\\ud800' is not UTF-8 text; write it in UTF-8"),
        ('data_dirs: ["a\\0b"]\n', "F:1: data_dirs: ['a\\x00b'] is not accepted; use a list of text"),
        ("max_pages: .inf\n", "F:1: max_pages: inf is not accepted; use a whole number from 1 up or nothing"),
        ("politeness_delay_seconds: .nan\n", "F:1: politeness_delay_seconds: nan is not accepted; use a number from 0"),
        (f"max_pages: {'9' * 5000}\n", "F:1: max_pages: Exceeds the limit"),
        (LAUGHS, "F:1: headers: *** is not accepted; use a mapping of texts"),
        (LAUGHS.replace("headers", "include"), "F:1: include: {'a': ['x', 'x'], 'l1': [["),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_file_that_plays_tricks_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "weft.yaml"
    path.write_text(text)
    with pytest.raises(BadConfig) as caught:
        load(path, environment={})
    (problem,) = caught.value.problems
    assert problem.replace(str(path), "F").startswith(told)
    assert len(problem) < 400


def test_one_value_may_stand_at_two_places(tmp_path: Path) -> None:
    path = tmp_path / "weft.yaml"
    path.write_text("include: &all ['*/a/*']\nexclude: *all\nheaders: {A: &v '$${HOME}', B: *v}\n")
    found = load(path, environment={}).config
    assert found.scope.include == found.scope.exclude == ("*/a/*",)
    assert found.fetch.headers == {"A": "${HOME}", "B": "${HOME}"}


def test_the_command_line_says_so_and_writes_nothing(tmp_path: Path) -> None:
    data, alias = tmp_path / "data", tmp_path / "alias.yaml"
    alias.write_text("headers: &a\n  x: *a\n")
    crawl: list[Any] = ["crawl", "http://127.0.0.1:1/", "--allow-private", "--data-dir", data]
    for args, told in (
        ([*crawl, "--fetcher-workers", "99999999999999999999999"], "use a whole number from 1 to 10,000"),
        ([*crawl, "--email", b"caf\xe9"], "--email: 'caf\\xe9' is not UTF-8 text"),
        ([*crawl, b"--email=caf\xe9"], "--email: 'caf\\xe9' is not UTF-8 text"),
        (["crawl", "--data-dir", bytes(tmp_path) + b"/\xe9"], "--data-dir: '"),
        (["stats", bytes(tmp_path) + b"/\xe9"], "argument: '"),
        ([*crawl, "--config", alias], "alias.yaml:1: this value holds itself"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "weft", *args], capture_output=True, text=True, timeout=patience(60)
        )
        assert ended.returncode == 2, ended
        assert told in ended.stderr
        assert "internal error" not in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["alias.yaml"]
