"""Site files: YAML or JSON, parsed strictly. All problems are reported at once, with the file, the line and the
field."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from weft import urls as url_rules
from weft.config.values import bounded, rules_file
from weft.errors import BadConfig, BadInput
from weft.jobs.checking import misfits, schemas_of, unknown, words_of
from weft.jobs.errors import BadSite
from weft.jobs.model import problem_of_globs
from weft.jobs.reading.documents import check_formats
from weft.jobs.sites.site_model import SiteFile
from weft.jobs.webhooks.webhook_model import HookSpec, problem_of_webhook
from weft.scraping import Hooked, WebhookOrder
from weft.supervise.schedule import check_zone, schedule_of

LONGEST_FILE = 1 << 20  # The limit in bytes.
MOST_UNKNOWN = 20  # unknown fields that are named: finding the similar name for each takes time
_FIELDS = SiteFile.__struct_fields__
_TYPES = get_type_hints(SiteFile, include_extras=True) | {"webhook": Hooked | None}
_SCHEMAS, _COMPONENTS = schemas_of(SiteFile)
_WORDS = {name: words_of(schema, _COMPONENTS).removesuffix(" or nothing") for name, schema in _SCHEMAS.items()} | {
    # what a field accepts, for types that do not say enough
    "name": "small letters, digits, - and _, at most 63 of them",
    "start_urls": "a list of 1 to 1,000 URLs",
    "include": "a list of at most 100 globs",
    "exclude": "a list of at most 100 globs",
    "depends_on": "a list of names of sites",
    "extract": "rules by field",
    "formats": "a list of texts",
    "webhook": "",  # its parts are checked one by one
}


def read_site(path: Path, now: float) -> SiteFile:
    """The site in a file; raises BadInput, which names everything wrong with it, a line each."""
    fields, locations, problems = _read_json(path) or _read_yaml(path)
    try:
        bounded(fields, "it")
    except ValueError:
        raise BadInput(f"{path}: has too many parts for a site file") from None
    try:
        site = site_of(fields, now, path.parent)
    except BadSite as error:
        problems += (
            f"{locations.get(field.partition('.')[0], path)}: {field}: {what}" for field, what in error.problems
        )
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if problems:
        raise BadConfig(problems)
    return site


def _read_json(path: Path) -> tuple[Any, dict[str, str], list[str]] | None:
    """The contents of a JSON file; None if it is not JSON."""
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST_FILE + 1)
        if len(raw) > LONGEST_FILE:
            raise BadInput(f"{path}: is longer than {LONGEST_FILE >> 20} MiB: it is not a site file")
        text = raw.decode()
        return (json.loads(text, object_pairs_hook=_refuse_repeated), {}, []) if text.lstrip().startswith("{") else None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is not JSON, though it begins with a brace: {error}") from None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)[:100]!r} is there twice")
    return fields


def _read_yaml(path: Path) -> tuple[Any, dict[str, str], list[str]]:
    """The contents of a YAML file, the location of each field, and the problems."""
    from weft.config import yaml_file

    problems: list[str] = []
    fields: dict[str, Any] = {}
    locations: dict[str, str] = {}
    for name, value, location, _ in yaml_file.entries(path, _problem_of_name, None, problems):
        fields[name], locations[name] = value, location
    return fields, locations, problems


def site_of(given: Any, now: float, folder: Path | None = None) -> SiteFile:
    """Validates the contents of a site file. `folder`: against which the names of files in it are resolved; None: it
    may name no files."""
    if not isinstance(given, dict):
        raise BadInput("holds no site: `name` and `start_urls` are expected")
    given, problems = dict(given), list[tuple[str, str]]()
    strange = (str(name) for name in given if name not in _FIELDS)
    problems += ((name[:100], unknown(name, _FIELDS)) for name in islice(strange, MOST_UNKNOWN))
    problems += ((name, "is missing") for name in ("name", "start_urls") if name not in given)
    if folder is not None and isinstance(given.get("extract"), str):
        try:
            given["extract"] = rules_file(str(folder / given["extract"]))
        except ValueError as error:
            problems.append(("extract", str(error)))
            del given["extract"]
    if isinstance(given.get("webhook"), str):
        given["webhook"] = {"url": given["webhook"]}
    problems += misfits(given, _TYPES, _WORDS, _quote_value)
    if problems:
        raise BadSite([*problems, *_wrong_values(given, {name.partition(".")[0] for name, _ in problems}, now)])
    return _checked(msgspec.convert(given, SiteFile), now)


def _wrong_values(given: dict[str, Any], named: set[str], now: float) -> Sequence[tuple[str, str]]:
    """Problems in the values of the valid fields, if other fields are invalid already."""
    rest = {name: value for name, value in given.items() if name in _FIELDS and name not in named}
    try:
        _checked(msgspec.convert({"name": "a", "start_urls": ["http://a.test/"], **rest}, SiteFile), now)
    except BadSite as error:
        return error.problems
    return []


def _problem_of_name(name: str) -> str | None:
    """What is wrong with a field's name; None if it is known."""
    return None if name in _FIELDS else f"{name[:100]}: {unknown(name, _FIELDS)}"


def _quote_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:50] + "…"


def _checked(file: SiteFile, now: float) -> SiteFile:
    """Checks the meaning of the values, one by one, and reports all problems together."""
    problems: list[tuple[str, str]] = []

    def tried(field: str, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except BadInput as error:
            location, _, what = str(error).partition(": ")
            # does the message begin with the field's name?
            is_named = location.partition(".")[0].partition("[")[0] in _FIELDS
            problems.append((location, what) if is_named else (field, str(error)))

    for name in ("include", "exclude"):
        if problem := problem_of_globs(getattr(file, name)):
            problems.append((name, problem))
    if file.name in file.depends_on:
        problems.append(("depends_on", f"{file.name} cannot wait for itself"))
    tried("timezone", lambda: check_zone(file.timezone))
    cron, hook = file.schedule, file.webhook
    line = None if cron is None else tried("schedule", lambda: schedule_of(cron, now=now).line)
    tried("formats", lambda: check_formats(file.spec))
    webhook = None if hook is None else tried("webhook", lambda: _webhook_of(hook))
    starts = tried("start_urls", lambda: tuple(dict.fromkeys(map(url_rules.seed, file.start_urls))))
    if problems:
        raise BadSite(problems)
    return msgspec.structs.replace(file, start_urls=starts, webhook=webhook, schedule=line)


def _webhook_of(given: dict[str, Any]) -> dict[str, Any]:
    fields = msgspec.convert(given, WebhookOrder)
    if problem := problem_of_webhook(fields):
        raise BadInput(": ".join(problem))
    webhook: dict[str, Any] = msgspec.to_builtins(HookSpec.of(fields, url_rules.seed(fields.url)))
    return webhook
