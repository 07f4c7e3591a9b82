"""One given value made what its key wants, or a problem that says what is accepted.

A list is a list, taken as it is, or one text with commas (see `split`).
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
from weft.config.tree import PATTERNS, SECRET_KEYS, Compute

MAX_RULES_BYTES, MAX_RULES_PARTS = 1 << 20, 10_000


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its origin; `lax` ones are texts that may stand for numbers."""

    value: Any
    origin: str
    lax: bool = False


class UnusableValue(ValueError):
    """A value that cannot be used: its `str` says why."""


def split(text: str, *, patterns: bool = False) -> list[str]:
    """The items of `a,b`; a comma that belongs to an item is written `\\,`.

    Of patterns, `re:` (`re2:`, `re2-path:`) and all that follows it is one: commas are common in regular expressions
    (`{1,3}`), and one that is cut in two still compiles, and means something else.
    """
    whole = text[at.start() :] if patterns and (at := re.search(r"(?:(?<=,)|^)\s*re(2|2-path)?:", text)) else ""
    parts = re.split(r"(?<!\\),", text.removesuffix(whole))
    return list(filter(None, [*(part.strip().replace("\\,", ",") for part in parts), whole.strip()]))


def typed(
    given: list[tuple[str, Value]], known: Mapping[str, Key], problems: list[str], computed: Mapping[str, Compute]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Every value checked, the overridden ones too; the later wins. What was not given gets its plain default."""
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
            problems.append(f"{place(value.origin, name)}: {error}")
        except UnicodeEncodeError:
            problems.append(f"{place(value.origin, name)}: {_shown(name, value)} is not UTF-8 text; write it in UTF-8")
        except (msgspec.ValidationError, ValueError, RecursionError):
            more = _at_most(item.schema, value.value)
            shown = _shown(name, value)
            problems.append(f"{place(value.origin, name)}: {shown} is not accepted; use {accepted(item.schema)}{more}")
    return values, origins


def place(origin: str, name: str) -> str:
    """Where a problem lies: flags and variables are named after their key, other places say it beside."""
    return origin if re.fullmatch(r"`\w+`|WEFT_[A-Z_]+", origin) else f"{origin}: {name}"


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value that is of its key's type; ValueError for one that no file name or header can hold."""
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


def _shown(name: str, given: Value) -> str:
    """A value as a message has it: not long, and no secret."""
    if name in SECRET_KEYS:
        return "***"
    try:
        # An alias in a YAML file can stand for more than any memory holds: only its beginning is written out.
        return (repr if isinstance(given.value, str) else reprlib.repr)(given.value)[:80]
    except ValueError:
        return "the number"


def _at_most(schema: dict[str, Any], value: Any) -> str:
    """What to add to a message about a number that is above a limit which `accepted` does not name."""
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
    """The value as its type wants it: one text made a list, a list of pods made a text, a path made a text."""
    value, kind = _plain(given.value), item.schema.get("type")
    if kind == "array" and isinstance(given.value, os.PathLike):
        return [value]  # one folder, whatever its name
    if item.name == "only_pods" and isinstance(value, list | int) and not isinstance(value, bool):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    if kind == "array" and isinstance(value, str):
        value = split(value, patterns=item.name in PATTERNS)
    if item.name == "pods" and isinstance(value, list):
        return [_pod(part) for part in value]
    if item.name == "extract":
        return rules_file(value) if isinstance(value, str) else bounded(value, item.name)
    if kind == "object" and isinstance(value, str) and given.lax:
        from weft.config import yaml_file

        return yaml_file.parsed(value)
    if isinstance(value, bool) and kind != "boolean":
        return str(value)  # or it would pass for a number
    return value


def rules_file(path: str) -> dict[str, Any]:
    """The rules in a file of JSON or YAML."""
    from weft.config import yaml_file

    path.encode()  # raises for what is not text
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_RULES_BYTES + 1)
        if len(text) > MAX_RULES_BYTES:
            raise UnusableValue(f"{path} has more than {MAX_RULES_BYTES:,} bytes")
        found = yaml_file.parsed(text.decode())
    except UnicodeDecodeError:
        raise UnusableValue(f"{path} is not UTF-8 text") from None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UnusableValue):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise UnusableValue(f"{path} cannot be read as JSON or YAML: {why}") from None
    if not isinstance(found, dict):
        raise UnusableValue(f"{path} holds no rules: a rule for each field's name is expected")
    bounded(found, path)
    return found


def bounded(value: Any, where: str) -> Any:
    """The value, if it is not more than rules can be: an alias in a YAML file can stand for more than memory holds."""
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
    """Paths made texts, and a tuple a list."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _pod(given: Any) -> Any:
    """`managed`, or a Redis's URL, is short for a pod."""
    if isinstance(given, str):
        return {"managed": True} if given == "managed" else {"redis_url": given}
    return given
