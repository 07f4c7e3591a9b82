"""Version ranges of npm and of Python packages: which versions they admit, how far behind the newest they are. Pure.

npm's ranges are read here (`^1.2`, `~1.2.3`, `1.x`, `>=1 <3`, `1.2 - 2`, `||`), Python's by `packaging`; Poetry's
carets and tildes mean what npm's do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

MAJOR, MINOR, PATCH = "major", "minor", "patch"
_VERSION = re.compile(r"[v=\s]*(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_PARTIAL = (
    r"[v=\s]*(\d{1,9}|[xX*])?(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_COMPARATOR = re.compile(rf"(\^|~>?|>=|<=|>|<|=)?{_PARTIAL}")
_WILD_THEN_NUMBER = re.compile(r"[xX*]\.\d")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
_MAX_CHARS = 200


class Version(NamedTuple):
    """A semantic version; `pre` sorts as the specification says, and above all pre-releases without one."""

    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)

    @property
    def is_final(self) -> bool:
        """Whether it is not a pre-release."""
        return self.pre == _FINAL_PRE_KEY


_FINAL_PRE_KEY = ((2, 0, ""),)
_LOWEST_PRE_KEY: tuple[tuple[int, int, str], ...] = ()  # the upper bounds that carets and tildes represent
Test = Callable[[Version], bool]


def version(text: str) -> Version | None:
    """Parses a semantic version; None if it is not one."""
    match = _VERSION.fullmatch(text.strip())
    return None if match is None else Version(int(match[1]), int(match[2]), int(match[3]), _pre_release_key(match[4]))


def npm_range(text: str) -> Test | None:
    """Parses an npm range into a test of versions; None for what is not a range: a tag, a URL, a path."""
    if len(text) > _MAX_CHARS:
        return None
    alternatives = [_comparator_set(part.strip()) for part in text.split("||")]
    tests = [test for test in alternatives if test is not None]
    if len(tests) < len(alternatives):
        return None
    return lambda candidate: any(test(candidate) for test in tests)


def npm_texts(text: str) -> Callable[[str], bool] | None:
    """Like `npm_range`, for a test of versions as texts."""
    test = npm_range(text)
    return None if test is None else lambda candidate: (parsed := version(candidate)) is not None and test(parsed)


def python_range(text: str) -> Callable[[str], bool] | None:
    """Parses a Python version specifier into a test of versions as texts; None for what is not one."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if text.startswith(("^", "~")) and not text.startswith("~="):
        test = npm_range(text)
        return None if test is None else lambda candidate: (parsed := padded(candidate)) is not None and test(parsed)
    try:
        specifiers = SpecifierSet("" if text.strip() == "*" else text)
    except InvalidSpecifier:
        return None
    return lambda candidate: specifiers.contains(candidate, prereleases=True)


def padded(text: str) -> Version | None:
    """A Python version as a semantic one: its first three numbers; None if it is not a final release."""
    match = re.fullmatch(r"(?:0!)?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:\.\d+)*(?:\.post\d+)?", text)
    return None if match is None else Version(int(match[1]), int(match[2] or 0), int(match[3] or 0))


def newest(candidates: Iterable[str], read: Callable[[str], Version | None]) -> str | None:
    """The newest final version of some texts; `read` parses one of them."""
    finals = [(parsed, text) for text in candidates if (parsed := read(text)) is not None and parsed.is_final]
    return max(finals, default=(None, None))[1]


def behind(wanted: Version, latest: Version) -> str:
    """The first component in which a version is behind the latest: major, minor or patch."""
    return MAJOR if latest.major != wanted.major else MINOR if latest.minor != wanted.minor else PATCH


def _pre_release_key(text: str | None) -> tuple[tuple[int, int, str], ...]:
    if not text:
        return _FINAL_PRE_KEY
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in text.split("."))


def _comparator_set(text: str) -> Test | None:
    """Parses comparators that must all hold (between two `||`). A pre-release needs a comparator of the
    same version.
    """
    if hyphen := _HYPHEN.fullmatch(text):
        text = f">={hyphen[1]} <={hyphen[2]}"
    parts = re.sub(r"(\^|~>?|>=|<=|>|<|=)\s+", r"\1", text).split() or ["*"]
    bounds: list[tuple[str, Version]] = []
    for part in parts:
        match = _COMPARATOR.fullmatch(part)
        if match is None or part in ("^", "~", "~>") or _WILD_THEN_NUMBER.search(part):
            return None
        bounds += _comparator_bounds(match[1] or "", list(match.groups()[1:4]), match[5])

    def test(candidate: Version) -> bool:
        if not all(_satisfies(candidate, operator, bound) for operator, bound in bounds):
            return False
        return candidate.is_final or any(
            bound.pre not in (_FINAL_PRE_KEY, _LOWEST_PRE_KEY) and bound[:3] == candidate[:3] for _, bound in bounds
        )

    return test


def _comparator_bounds(operator: str, parts: list[str | None], pre: str | None) -> list[tuple[str, Version]]:
    """Expands a comparator into plain bounds: `^1.2` is `>=1.2.0 <2.0.0`."""
    known: list[int] = []
    for part in parts:
        if part is None or not part.isdigit():
            break
        known.append(int(part))
    if not known:  # `*` admits all, `<*` and `>*` nothing
        return [("<", Version(0, 0, 0, _LOWEST_PRE_KEY))] if operator in ("<", ">") else []
    major, minor, patch = [*known, 0, 0][:3]
    low = Version(major, minor, patch, _pre_release_key(pre) if len(known) == 3 else _FINAL_PRE_KEY)
    if operator == "^":
        place = next((index for index, number in enumerate(known) if number), len(known) - 1)
        return [(">=", low), ("<", _upper_bound(low, place))]
    if operator.startswith("~"):
        return [(">=", low), ("<", _upper_bound(low, min(1, len(known) - 1)))]
    if len(known) == 3:
        return [(operator or "=", low)]
    after = _upper_bound(low, len(known) - 1)
    return {
        ">": [(">=", after._replace(pre=_FINAL_PRE_KEY))],
        "<=": [("<", after)],
        ">=": [(">=", low)],
        "<": [("<", low._replace(pre=_LOWEST_PRE_KEY))],
    }.get(operator, [(">=", low), ("<", after)])


def _upper_bound(low: Version, place: int) -> Version:
    """The upper bound of a range: the first version that differs in a component, below all of its pre-releases."""
    major, minor, patch = low.major, low.minor, low.patch
    numbers = ((major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1))
    return Version(*numbers[place], pre=_LOWEST_PRE_KEY)


def _satisfies(candidate: Version, operator: str, bound: Version) -> bool:
    if operator == ">=":
        return candidate >= bound
    if operator == "<=":
        return candidate <= bound
    if operator == ">":
        return candidate > bound
    return candidate < bound if operator == "<" else candidate == bound
