"""Site files: YAML or JSON, read strictly. What is wrong is said with the file's name and the field's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from weft import urls as url_rules
from weft.config.values import bounded, rules_file
from weft.errors import BadInput
from weft.jobs.documents import check_order
from weft.jobs.sites.model import SiteFile, nearest
from weft.jobs.webhooks.model import HookOrder, unsendable
from weft.supervise.schedule import check_zone, schedule_of

LONGEST_FILE = 1 << 20  # bytes
_FIELDS = SiteFile.__struct_fields__


def read_site(path: Path, now: float) -> SiteFile:
    """The site in a file; BadInput names what is wrong with it."""
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST_FILE + 1)
        if len(raw) > LONGEST_FILE:
            raise BadInput(f"{path}: is longer than {LONGEST_FILE >> 20} MiB: it is no site file")
        found = _parsed(raw.decode())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is neither YAML nor JSON: {error}") from None
    try:
        bounded(found, "it")
    except ValueError:
        raise BadInput(f"{path}: has too many parts for a site file") from None
    try:
        return site_of(found, now, path.parent)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _parsed(text: str) -> Any:
    from weft.config import yaml_file

    return json.loads(text) if text.lstrip().startswith("{") else yaml_file.parsed(text)


def site_of(given: Any, now: float, folder: Path | None = None) -> SiteFile:
    """A site of what a file holds, checked; `folder` is that of files that it names. None: it may name none."""
    if not isinstance(given, dict):
        raise BadInput("holds no site: `name` and `start_urls` are expected")
    _check_names(given)
    given = dict(given)
    if folder is not None and isinstance(given.get("extract"), str):
        try:
            given["extract"] = rules_file(str(folder / given["extract"]))
        except ValueError as error:
            raise BadInput(f"extract: {error}") from None
    if isinstance(given.get("webhook"), str):
        given["webhook"] = {"url": given["webhook"]}
    try:
        file = msgspec.convert(given, SiteFile)
    except msgspec.ValidationError as error:
        raise BadInput(_said(error)) from None
    return _checked(file, now)


def _check_names(given: dict[Any, Any]) -> None:
    for name in given:
        if name not in _FIELDS:
            raise BadInput(f"there is no field {str(name)[:100]!r}{nearest(str(name), _FIELDS)}")
    for name in ("name", "start_urls"):
        if name not in given:
            raise BadInput(f"{name}: is missing")


def _checked(file: SiteFile, now: float) -> SiteFile:
    for pattern in (*file.include, *file.exclude):
        if pattern.startswith("re:"):
            raise BadInput(f"{pattern[:100]!r}: regular expressions are not accepted; use a glob")
    check_zone(file.timezone)
    line = None if file.schedule is None else schedule_of(file.schedule, file.timezone, now).line
    if file.name in file.depends_on:
        raise BadInput(f"depends_on: {file.name} cannot wait for itself")
    check_order(file.spec)
    webhook = None if file.webhook is None else _webhook(file.webhook)
    starts = tuple(dict.fromkeys(map(url_rules.seed, file.start_urls)))
    return msgspec.structs.replace(file, start_urls=starts, webhook=webhook, schedule=line)


def _webhook(given: dict[str, Any]) -> dict[str, Any]:
    known = ("url", "events", "headers", "metadata")
    for name in given:
        if name not in known:
            raise BadInput(f"webhook: there is no field {str(name)[:100]!r}{nearest(str(name), known)}")
    try:
        order = msgspec.convert(given, HookOrder)
    except msgspec.ValidationError as error:
        raise BadInput(f"webhook.{_said(error)}") from None
    if wrong := unsendable(order.headers):
        raise BadInput(f"webhook.headers: {wrong}")
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(order, url=url_rules.seed(order.url)))
    return found


def _said(error: msgspec.ValidationError) -> str:
    """`Expected int, got str - at `$.max_pages`` as `max_pages: expected int, got str`."""
    what, _, place = str(error).partition(" - at `$.")
    if not place:
        return what[:1].lower() + what[1:]
    return f"{place.rstrip('`')}: {what[:1].lower()}{what[1:]}"
