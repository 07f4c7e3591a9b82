"""Keeps the settings that the crawls of an engine were opened with: a later start of the engine may have others.

There may be many thousands of crawls, and they share most values, so an engine's common defaults are written once, to
`settings/DIGEST.json`, and a crawl's record names the digest. A crawl's own settings, and the defaults that follow from
it (scope, delay, concurrency), is in its own record.

Invariant: a file is on the disk before a record names it, and stays while one does.

Not recorded are `headers`, `auth` and `logins` of the engine: a password that was changed must work in crawls that run,
and a secret is never copied from where it is kept. Nor is `allow_private`: withdrawing it applies to all crawls that do
not set it themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from weft.config import COMPUTED, Config, keys, load
from weft.engine.crawls import settings
from weft.engine.crawls.settings_record import values_of
from weft.engine.crawls.tenant import TenantRecord
from weft.errors import writing
from weft.files import sync_folder
from weft.telemetry import Log

FOLDER = "settings"
_SETTINGS_OF_THE_ENGINE = frozenset({"headers", "auth", "allow_private", "logins"})
log = Log("weft.engine.crawls.recorded")


class RecordedSettings:
    """The settings in force of every crawl of an engine; `shared` are those that the engine was started with."""

    def __init__(self, data_dir: Path, shared: Mapping[str, Any]) -> None:
        self._folder = data_dir / FOLDER
        self._shared = dict(shared)
        values = msgspec.json.encode(_crawl_defaults(settings.config_of(shared)), order="deterministic")
        self._current = sha256(values).hexdigest()[:16]
        self._layers: dict[str, bytes] = {}  # by digest: the engine's settings, overlaid with the recorded ones
        self._missing: set[str] = set()
        if self._read_settings_file(self._current) is None:
            self._write_settings_file(values)
        self._layers[self._current] = self._read_layer(values)

    def add(self, record: TenantRecord, config: Config) -> None:
        """Records the settings in force for a crawl that is opened."""
        record.settings = settings.storable_settings(_derived_settings(config) | record.settings)
        record.defaults = self._current

    def adopt(self, record: TenantRecord) -> bool:
        """Records the settings in force for a crawl without any recorded; False if it has them."""
        config = self.config_of(record)
        if record.defaults not in self._missing:
            return False
        self.add(record, config)
        return True

    def config_of(self, record: TenantRecord) -> Config:
        """The configuration of a crawl: as it was opened, and edited since."""
        if not record.defaults:  # a crawl that only the frontier knows, or that a rebuild has recovered
            return settings.config_of(self._shared, record.settings)
        layer = self._layers.get(record.defaults)
        if layer is None:
            values = self._read_settings_file(record.defaults)
            if values is None:
                self._missing.add(record.defaults)
                log.error(
                    "recorded settings are missing or damaged: their crawls continue with the engine's",
                    file=f"{FOLDER}/{record.defaults}.json",
                )
            layer = self._layers[record.defaults] = self._read_layer(values)
        return _merge_config(layer, msgspec.json.encode(record.settings))

    def prune(self, records: Iterable[TenantRecord]) -> None:
        """Deletes the files that no record names any more."""
        used = {f"{record.defaults}.json" for record in records} | {f"{self._current}.json"}
        for path in self._folder.iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)

    def _read_layer(self, recorded: bytes | None) -> bytes:
        return msgspec.json.encode(self._shared | msgspec.json.decode(recorded or b"{}"))

    def _read_settings_file(self, digest: str) -> bytes | None:
        try:
            values = (self._folder / f"{digest}.json").read_bytes()
        except FileNotFoundError:
            values = b""
        if sha256(values).hexdigest()[:16] == digest:
            return values
        return None

    def _write_settings_file(self, values: bytes) -> None:
        path = self._folder / f"{self._current}.json"
        beside = path.with_suffix(".tmp")
        with writing(path):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(values)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)


def recorded_config(data_dir: Path, record: TenantRecord, revision: int = 0) -> Config:
    """The configuration of a crawl, for reports: at a revision of its settings, or as it is now (0). It lacks what only
    the engine knows (see the module), and what cannot be read of the recorded settings.
    """
    try:
        layer = (data_dir / FOLDER / f"{record.defaults}.json").read_bytes()
        msgspec.json.decode(layer)
    except (OSError, msgspec.DecodeError):
        layer = b"{}"
    own = values_of(record.settings, record.changes, revision or record.revision)
    return _merge_config(layer, msgspec.json.encode(own))


def _crawl_defaults(config: Config) -> dict[str, Any]:
    """The values that an engine gives to all of its crawls."""
    return {
        name: settings.value_of(config, name)
        for name in settings.recorded_keys() - _SETTINGS_OF_THE_ENGINE - COMPUTED.keys()
    }


def _derived_settings(config: Config) -> dict[str, Any]:
    return {name: settings.value_of(config, name) for name in COMPUTED if name in settings.recorded_keys()}


@lru_cache(maxsize=4096)  # most crawls of an engine have the same settings
def _merge_config(layer: bytes, own: bytes) -> Config:
    """Builds a configuration without checking that the values fit together: that was checked when the crawl was opened.
    A key that this version of Weft no longer has is left out.
    """
    known = keys()
    merged = msgspec.json.decode(layer) | msgspec.json.decode(own)
    flags = {name: value for name, value in merged.items() if name in known}
    return load(flags=flags, environment={}, is_judged=False).config
