"""The arguments of an engine's verbs, checked: what comes over the channel may be anything. Settings have a module of
their own (crawls/settings.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from weft import urls
from weft.engine.crawls import settings
from weft.errors import BadInput, BadUrl
from weft.records import PastVisit


def canonical_seeds(seeds: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The seeds as canonical URLs, and why some texts are not valid ones."""
    if isinstance(seeds, str):
        raise BadInput("seeds: give a list of URLs")
    found, refused = list[str](), dict[str, str]()
    for text in seeds:
        try:
            found.append(urls.seed(text))
        except (BadUrl, BadInput) as error:
            refused[str(text)] = getattr(error, "reason", "") or str(error)
    return list(dict.fromkeys(found)), refused


def seeds_hash(seeds: Iterable[str]) -> int:
    """The hash by which a repeated `open` is recognised; it does not depend on the order of the seeds."""
    return xxh3_64_intdigest("\n".join(sorted(seeds)).encode()) >> 1


def past_visits(given: object) -> list[PastVisit]:
    """The checked earlier visits that a caller gave with its URLs."""
    try:
        return msgspec.convert(given, list[PastVisit])
    except msgspec.ValidationError as error:
        raise BadInput(f"visits: {error}") from None


def check_in_flight(in_flight: object) -> None:
    """Checks the number of requests that a crawl may have in flight; None: as many as the engine allows."""
    if in_flight is not None and (isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1):
        raise BadInput(f"in_flight: {in_flight!r} is not accepted; use a whole number from 1")


def check_keep_open(keep_open: object) -> bool:
    """Whether a crawl waits for more seeds until `close_seeds`."""
    if not isinstance(keep_open, bool):
        raise BadInput(f"keep_open: {keep_open!r} is not accepted; use true or false")
    return keep_open


def opened_with(
    own: Mapping[str, Any], weight: float, in_flight: int | None, memory_bytes: int | None, keep_open: bool
) -> dict[str, Any]:
    """The arguments by which a repeated `open` is recognised as the same crawl; earlier visits are no part of it."""
    limits = {"weight": weight, "in_flight": in_flight, "memory_bytes": memory_bytes, "keep_open": keep_open}
    return settings.storable_settings({**own, **limits})
