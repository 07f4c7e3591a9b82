"""The settings of one crawl among many: configuration keys, those of the engine overlaid with the crawl's own.

What belongs to the engine (how many transfers, what counts as one site, where pages are kept) cannot be set for a
crawl. Settings are kept as they were given, so that `open` recognises a crawl that is opened again with the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from weft.config import Config, FetchSection, keys, load, own_names, rules_file
from weft.errors import BadConfig, BadInput
from weft.logins import absolute
from weft.names import answer

EDITABLE = frozenset(
    {"include", "exclude", "politeness_delay_seconds", "max_pages", "max_pages_per_domain", "max_depth", "max_duration"}
)
_SECTIONS = frozenset({"scope", "politeness", "fetch", "limits", "extract", "login", "logins"})
_ENGINE_SETTINGS = frozenset(
    {
        "politeness_scope",
        "fetcher_workers",
        "parser_children",
        "seed_file",
        "lease_seconds",
        "machine_clock",
        "max_browsers",
        "pages_per_browser",
        "browser_sandbox",
        "logins",
    }
)
_ENGINE_SECTIONS = frozenset({"proxy", "cluster"})
_SHARED_SETTINGS = frozenset({"store", "log_dir", "log_level", "log_format"})
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
_encode_as_given = msgspec.json.Encoder(enc_hook=str).encode  # keeps the order of fields: it is the order of rules


def crawl_settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """A crawl's settings by key; BadConfig for a key that no crawl has."""

    def problem(key: str, section: str) -> str:
        if key in _SHARED_SETTINGS or section in _ENGINE_SECTIONS or (key in _ENGINE_SETTINGS and key != "seed_file"):
            return "is a setting of the engine, not of one crawl"
        if section not in _SECTIONS or key == "seed_file":
            return "is a setting of `weft crawl`; a crawl in an engine has none"
        return ""

    return _flatten_sections(given, problem)


def engine_settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's settings by key: its own, and the defaults of its crawls."""

    def problem(key: str, section: str) -> str:
        is_one = key in _SHARED_SETTINGS or section in _ENGINE_SECTIONS or (section in _SECTIONS and key != "seed_file")
        if key == "login":
            return "is a setting of one crawl; `logins` are those that crawls may name"
        return "" if is_one else "an engine has no such setting"

    return _flatten_sections(given, problem)


def _flatten_sections(given: Mapping[str, Any], problem: Callable[[str, str], str]) -> dict[str, Any]:
    """Settings by key; `problem` describes what is wrong with a key of a section. BadConfig lists all problems."""
    known = keys()
    own, problems, found = own_names(known), list[str](), dict[str, Any]()
    for name, value in given.items():
        key = own.get(name)
        if key is None:
            problems.append(f"no setting {name!r}{answer(name, own, str)}")
        elif wrong := problem(key, known[key].section):
            problems.append(f"{name}: {wrong}")
        elif key in found:
            problems.append(f"{name}: is given twice, under two names")
        else:
            try:
                found[key] = _make_portable(key, value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise BadConfig(problems)
    return found


def _make_portable(key: str, value: Any) -> Any:
    """A value that is valid on another machine: a rules file is replaced by its rules."""
    if key == "extract" and isinstance(value, str | os.PathLike):
        return rules_file(os.fspath(value))
    if key == "login":
        return absolute(rules_file(os.fspath(value), "login") if isinstance(value, str | os.PathLike) else value)
    return value


def config_of(*layers: Mapping[str, Any]) -> Config:
    """The configuration that settings make, later ones over earlier ones; BadConfig for invalid values."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= layer
    return _decode_config(_encode_as_given(merged))


@lru_cache(maxsize=4096)  # most crawls of an engine have the same settings
def _decode_config(encoded: bytes) -> Config:
    return load(flags=msgspec.json.decode(encoded), environment={}).config


@cache
def recorded_keys() -> frozenset[str]:
    """The keys whose values are recorded with a crawl. A lease must outlive the transfers of its crawl, so the setting
    of its length is recorded with their time limit.
    """
    return frozenset(
        name
        for name, key in keys().items()
        if key.section in _SECTIONS and (name not in _ENGINE_SETTINGS or name == "lease_seconds")
    )


def value_of(config: Config, name: str) -> Any:
    """The value of a key."""
    key = keys()[name]
    return getattr(getattr(config, key.section), key.attribute)


def are_equal_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two sets of settings are equal."""
    return _encode(one) == _encode(other)


def differing_keys(running: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The keys of `wanted` whose values differ from those of a running engine; keys that are left out may have any
    value.
    """
    there = config_of(running)
    return sorted(key for key, value in wanted.items() if config_of(running, {key: value}) != there)


def storable_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in a form that can be stored and sent."""
    found: dict[str, Any] = msgspec.json.decode(_encode_as_given(dict(settings)))
    return found


def trust_key_of(fetch: FetchSection, *, ignores_robots: bool = False) -> str:
    """Names the trust settings of a crawl: crawls with different ones do not share what they learn of a host; empty for
    the usual settings.
    """
    unusual = [fetch.resolve, not fetch.tls_verify, fetch.allow_private, fetch.auth]
    if ignores_robots:
        unusual.append("ignore_robots")
    if fetch.dns_servers:
        unusual.append(fetch.dns_servers)
    if fetch.proxies:
        unusual += [fetch.proxies, fetch.direct_fallback]
    return sha256(_encode([*unusual, bool(fetch.email)])).hexdigest()[:12] if any(unusual) else ""


def check_weight(weight: object) -> float:
    """Checks a crawl's share among others."""
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.001 <= weight <= 1000:
        raise BadInput(f"weight: {weight!r} is not accepted; use a number from 0.001 to 1000")
    return float(weight)


def check_deadline(deadline: object, now: float) -> float | None:
    """Checks a deadline: a time of the wall clock, in seconds; None: there is none."""
    if deadline is None:
        return None
    if isinstance(deadline, datetime):
        deadline = deadline.timestamp()
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not deadline < 1e12:
        raise BadInput(f"deadline: {deadline!r} is not accepted; use a time: seconds since 1970, or a datetime")
    if deadline <= now:
        raise BadInput(f"deadline: it lies {now - deadline:,.0f} s in the past")
    return float(deadline)
