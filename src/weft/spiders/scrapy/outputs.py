"""What a callback gives: items as JSON, as Scrapy's exporters write them, and requests as the engine queues them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from inspect import isawaitable
from typing import Any

from itemadapter import ItemAdapter, is_item
from scrapy.http import Request
from scrapy.utils.serialize import ScrapyJSONEncoder
from twisted.internet.defer import Deferred

from weft.engine.user_code.calls import MAX_OUTPUT_BYTES, CallResult
from weft.errors import BadInput
from weft.spiders.scrapy.crawler import finished
from weft.spiders.scrapy.request_specs import RequestSpecs
from weft.spiders.scrapy.values import encode_value

_encoder = ScrapyJSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class CallbackOutput:
    """The items and requests that one call of a callback has yielded."""

    def __init__(self, specs: RequestSpecs, result: CallResult, parent: str, *, keeps_objects: bool) -> None:
        """`keeps_objects`: items are kept as pipelines need them as well."""
        self.items: list[Any] = []
        self._specs = specs
        self._result = result
        self._parent = parent
        self._keeps_objects = keeps_objects
        self._bytes = 0

    async def collect(self, given: Any) -> None:
        """All that a callback gives: nothing, an item, a request, a list, a generator, or what must be awaited."""
        if isinstance(given, Deferred) or isawaitable(given):
            given = await finished(given)
        if given is None:
            return
        if isinstance(given, AsyncIterable):
            async for one in given:
                self.add(one)
        else:
            for one in _iterated(given):
                self.add(one)

    def add(self, one: Any) -> None:
        """One item or request."""
        if isinstance(one, Request):
            made = self._specs.made(one, self._parent)
            self._count(len(made.spec.meta) + len(made.spec.body or b""))
            self._result.requests.append(made)
        elif is_item(one):
            self._add_item(one)
        elif one is not None:
            raise BadInput(f"a {type(one).__name__} was yielded: yield items (or mappings) and requests")

    def _add_item(self, item: Any) -> None:
        data = item_json(item)
        self._count(len(data))
        if self._keeps_objects:
            whole = encode_value(item, "the item")
            self._count(len(whole))
            self._result.objects.append(whole)
        self._result.items.append(data)
        self.items.append(item)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_OUTPUT_BYTES:
            raise BadInput(f"the items and requests of a page have at most {MAX_OUTPUT_BYTES >> 20} MB")


def item_json(item: Any) -> bytes:
    """An item as JSON, with the serializers of its fields; BadInput names the field that cannot be kept."""
    adapter = ItemAdapter(item)
    values = {name: _serialized(adapter, name) for name in adapter}
    try:
        return _encoder.encode(values).encode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise BadInput(f"an item cannot be kept: {_wrong_field(values) or error}") from None


def _serialized(adapter: ItemAdapter, name: str) -> Any:
    serializer = adapter.get_field_meta(name).get("serializer")
    return serializer(adapter[name]) if serializer is not None else adapter[name]


def _wrong_field(values: dict[str, Any]) -> str:
    for name, value in values.items():
        try:
            _encoder.encode(value).encode()
        except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
            return f"{name!r}: {error}"
    return ""


def _iterated(given: Any) -> Iterable[Any]:
    if isinstance(given, Request | str | bytes) or is_item(given) or not isinstance(given, Iterable):
        return [given]
    return given
