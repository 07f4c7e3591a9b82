"""JSON documents of sites, their files and reports: times are texts, as in all documents, and secrets are left out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from weft.jobs.sites.site_model import SiteFile
from weft.store.export.facts import iso_time

# Fields that are wall-clock times, which a document has as texts.
Time = Annotated[float, Meta(extra_json_schema={"type": "string", "format": "date-time"})]
_TIMES = frozenset({"at", "paused_until"})


def document(value: Struct) -> dict[str, Any]:
    """A status or a report as a document."""
    return _with_times(msgspec.to_builtins(value))


def file_document(file: SiteFile) -> dict[str, Any]:
    """A site's file as a document, without the webhook's headers, which may hold secrets."""
    fields: dict[str, Any] = msgspec.to_builtins(file)
    if fields.get("webhook", {}).get("headers"):
        fields["webhook"] = {**fields["webhook"], "headers": dict.fromkeys(fields["webhook"]["headers"], "***")}
    return fields


def _with_times(fields: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            made[name] = _with_times(value)
        elif value is not None and (name in _TIMES or name.endswith("_at")):
            made[name] = iso_time(value)
        else:
            made[name] = value
    return made
