"""Conditions of stages: small expressions over `item`, `results`, `settings` and `config`. Nothing is evaluated as
code.

    results.clone.changed and item.branch != "gh-pages" and len(item["tags"]) > 0

The text is parsed as a Python expression and turned into closures; only what is listed here is accepted. A field that
is missing is None; a comparison of values that have no order is false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Container, Mapping, Sequence, Sized
from typing import Any

from weft.errors import BadInput

Names = Mapping[str, Any]
Condition = Callable[[Names], Any]
ROOTS = ("item", "results", "settings", "config")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_MAX_CHARS = 2_000
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: isinstance(many, Container) and one in many,
    ast.NotIn: lambda one, many: not (isinstance(many, Container) and one in many),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def compile_condition(text: str, stages: Sequence[str]) -> Condition:
    """Compiles a condition into a function of its names; raises BadInput if it is invalid, or reads results of other
    stages.
    """
    if len(text) > _MAX_CHARS:
        raise BadInput(f"the condition is longer than {_MAX_CHARS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _compile_node(tree.body, stages)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise BadInput(f"{text!r} is no condition: {why}; write something like item.size > 1000") from None


def uses_results(text: str) -> bool:
    """Whether a condition may read `results`, which must be available then."""
    return "results" in text


def _compile_node(node: ast.expr, stages: Sequence[str]) -> Condition:
    def inner(part: ast.expr) -> Condition:
        return _compile_node(part, stages)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda _: value
        case ast.Name(id=name):
            return _compile_name(name)
        case ast.Attribute(value=holder, attr=key):
            _check_stage(holder, key, stages)
            return _compile_field(inner(holder), lambda _: key)
        case ast.Subscript(value=holder, slice=key_node):
            if isinstance(key_node, ast.Constant):
                _check_stage(holder, key_node.value, stages)
            return _compile_field(inner(holder), inner(key_node))
        case ast.BoolOp(op=ast.And(), values=parts):
            return _compile_and([inner(part) for part in parts])
        case ast.BoolOp(op=ast.Or(), values=parts):
            return _compile_or([inner(part) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=part):
            negated = inner(part)
            return lambda names: not negated(names)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _: -number
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return _compile_comparison(inner(left), ops, [inner(right) for right in rights])
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            made = [inner(part) for part in parts]
            return lambda names: [one(names) for one in made]
        case ast.Call(func=ast.Name(id="len"), args=[part], keywords=[]):
            measured = inner(part)
            return lambda names: _length_of(measured(names))
    raise BadInput(
        f"{ast.unparse(node)!r} is not allowed in a condition: use names, fields, constants, comparisons, in, and, or, "
        "not, len(), or name a function as package.module:function"
    )


def _compile_name(name: str) -> Condition:
    if name in ROOTS:
        return operator.itemgetter(name)
    if name.lower() in _CONSTANTS:
        constant = _CONSTANTS[name.lower()]
        return lambda _: constant
    raise BadInput(f"there is no {name!r} here; a condition is about {', '.join(ROOTS)}")


def _check_stage(holder: ast.expr, key: Any, stages: Sequence[str]) -> None:
    if isinstance(holder, ast.Name) and holder.id == "results" and key not in stages:
        raise BadInput(f"it reads results of {key!r}: name that stage under needs or after")


def _compile_field(holder: Condition, key: Condition) -> Condition:
    def get(names: Names) -> Any:
        value, name = holder(names), key(names)
        if isinstance(value, Mapping):
            return value.get(name)
        if isinstance(value, list | str) and isinstance(name, int) and -len(value) <= name < len(value):
            return value[name]
        return None

    return get


def _compile_and(parts: list[Condition]) -> Condition:
    return lambda names: all(part(names) for part in parts)


def _compile_or(parts: list[Condition]) -> Condition:
    return lambda names: any(part(names) for part in parts)


def _compile_comparison(left: Condition, ops: list[ast.cmpop], rights: list[Condition]) -> Condition:
    tests = [_COMPARISONS[type(op)] for op in ops]

    def compare(names: Names) -> bool:
        one = left(names)
        for test, right in zip(tests, rights, strict=True):
            other = right(names)
            try:
                if not test(one, other):
                    return False
            except TypeError:
                return False
            one = other
        return True

    return compare


def _length_of(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 0
