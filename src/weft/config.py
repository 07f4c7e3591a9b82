"""The configuration: frozen sections of plain values, merged from flags, environment, a YAML file and defaults.

Precedence: flag > `WEFT_*` environment > YAML file > default. Keys are flat; each belongs to one section, and a part is
handed its section, never the whole. An unknown key, a wrong type or a value out of range is an error; all of them are
told at once, each with its place, what is accepted and the nearest known key. Adding a key is adding a field here.

A list is a list, taken as it is, or one text with commas (see `split`). What a setting may be called: see `names`.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from weft import __version__, names
from weft.errors import BadConfig

Scope = Literal["any", "domain", "host", "prefix"]
# Beyond any use, and still exact wherever a value goes: 64 bits, a double of a Lua script, milliseconds for libcurl.
LARGEST = 10**15
LONGEST_S = 1e9
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Timeout = Annotated[float, Meta(gt=0, le=LONGEST_S)]
SocketTimeout = Annotated[float, Meta(gt=0, le=1e6)]  # a poll takes no more than 2**31 milliseconds
Port = Annotated[int, Meta(ge=0, le=65535)]
Texts = tuple[str, ...]


def Help(text: str) -> Meta:
    """What a key means, for `weft config schema` and `weft crawl --help`."""
    return Meta(description=text)


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen group of keys that one component reads."""


class ScopeSection(Section, frozen=True, kw_only=True):
    """Where a crawl may go."""

    scope: Annotated[Scope, Help("where links may lead, judged from the seeds")]
    seed_file: Annotated[str | None, Help("file with one seed URL a line")] = None
    include: Annotated[Texts, Help("only URLs that match one of these (glob, or re:REGEX)")] = ()
    exclude: Annotated[Texts, Help("no URL that matches one of these (glob, or re:REGEX)")] = ()
    exclude_file: Annotated[str | None, Help("file of domains never requested, one a line")] = None
    max_depth: Annotated[Count | None, Help("links followed from a seed")] = None
    offsite_hops: Annotated[Count, Help("hops that may leave the scope")] = 0
    strip_query: Annotated[Texts, Help("query parameters to drop from URLs (globs; '*' drops all)")] = ()
    seeded_urls_only: Annotated[bool, Help("fetch the seeds alone; links are recorded, not followed")] = False


class PolitenessSection(Section, frozen=True, kw_only=True):
    """How a site is treated, and what is done when it fails."""

    delay_s: Annotated[Seconds, Help("least seconds between two requests to one site")] = field(
        name="politeness_delay_seconds"
    )
    places: Annotated[Positive, Help("requests in flight to one site")] = field(name="per_domain_concurrency")
    key_scope: Annotated[Literal["domain", "host", "ip"], Help("what counts as one site")] = field(
        default="domain", name="politeness_scope"
    )
    robots_ttl_s: Annotated[Timeout, Help("seconds a robots.txt is kept")] = field(
        default=86400.0, name="robots_cache_ttl_seconds"
    )
    max_retries: Annotated[Count, Help("tries after the first, for what may succeed later")] = 3
    retry_backoff_s: Annotated[Seconds, Help("first wait before a retry; it doubles, to at most 60")] = field(
        default=1.0, name="retry_backoff_seconds"
    )
    max_retry_after_s: Annotated[Seconds, Help("longest Retry-After that is waited for")] = field(
        default=600.0, name="max_retry_after_seconds"
    )
    breaker_failures: Annotated[Positive, Help("failures in a row that open a site's breaker")] = 5
    breaker_reset_s: Annotated[Timeout, Help("seconds an open breaker waits before a probe")] = field(
        default=300.0, name="breaker_reset_seconds"
    )
    breaker_max_probes: Annotated[Positive, Help("failed probes after which a site's queue is rejected")] = 3
    lease_s: Annotated[Timeout, Help("seconds a fetcher may hold a URL; more than total_timeout")] = field(
        default=90.0, name="lease_seconds"
    )


class FetchSection(Section, frozen=True, kw_only=True):
    """How pages are asked for."""

    email: Annotated[str | None, Help("contact address in the user agent; required beyond loopback")] = None
    user_agent_template: Annotated[str, Help("the user agent, with {version} and {email}")] = (
        "Weft/{version} (+{email})"
    )
    workers: Annotated[Annotated[int, Meta(ge=1, le=10_000)], Help("transfers in flight in a fetcher process")] = field(
        default=200, name="fetcher_workers"
    )
    max_body_bytes: Annotated[Positive, Help("longest body, before and after decompression")] = 10 * 1024 * 1024
    max_redirects: Annotated[Count, Help("longest chain of redirects")] = 5
    connect_timeout_s: Annotated[Timeout, Help("seconds to connect")] = field(default=10.0, name="connect_timeout")
    read_timeout_s: Annotated[Timeout, Help("seconds without a byte")] = field(default=15.0, name="read_timeout")
    total_timeout_s: Annotated[Timeout, Help("seconds for a whole transfer")] = field(
        default=60.0, name="total_timeout"
    )
    cookies: Annotated[Literal["jar", "off"], Help("'jar' keeps a crawl's cookies, 'off' sends none")] = "jar"
    headers: Annotated[dict[str, str], Help("headers sent with every request")] = field(default_factory=dict)
    auth: Annotated[dict[str, str], Help("user:password by host, sent only when the host asks")] = field(
        default_factory=dict
    )
    tls_verify: Annotated[bool, Help("refuse certificates that do not verify")] = True
    resolve: Annotated[dict[str, str], Help("addresses pinned by host ('*.x' pins every name under x)")] = field(
        default_factory=dict
    )
    allow_private: Annotated[bool, Help("loopback and private addresses may be crawled")] = False

    def user_agent(self) -> str:
        """The user agent that is sent."""
        return self.user_agent_template.format(version=__version__, email=self.email or "loopback-only")


class LimitsSection(Section, frozen=True, kw_only=True):
    """When a crawl ends before everything is fetched."""

    max_pages: Annotated[Positive | None, Help("pages to store, at most")] = None
    max_duration_s: Annotated[Timeout | None, Help("seconds to run, at most")] = field(
        default=None, name="max_duration"
    )
    max_pages_per_domain: Annotated[Positive | None, Help("pages of one domain, at most")] = None


class StoreSection(Section, frozen=True, kw_only=True):
    """Where pages are kept, and as what."""

    data_dirs: Annotated[Texts, Meta(min_length=1), Help("folders that hold the crawl")] = ("./weft-data",)
    store: Annotated[
        tuple[Literal["warc", "text"], ...], Meta(min_length=1), Help("raw pages (warc), their text, or both")
    ] = ("warc",)
    html_parser: Annotated[
        Literal["turbohtml", "lexbor"], Help("what parses pages; lexbor is slower, and an extra: weft[lexbor]")
    ] = "turbohtml"


class LogSection(Section, frozen=True, kw_only=True):
    """What is told while it runs."""

    log_dir: Annotated[str, Help("folder of the log files")]
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Help("least level that is logged")] = "INFO"
    prometheus_port: Annotated[Port, Help("port of the metrics endpoint; 0 for none")] = 8001
    metrics_update_s: Annotated[Timeout, Help("seconds between two updates of the metrics")] = field(
        default=10.0, name="metrics_update_seconds"
    )


class PodSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a pod's frontier is: a Redis somewhere, or one that the crawl runs itself."""

    redis_url: str = ""
    managed: bool = False


class PodsSection(Section, frozen=True, kw_only=True):
    """How a crawl is divided, and into which processes."""

    pods: Annotated[tuple[PodSpec, ...], Help("Redis of each pod (redis_url, or `managed`); none: embedded pods")] = ()
    num_pods: Annotated[
        Annotated[int, Meta(ge=1, le=256)],
        Help("pods; each owns its part of the domains; of more that are listed, the first"),
    ]
    only_pods: Annotated[str | None, Help("pods that run on this node, as 0-3 or 0,2; none: all")] = None
    fetchers_per_pod: Annotated[Annotated[int, Meta(ge=1, le=1000)], Help("fetcher processes of a pod")]
    parsers_per_pod: Annotated[
        Annotated[int, Meta(ge=0, le=1000)], Help("parser processes of a pod; 0: fetchers parse themselves")
    ]
    parser_workers: Annotated[Positive, Help("pages that a parser takes at a time")] = 50
    affinity: Annotated[bool, Help("one core for each process")] = field(default=False, name="enable_cpu_affinity")
    parse_soft: Annotated[Positive, Help("pages waiting for a pod's parsers at which fetchers slow down")] = field(
        default=20_000, name="parse_queue_soft_limit"
    )
    parse_hard: Annotated[Positive, Help("pages waiting for a pod's parsers at which fetchers wait")] = field(
        default=80_000, name="parse_queue_hard_limit"
    )
    seen_filter: Annotated[
        Literal["exact", "bloom"], Help("how a Redis pod knows what was seen; bloom takes less memory, and misses some")
    ] = "exact"
    bloom_capacity: Annotated[Positive, Help("URLs that the filters of all pods are made for")] = field(
        default=10_000_000_000, name="bloom_filter_capacity"
    )
    bloom_error_rate: Annotated[
        Annotated[float, Meta(gt=0, lt=1)], Help("share of new URLs that a filter takes for known ones")
    ] = field(default=0.001, name="bloom_filter_error_rate")

    @property
    def on_redis(self) -> bool:
        """Whether the pods' frontiers are on Redis."""
        return bool(self.pods)

    @property
    def here(self) -> tuple[int, ...]:
        """The pods that run on this node."""
        return tuple(range(self.num_pods)) if self.only_pods is None else numbers(self.only_pods)


class RedisSection(Section, frozen=True, kw_only=True):
    """How every pod's Redis is spoken to."""

    db: Annotated[Count, Help("database of every pod's Redis")] = field(default=0, name="redis_db")
    password: Annotated[str | None, Help("password of every pod's Redis")] = field(default=None, name="redis_password")
    socket_timeout_s: Annotated[SocketTimeout, Help("seconds to wait for an answer of Redis")] = field(
        default=30.0, name="redis_socket_timeout"
    )
    connect_timeout_s: Annotated[SocketTimeout, Help("seconds to connect to Redis")] = field(
        default=10.0, name="redis_socket_connect_timeout"
    )
    keepalive: Annotated[bool, Help("keep idle connections to Redis alive")] = field(
        default=True, name="redis_socket_keepalive"
    )
    max_connections: Annotated[Positive, Help("connections of a process to one Redis, at most")] = field(
        default=100, name="redis_max_connections"
    )


class RunSection(Section, frozen=True, kw_only=True):
    """What to do with a crawl that is in the data dir already."""

    resume: Annotated[bool, Help("go on with the crawl in the data dir")] = False
    fresh: Annotated[bool, Help("start over: the crawl in the data dir is deleted")] = False
    retry_failed: Annotated[bool, Help("on resume, try failed URLs again")] = False
    recrawl: Annotated[bool, Help("on resume, visit known pages again, conditionally")] = False


class Config(Struct, frozen=True, kw_only=True):
    """The whole tree; only the door holds it."""

    scope: ScopeSection
    politeness: PolitenessSection
    fetch: FetchSection
    limits: LimitsSection
    store: StoreSection
    log: LogSection
    pods: PodsSection
    redis: RedisSection
    run: RunSection


BLOOM_KEYS = ("bloom_filter_capacity", "bloom_filter_error_rate")


# Defaults that follow from other values: key -> (the value, why), from the values so far and their origins.
COMPUTED: dict[str, Callable[[Mapping[str, Any], Mapping[str, str]], tuple[Any, str]]] = {
    "scope": lambda got, _: (
        ("any", "from a seed file") if got.get("seed_file") else ("domain", "URLs on the command line")
    ),
    "politeness_delay_seconds": lambda got, _: (
        (70.0, "scope is any") if got["scope"] == "any" else (1.0, "within a scope")
    ),
    "per_domain_concurrency": lambda got, _: (
        (8, "the delay is 0") if got["politeness_delay_seconds"] == 0 else (1, "there is a delay")
    ),
    "num_pods": lambda got, _: (len(got["pods"]), "as many as pods") if got["pods"] else (1, "one embedded pod"),
    "fetchers_per_pod": lambda got, _: (6, "with Redis pods") if got["pods"] else (1, "an embedded pod is one process"),
    "parsers_per_pod": lambda got, _: (2, "with Redis pods") if got["pods"] else (0, "an embedded pod is one process"),
    "seen_filter": lambda got, origins: (
        ("bloom", "a bloom key is given") if got["pods"] and _given(origins, *BLOOM_KEYS) else ("exact", "no bloom key")
    ),
    "log_dir": lambda got, _: (os.path.join(got["data_dirs"][0], "logs"), "in the first data dir"),  # noqa: PTH118
}
SHORT_FLAGS = {"politeness_delay_seconds": "--delay", "data_dirs": "--data-dir", "headers": "--header"}
# What a resumed crawl is not held to: how long, from what file and with what intent it was started the last time.
NOT_KEPT = frozenset(
    {"max_duration", "seed_file", "resume", "fresh", "retry_failed", "recrawl", "data_dirs", "log_dir"}
)
PATTERNS = frozenset({"include", "exclude"})
SECRET_KEYS = frozenset({"auth", "headers", "redis_password", "pods"})
DEBUG_PODS = "WEFT_DEBUG_POD_ASSIGNMENT"
# WEFT_ variables that are switches of their own, not keys.
SWITCHES = re.compile(r"WEFT_(DEBUG.*|REQUIRE_.*|TEST_.*)")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration: where it lives and what it accepts."""

    name: str
    section: str
    attribute: str
    type: Any
    help: str
    schema: dict[str, Any]
    default: Any

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return SHORT_FLAGS.get(self.name, "--" + self.name.replace("_", "-"))


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its origin; `lax` ones are texts that may stand for numbers."""

    value: Any
    origin: str
    lax: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration and where each of its values came from."""

    config: Config
    origins: dict[str, str]
    values: dict[str, Any]

    def given(self) -> dict[str, Any]:
        """The values that are no defaults and that a resumed crawl keeps."""
        return {
            name: value for name, value in self.values.items() if name not in NOT_KEPT and _given(self.origins, name)
        }


@cache
def keys() -> Mapping[str, Key]:
    """Every key, in the order of the sections."""
    found = {}
    for section, struct in get_type_hints(Config).items():
        hints = get_type_hints(struct, include_extras=True)
        (_, defs) = msgspec.json.schema_components([struct], ref_template="{name}")
        properties = defs[struct.__name__]["properties"]
        if "PodSpec" in defs:
            properties["pods"]["items"] = defs["PodSpec"]
        for info in msgspec.structs.fields(struct):
            schema = properties[info.encode_name]
            default = (
                info.default_factory() if info.default is msgspec.NODEFAULT and not info.required else info.default
            )
            found[info.encode_name] = Key(
                info.encode_name, section, info.name, hints[info.name], schema["description"], schema, default
            )
    return MappingProxyType(found)


def load(
    path: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    earlier: Mapping[str, Any] | None = None,
    *,
    is_judged: bool = True,
) -> Loaded:
    """Merges all sources into one configuration, or raises BadConfig with every problem found.

    `earlier` is what a crawl that is resumed was started with: it counts before the defaults. Whether the values fit
    together is left open where that is not known yet (`is_judged`).
    """
    known, problems = keys(), list[str]()
    environment = os.environ if environment is None else environment
    given = [
        (name, Value(value, "as the crawl was started")) for name, value in (earlier or {}).items() if name in known
    ]
    if path is not None:
        given += _from_file(Path(path), known, environment, problems)
    given += _from_environment(known, environment, problems)
    given += _from_flags(known, flags or {}, problems)
    values, origins = _typed(given, known, problems)
    if not problems:
        _compute(values, origins)
        told = _contradictions(values, origins) if is_judged else ()
        problems += [f"{origins[name]}: {name}: {text}" for name, text in told]
    if problems:
        raise BadConfig(sorted(problems, key=_line))
    _take_first_pods(values, origins)
    ordered = {name: values[name] for name in known}
    return Loaded(_assemble(ordered, known), origins, ordered)


def json_schema() -> dict[str, Any]:
    """A JSON Schema of the YAML file, for editors."""
    properties = {}
    for item in keys().values():
        # A list of texts may be written as one text.
        schema = item.schema
        if item.name == "pods":  # and a pod as its URL
            schema = {**schema, "items": {"anyOf": [schema["items"], {"type": "string"}]}}
        if item.name == "only_pods":
            one = {"type": "integer"}, {"type": "array", "items": {"type": ["string", "integer"]}}
            schema = {"anyOf": [*schema["anyOf"], *one]}
        if schema.get("type") == "array":
            schema = {"anyOf": [schema, {"type": "string"}]}
        properties[item.name] = {**schema, "description": item.help}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Weft configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def masked(name: str, value: Any) -> Any:
    """A value as it may be shown: secrets are starred out."""
    if name == "pods":
        return tuple(replace(pod, redis_url=_without_login(pod.redis_url)) for pod in value)
    if name in SECRET_KEYS and isinstance(value, dict):
        return dict.fromkeys(value, "***")
    return "***" if name in SECRET_KEYS and value else value


def _without_login(url: str) -> str:
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", re.sub(r"//.*@", "//***@", url))


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of `0-3,7`, in order; ValueError where it is not written so."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if int(last or first) >= 10_000:  # far more pods than there can be, and not yet a list that fills the memory
            raise ValueError(text)
        found.update(range(int(first), int(last or first) + 1))
    if not found:
        raise ValueError(text)
    return tuple(sorted(found))


def split(text: str, *, patterns: bool = False) -> list[str]:
    """The items of `a,b`; a comma that belongs to an item is written `\\,`.

    Of patterns, `re:` and all that follows it is one: commas are common in regular expressions (`{1,3}`), and one that
    is cut in two still compiles, and means something else.
    """
    whole = text[at.start() :] if patterns and (at := re.search(r"(?:(?<=,)|^)\s*re:", text)) else ""
    parts = re.split(r"(?<!\\),", text.removesuffix(whole))
    return list(filter(None, [*(part.strip().replace("\\,", ",") for part in parts), whole.strip()]))


def checks_pod_assignment(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the pods shall check every URL that they take in (WEFT_DEBUG_POD_ASSIGNMENT)."""
    return (os.environ if environment is None else environment).get(DEBUG_PODS, "").lower() in ("1", "true")


def _given(origins: Mapping[str, str], *keys: str) -> bool:
    """Whether somebody gave one of these: it is no default."""
    return any(not origins[key].startswith("default") for key in keys)


def _take_first_pods(values: dict[str, Any], origins: dict[str, str]) -> None:
    """A list of many pods can be tried with few: the first are taken."""
    listed, wanted = len(values["pods"]), values["num_pods"]
    if wanted < listed:
        values["pods"] = values["pods"][:wanted]
        origins["pods"] += f", the first {wanted} of {listed}"


def _typed(
    given: list[tuple[str, Value]], known: Mapping[str, Key], problems: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Every value checked, the overridden ones too; the later wins. What was not given gets its plain default."""
    values = {name: copy(item.default) for name, item in known.items() if name not in COMPUTED}
    origins = dict.fromkeys(values, "default")
    for name, value in given:
        item = known[name]
        origins[name] = value.origin
        try:
            values[name] = msgspec.convert(_listed(value, item), item.type, strict=not value.lax)
            for text in _texts(values[name]):
                text.encode()
        except UnicodeEncodeError:
            problems.append(f"{value.origin}: {name}: {_shown(name, value)} is not UTF-8 text; write it in UTF-8")
        except (msgspec.ValidationError, ValueError, RecursionError):
            more = _at_most(item.schema, value.value)
            shown = _shown(name, value)
            problems.append(f"{value.origin}: {name}: {shown} is not accepted; use {accepted(item.schema)}{more}")
    return values, origins


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


def _compute(values: dict[str, Any], origins: dict[str, str]) -> None:
    for name, compute in COMPUTED.items():
        if name not in values:
            values[name], why = compute(values, origins)
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
    if kind == "object" and isinstance(value, str) and given.lax:
        from weft import config_file

        return config_file.parsed(value)
    if isinstance(value, bool) and kind != "boolean":
        return str(value)  # or it would pass for a number
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


def accepted(schema: dict[str, Any]) -> str:
    """In words, what a key takes."""
    if "anyOf" in schema:
        return " or ".join("nothing" if s.get("type") == "null" else accepted(s) for s in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return "a list of " + _plural(schema.get("items", {}))
    if "exclusiveMaximum" in schema:
        return f"a number above {schema['exclusiveMinimum']:g} and below {schema['exclusiveMaximum']:g}"
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "a text",
        "object": "a mapping of texts, like {NAME: VALUE}",
    }
    text = words.get(schema.get("type", ""), "another value")
    most = schema.get("maximum", LARGEST)
    end = "" if most in (LARGEST, LONGEST_S) else f" to {most:,.0f}"
    if "minimum" in schema:
        text += f" from {schema['minimum']:g}" + (end or " up")
    if "exclusiveMinimum" in schema:
        text += f" above {schema['exclusiveMinimum']:g}" + end.replace(" to ", ", at most ")
    return text


def _plural(items: dict[str, Any]) -> str:
    if "enum" in items:
        return ", ".join(map(str, items["enum"]))
    if items.get("type") == "object":
        return "pods, each `redis_url: redis://HOST:PORT/DB` or `managed: true`"
    return "texts"


def _contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Values that are fine alone and wrong together, or wrong in a way that no type tells."""
    if values["lease_seconds"] <= values["total_timeout"]:
        yield "lease_seconds", f"must be more than total_timeout ({values['total_timeout']:g})"
    if values["resume"] and values["fresh"]:
        yield "fresh", "cannot be combined with resume: either go on or start over"
    for name in ("retry_failed", "recrawl"):
        if values[name] and not values["resume"]:
            yield name, "works on resume alone: set resume too"
    yield from _list_contradictions(values)
    yield from _pod_contradictions(values, origins)
    yield from _header_contradictions(values)
    for host, address in values["resolve"].items():
        if not host.strip():
            yield "resolve", f"a host is missing before {address!r}: write HOST=ADDRESS"
        elif not _is_address(address):
            yield "resolve", f"{host}: {address!r} is not an IP address"
    for host, login in values["auth"].items():
        if ":" not in login:
            yield "auth", f"{host}: write user:password"


def _list_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("include", "exclude"):
        for pattern in values[name]:
            try:
                re.compile(pattern.removeprefix("re:") if pattern.startswith("re:") else "")
            except (re.error, OverflowError, RecursionError) as error:
                yield name, f"{pattern!r} is not a regular expression: {error}"
    for name in ("data_dirs", "store", "include", "exclude", "strip_query"):
        listed = values[name]
        if not all(listed):
            yield name, "holds an empty text: write what is meant, or leave it out"
        if name in ("data_dirs", "store"):
            first = [os.path.normpath(one) for one in listed]
            if again := next((one for at, one in enumerate(listed) if first[at] in first[:at]), None):
                yield name, f"{again!r} stands there twice"


def _header_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is sent with every request must fit into a header."""
    template = values["user_agent_template"]
    try:
        fields = {(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template)}
    except ValueError as error:
        yield "user_agent_template", f"only {{version}} and {{email}} may stand in braces ({error})"
    else:
        for name, spec, conversion in fields:
            if name is not None and (name not in ("version", "email") or spec or conversion):
                yield "user_agent_template", f"only {{version}} and {{email}} may stand in braces ({name!r} does)"
    for name in ("user_agent_template", "email"):
        if re.search(r"[\r\n\0]", values[name] or ""):
            yield name, f"{values[name]!r} cannot be sent in a header: it has a line break in it"
    for name, value in values["headers"].items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            yield "headers", f"{name!r} is not a header that can be sent"


def _pod_contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    pods: tuple[PodSpec, ...] = values["pods"]
    for number, pod in enumerate(pods):
        if bool(pod.redis_url) == pod.managed:
            yield "pods", f"pod {number}: write either redis_url: redis://HOST:PORT/DB or managed: true"
        elif pod.redis_url and not _is_redis_url(pod.redis_url):
            yield "pods", f"pod {number}: {_no_redis_url(pod.redis_url)}"
    if pods and values["num_pods"] > len(pods):
        yield "num_pods", f"is {values['num_pods']}, but pods lists {len(pods)}: list as many, or leave num_pods out"
    if values["parse_queue_soft_limit"] > values["parse_queue_hard_limit"]:
        yield "parse_queue_soft_limit", f"must not be above parse_queue_hard_limit ({values['parse_queue_hard_limit']})"
    for name in BLOOM_KEYS if pods and values["seen_filter"] == "exact" else ():
        if _given(origins, name):
            exact = f"seen_filter is exact ({origins['seen_filter']}), which has no use for it"
            yield name, f"{exact}: leave one of them out, or set seen_filter: bloom"
    if not pods:
        yield from _embedded_contradictions(values, origins)
    if values["only_pods"] is None:
        return
    try:
        last = numbers(values["only_pods"])[-1]
    except ValueError:
        yield "only_pods", f"{values['only_pods']!r} names no pods; write 0-3, or 0,2"
        return
    if not pods:
        yield "only_pods", "works with Redis pods alone: embedded ones are all on one machine"
    elif last >= values["num_pods"]:
        yield "only_pods", f"there is no pod {last}: there are {values['num_pods']}, counted from 0"


def _embedded_contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if values["num_pods"] > 1 and values["politeness_scope"] == "ip":
        # An address may serve domains of several pods, and embedded ones know nothing of each other's requests.
        yield "politeness_scope", "`ip` needs one embedded pod, or Redis pods (--pods): use those, or domain or host"
    if values["fetchers_per_pod"] != 1:
        yield "fetchers_per_pod", "an embedded pod is one process: use num_pods for more, or Redis pods"
    if values["parsers_per_pod"]:
        yield "parsers_per_pod", "an embedded pod parses in its one process: leave it 0, or use Redis pods"
    if values["seen_filter"] != "exact":
        yield "seen_filter", "bloom works with Redis pods alone; embedded ones are exact"
    for name in BLOOM_KEYS:
        if _given(origins, name):
            yield name, "embedded pods are exact, and have no use for it: leave it out, or use Redis pods (--pods)"


def _is_redis_url(text: str) -> bool:
    scheme, mark, _ = text.partition("://")
    try:
        urlsplit(text).port  # noqa: B018 (it raises where the port is no number)
    except ValueError:
        return False
    return bool(mark) and scheme in ("redis", "rediss", "unix")


def _no_redis_url(text: str) -> str:
    more = f". For {text} embedded pods: --num-pods {text}" if text.isdecimal() else ""
    must = "must begin with redis://, rediss:// or unix://, as in redis://HOST:PORT/DB, or be managed"
    return f"{_without_login(text)!r} is no Redis URL: it {must}{more}"


def _is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _assemble(values: Mapping[str, Any], known: Mapping[str, Key]) -> Config:
    sections: dict[str, dict[str, Any]] = {}
    for name, item in known.items():
        sections.setdefault(item.section, {})[item.attribute] = values[name]
    return Config(**{name: struct(**sections[name]) for name, struct in get_type_hints(Config).items()})


def own_names(known: Mapping[str, Key]) -> dict[str, str]:
    """Every name that a setting has, its key and its flag's, with the key."""
    return {item.flag.removeprefix("--").replace("-", "_"): name for name, item in known.items()} | {
        name: name for name in known
    }


def _from_environment(
    known: Mapping[str, Key], environment: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, Value]]:
    own, spelt = own_names(known), dict[str, str]()
    for variable, text in environment.items():
        if variable == DEBUG_PODS and text.lower() not in ("", "0", "1", "false", "true"):
            problems.append(f"environment: {variable}: {text!r} is not accepted; use true or false")
        if not variable.startswith("WEFT_") or SWITCHES.fullmatch(variable):
            continue
        name = variable.removeprefix("WEFT_").lower()
        if name not in own:
            told = names.answer(name, own, lambda other: f"WEFT_{other.upper()}")
            problems.append(f"environment: {variable} names no key{told}")
        elif (first := spelt.setdefault(own[name], variable)) != variable:
            both = " and ".join(sorted((first, variable)))
            problems.append(f"environment: {both} are the same setting: give one of them")
        else:
            yield own[name], Value(text, variable, lax=True)


def _from_flags(known: Mapping[str, Key], flags: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Value]]:
    """Of the command line, where the names are right already, and of a program, which may write any."""
    own, spelt = own_names(known), dict[str, str]()
    for name, value in flags.items():
        if name not in own:
            problems.append(f"no setting {name!r}{names.answer(name, own, str)}")
        elif (first := spelt.setdefault(own[name], name)) != name:
            problems.append(f"{' and '.join(sorted((first, name)))} are the same setting: give one of them")
        else:
            yield own[name], Value(value, known[own[name]].flag, lax=True)


def _from_file(
    path: Path, known: Mapping[str, Key], environment: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, Value]]:
    from weft import config_file  # it brings PyYAML with it, which most processes never need

    own = own_names(known)

    def unknown(name: str) -> str | None:
        return None if name in known else f"unknown key {name!r}{names.answer(name, own, own.__getitem__)}"

    for name, value, place, lax in config_file.entries(path, unknown, environment, problems):
        yield name, Value(value, place, lax)


def _line(problem: str) -> int:
    """The line that a problem names, to tell them from the top of the file down."""
    found = re.search(r":([0-9]+): ", problem)
    return int(found[1]) if found else 0
