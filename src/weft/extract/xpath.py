"""XPath over a Tree: the part of XPath 1.0 that picks elements, attributes and texts; parsed and checked here.

    path        /a/b, //a, .//a, ../a, a | b, (//a)[1]; ends in an element, @name or text()
    axes        child, descendant, descendant-or-self, self, parent, ancestor, ancestor-or-self, following-sibling,
                preceding-sibling, attribute
    predicates  [3], [last()], [@href], [a/b], and, or, not(), = != < <= > >=, position(), last(), count(), contains(),
                starts-with(), normalize-space(), string-length(), string(), name(), + and -

Everything else (variables, other operators, functions and axes) is refused by name. Steps are counted against the
page's budget, so that no path takes longer than a page of that length may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from weft.extract.budget import Budget
from weft.extract.tree import NO_ELEMENT, Tree

MAX_CHARS = 1000
MAX_NESTING = 8
_CHARS_A_STEP = 64  # of text that is compared

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"[^\"]*\"|'[^']*')|(?P<number>\d+(?:\.\d*)?+|\.\d+)|(?P<axis>[a-z-]+)\s*::"
    r"|(?P<name>[^\W\d][\w.:-]*+)(?P<call>\s*\()?|(?P<sign>//|\.\.|!=|<=|>=|[/.@*\[\]()|=<>,$+-]))"
)
_AXES = frozenset(
    "child descendant descendant-or-self self parent ancestor ancestor-or-self following-sibling preceding-sibling "
    "attribute".split()
)
_REVERSE = frozenset(("parent", "ancestor", "ancestor-or-self", "preceding-sibling"))
_ARGUMENTS = {
    "not": (1, 1), "count": (1, 1), "contains": (2, 2), "starts-with": (2, 2), "normalize-space": (0, 1),
    "string-length": (0, 1), "string": (0, 1), "position": (0, 0), "last": (0, 0), "name": (0, 0),
}  # fmt: skip
_COMPARE: dict[str, Callable[[float | str, float | str], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,  # type: ignore[operator]
    "<=": lambda one, other: one <= other,  # type: ignore[operator]
    ">": lambda one, other: one > other,  # type: ignore[operator]
    ">=": lambda one, other: one >= other,  # type: ignore[operator]
}

Node: TypeAlias = "int | str"  # an element's number; the value of an attribute or a text
Value: TypeAlias = "list[Node] | str | float | bool"


class BadPath(ValueError):
    """A path that cannot be used: its `str` says why."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What a predicate is asked about."""

    tree: Tree
    node: Node
    position: int
    size: int
    budget: Budget


_Expression = Callable[[_Context], Value]


@dataclass(slots=True)
class _Step:
    axis: str
    test: str  # a tag, `*`, `node()`, `text()`; an attribute's name
    predicates: list[_Expression] = field(default_factory=list)
    is_deep: bool = False  # behind `//`


@dataclass(slots=True)
class _Path:
    is_absolute: bool
    steps: list[_Step]
    inner: Path | None = None  # in parentheses, before the steps
    picked: _Step = field(default_factory=lambda: _Step("self", "node()"))  # what of it

    @property
    def gives_texts(self) -> bool:
        """Whether it ends in attributes or texts."""
        if not self.steps:
            return self.inner is not None and self.inner.gives_texts
        return self.steps[-1].axis == "attribute" or self.steps[-1].test == "text()"

    def find(self, tree: Tree, node: Node, budget: Budget) -> list[Node]:
        """What it leads to, from a node; NO_ELEMENT is the document."""
        found: list[Node] = [NO_ELEMENT if self.is_absolute else node]
        if self.inner is not None:
            found = _filtered(tree, self.picked, self.inner.find(tree, node, budget), budget)
        for step in self.steps:
            found = _walk(tree, step, found, budget)
        return found


@dataclass(slots=True)
class Path:
    """A path that was checked."""

    text: str
    alternatives: list[_Path]

    @property
    def gives_texts(self) -> bool:
        """Whether it ends in attributes or texts, not in elements."""
        return any(path.gives_texts for path in self.alternatives)

    def find(self, tree: Tree, number: Node, budget: Budget) -> list[Node]:
        """What it leads to from an element: elements in document order, then attributes and texts as found."""
        if len(self.alternatives) == 1:
            return self.alternatives[0].find(tree, number, budget)
        found = [node for path in self.alternatives for node in path.find(tree, number, budget)]
        return [*sorted({node for node in found if isinstance(node, int)}), *(n for n in found if isinstance(n, str))]


# ── walking ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _walk(tree: Tree, step: _Step, nodes: list[Node], budget: Budget) -> list[Node]:
    elements = [node for node in nodes if isinstance(node, int)]
    if step.is_deep and step.test == "text()" and not step.predicates:
        return list(_all_texts(tree, elements, budget))
    if step.is_deep:
        elements = _with_descendants(tree, elements, budget)
    if step.axis == "attribute":
        return list(_attributes(tree, step, elements, budget))
    if step.test == "text()":
        return [text for number in elements for text in _filtered(tree, step, _texts(tree, number, budget), budget)]
    if step.axis == "child" and len(elements) > 1:
        groups = _children(tree, step, elements, budget)
    else:
        groups = (_axis(tree, step, number, budget) for number in elements)
    found: set[Node] = set()
    for group in groups:
        found.update(_filtered(tree, step, group, budget))
    return sorted(found)


def _with_descendants(tree: Tree, elements: list[int], budget: Budget) -> list[int]:
    found: list[int] = []
    end = NO_ELEMENT
    for number in elements:
        if number >= end:
            end = tree.ends[number] if number != NO_ELEMENT else len(tree)
            found += range(number, end)
    budget.step(len(found))
    return found


def _children(tree: Tree, step: _Step, elements: list[int], budget: Budget) -> Iterator[list[Node]]:
    """The children of several elements, by parent: each element of the tag is looked at once."""
    candidates = tree.tagged(None if step.test in ("*", "node()") else step.test)
    budget.step(len(candidates))
    wanted, groups = set(elements), dict[int, list[Node]]()
    for number in candidates:
        if tree.parents[number] in wanted:
            groups.setdefault(tree.parents[number], []).append(number)
    yield from groups.values()


def _axis(tree: Tree, step: _Step, number: int, budget: Budget) -> list[Node]:
    """The elements on an axis, nearest first."""
    axis = step.axis
    if axis in ("descendant", "descendant-or-self") and step.test not in ("*", "node()"):
        found = tree.within(tree.tagged(step.test), number)
        if axis == "descendant-or-self" and number != NO_ELEMENT and tree.tags[number] == step.test:
            found = [number, *found]
        budget.step(1 + len(found))
        return list[Node](found)
    numbers = list(_numbers(tree, axis, number))
    budget.step(1 + len(numbers))
    return [one for one in numbers if step.test in ("*", "node()") or tree.tags[one] == step.test]


def _numbers(tree: Tree, axis: str, number: int) -> Iterator[int]:
    if axis == "child":
        yield from tree.kids(number)
    elif axis in ("descendant", "descendant-or-self"):
        end = tree.ends[number] if number != NO_ELEMENT else len(tree)
        yield from range(max(0, number + (axis == "descendant")), end)
    elif axis in ("following-sibling", "preceding-sibling"):
        if number != NO_ELEMENT:
            siblings, rank = tree.kids(tree.parents[number]), tree.rank(number)
            yield from siblings[rank:] if axis == "following-sibling" else reversed(siblings[: rank - 1])
    else:
        if axis in ("self", "ancestor-or-self") and number != NO_ELEMENT:
            yield number
        while axis != "self" and number != NO_ELEMENT and (number := tree.parents[number]) != NO_ELEMENT:
            yield number
            if axis == "parent":
                break


def _texts(tree: Tree, number: int, budget: Budget) -> list[Node]:
    if number == NO_ELEMENT:
        return []
    budget.step(1 + len(tree.kids(number)))
    return list[Node](tree.texts(number))


def _all_texts(tree: Tree, elements: list[int], budget: Budget) -> Iterator[Node]:
    """The texts below elements in document order, which is not that of their parents."""
    end = NO_ELEMENT
    for number in elements:
        if number >= end and len(tree):
            end = tree.ends[max(0, number)]
            budget.step(2 * (end - number))
            yield from (text for _, text in tree.nodes(max(0, number)) if text is not None)


def _attributes(tree: Tree, step: _Step, elements: list[int], budget: Budget) -> Iterator[str]:
    budget.step(len(elements))
    for number in elements:
        if number != NO_ELEMENT and (value := tree.elements[number].attr(step.test)) is not None:
            yield value


def _filtered(tree: Tree, step: _Step, group: list[Node], budget: Budget) -> list[Node]:
    for predicate in step.predicates:
        size, kept = len(group), list[Node]()
        for position, node in enumerate(group, 1):
            budget.step()
            value = predicate(_Context(tree, node, position, size, budget))
            if position == value if isinstance(value, float) else _truth(value):
                kept.append(node)
        group = kept
    return group


# ── values ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _truth(value: Value) -> bool:
    return bool(value)


def _string(value: Value, context: _Context) -> str:
    if isinstance(value, list):
        return _text_of(value[0], context) if value else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return value


def _text_of(node: Node, context: _Context) -> str:
    if isinstance(node, str):
        return node
    if node == NO_ELEMENT:
        return ""
    text = context.tree.text(node)
    context.budget.step(len(text) // _CHARS_A_STEP + (context.tree.ends[node] - node) // 8)
    return text


def _number(value: Value, context: _Context) -> float:
    if isinstance(value, float | bool):
        return float(value)
    try:
        return float(_string(value, context)[:100])
    except ValueError:
        return float("nan")


def _compared(sign: str, left: Value, right: Value, context: _Context) -> bool:
    """XPath's comparison: of a set of nodes any one may fulfil it."""
    compare = _COMPARE[sign]
    for one in _atoms(left, context):
        for other in _atoms(right, context):
            context.budget.step()
            if isinstance(left, bool) or isinstance(right, bool):
                holds = compare(float(_truth(left)), float(_truth(right)))
            elif sign in ("=", "!=") and not isinstance(one, float) and not isinstance(other, float):
                holds = compare(_string(one, context), _string(other, context))
            else:
                holds = compare(_number(one, context), _number(other, context))
            if holds:
                return True
    return False


def _atoms(value: Value, context: _Context) -> list[Value]:
    if not isinstance(value, list):
        return [value]
    return [_text_of(node, context) for node in value]


def _call(name: str, arguments: list[_Expression]) -> _Expression:
    def text(context: _Context, at: int = 0) -> str:
        return _string(arguments[at](context) if arguments else [context.node], context)

    def count(context: _Context) -> float:
        found = arguments[0](context)
        return float(len(found)) if isinstance(found, list) else float("nan")

    def tag(context: _Context) -> str:
        return context.tree.tags[context.node] if isinstance(context.node, int) else ""

    functions: dict[str, _Expression] = {
        "not": lambda context: not _truth(arguments[0](context)),
        "count": count,
        "contains": lambda context: text(context, 1) in text(context),
        "starts-with": lambda context: text(context).startswith(text(context, 1)),
        "normalize-space": lambda context: " ".join(text(context).split()),
        "string-length": lambda context: float(len(text(context))),
        "string": text,
        "position": lambda context: float(context.position),
        "last": lambda context: float(context.size),
        "name": tag,
    }
    return functions[name]


# ── parsing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=2000)
def parse(text: str) -> Path:
    """The path of a text; BadPath says what is wrong with it."""
    if len(text) > MAX_CHARS:
        raise BadPath(f"a path has at most {MAX_CHARS:,} characters, this one has {len(text):,}")
    if not text.strip():
        raise BadPath("a path is missing")
    parser = _Parser(text.strip())
    path = parser.union()
    parser.end()
    return path


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.nesting = 0
        self.token: re.Match[str] | None = None
        self._next()

    def _next(self) -> None:
        self.token = _TOKEN.match(self.text, self.at)
        if self.token is None and self.text[self.at :].strip():
            raise self._bad("is not understood")
        self.start = self.at
        self.at = self.token.end() if self.token else len(self.text)

    def _bad(self, why: str) -> BadPath:
        rest = self.text[self.start if self.token else self.at :].strip()[:30]
        return BadPath(f"{rest!r} {why}" if rest else f"{self.text!r} ends too early")

    def _is(self, sign: str) -> bool:
        return self.token is not None and self.token["sign"] == sign

    def takes(self, sign: str) -> bool:
        """Whether a sign comes next; it is passed over then."""
        if self._is(sign):
            self._next()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self.takes(sign):
            raise self._bad(f"stands where {sign!r} is expected")

    def end(self) -> None:
        """There is nothing more."""
        if self.token is not None:
            raise self._bad("is not supported there")

    def union(self) -> Path:
        """Paths with `|` between them."""
        alternatives = [self._path()]
        while self.takes("|"):
            alternatives.append(self._path())
        return Path(self.text, alternatives)

    def _path(self) -> _Path:
        if self._is("("):
            return self._of_inner()
        is_absolute = self._is("/") or self._is("//")
        is_deep = self._is("//")
        if is_absolute:
            self._next()
        return _Path(is_absolute, self._steps([self._step(is_deep)]))

    def _of_inner(self) -> _Path:
        self._expect("(")
        self._deeper()
        inner = self.union()
        self.nesting -= 1
        self._expect(")")
        picked = _Step("self", "node()")
        self._predicates(picked)
        return _Path(False, self._steps([]), inner, picked)

    def _steps(self, steps: list[_Step]) -> list[_Step]:
        while self._is("/") or self._is("//"):
            is_deep = self._is("//")
            self._next()
            if steps and (steps[-1].axis == "attribute" or steps[-1].test == "text()"):
                raise self._bad("follows an attribute or a text, which have nothing below them")
            steps.append(self._step(is_deep))
        return steps

    def _step(self, is_deep: bool) -> _Step:
        if self.takes("."):
            return _Step("self", "node()", is_deep=is_deep)
        if self.takes(".."):
            return _Step("parent", "node()", is_deep=is_deep)
        axis = "attribute" if self.takes("@") else "child"
        if self.token is not None and self.token["axis"]:
            axis = self.token["axis"]
            if axis not in _AXES:
                raise self._bad(f"is an axis that is not supported; these are: {', '.join(sorted(_AXES))}")
            self._next()
        step = _Step(axis, self._test(axis), is_deep=is_deep)
        self._predicates(step)
        return step

    def _predicates(self, step: _Step) -> None:
        while self.takes("["):
            if step.axis == "attribute":
                raise self._bad("is a predicate of an attribute; put it on the element: a[…]/@href")
            step.predicates.append(self._expression())
            self._expect("]")

    def _test(self, axis: str) -> str:
        if self._is("*") and axis != "attribute":
            self._next()
            return "*"
        if self.token is None or not self.token["name"]:
            raise self._bad("stands where a name is expected")
        name = self.token["name"]
        if not self.token["call"]:
            self._next()
            return name.lower()
        if name not in ("text", "node") or axis == "attribute":
            raise self._bad("is no step; a step is a tag, @name, text() or node()")
        if name == "text" and axis != "child":
            raise self._bad("is supported for children alone")
        self._next()
        self._expect(")")
        return f"{name}()"

    def _deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise BadPath(f"predicates, calls and parentheses nest at most {MAX_NESTING} deep")

    def _expression(self) -> _Expression:
        self._deeper()
        found = [self._conjunction()]
        while self.token is not None and self.token["name"] == "or":
            self._next()
            found.append(self._conjunction())
        self.nesting -= 1
        if len(found) == 1:
            return found[0]
        return lambda context: any(_truth(one(context)) for one in found)

    def _conjunction(self) -> _Expression:
        found = [self._comparison()]
        while self.token is not None and self.token["name"] == "and":
            self._next()
            found.append(self._comparison())
        if len(found) == 1:
            return found[0]
        return lambda context: all(_truth(one(context)) for one in found)

    def _comparison(self) -> _Expression:
        left = self._sum()
        if self.token is None or self.token["sign"] not in _COMPARE:
            return left
        sign = self.token["sign"]
        self._next()
        right = self._sum()
        return lambda context: _compared(sign, left(context), right(context), context)

    def _sum(self) -> _Expression:
        terms = [(1.0, self._operand())]
        while self._is("+") or self._is("-"):
            sign = 1.0 if self._is("+") else -1.0
            self._next()
            terms.append((sign, self._operand()))
        if len(terms) == 1:
            return terms[0][1]
        return lambda context: sum(sign * _number(term(context), context) for sign, term in terms)

    def _operand(self) -> _Expression:
        token = self.token
        if token is not None and token["string"]:
            self._next()
            string = token["string"][1:-1]
            return lambda _: string
        if token is not None and token["number"]:
            self._next()
            number = float(token["number"])
            return lambda _: number
        if self.takes("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if token is not None and token["call"] and token["name"] not in ("text", "node"):
            return self._function(token["name"])
        path = self.union()
        return lambda context: path.find(context.tree, context.node, context.budget)

    def _function(self, name: str) -> _Expression:
        if name not in _ARGUMENTS:
            known = ", ".join(f"{one}()" for one in sorted(_ARGUMENTS))
            raise self._bad(f"calls a function that is not supported; these are: {known}")
        self._next()
        arguments: list[_Expression] = []
        while not self.takes(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._expression())
        least, most = _ARGUMENTS[name]
        if not least <= len(arguments) <= most:
            raise BadPath(f"{name}() takes {least if least == most else f'{least} or {most}'} arguments")
        return _call(name, arguments)
