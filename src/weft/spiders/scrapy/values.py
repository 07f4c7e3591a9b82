"""Values of `meta` and `cb_kwargs`, and items on their way to pipelines, as plain data and back.

No pickle: an object is kept as the name of its class and its fields, and only classes that are loaded are made again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from scrapy import Item
from scrapy.http import Request, Response
from scrapy.loader import ItemLoader
from scrapy.selector import Selector

from weft.errors import BadInput

_TAG = "\0kind"  # the key that distinguishes what stands for a value from a mapping of the user's
_ADVICE = {
    ItemLoader: "keep `loader.load_item()`, and make a loader of that in the callback",
    Selector: "keep its text, as `.get()` gives it",
    Response: "keep what is needed of it",
    Request: "keep its URL",
}
_SIMPLE: Mapping[type, Any] = {
    datetime: datetime.fromisoformat, date: date.fromisoformat, time: time.fromisoformat, Decimal: Decimal,
}  # fmt: skip
_SEQUENCES: Mapping[type, Any] = {tuple: tuple, set: set, frozenset: frozenset}
_LARGEST = 1 << 63


def encode_value(value: Any, at: str) -> bytes:
    """A value as bytes; BadInput names what in it cannot be kept. `at`: what it is called in that message."""
    try:
        return msgspec.msgpack.encode(_plain(value, at))
    except RecursionError:
        raise BadInput(f"{at} cannot be kept: it is nested too deeply, or contains itself") from None


def decode_value(data: bytes) -> Any:
    """The value again; BadInput where a class is not there any more."""
    return _restored(msgspec.msgpack.decode(data))


def _plain(value: Any, at: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -_LARGEST <= value < _LARGEST else {_TAG: "int", "value": str(int(value))}
    if isinstance(value, str):
        return str(value)
    if kind is list:
        return [_plain(one, f"{at}[{index}]") for index, one in enumerate(value)]
    if kind is dict:
        return _plain_mapping(value, at)
    if kind in _SEQUENCES:
        return {_TAG: kind.__name__, "value": [_plain(one, f"{at}[{index}]") for index, one in enumerate(value)]}
    if kind is timedelta:
        return {_TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
    if kind in _SIMPLE:
        return {_TAG: kind.__name__, "value": str(value) if kind is Decimal else value.isoformat()}
    if (held := _fields_of(value)) is not None:
        name = f"{kind.__module__}:{kind.__qualname__}"
        return {_TAG: "object", "class": name, "value": {key: _plain(one, f"{at}.{key}") for key, one in held.items()}}
    raise BadInput(f"{at} cannot be kept: {_refusal(value)}")


def _plain_mapping(value: dict[Any, Any], at: str) -> Any:
    if all(type(key) is str for key in value) and _TAG not in value:
        return {key: _plain(one, f"{at}[{key!r}]") for key, one in value.items()}
    pairs = [[_plain(key, f"a key of {at}"), _plain(one, f"{at}[{key!r:.40}]")] for key, one in value.items()]
    return {_TAG: "dict", "value": pairs}


def _fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of an object that may be kept."""
    kind = type(value)
    if isinstance(value, Item):
        return dict(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value) if hasattr(value, one.name)}
    if hasattr(kind, "__attrs_attrs__"):
        return {one.name: getattr(value, one.name) for one in kind.__attrs_attrs__ if hasattr(value, one.name)}
    if hasattr(kind, "model_fields") and hasattr(kind, "model_construct"):
        return {name: getattr(value, name) for name in kind.model_fields}
    return None


def _refusal(value: Any) -> str:
    kind = type(value).__name__
    advice = next((text for base, text in _ADVICE.items() if isinstance(value, base)), "")
    return (
        f"it is a {kind}: {advice}"
        if advice
        else f"a {kind} is no plain value; plain are texts, bytes, numbers, dates, Decimal, lists, tuples, sets, "
        "mappings, items, dataclasses and attrs classes"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _restored(one) for key, one in value.items()}
    held = value["value"]
    if kind == "object":
        return _object(value["class"], {key: _restored(one) for key, one in held.items()})
    if kind == "dict":
        return {_restored(key): _restored(one) for key, one in held}
    if kind == "int":
        return int(held)
    if kind == "timedelta":
        return timedelta(*held)
    for base, make in _SIMPLE.items():
        if kind == base.__name__:
            return make(held)
    return next(make for base, make in _SEQUENCES.items() if kind == base.__name__)(map(_restored, held))


def _object(name: str, held: dict[str, Any]) -> Any:
    kind = _class_named(name)
    if issubclass(kind, Item):
        return kind(held)
    if hasattr(kind, "model_construct"):
        return kind.model_construct(**held)
    made = object.__new__(kind)
    for key, one in held.items():
        object.__setattr__(made, key, one)
    return made


def _class_named(name: str) -> type:
    """A class that is loaded, of those whose objects may be kept."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    is_one = isinstance(found, type) and (
        issubclass(found, Item)
        or is_dataclass(found)
        or hasattr(found, "__attrs_attrs__")
        or hasattr(found, "model_construct")
    )
    if not is_one:
        raise BadInput(
            f"a kept value is of the class {name}, which is not there any more: give it back, at the top level of its "
            "module"
        )
    return found  # type: ignore[no-any-return]
