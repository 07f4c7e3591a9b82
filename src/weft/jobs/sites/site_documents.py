"""Sites, their files and reports as JSON documents: times as all others have them, and no secret in them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from weft.jobs.sites.site_model import SiteFile
from weft.store.export.facts import iso

# A moment of the wall clock, which a document has as a text.
Time = Annotated[float, Meta(extra_json_schema={"type": "string", "format": "date-time"})]
_TIMES = frozenset({"at", "paused_until"})


def document(value: Struct) -> dict[str, Any]:
    """A status or a report."""
    return _with_times(msgspec.to_builtins(value))


def file_document(file: SiteFile) -> dict[str, Any]:
    """A site as its file says it; a webhook's headers may hold secrets, and are never shown."""
    found: dict[str, Any] = msgspec.to_builtins(file)
    if found.get("webhook", {}).get("headers"):
        found["webhook"] = {**found["webhook"], "headers": dict.fromkeys(found["webhook"]["headers"], "***")}
    return found


def _with_times(found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            made[name] = _with_times(value)
        elif value is not None and (name in _TIMES or name.endswith("_at")):
            made[name] = iso(value)
        else:
            made[name] = value
    return made
