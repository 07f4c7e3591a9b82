"""Validates request bodies and site files field by field against declared types. All problems are reported at once,
each with the name of its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from weft import names
from weft.config import accepted
from weft.scraping import ErrorClass, ExportFormat, FinishReason, Format, HookEvent, Scope, TaskState

NO_FIELD = "there is no such field"
_WRONG_LENGTH = re.compile(r"Expected `(array|object)` of length (<=|>=) ([0-9]+)")
_WRONG_NAME = re.compile(r"Object (contains unknown|missing required) field `(.*)`")
_PATH_STEP = re.compile(r"\.?([^.\[\]]+)\]?")
_WORDS_OF_TYPES = {
    "object": "an object (a dictionary)", "array": "a list", "str": "a text", "int": "a whole number",
    "float": "a number",
    "bool": "true or false", "null": "null",
}  # fmt: skip
Schema = dict[str, Any]
_CHOICES_IN_ORDER = (
    get_args(Scope),
    get_args(Format),
    get_args(ExportFormat),
    TaskState,
    FinishReason,
    ErrorClass,
    HookEvent,
)
_ORDER_OF_CHOICES = {
    frozenset(map(str, some)): list(map(str, some)) for some in _CHOICES_IN_ORDER
}  # The order in which choices are declared; msgspec sorts them.


def components_of(kinds: Iterable[Any], ref_template: str = "{name}") -> tuple[list[Schema], dict[str, Schema]]:
    """JSON schemas of types, and the components that they refer to. Enum values are in declaration order; times are
    texts, even where the type is a number that is serialised as text."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template=ref_template)
    for schema in (*schemas, *components.values()):
        _adjust_schema(schema)
    return list(schemas), components


def _adjust_schema(schema: Any) -> None:
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name == "enum":
            schema[name] = _ORDER_OF_CHOICES.get(frozenset(value), value)
        elif name == "type" and schema.get("format") == "date-time":
            schema[name] = "string"
        for one in value if isinstance(value, list) else [value]:
            _adjust_schema(one)


def schemas_of(kind: Any) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The fields of a declared type as JSON schemas, and the components that they refer to."""
    _, components = components_of([kind])
    return components[kind.__name__]["properties"], components


def words_of(schema: Schema, components: Mapping[str, Schema]) -> str:
    """A description of what a field accepts; empty if its parts must be described one by one."""
    variants = [components[one["$ref"]] if "$ref" in one else one for one in schema.get("anyOf", [schema])]
    if "const" in schema or len(schema.get("enum", ())) == 1:
        only = schema.get("const", schema.get("enum", [None])[0])
        return str(only).lower() + f": {schema['description'].partition(':')[0]}"
    if any(one.get("type") in ("array", "object") for one in variants):
        return ""
    return accepted({"anyOf": variants} if len(variants) > 1 else variants[0])


def unknown(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The message for an unknown field, with a suggestion if a known name is similar."""
    near = names.nearest(name[:100], known)
    return f"{NO_FIELD}; did you mean {near!r}?" if near else NO_FIELD


def misfits(
    given: Mapping[str, Any], types: Mapping[str, Any], words: Mapping[str, str], quote: Callable[[Any], str]
) -> Iterator[tuple[str, str]]:
    """The fields with values that they do not accept, as (field, problem). `words`: what a field accepts; a field
    without words is checked part by part. `quote`: formats a value for the message."""
    for name, value in given.items():
        if name in types:
            try:
                msgspec.convert(value, types[name])
            except msgspec.ValidationError as error:
                use = words.get(name)
                yield (
                    (name, f"{quote(value)} is not accepted; use {use}")
                    if use
                    else _wrong_part(name, types[name], error)
                )


def _wrong_part(name: str, kind: Any, error: msgspec.ValidationError) -> tuple[str, str]:
    """The path of the wrong part within a value, and the problem."""
    what, _, at = str(error).partition(" - at `$")
    steps = _PATH_STEP.findall(at.rstrip("`"))
    if (named := _WRONG_NAME.match(what)) is not None:
        schema = _schema_of_part(kind, steps)
        problem = unknown(named[2], tuple(schema.get("properties", ()))) if "unknown" in named[1] else "is missing"
        return ".".join([name, *steps, named[2]]), problem
    if what.startswith("Invalid enum value"):
        *others, last = map(repr, _schema_of_part(kind, steps).get("enum", ["another value"]))
        what = f"input should be {', '.join(others)} or {last}" if others else f"input should be {last}"
    elif (length := _WRONG_LENGTH.match(what)) is not None:
        kinds = {"array": "list", "object": "object"}
        most = "at most" if length[2] == "<=" else "at least"
        what = f"{kinds[length[1]]} should have {most} {int(length[3]):,} items"
    else:
        what = re.sub(r"`([^`]+)`", _type_words, what.replace("Expected ", "should be ", 1))
    return ".".join([name, *steps]), what


def _type_words(match: re.Match[str]) -> str:
    kinds = match[1].split(" | ")
    return " or ".join(words for kind, words in _WORDS_OF_TYPES.items() if kind in kinds) or match[0]


def _schema_of_part(kind: Any, steps: list[str]) -> Schema:
    """The schema of a part of a value."""
    (schema,), components = components_of([kind])

    def resolved(one: Schema) -> Schema:
        one = components[one["$ref"]] if "$ref" in one else one
        within = (resolved(other) for other in one.get("anyOf", ()))
        return next((other for other in within if other.get("type") in ("object", "array")), one)

    for step in steps:
        schema = resolved(schema)
        more = schema.get("additionalProperties")
        inner = schema.get("properties", {}).get(step) or schema.get("items") or more
        schema = inner if isinstance(inner, dict) else {}
    return resolved(schema)
