"""Converts one given value to the type of its key, or reports a problem with the accepted values.

A list is a list, or one text with commas (see `split`).
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.config.keys import Key, accepted
from weft.config.pods import PodSpec
from weft.config.section import LARGEST, LONGEST_S
from weft.config.tree import IN_FILES, LETTERS, PATTERNS, SECRET_KEYS, Compute

MAX_RULES_BYTES, MAX_RULES_PARTS = 1 << 20, 10_000


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its origin; in a `lax` value texts may be numbers."""

    value: Any
    origin: str
    lax: bool = False


class UnusableValue(ValueError):
    """A value that cannot be used; its `str` is the reason."""


def split(text: str, *, patterns: bool = False) -> list[str]:
    """The items of `a,b`; a comma within an item is written `\\,`.

    In a list of patterns `re:` (`re2:`, `re2-path:`) and everything after it is one item: commas are common in regular
    expressions (`{1,3}`), and one that is split still compiles, with another meaning.
    """
    whole = text[at.start() :] if patterns and (at := re.search(r"(?:(?<=,)|^)\s*re(2|2-path)?:", text)) else ""
    parts = re.split(r"(?<!\\),", text.removesuffix(whole))
    return list(filter(None, [*(part.strip().replace("\\,", ",") for part in parts), whole.strip()]))


def typed(
    given: list[tuple[str, Value]], known: Mapping[str, Key], problems: list[str], computed: Mapping[str, Compute]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Checks every value, including overridden ones; the later source wins. Values that were not given get their plain
    default."""
    values = {name: copy(item.default) for name, item in known.items() if name not in computed}
    origins = dict.fromkeys(values, "default")
    for name, value in given:
        item = known[name]
        origins[name] = value.origin
        try:
            values[name] = msgspec.convert(_listed(value, item), item.type, strict=not value.lax)
            for text in _texts(values[name]):
                text.encode()
        except UnusableValue as error:
            problems.append(f"{location(value.origin, name)}: {error}")
        except UnicodeEncodeError:
            where, quoted = location(value.origin, name), _quoted(name, value)
            problems.append(f"{where}: {quoted} is not UTF-8 text; write it in UTF-8")
        except (msgspec.ValidationError, ValueError, RecursionError):
            more = _at_most(item.schema, value.value)
            where, quoted = location(value.origin, name), _quoted(name, value)
            problems.append(f"{where}: {quoted} is not accepted; use {accepted(item.schema)}{more}")
    return values, origins


def location(origin: str, name: str) -> str:
    """The location of a problem for its message: flags and variables contain the key's name; for other sources it is
    added."""
    return origin if re.fullmatch(r"`\w+`|WEFT_[A-Z_]+", origin) else f"{origin}: {name}"


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value of valid type; raises ValueError for text that no file name or header can hold."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a NUL")
        yield value
    elif isinstance(value, PodSpec):
        yield from _texts(value.redis_url)
    elif isinstance(value, dict):
        yield from _texts((*value, *value.values()))
    elif isinstance(value, tuple):
        for one in value:
            yield from _texts(one)


def _quoted(name: str, given: Value) -> str:
    """A value for a message: shortened, without secrets."""
    if name in SECRET_KEYS:
        return "***"
    try:
        # An alias in a YAML file can expand to more than fits into memory: only its beginning is formatted.
        return (repr if isinstance(given.value, str) else reprlib.repr)(given.value)[:80]
    except ValueError:
        return "the number"


def _at_most(schema: dict[str, Any], value: Any) -> str:
    """The addition to a message about a number above a limit that `accepted` does not mention."""
    limits = [one["maximum"] for one in schema.get("anyOf", [schema]) if one.get("maximum") in (LARGEST, LONGEST_S)]
    try:
        return f", at most {int(limits[0]):,}" if limits and float(value) > limits[0] else ""
    except OverflowError:
        return f", at most {int(limits[0]):,}"
    except (TypeError, ValueError):
        return ""


def compute(values: dict[str, Any], origins: dict[str, str], computed: Mapping[str, Compute]) -> None:
    """Adds the defaults that follow from other values."""
    for name, rule in computed.items():
        if name not in values:
            values[name], why = rule(values, origins)
            origins[name] = f"default ({why})"


def _listed(given: Value, item: Key) -> Any:
    """The value in the form of its type: a text split into a list, a list of pods joined to a text, a path converted to
    text."""
    value, kind = _plain(given.value), item.schema.get("type")
    if kind == "array" and isinstance(given.value, os.PathLike):
        return [value]  # one folder, even if its name has a comma
    if item.name == "only_pods" and isinstance(value, list | int) and not isinstance(value, bool):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if kind == "array" and isinstance(value, str):
        value = split(value, patterns=item.name in PATTERNS)
    if item.name == "pods" and isinstance(value, list):
        return [_pod(part) for part in value]
    if item.name in IN_FILES:
        value = rules_file(value, item.name) if isinstance(value, str) else bounded(value, item.name)
        return value if item.name == "extract" else _absolute(value, is_one=item.name == "login")
    if item.name in LETTERS and isinstance(value, dict):
        from weft.references import with_absolute_paths

        return {name: with_absolute_paths(one) if isinstance(one, str) else one for name, one in value.items()}
    if kind == "object" and isinstance(value, str) and given.lax:
        from weft.config import yaml_file

        return yaml_file.parsed(value)
    if isinstance(value, bool) and kind != "boolean":
        return str(value)  # otherwise a numeric folder name would become a number
    return value


def _absolute(value: Any, *, is_one: bool) -> Any:
    from weft.logins import absolute  # imported here: most crawls have no login

    if is_one:
        return absolute(value)
    return {name: absolute(login) for name, login in value.items()} if isinstance(value, dict) else value


_HOLDS = {
    "extract": ("rules", "a rule for each field's name"),
    "login": ("login", "a mapping with `url` and `fields`"),
    "logins": ("logins", "a login for each name"),
}


def rules_file(path: str, key: str = "extract") -> dict[str, Any]:
    """The mapping in a JSON or YAML file."""
    from weft.config import yaml_file

    path.encode()  # raises for a path that is not UTF-8 text
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_RULES_BYTES + 1)
        if len(text) > MAX_RULES_BYTES:
            raise UnusableValue(f"{path} has more than {MAX_RULES_BYTES:,} bytes")
        mapping = yaml_file.parsed(text.decode())
    except UnicodeDecodeError:
        raise UnusableValue(f"{path} is not UTF-8 text") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UnusableValue):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise UnusableValue(f"{path} cannot be read as JSON or YAML: {why}") from None
    if not isinstance(mapping, dict):
        what, needed = _HOLDS[key]
        raise UnusableValue(f"{path} holds no {what}: {needed} is expected")
    bounded(mapping, path)
    return mapping


def bounded(value: Any, where: str) -> Any:
    """The value, if it is not larger than rules can be: an alias in a YAML file can expand to more than fits into
    memory."""
    left, seen = [value], 0
    while left:
        one = left.pop()
        seen += 1
        if seen > MAX_RULES_PARTS:
            raise UnusableValue(f"{where} has more than {MAX_RULES_PARTS:,} parts: rules are fewer")
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return value


def _plain(value: Any) -> Any:
    """Converts paths to texts, and a tuple to a list."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _pod(given: Any) -> Any:
    """Expands `managed`, or a Redis URL, to a pod."""
    if isinstance(given, str):
        return {"managed": True} if given == "managed" else {"redis_url": given}
    return given
