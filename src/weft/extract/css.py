"""CSS selectors over a Tree: parsed and checked here, so that both parsers understand them alike.

Supported: tags and `*`, `.class`, `#id`, attributes with all operators and the flags `i` and `s`, all four
combinators, lists, `:not()`, `:is()`, `:where()`, `:has()` (one compound, optionally behind a combinator), `:root`,
`:empty`, and the structural pseudo-classes. Everything else is refused by name.

A selector is searched for once in the whole page, one compound after the other, each time for all elements at once:
linear in the page for each compound, however deep it nests. Names of classes and ids are case-sensitive.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from weft.extract.budget import Budget
from weft.extract.tree import NO_ELEMENT, Tree

MAX_CHARS = 1000
MAX_NESTING = 4  # of :not() in :is() and so on

# Possessive throughout: a text that fails to match must not be tried in every other way.
_ESCAPED = r"\\[0-9a-fA-F]{1,6}+\s?+|\\[^\n0-9a-fA-F]"
_REST = rf"(?:[A-Za-z0-9_-]|[^\x00-\x7f]|{_ESCAPED})"
_IDENT = rf"(?:--|-?+(?:[A-Za-z_]|[^\x00-\x7f]|{_ESCAPED})){_REST}*+"
_STRING = r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'"
_TOKEN = re.compile(
    rf"(?P<space>\s++(?:[>+~,]\s*+)?+|[>+~,]\s*+)|(?P<type>\*|{_IDENT})|\#(?P<id>{_REST}++)|\.(?P<class>{_IDENT})"
    rf"|\[\s*+(?P<name>{_IDENT})\s*+(?:(?P<op>[~|^$*]?=)\s*+(?P<value>{_STRING}|{_REST}++)"
    rf"\s*+(?P<flag>[iIsS]\s*+)?)?\]"
    rf"|:(?P<pseudo>{_IDENT})(?P<open>\()?"
)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_NTH = re.compile(r"\s*(?:(odd|even)|([+-]?\d*)n\s*(?:([+-])\s*(\d+))?|([+-]?\d+))\s*", re.IGNORECASE)
_PLACES = {  # pseudo-class -> (of the same tag, from the end)
    "nth-child": (False, False), "nth-last-child": (False, True),
    "nth-of-type": (True, False), "nth-last-of-type": (True, True),
}  # fmt: skip
_ENDS = {  # pseudo-class -> (of the same tag, first, last)
    "first-child": (False, True, False), "last-child": (False, False, True), "only-child": (False, True, True),
    "first-of-type": (True, True, False), "last-of-type": (True, False, True), "only-of-type": (True, True, True),
}  # fmt: skip
_PLAIN = "a selector has tags, .classes, #ids, [attributes], combinators and :pseudo-classes"

Test = Callable[[Tree, int, Budget], bool]


class BadSelector(ValueError):
    """A selector that cannot be used: its `str` says why."""


@dataclass(slots=True)
class _Compound:
    tag: str | None = None
    tests: list[Test] = field(default_factory=list)
    is_given: bool = False


@dataclass(slots=True)
class Selector:
    """A selector that was checked; equal texts are the same object."""

    text: str
    alternatives: list[list[tuple[str, _Compound]]]  # each compound behind the combinator before it

    def find(self, tree: Tree, budget: Budget) -> list[int]:
        """All elements of the page that match, in document order."""
        known = tree.found.get(self.text)
        if known is None:
            one, *others = (_find(tree, parts, budget) for parts in self.alternatives)
            known = sorted(set(one).union(*others)) if others else one
            tree.found[self.text] = known
        return known


def _find(tree: Tree, parts: list[tuple[str, _Compound]], budget: Budget) -> list[int]:
    found: list[int] = []
    for combinator, compound in parts:
        candidates = tree.tagged(compound.tag)
        budget.step(len(candidates) + len(found))
        if combinator:
            candidates = _JOINS[combinator](tree, found, candidates)
        for test in compound.tests:
            budget.step(len(candidates))
            candidates = [number for number in candidates if test(tree, number, budget)]
        found = candidates
    return found


def _descendants(tree: Tree, above: list[int], candidates: list[int]) -> list[int]:
    """Those that are below one of `above`: outer ranges are taken whole, so that no candidate is looked at twice."""
    found: list[int] = []
    end = 0
    for number in above:
        if number >= end:
            found += tree.within(candidates, number)
            end = tree.ends[number]
    return found


def _children(tree: Tree, above: list[int], candidates: list[int]) -> list[int]:
    wanted = set(above)
    return [number for number in candidates if tree.parents[number] in wanted]


def _next(tree: Tree, before: list[int], candidates: list[int]) -> list[int]:
    wanted = set(before)
    return [number for number in candidates if _previous(tree, number) in wanted]


def _later(tree: Tree, before: list[int], candidates: list[int]) -> list[int]:
    first: dict[int, int] = {}
    for number in before:
        first.setdefault(tree.parents[number], number)
    return [number for number in candidates if first.get(tree.parents[number], number) < number]


_JOINS = {" ": _descendants, ">": _children, "+": _next, "~": _later}


def _previous(tree: Tree, number: int) -> int:
    """The sibling before an element; NO_ELEMENT for the first."""
    rank = tree.rank(number)
    return tree.kids(tree.parents[number])[rank - 2] if rank > 1 else NO_ELEMENT


# ── parsing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=2000)
def parse(text: str) -> Selector:
    """The selector of a text; BadSelector says what is wrong with it."""
    if len(text) > MAX_CHARS:
        raise BadSelector(f"a selector has at most {MAX_CHARS:,} characters, this one has {len(text):,}")
    if not text.strip():
        raise BadSelector("a selector is missing")
    parser = _Parser(text.strip())
    return Selector(text, parser.alternatives(0, ""))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def alternatives(self, nesting: int, end: str) -> list[list[tuple[str, _Compound]]]:
        """What is between commas, up to `end`."""
        if nesting > MAX_NESTING:
            raise BadSelector(f"pseudo-classes nest at most {MAX_NESTING} deep")
        found: list[list[tuple[str, _Compound]]] = [[("", _Compound())]]
        while self.at < len(self.text):
            if end and self.text.startswith(end, self.at):
                break
            self._token(found, nesting)
        if end:
            self._expect(end)
        for parts in found:
            if not parts[-1][1].is_given:
                raise BadSelector(f"{self.text!r} has nothing behind a comma or a combinator, or begins with one")
        return found

    def _token(self, found: list[list[tuple[str, _Compound]]], nesting: int) -> None:
        token = _TOKEN.match(self.text, self.at)
        if token is None:
            raise BadSelector(f"{self.text[self.at :][:30]!r} is not understood; {_PLAIN}")
        start, self.at = self.at, token.end()
        compound = found[-1][-1][1]
        if token["space"]:
            combinator = token["space"].strip()
            if combinator or (compound.is_given and self.text[self.at : self.at + 1] not in (")", "")):
                self._combine(found, combinator or " ")
        elif token["type"]:
            if compound.is_given:
                raise BadSelector(f"{self.text[start:][:30]!r}: a tag stands before what is said of it")
            compound.tag = None if token["type"] == "*" else _plain(token["type"]).lower()
            compound.is_given = True
        else:
            compound.tests.append(self._test(token, nesting))
            compound.is_given = True

    def _combine(self, found: list[list[tuple[str, _Compound]]], combinator: str) -> None:
        if not found[-1][-1][1].is_given:
            raise BadSelector(f"{self.text!r} has nothing before {combinator!r}")
        if combinator == ",":
            found.append([("", _Compound())])
        else:
            found[-1].append((combinator, _Compound()))

    def _test(self, token: re.Match[str], nesting: int) -> Test:
        if token["id"]:
            return _has_value("id", "=", _plain(token["id"]), False)
        if token["class"]:
            return _has_value("class", "~=", _plain(token["class"]), False)
        if token["name"]:
            name = _plain(token["name"]).lower()
            if token["op"] is None:
                return lambda tree, number, _: tree.elements[number].attr(name) is not None
            ignore_case = (token["flag"] or "").strip().lower() == "i"
            return _has_value(name, token["op"], _unquoted(token["value"]), ignore_case)
        return self._pseudo(_plain(token["pseudo"]).lower(), bool(token["open"]), nesting)

    def _pseudo(self, name: str, has_arguments: bool, nesting: int) -> Test:
        if has_arguments and name in _PLACES:
            return self._place(name)
        if has_arguments and name in ("is", "where", "not"):
            inner = Selector(self.text[self.at :], self.alternatives(nesting + 1, ")"))
            inner.text = f"{len(inner.text)}:{self.text}"  # what it is kept under: it has a place in its selector
            return _is_one(inner, name != "not")
        if has_arguments and name == "has":
            return self._has(nesting)
        if not has_arguments and name in _ENDS:
            return _is_at_end(*_ENDS[name])
        if not has_arguments and name == "root":
            return lambda tree, number, _: tree.parents[number] == NO_ELEMENT
        if not has_arguments and name == "empty":
            return lambda tree, number, _: tree.ends[number] == number + 1 and not tree.text(number)
        known = ", ".join(sorted([*_ENDS, *(f"{one}()" for one in (*_PLACES, "has", "is", "not")), "empty", "root"]))
        raise BadSelector(f":{name}{'()' * has_arguments} is not supported; these are: {known}")

    def _place(self, name: str) -> Test:
        match = _NTH.match(self.text, self.at)
        if match is None or not match[0].strip():
            raise BadSelector(f":{name}() has a number, odd, even, or a step such as 2n+1")
        self.at = match.end()
        self._expect(")")
        if match[1]:
            step, offset = 2, int(match[1].lower() == "odd")
        elif match[5]:
            step, offset = 0, _small(match[5])
        else:
            step = _small(match[2] + "1" if match[2] in ("", "+", "-") else match[2])
            offset = _small(f"{match[3] or ''}{match[4] or 0}")
        same_tag, from_end = _PLACES[name]
        return lambda tree, number, _: _is_in_steps(
            tree.rank(number, same_tag=same_tag, from_end=from_end), step, offset
        )

    def _has(self, nesting: int) -> Test:
        match = re.compile(r"\s*([>+~]?)\s*").match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        inner = self.alternatives(nesting + 1, ")")
        if any(len(parts) > 1 for parts in inner):
            raise BadSelector(":has() takes one compound selector, such as :has(> img.large)")
        return _Has(match[1] or " ", inner)

    def _expect(self, sign: str) -> None:
        if not self.text.startswith(sign, self.at):
            raise BadSelector(f"{sign!r} is missing before {self.text[self.at :][:30]!r}")
        self.at += len(sign)


class _Has:
    """Whether an element has others that match, in some relation to it."""

    def __init__(self, combinator: str, inner: list[list[tuple[str, _Compound]]]) -> None:
        self._combinator, self._inner = combinator, inner

    def __call__(self, tree: Tree, number: int, budget: Budget) -> bool:
        known = tree.found.get(self)
        if known is None:
            found = {one for parts in self._inner for one in _find(tree, parts, budget)}
            known = tree.found[self] = sorted(self._anchors(tree, found, budget))
        if self._combinator == " ":
            return bool(tree.within(known, number)[:1])
        place = bisect_left(known, number)
        return place < len(known) and known[place] == number

    def _anchors(self, tree: Tree, found: set[int], budget: Budget) -> set[int]:
        """The elements that `found` are in the relation to; for descendants themselves: their ranges are searched."""
        budget.step(len(found))
        if self._combinator == " ":
            return found
        if self._combinator == ">":
            return {tree.parents[one] for one in found}
        if self._combinator == "+":
            return {_previous(tree, one) for one in found}
        last: dict[int, int] = {}
        for one in found:
            last[tree.parents[one]] = max(one, last.get(tree.parents[one], 0))
        budget.step(len(tree))
        return {kid for parent, one in last.items() for kid in tree.kids(parent) if kid < one}


def _is_one(inner: Selector, wanted: bool) -> Test:
    def test(tree: Tree, number: int, budget: Budget) -> bool:
        known = inner.find(tree, budget)
        place = bisect_left(known, number)
        return (place < len(known) and known[place] == number) is wanted

    return test


def _is_at_end(same_tag: bool, first: bool, last: bool) -> Test:
    def test(tree: Tree, number: int, _: Budget) -> bool:
        if first and tree.rank(number, same_tag=same_tag) != 1:
            return False
        return not last or tree.rank(number, same_tag=same_tag, from_end=True) == 1

    return test


def _is_in_steps(rank: int, step: int, offset: int) -> bool:
    """Whether rank = step * n + offset for some n from 0."""
    return rank == offset if step == 0 else (rank - offset) % step == 0 and (rank - offset) // step >= 0


def _has_value(name: str, operator: str, value: str, ignore_case: bool) -> Test:
    holds = _OPERATORS[operator]
    value = value.lower() if ignore_case else value

    def test(tree: Tree, number: int, _: Budget) -> bool:
        given = tree.elements[number].attr(name)
        return given is not None and holds(given.lower() if ignore_case else given, value)

    return test


_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda given, value: given == value,
    "~=": lambda given, value: value in given and value in given.split() and bool(value),
    "|=": lambda given, value: given == value or given.startswith(value + "-"),
    "^=": lambda given, value: bool(value) and given.startswith(value),
    "$=": lambda given, value: bool(value) and given.endswith(value),
    "*=": lambda given, value: bool(value) and value in given,
}


def _plain(text: str) -> str:
    """A name without its escapes."""
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else "\ufffd"


def _unquoted(value: str) -> str:
    return _plain(value[1:-1] if value[0] in "\"'" else value)


def _small(digits: str) -> int:
    """A number that no page has more children than."""
    return max(-10_000_000, min(10_000_000, int(digits[:20])))
