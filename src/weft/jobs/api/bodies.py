"""Bodies of requests as `weft.scraping` declares them: checked field by field, with the defaults filled in."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import msgspec

from weft import urls
from weft.jobs.api.problems import MOST_FIELDS, Refusal
from weft.jobs.checking import misfits, schemas_of, unknown, words_of
from weft.scraping import AsyncScrapeRequest, ScrapeOptions, TargetUrl, WebhookReplay

_URL_WORDS = f"a URL of http or https with at most {urls.MAX_LENGTH:,} characters"


class RequestBody:
    """One type of request body: a TypedDict whose fields are optional, except those in `required`."""

    def __init__(self, kind: Any, types: dict[str, Any], required: tuple[str, ...] = (), **words: str) -> None:
        """`words`: what a field accepts, for fields whose type does not say enough."""
        self.fields, components = schemas_of(kind)
        self._types = types
        self._required = required
        self._words = {name: words_of(schema, components) for name, schema in self.fields.items()} | words
        self._defaults = {name: schema["default"] for name, schema in self.fields.items() if "default" in schema}

    def read(self, body: bytes) -> dict[str, Any]:
        """The validated fields of a body; raises Refusal, which names every wrong field."""
        given = decoded(body)
        if not isinstance(given, dict):
            raise Refusal.of_field("body", "must be an object")
        problems = dict(misfits(given, self._types, self._words, quoted))
        for name, schema in self.fields.items():
            if name in given and name not in problems and given[name] != schema.get("const", given[name]):
                problems[name] = f"{quoted(given[name])} is not accepted; use {self._words[name]}"
        strange = [name for name in given if name not in self._types]
        problems |= {name[:200]: unknown(name, tuple(self._types)) for name in strange[:MOST_FIELDS]}
        problems |= {name: "is missing" for name in self._required if name not in given}
        if problems:
            raise wrong_fields(problems, len(strange) - MOST_FIELDS)
        return self._defaults | given


def decoded(body: bytes) -> Any:
    """Parses a body as JSON; raises Refusal (400) if it is not."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal.of_field("body", f"is not JSON: {error}", 400) from None


def wrong_fields(problems: dict[str, str], unnamed: int = 0) -> Refusal:
    """The Refusal for fields that are not accepted. `unnamed`: how many more wrong fields there are."""
    errors = list(problems.items())[:MOST_FIELDS]
    detail = "; ".join(f"{field}: {problem}" for field, problem in errors[:5])
    more = len(problems) - 5 + max(0, unnamed)
    return Refusal(422, detail + (f"; and {more} more" if more > 0 else ""), errors=errors)


def quoted(value: object) -> str:
    """A value as error messages quote it."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:50] + "…"


_OPTION_TYPES = get_type_hints(ScrapeOptions, include_extras=True)
SCRAPE = RequestBody(AsyncScrapeRequest, _OPTION_TYPES | {"url": TargetUrl}, ("url",), url=_URL_WORDS)
REPLAY = RequestBody(WebhookReplay, get_type_hints(WebhookReplay, include_extras=True))
