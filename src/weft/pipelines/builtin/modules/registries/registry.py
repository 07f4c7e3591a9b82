"""Asks package registries which versions there are: npm's protocol, and PyPI's simple index as JSON (PEP 691, 700).

An answer is kept as a small file for as long as its period lasts (`outdated.refresh_days`), for all workers and runs.
A registry that has failed three times in a row is not asked again by this process: an item would wait for nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weft.errors import WeftError
from weft.pipelines.builtin.modules.registries import versions
from weft.pipelines.builtin.modules.registries.http import Getter, HttpReply
from weft.pipelines.pool.worker.item_log import safe_name

NPM, PYPI = "npm", "pypi"
_FAILURES_UNTIL_SKIPPED = 3
_NPM_ACCEPT = "application/vnd.npm.install-v1+json, application/json;q=0.8"
_PYPI_ACCEPT = "application/vnd.pypi.simple.v1+json"
_failures: dict[str, int] = {}  # by registry, in a row


class RegistryAway(WeftError):
    """A registry does not answer properly, so whether something is outdated is unknown now."""


@dataclass(frozen=True, slots=True)
class Released:
    """The newest version and all versions of a package in a registry; empty if the registry does not have the
    package.
    """

    latest: str | None
    versions: tuple[str, ...] = ()


class Registry:
    """One package registry, at a base URL, with a cache of its answers."""

    def __init__(self, kind: str, base: str, cache: Path, getter: Getter) -> None:
        self._kind = kind
        self._base = base.rstrip("/")
        self._cache = cache / kind
        self._getter = getter

    def released(self, package: str) -> Released:
        """The versions of a package, from the cache or from the registry."""
        file = self._cache / f"{safe_name(package)}.json"
        try:
            known = json.loads(file.read_bytes())
            return Released(known["latest"], tuple(known["versions"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass
        releases = self._request_versions(package)
        _write_cache(file, json.dumps({"latest": releases.latest, "versions": releases.versions}))
        return releases

    def _request_versions(self, package: str) -> Released:
        if _failures.get(self._base, 0) >= _FAILURES_UNTIL_SKIPPED:
            raise RegistryAway(f"the {self._kind} registry has not answered {_FAILURES_UNTIL_SKIPPED} times in a row")
        path, accept = (
            (quote(package, safe="@"), _NPM_ACCEPT) if self._kind == NPM else (f"{quote(package)}/", _PYPI_ACCEPT)
        )
        answer = self._getter.get(f"{self._base}/{path}", [("Accept", accept)])
        if answer.status == 404:
            _failures[self._base] = 0
            return Released(None)
        try:
            releases = (_versions_of_npm if self._kind == NPM else _versions_of_pypi)(_decode_object(answer))
        except ValueError as error:
            _failures[self._base] = _failures.get(self._base, 0) + 1
            raise RegistryAway(f"the {self._kind} registry, asked for {package!r}: {error}") from None
        _failures[self._base] = 0
        return releases


def _decode_object(answer: HttpReply) -> dict[str, Any]:
    if answer.problem or answer.status != 200:
        raise ValueError(answer.problem or f"status {answer.status}")
    document = json.loads(answer.body)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")
    return document


def _versions_of_npm(document: dict[str, Any]) -> Released:
    tags, all_versions = document.get("dist-tags"), document.get("versions")
    names = tuple(str(name) for name in all_versions) if isinstance(all_versions, dict) else ()
    tagged = tags.get("latest") if isinstance(tags, dict) else None
    return Released(tagged if isinstance(tagged, str) else versions.newest(names, versions.version), names)


def _versions_of_pypi(document: dict[str, Any]) -> Released:
    listed = document.get("versions")
    names = (
        tuple(str(name) for name in listed)
        if isinstance(listed, list)
        else tuple(_versions_of_files(document.get("files")))
    )
    return Released(versions.newest(names, versions.padded), names)


def _versions_of_files(files: Any) -> set[str]:
    """The versions in the names of a package's files: registries older than PEP 700 list no versions."""
    from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

    tags = set()
    for entry in files if isinstance(files, list) else ():
        name = str(entry.get("filename", "")) if isinstance(entry, dict) else ""
        try:
            version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        tags.add(str(version))
    return tags


def _write_cache(file: Path, text: str) -> None:
    """Writes a cache file atomically, since other workers read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(file)
