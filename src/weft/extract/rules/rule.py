"""One checked rule: the selector of a field, and its conversion. The language is in docs/extraction.md.

    {name: "css" | {css|xpath|regex|jsonld, attr, type, many, required, default, fields: {...}}}

Every mistake is found here, once, before a page is fetched: BadRules names each by its path, as `extract.price.css`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft import patterns
from weft.errors import BadConfig
from weft.extract.rules import selectors
from weft.names import nearest

TYPES = ("text", "code", "number", "date", "url", "html")
KEYS = ("css", "xpath", "regex", "jsonld", "attr", "type", "many", "required", "default", "fields")
MAX_RULES = 200
MAX_NESTING = 4
MAX_MISTAKES = 100  # that are named
MAX_PATH_CHARS = 200
MAX_DEFAULT_CHARS = 1000

_NAME = re.compile(r"[^\W\d][\w-]{0,63}").fullmatch
_ATTRIBUTE = re.compile(r"[^\s\"'<>/=\x00-\x1f]{1,100}").fullmatch
_SUFFIX = re.compile(r"(.*?)::(?:(text)|attr\(\s*([^\s()]+)\s*\))\s*", re.DOTALL).fullmatch
_KEY = re.compile(r"[^\s.]+").fullmatch


class BadRules(BadConfig):
    """Rules that cannot be used; `found` has the path of each mistake and what it is."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__([f"{path}: {what}" for path, what in found])
        self.found = found


@dataclass(slots=True)
class Rule:
    """One field's rule. It has at most one of `selector`, `path` and `keys`; without any it reads the given element, or
    the whole page.
    """

    selector: selectors.Selector | None = None
    path: selectors.Path | None = None
    keys: tuple[str, ...] | None = None
    pattern: patterns.Pattern | None = None
    attr: str = ""
    type: str = "text"
    many: bool = False
    required: bool = False
    default: Any = None
    fields: dict[str, Rule] = field(default_factory=dict)


def check(spec: object, at: str) -> dict[str, Rule]:
    """The rules of a specification; BadRules names all that is wrong, with `at` before every path."""
    checker = _Checker()
    rules = checker.fields(spec, at, 1, "page")
    if checker.found:
        raise BadRules(checker.found)
    return rules


class _Checker:
    """Gathers mistakes."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._count = 0

    def _say(self, path: str, what: str) -> None:
        if len(self.found) < MAX_MISTAKES:
            self.found.append((path, what))

    def fields(self, spec: object, at: str, nesting: int, scope: str) -> dict[str, Rule]:
        """The rules of a mapping; `scope` is what they are about: page, item or json."""
        if not isinstance(spec, Mapping):
            self._say(at, f"{_kind(spec)} is not accepted; use an object: a rule for each field's name")
            return {}
        if nesting > MAX_NESTING:
            self._say(at, f"fields nest at most {MAX_NESTING} deep")
            return {}
        rules: dict[str, Rule] = {}
        for name, one in spec.items():
            self._count += 1
            if self._count > MAX_RULES:
                if self._count == MAX_RULES + 1:
                    self._say(at, f"there are at most {MAX_RULES} rules")
                break
            if not isinstance(name, str) or not _NAME(name):
                self._say(
                    at, f"{name!r:.80} is not a field's name: letters, digits, _ and -, at most 64, no digit first"
                )
                continue
            rules[name] = self._rule(one, f"{at}.{name}", nesting, scope)
        return rules

    def _rule(self, spec: object, at: str, nesting: int, scope: str) -> Rule:
        if isinstance(spec, str):
            spec = {"jsonld" if scope == "json" else "css": spec}
        if not isinstance(spec, Mapping):
            self._say(at, f"{_kind(spec)} is not accepted; use a CSS selector, or an object such as {{css, type}}")
            return Rule()
        for key in spec:
            if key not in KEYS:
                if len(self.found) >= MAX_MISTAKES:  # the search for the intended key takes time
                    return Rule()
                near = nearest(str(key)[:80], KEYS)
                self._say(
                    at,
                    f"{key!r:.80} is no key of a rule"
                    + (f"; did you mean {near!r}?" if near else f"; these are: {', '.join(KEYS)}"),
                )
        rule = Rule()
        self._source(rule, spec, at, scope)
        self._shape(rule, spec, at)
        if "fields" in spec:
            self._inner(rule, spec, at, nesting)
        return rule

    def _source(self, rule: Rule, spec: Mapping[Any, Any], at: str, scope: str) -> None:
        given = [key for key in ("css", "xpath", "jsonld") if key in spec]
        if len(given) > 1:
            self._say(at, f"{' and '.join(given)}: one of them is enough")
        if not given and "regex" not in spec and scope == "page":
            self._say(at, "what to look for is missing: css, xpath, jsonld or regex")
        if scope == "json" and (given != ["jsonld"]):
            self._say(at, "inside a jsonld rule every field is one of jsonld")
        if scope == "item" and "jsonld" in spec:
            self._say(f"{at}.jsonld", "JSON-LD belongs to the page, not to one of its elements")
        if isinstance(text := self._text(spec, "css", at), str):
            if suffix := _SUFFIX(text):
                text, rule.attr = suffix[1], suffix[3] or ""
            rule.selector = self._parsed(selectors.selector, text, f"{at}.css")
        if isinstance(text := self._text(spec, "xpath", at), str):
            rule.path = self._parsed(selectors.path, text, f"{at}.xpath")
        if isinstance(text := self._text(spec, "regex", at), str):
            rule.pattern = self._parsed(patterns.compile_pattern, text, f"{at}.regex")
        if isinstance(text := self._text(spec, "jsonld", at), str):
            rule.keys = self._keys(text, f"{at}.jsonld", scope)

    def _text(self, spec: Mapping[Any, Any], key: str, at: str) -> str | None:
        if key not in spec:
            return None
        value = spec[key]
        if isinstance(value, str) and value:
            return value
        self._say(f"{at}.{key}", f"{_kind(value)} is not accepted; use a text")
        return None

    def _parsed(self, parse: Any, text: str, at: str) -> Any:
        try:
            return parse(text)
        except (selectors.BadSelector, patterns.BadPattern) as error:
            self._say(at, str(error))
            return None

    def _keys(self, text: str, at: str, scope: str) -> tuple[str, ...]:
        keys = tuple(text.split("."))
        if len(text) > MAX_PATH_CHARS or not all(map(_KEY, keys)):
            what = "keys" if scope == "json" else "a type and keys"
            example = "offers.price" if scope == "json" else "Product.offers.price"
            self._say(at, f"{text!r:.80} is not accepted; use {what} with points between them, such as {example}")
        return keys

    def _shape(self, rule: Rule, spec: Mapping[Any, Any], at: str) -> None:
        """attr, type, many, required, default."""
        if (attr := self._text(spec, "attr", at)) is not None:
            rule.attr = attr.lower()
        if rule.attr and not _ATTRIBUTE(rule.attr):
            self._say(f"{at}.attr", f"{rule.attr!r:.80} is not an attribute's name")
        if rule.attr and (rule.keys is not None or (rule.path is not None and rule.path.gives_texts)):
            self._say(f"{at}.attr", "what is found has no attributes")
        rule.type = spec.get("type", "text")
        if rule.type not in TYPES:
            self._say(f"{at}.type", f"{rule.type!r:.80} is not accepted; use {', '.join(TYPES)}")
        elif rule.type == "html" and (rule.attr or rule.keys is not None):
            self._say(f"{at}.type", "html is of elements")
        for key in ("many", "required"):
            value = spec.get(key, False)
            if not isinstance(value, bool):
                self._say(f"{at}.{key}", f"{_kind(value)} is not accepted; use true or false")
            setattr(rule, key, value is True)
        if "default" in spec:
            rule.default = spec["default"]
            if not _is_plain(rule.default, rule.many):
                self._say(
                    f"{at}.default",
                    "use null, true, false, a number, or a short text" + "; of many, a list of these" * rule.many,
                )
            elif rule.required:
                self._say(f"{at}.default", "a field that is required needs no default")

    def _inner(self, rule: Rule, spec: Mapping[Any, Any], at: str, nesting: int) -> None:
        for key in ("attr", "type", "regex", "default"):
            if key in spec:
                self._say(f"{at}.{key}", "a rule with fields has none: its value is an object")
        if rule.path is not None and rule.path.gives_texts:
            self._say(f"{at}.fields", "what is found is a text, and has no fields")
        rule.fields = self.fields(spec["fields"], f"{at}.fields", nesting + 1, "json" if "jsonld" in spec else "item")
        if not rule.fields and isinstance(spec["fields"], Mapping) and not spec["fields"]:
            self._say(f"{at}.fields", "there are none")


def _kind(value: object) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    if value is None:
        return "null"
    return "an empty text" if value == "" else names.get(type(value), type(value).__name__)


def _is_plain(value: object, many: bool) -> bool:
    if many and isinstance(value, list):
        return len(value) <= 100 and all(_is_plain(one, False) for one in value)
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor no number
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return value is None or (isinstance(value, str) and len(value) <= MAX_DEFAULT_CHARS)
