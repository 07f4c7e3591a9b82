"""Version ranges: what they admit, and what is behind. The npm cases agree with npm's own `semver`."""

from __future__ import annotations

import pytest

from weft.pipelines.builtin.modules.registries import versions
from weft.pipelines.builtin.modules.registries.outdated import compared
from weft.pipelines.builtin.modules.registries.registry import NPM, PYPI, Released


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("^1.2.3", "1.2.3 1.9.0 1.2.4", "1.2.2 2.0.0 0.9.9 2.0.0-0 1.3.0-beta"),
        ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2 1.0.0"),
        ("^0.0.3", "0.0.3", "0.0.4 0.0.2"),
        ("^1", "1.0.0 1.9.9", "2.0.0 0.9.9"),
        ("^0", "0.0.0 0.9.9", "1.0.0"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.9", "2.0.0"),
        ("~>1.2.3", "1.2.3 1.2.9", "1.3.0"),
        ("1.x", "1.0.0 1.9.0", "2.0.0 0.9.0"),
        ("1.2.*", "1.2.0 1.2.7", "1.3.0"),
        ("1", "1.0.0 1.9.9", "2.0.0"),
        ("*", "0.0.1 9.9.9", "1.0.0-beta"),
        ("", "0.0.1 9.9.9", ""),
        ("1.2.3", "1.2.3 1.2.3+build", "1.2.4"),
        ("v1.2.3", "1.2.3", "1.2.4"),
        ("=1.2.3", "1.2.3", "1.2.2"),
        (">=1.2.3 <2", "1.2.3 1.9.9", "2.0.0 1.2.2"),
        (">= 1.2.3", "1.2.3 9.0.0", "1.2.2"),
        (">1.2", "1.3.0", "1.2.9 1.2.0"),
        ("<=1.2", "1.2.9 0.1.0", "1.3.0"),
        ("<1.2", "1.1.9", "1.2.0"),
        (">1.2.3", "1.2.4", "1.2.3"),
        ("<=1.2.3", "1.2.3", "1.2.4"),
        ("1.2.3 - 2.3.4", "1.2.3 2.3.4", "2.3.5 1.2.2"),
        ("1.2 - 2.3", "1.2.0 2.3.9", "2.4.0"),
        ("1.2 - 2", "2.9.9", "3.0.0"),
        ("^1.0.0 || ^2.0.0", "1.5.0 2.5.0", "3.0.0"),
        ("^1.2.3-beta.2", "1.2.3-beta.2 1.2.3-beta.10 1.2.3 1.4.0", "1.2.3-beta.1 1.2.4-beta.2 2.0.0"),
        (">1.2.3-alpha", "1.2.3-beta 1.2.3", "1.2.3-alpha 1.2.3-9"),
        ("<*", "", "1.0.0"),
    ],
)
def test_an_npm_range_admits_what_npm_admits(text: str, inside: str, outside: str) -> None:
    admits = versions.npm_texts(text)
    assert admits is not None
    assert [one for one in inside.split() if not admits(one)] == []
    assert [one for one in outside.split() if admits(one)] == []


@pytest.mark.parametrize(
    "text", ["latest", "git+https://host/a.git", "file:../x", "ada/clock", "^", "1.2.3.4", "x" * 999]
)
def test_what_is_no_range_is_not_judged(text: str) -> None:
    assert versions.npm_range(text) is None


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=2.0,<3", "2.0 2.9.1", "3.0 1.9"),
        ("~=1.4", "1.4 1.9", "2.0 1.3"),
        ("", "0.1 9", ""),
        ("*", "0.1 9", ""),
        ("^1.2", "1.2 1.9.9", "2.0 1.1"),
        ("~1.2", "1.2 1.2.9", "1.3"),
        ("==1.0", "1.0 1.0.0", "1.0.1"),
    ],
)
def test_a_python_range_admits_what_pip_and_poetry_admit(text: str, inside: str, outside: str) -> None:
    admits = versions.python_range(text)
    assert admits is not None
    assert [one for one in inside.split() if not admits(one)] == []
    assert [one for one in outside.split() if admits(one)] == []


def test_a_python_range_that_is_none_is_not_judged() -> None:
    assert versions.python_range("whatever you like") is None


def test_pre_releases_sort_as_the_specification_says() -> None:
    order = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0".split()
    read = [found for text in order if (found := versions.version(text)) is not None]
    assert len(read) == len(order) and sorted(set(read)) == read


@pytest.mark.parametrize(
    ("kind", "said", "all_versions", "expected"),
    [
        (NPM, "^1.0.0", "1.0.0 1.5.0", {}),
        (NPM, "^1.0.0", "1.0.0 1.5.0 2.0.0", {"wanted": "1.5.0", "latest": "2.0.0", "behind": "major"}),
        (NPM, "~1.4.0", "1.4.7 1.5.0", {"wanted": "1.4.7", "latest": "1.5.0", "behind": "minor"}),
        (NPM, "1.5.0", "1.5.0 1.5.1", {"wanted": "1.5.0", "latest": "1.5.1", "behind": "patch"}),
        (NPM, "^0.1.0", "3.0.0", {"wanted": "", "latest": "3.0.0", "behind": "major"}),
        (NPM, "github:ada/clock", "1.0.0", None),
        (PYPI, "<2", "1.9 2.1", {"wanted": "1.9", "latest": "2.1", "behind": "major"}),
        (PYPI, ">=1", "1.9 2.1", {}),
        (PYPI, "==2.0", "2.0 2.0.1 2.1rc1", {"wanted": "2.0", "latest": "2.0.1", "behind": "patch"}),
    ],
)
def test_a_range_is_behind_when_it_does_not_admit_the_newest(
    kind: str, said: str, all_versions: str, expected: dict[str, str] | None
) -> None:
    names = tuple(all_versions.split())
    read = versions.version if kind == NPM else versions.padded
    assert compared(kind, said, Released(versions.newest(names, read), names)) == expected


def test_a_range_above_what_the_registry_calls_the_latest_is_not_behind() -> None:
    assert compared(NPM, "^3.0.0", Released("2.9.0", ("2.9.0", "3.0.0"))) == {}
