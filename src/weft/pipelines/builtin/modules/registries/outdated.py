"""The stage `outdated`: which declared dependencies do not admit the newest version that a registry has.

Its own stage, because its answer changes while the repository does not: its fingerprint is the period, and a registry
that does not answer fails this stage alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from weft.pipelines.builtin.modules.registries import versions
from weft.pipelines.builtin.modules.registries.http import Getter
from weft.pipelines.builtin.modules.registries.registry import NPM, PYPI, Registry, Released
from weft.pipelines.stage import StageContext

DEFAULTS: dict[str, Any] = {
    "npm_registry": None,
    "pypi_registry": None,
    "allow_private": False,
    "refresh_days": 7,
    "max_packages": 300,
}
_LANGUAGES = ((NPM, "javascript"), (PYPI, "python"))
_NPM_ALIAS = re.compile(r"npm:(@?[^@]+)@(.+)")


def outdated(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Compares all declared dependencies with the newest versions in their registries."""
    settings = {**DEFAULTS, **context.settings}
    if not settings["npm_registry"] and not settings["pypi_registry"]:
        context.skip("no registry is set: outdated.npm_registry, outdated.pypi_registry")
    cache = context.files.path(f"registry/{period(item, settings)}")
    packages: dict[str, Any] = {}
    with Getter(allow_private=bool(settings["allow_private"])) as getter:
        for kind, language in _LANGUAGES:
            base, facts = settings[f"{kind}_registry"], context.results["analyse"][language]
            if base and facts:
                asked = _declared_packages(facts["declared"])[: int(settings["max_packages"])]
                registry = Registry(kind, base, cache, getter)
                packages[language] = _compare_packages(
                    kind, [(name, said, registry.released(name)) for name, said in asked]
                )
    context.log.info("Asked the registries", outdated=sum(len(part["outdated"]) for part in packages.values()))
    return packages


def period(item: Mapping[str, Any], settings: Mapping[str, Any]) -> int:  # noqa: ARG001 - what a fingerprint is called with
    """The fingerprint of `outdated`: a number that changes every `refresh_days`."""
    days = max(1, int(settings.get("refresh_days", DEFAULTS["refresh_days"])))
    return int(time.time() // 86_400) // days


def _declared_packages(groups: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """The declared packages, each with its version range."""
    declared_ranges: dict[str, str] = {}
    for ranges in groups.values():
        for name, said in ranges.items():
            alias = _NPM_ALIAS.fullmatch(said)
            declared_ranges.setdefault(alias[1] if alias else name, alias[2] if alias else said)
    return sorted(declared_ranges.items())


def _compare_packages(kind: str, packages: list[tuple[str, str, Released]]) -> dict[str, Any]:
    behind, unknown, unjudged = [], [], []
    for name, said, released in packages:
        if released.latest is None:
            unknown.append(name)
        elif (judged := compared(kind, said, released)) is None:
            unjudged.append(name)
        elif judged:
            behind.append({"package": name, "declared": said, **judged})
    return {"asked": len(packages), "outdated": behind, "unknown": unknown, "unjudged": unjudged}


def compared(kind: str, said: str, released: Released) -> dict[str, str] | None:
    """How far a version range is behind: empty if it admits the newest version; None if it is not a version range."""
    read = versions.version if kind == NPM else versions.padded
    latest = read(released.latest or "")
    admits = (versions.npm_texts if kind == NPM else versions.python_range)(said)
    if latest is None or admits is None:
        return None
    if admits(str(released.latest)):
        return {}
    wanted = versions.newest(filter(admits, released.versions), read)
    wanted_version = read(wanted) if wanted else None
    if wanted_version is not None and wanted_version > latest:
        return {}  # it asks for something newer than what the registry calls the latest
    return {
        "wanted": wanted or "",
        "latest": str(released.latest),
        "behind": versions.behind(wanted_version, latest) if wanted_version else versions.MAJOR,
    }
