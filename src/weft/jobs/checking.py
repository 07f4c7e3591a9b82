"""Checks what callers have written, field by field, against declared types: all that is wrong is reported at once, each
problem with the name of its field. For the bodies of requests and for site files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from weft import names
from weft.config import accepted
from weft.scraping import ErrorClass, ExportFormat, FinishReason, Format, HookEvent, Scope, TaskState

NO_FIELD = "there is no such field"
_LENGTH = re.compile(r"Expected `(array|object)` of length (<=|>=) ([0-9]+)")
_NAMED = re.compile(r"Object (contains unknown|missing required) field `(.*)`")
_STEP = re.compile(r"\.?([^.\[\]]+)\]?")
_WORDS = {
    "object": "an object (a dictionary)", "array": "a list", "str": "a text", "int": "a whole number",
    "float": "a number",
    "bool": "true or false", "null": "null",
}  # fmt: skip
Schema = dict[str, Any]
_CHOICES = (get_args(Scope), get_args(Format), get_args(ExportFormat), TaskState, FinishReason, ErrorClass, HookEvent)
_IN_ORDER = {frozenset(map(str, some)): list(map(str, some)) for some in _CHOICES}  # msgspec sorts them


def components_of(kinds: Iterable[Any], ref_template: str = "{name}") -> tuple[list[Schema], dict[str, Schema]]:
    """JSON schemas of types, and the components that these refer to: choices in the order of their declaration, and
    times as texts, also where the type is a number that a document has as one."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template=ref_template)
    for schema in (*schemas, *components.values()):
        _adjust(schema)
    return list(schemas), components


def _adjust(schema: Any) -> None:
    for name, value in schema.items() if isinstance(schema, dict) else ():
        if name == "enum":
            schema[name] = _IN_ORDER.get(frozenset(value), value)
        elif name == "type" and schema.get("format") == "date-time":
            schema[name] = "string"
        for one in value if isinstance(value, list) else [value]:
            _adjust(one)


def schemas_of(kind: Any) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The fields of a declared type as JSON schemas, and the components that these refer to."""
    _, components = components_of([kind])
    return components[kind.__name__]["properties"], components


def words_of(schema: Schema, components: Mapping[str, Schema]) -> str:
    """What a field accepts, in words; empty where its parts must be told apart."""
    variants = [components[one["$ref"]] if "$ref" in one else one for one in schema.get("anyOf", [schema])]
    if "const" in schema or len(schema.get("enum", ())) == 1:
        only = schema.get("const", schema.get("enum", [None])[0])
        return str(only).lower() + f": {schema['description'].partition(':')[0]}"
    if any(one.get("type") in ("array", "object") for one in variants):
        return ""
    return accepted({"anyOf": variants} if len(variants) > 1 else variants[0])


def unknown(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """What is said of a field that there is not."""
    near = names.nearest(name[:100], known)
    return f"{NO_FIELD}; did you mean {near!r}?" if near else NO_FIELD


def misfits(
    given: Mapping[str, Any], types: Mapping[str, Any], words: Mapping[str, str], shown: Callable[[Any], str]
) -> Iterator[tuple[str, str]]:
    """Values that their fields do not accept, each with the field's name. `words`: what a field accepts; one without
    is checked part by part. `shown`: a value as it is quoted."""
    for name, value in given.items():
        if name in types:
            try:
                msgspec.convert(value, types[name])
            except msgspec.ValidationError as error:
                use = words.get(name)
                yield (name, f"{shown(value)} is not accepted; use {use}") if use else _part(name, types[name], error)


def _part(name: str, kind: Any, error: msgspec.ValidationError) -> tuple[str, str]:
    """What is wrong within a value, and where."""
    what, _, at = str(error).partition(" - at `$")
    steps = _STEP.findall(at.rstrip("`"))
    if (named := _NAMED.match(what)) is not None:
        schema = _within(kind, steps)
        said = unknown(named[2], tuple(schema.get("properties", ()))) if "unknown" in named[1] else "is missing"
        return ".".join([name, *steps, named[2]]), said
    if what.startswith("Invalid enum value"):
        *others, last = map(repr, _within(kind, steps).get("enum", ["another value"]))
        what = f"input should be {', '.join(others)} or {last}" if others else f"input should be {last}"
    elif (length := _LENGTH.match(what)) is not None:
        kinds = {"array": "list", "object": "object"}
        most = "at most" if length[2] == "<=" else "at least"
        what = f"{kinds[length[1]]} should have {most} {int(length[3]):,} items"
    else:
        what = re.sub(r"`([^`]+)`", _type_words, what.replace("Expected ", "should be ", 1))
    return ".".join([name, *steps]), what


def _type_words(found: re.Match[str]) -> str:
    kinds = found[1].split(" | ")
    return " or ".join(words for kind, words in _WORDS.items() if kind in kinds) or found[0]


def _within(kind: Any, steps: list[str]) -> Schema:
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
