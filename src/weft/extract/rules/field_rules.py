"""Rules: the fields of a page, by CSS, XPath, pattern or JSON-LD. The one mechanism of jobs, sites and crawls.

`compile_rules` checks a specification once (BadRules names every mistake by its path); `FieldRules.apply` reads a
page's fields. Pure. Without a match a field is null (an empty list, with `many`), or its default; a value that does not
convert is null, too, and `errors` has the reason, by the field's path: `price`, `items[2].price`.

Invariants: `apply` never raises; the size of what it gives is bounded by MAX_RESULTS, MAX_VALUE_CHARS and MAX_CHARS.
Its time is not: rules are applied in parser processes, which have a time limit (engine/parsing/parsers.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from weft.extract import turbo
from weft.extract.html_writer import written
from weft.extract.metadata import Json
from weft.extract.page import ParsedPage
from weft.extract.rules import convert
from weft.extract.rules.json_path import objects, values_at
from weft.extract.rules.rule import MAX_NESTING, MAX_RULES, TYPES, BadRules, Rule, check
from weft.extract.text.full_text import one_line
from weft.extract.turbo import Document, Element

__all__ = [
    "MAX_NESTING",
    "MAX_RESULTS",
    "MAX_RULES",
    "TYPES",
    "BadRules",
    "ExtractedFields",
    "FieldRules",
    "compile_rules",
]

MAX_RESULTS = 1000  # values of one field
MAX_VALUE_CHARS = 50_000
MAX_CHARS = 1_000_000  # of all values of a page
MAX_ERRORS = 100
_VALUE_CHARS = 16  # that a value counts for besides its text

# What a value is read from where no attribute is named.
_LINKS = {
    "a": "href", "area": "href", "link": "href", "base": "href", "img": "src", "script": "src", "iframe": "src",
    "frame": "src", "source": "src", "video": "src", "audio": "src", "embed": "src", "track": "src", "object": "data",
    "form": "action", "q": "cite", "blockquote": "cite",
}  # fmt: skip
_VALUES = {"data": "value", "meter": "value", "progress": "value", "input": "value", "option": "value"}


@dataclass(slots=True)
class ExtractedFields:
    """What was read from a page: `values` by field, and `errors` by the path of a field."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> str:
        """As a page's row has them."""
        return json.dumps(
            {"fields": self.values, "field_errors": self.errors}, ensure_ascii=False, separators=(",", ":")
        )


class TooMuch(Exception):
    """The values of a page have more characters than are kept."""


class FieldRules:
    """Rules that were checked; `spec` is what they were made of."""

    __slots__ = ("_rules", "spec")

    def __init__(self, spec: Mapping[str, Any], rules: dict[str, Rule]) -> None:
        self.spec = spec
        self._rules = rules

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, in the order of the rules."""
        return tuple(self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def apply(self, page: ParsedPage) -> ExtractedFields:
        """The fields of a page."""
        return _Reader(page).read(self._rules)

    def unread(self, why: str) -> ExtractedFields:
        """The fields of a page that the rules cannot be applied to: none, and `why` for each."""
        values: dict[str, Any] = {name: [] if rule.many else None for name, rule in self._rules.items()}
        return ExtractedFields(values, dict.fromkeys(list(values)[:MAX_ERRORS], why))


def compile_rules(spec: Mapping[str, Any], at: str = "extract") -> FieldRules:
    """Checks rules; BadRules names what is wrong, with `at` before every path. Missing: a pattern, and no RE2."""
    return FieldRules(spec, check(spec, at))


class _Reader:
    """Reads the fields of one page. A scope is the document, an element, or an object of JSON-LD."""

    def __init__(self, page: ParsedPage) -> None:
        self._page = page
        self._chars_left = MAX_CHARS
        self._errors: dict[str, str] = {}

    def read(self, rules: dict[str, Rule]) -> ExtractedFields:
        """All fields."""
        return ExtractedFields(self._object(rules, self._page.searchable, ""), self._errors)

    def _object(self, rules: dict[str, Rule], scope: Any, path: str) -> dict[str, Any]:
        return {name: self._field(rule, scope, path + name) for name, rule in rules.items()}

    def _field(self, rule: Rule, scope: Any, path: str) -> Any:
        values: list[Any] = []
        try:
            most = MAX_RESULTS if rule.many else 1
            found = self._found(rule, scope)
            for one in islice(found, most):
                values.append(self._value(rule, one, f"{path}[{len(values)}]" if rule.many else path))
            if rule.many and len(values) == most and next(found, None) is not None:
                self._fail(path, f"more than {MAX_RESULTS:,} were found; the first are kept")
        except TooMuch as error:
            self._fail(path, str(error))
            return values if rule.many else None
        if values:
            return values if rule.many else values[0]
        if rule.required:
            self._fail(path, "it is required, and was not found")
        return rule.default if rule.default is not None or not rule.many else []

    def _fail(self, path: str, why: str) -> None:
        if len(self._errors) < MAX_ERRORS:
            self._errors[path] = why

    # ── what is found ──────────────────────────────────────────────────────────────────────────────────────────────

    def _found(self, rule: Rule, scope: Any) -> Iterator[Any]:
        """Elements or objects for a rule with fields; for any other values as they are written, empty ones left out."""
        if rule.fields:
            yield from self._nodes(rule, scope)
            return
        for node in self._nodes(rule, scope):
            raw = self._raw(rule, node)
            if rule.pattern is not None:
                yield from self._matches(rule, raw)
            elif raw is not None and raw != "":
                yield raw

    def _nodes(self, rule: Rule, scope: Any) -> Iterator[Any]:
        if rule.keys is not None:
            yield from self._linked(rule.keys, scope)
        elif rule.selector is not None:
            yield from rule.selector.find(scope) if scope is not None else ()
        elif rule.path is not None:
            yield from rule.path.find(scope) if scope is not None else ()
        else:
            yield scope

    def _linked(self, keys: tuple[str, ...], scope: Any) -> Iterator[Json]:
        if isinstance(scope, dict):
            yield from values_at([scope], keys)
            return
        kind, *rest = keys
        for item in objects(self._page.json_ld, kind):
            yield from values_at([item], tuple(rest))

    def _matches(self, rule: Rule, raw: Json) -> Iterator[str]:
        assert rule.pattern is not None
        text = raw if isinstance(raw, str) else _json_text(raw)
        matches = rule.pattern.find(text, MAX_RESULTS + 1 if rule.many else 1)
        yield from (stripped for one in matches if (stripped := one.strip()))

    def _raw(self, rule: Rule, node: Any) -> Json:
        """What is written at a node: a text, or a value of JSON."""
        if rule.keys is not None:
            return node.strip() if isinstance(node, str) else node
        if isinstance(node, str):
            return _as_written(node) if rule.type == "code" else " ".join(node.split())
        if node is None:
            return self._page.text
        element: Element | None = node.root if isinstance(node, Document) else node
        if element is None:
            return ""
        attr = rule.attr or _implied(element.tag, rule.type)
        given = element.attr(attr) if attr else None
        if given is not None or rule.attr:
            return (given or "").strip()
        if rule.type == "code":
            return _as_written(turbo.text_of(element))
        return written(element) if rule.type == "html" else one_line(element)

    # ── what becomes of it ─────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, rule: Rule, found: Any, path: str) -> Any:
        if rule.fields:
            return self._inner(rule, found, path)
        try:
            return self._kept(self._converted(rule.type, found), path)
        except convert.NotConverted as error:
            self._fail(path, str(error))
            return None

    def _inner(self, rule: Rule, found: Any, path: str) -> Any:
        if rule.keys is not None and not isinstance(found, dict):
            self._fail(path, "it is a value of JSON-LD that has no fields")
            return None
        self._keep(0)
        return self._object(rule.fields, found, f"{path}.")

    def _converted(self, kind: str, raw: Json) -> str | int | float:
        if isinstance(raw, bool) or not isinstance(raw, str | int | float):
            if kind == "text" and isinstance(raw, bool):
                return _json_text(raw)
            raise convert.NotConverted(f"it is {_JSON_NAMES.get(type(raw), 'a value')} of JSON-LD, not a {kind}")
        if kind == "number":
            return convert.number(raw if isinstance(raw, str) else repr(raw))
        text = raw if isinstance(raw, str) else _json_text(raw)
        if kind == "date":
            return convert.iso_date(text)
        return convert.url(text, self._page.base) if kind == "url" else text

    def _kept(self, value: str | int | float, path: str) -> str | int | float:
        if not isinstance(value, str):
            self._keep(0)
            return value
        if len(value) > MAX_VALUE_CHARS:
            self._fail(path, f"it has {len(value):,} characters; the first {MAX_VALUE_CHARS:,} are kept")
            value = value[:MAX_VALUE_CHARS]
        self._keep(len(value))
        # Half a surrogate pair, which a broken page may have, cannot be stored.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()

    def _keep(self, chars: int) -> None:
        """Uses up room for a value."""
        self._chars_left -= chars + _VALUE_CHARS
        if self._chars_left < 0:
            raise TooMuch(f"the values of the page have more than {MAX_CHARS:,} characters")


_JSON_NAMES = {dict: "an object", list: "a list", bool: "true or false"}


def _as_written(text: str) -> str:
    """A text with its white space; empty if it has nothing else."""
    return text if text.strip() else ""


def _implied(tag: str, kind: str) -> str:
    """The attribute that an element of a tag has its value in; empty: it is its text."""
    if tag == "meta":
        return "content"
    if kind == "url":
        return _LINKS.get(tag, "")
    if kind == "date":
        return "datetime" if tag in ("time", "ins", "del") else ""
    return _VALUES.get(tag, "") if kind in ("number", "text") else ""


def _json_text(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""
