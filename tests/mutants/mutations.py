"""Small changes to source text, each of which a test should notice: pure, no file and no process in sight.

A mutant is one replacement at one place of a module. Python is changed where its syntax tree says, so that positions
are exact and nothing in a text or a comment is touched; Lua, which has no parser here, by its tokens (operators only).
What nobody tests for is left alone: annotations, docstrings, `__slots__`, log lines, decorators, assertions, what is
raised, and numbers above ten in constants, fields and defaults (a buffer's size is a choice, not a promise).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"),
}  # fmt: skip
_CALCULATED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"), ast.Pow: ("**", "*"),
}  # fmt: skip
_LOG_NAMES = frozenset({"log", "_log", "logger", "_logger", "logging"})
_LARGE = 10


@dataclass(frozen=True)
class Mutant:
    """One change: `text[start:end]` becomes `new`."""

    module: str  # below src/weft
    line: int
    start: int
    end: int
    new: str
    where: str  # the function, for a reader
    before: str  # the source line, or the lines of what is replaced
    after: str


def mutants_of(module: str, text: str) -> list[Mutant]:
    """All mutants of a module, in the order of their places."""
    found = _of_lua(text) if module.endswith(".lua") else _Finder(text).changes()
    return [_mutant(module, text, *change) for change in sorted(set(found))]


def is_real(text: str, mutant: Mutant) -> bool:
    """Whether the changed module compiles, and to something else: parsing costs too much to ask for all of them."""
    if mutant.module.endswith(".lua"):
        return True
    try:
        return ast.dump(ast.parse(apply(text, mutant))) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def apply(text: str, mutant: Mutant) -> str:
    """The module's text with the change made."""
    return text[: mutant.start] + mutant.new + text[mutant.end :]


Change = tuple[int, int, str, str]  # start, end, what comes there, the function around it


def _mutant(module: str, text: str, start: int, end: int, new: str, where: str) -> Mutant:
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    before = " ".join(text[first:last].split())
    after = " ".join((text[first:start] + new + text[end:last]).split())
    return Mutant(module, text.count("\n", 0, start) + 1, start, end, new, where, before, after)


class _Finder(ast.NodeVisitor):
    """Walks a module and notes what can be changed where."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tree = ast.parse(text)
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._names: list[str] = []
        self._in_functions = 0
        self._found: list[Change] = []

    def changes(self) -> list[Change]:
        self.visit(self._tree)
        return self._found

    # ── where things are ───────────────────────────────────────────────────────────────────────────────────────────

    def _offset(self, line: int, column: int) -> int:
        """A character's place in the text; the tree counts bytes of a line."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self._found.append((*self._span(node), new, ".".join(self._names)))

    def _swap_between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Changes the operator that stands between two expressions, wherever their parentheses are."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = old if "\\" in old else re.escape(old)
        if old[0].isalpha():
            pattern = rf"\b{pattern}\b"
        if match := re.search(pattern, self._text[start:end]):
            self._found.append((start + match.start(), start + match.end(), new, ".".join(self._names)))

    # ── what is left alone ─────────────────────────────────────────────────────────────────────────────────────────

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for readers, and before Python 3.12 the positions in them are not exact."""

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned([node.target], node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of `zip`: an assertion
            self.generic_visit(node)

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in node.body):
            return  # of a protocol: nothing runs
        self._names.append(node.name)
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
            if not _is_a_choice(default):
                self.visit(default)
        self._in_functions += 1
        for statement in node.body:
            self.visit(statement)
        self._in_functions -= 1
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._of_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._of_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node.targets, node.value)

    def _assigned(self, targets: list[ast.expr], value: ast.expr) -> None:
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if "__slots__" in names:
            return
        if not self._in_functions and names and _is_a_choice(value):
            return
        for target in targets:
            self.visit(target)
        self.visit(value)

    # ── what is changed ────────────────────────────────────────────────────────────────────────────────────────────

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """A condition without an operator that could be changed instead."""
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            start, end = self._span(test)
            self._replace(test, f"not {self._text[start:end]}")

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._swap_between(left, right, *_COMPARED[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._swap_between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node.operand)
            self._replace(node, self._text[start:end])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.Constant)
        is_text = any(
            isinstance(side, texts) and not isinstance(getattr(side, "value", None), int | float)
            for side in (node.left, node.right)
        )
        if type(node.op) in _CALCULATED and not is_text:
            self._swap_between(node.left, node.right, *_CALCULATED[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in (ast.Add, ast.Sub):
            old, new = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
            self._swap_between(node.target, node.value, old, new)
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace(node, f"({node.value + 1})")
            if node.value:
                self._replace(node, f"({node.value - 1})")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_log_line(node.value):
            return
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self._replace(node.func, "max" if node.func.id == "min" else "min")
        self.generic_visit(node)


def _is_a_choice(value: ast.expr) -> bool:
    """Whether a number above ten is in it."""
    numbers = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
    return any(isinstance(one, int | float) and abs(one) > _LARGE for one in numbers)


def _is_log_line(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return name in _LOG_NAMES


# ── Lua ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_LUA_TOKEN = re.compile(
    r"(?P<skip>--\[\[.*?\]\]|--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|\[\[.*?\]\])"
    r"|(?P<function>\bfunction\s+(?P<name>[\w.:]+))"
    r"|(?P<word>\b(?:and|or|not|true|false|math\.min|math\.max)\b)"
    r"|(?P<compared><=|>=|==|~=|<|>)"
    r"|(?P<plus>(?<=\s)[+-](?=\s))",
    re.DOTALL,
)
_LUA_SWAPS = {
    "and": "or", "or": "and", "not": "", "true": "false", "false": "true", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "==": "~=", "~=": "==", "+": "-", "-": "+", "math.min": "math.max", "math.max": "math.min",
}  # fmt: skip


def _of_lua(text: str) -> Iterator[Change]:
    where = ""
    for token in _LUA_TOKEN.finditer(text):
        if token["skip"]:
            continue
        if token["function"]:
            where = token["name"]
        else:
            yield *token.span(), _LUA_SWAPS[token[0]], where
