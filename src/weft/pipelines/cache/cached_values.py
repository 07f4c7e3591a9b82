"""Puts the values of stages into the cache, so that the journal has only where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from weft.pipelines.cache.cache import Cache
from weft.pipelines.output.outcome import ItemRecord, encode_record, item_record
from weft.pipelines.pool.values import StoredValue


class CachedValues:
    """The pool's ValueStore on top of the run's cache."""

    def __init__(self, cache: Cache, step: Callable[[str], None]) -> None:
        self._cache = cache
        self._step = step

    def store(self, value: Any) -> StoredValue:
        """Moves the values of an ItemRecord into the cache. Its line goes to the results' file, not to the journal."""
        record = item_record(value)
        if record is None:
            return StoredValue(None, None)
        self._put_entries(record)
        line, record.line = record.line, b""
        slim = encode_record(record)
        record.line = line
        return StoredValue(slim, record)

    def _put_entries(self, record: ItemRecord) -> None:
        for stage in record.stages:
            if stage.entry is not None and stage.key is not None:
                stage.at = self._cache.put(stage.key, stage.entry)
                stage.entry = None
            elif stage.at is not None:  # its worker has just read it
                self._cache.use(stage.at)

    def restore(self, value: Any) -> Any | None:
        """Looks up the entries again, since another run may have rewritten the cache; None if one is lost."""
        record = item_record(value)
        if record is None:
            return None
        for stage in record.stages:
            if stage.key is None:
                continue
            if stage.entry is not None:
                stage.at, stage.entry = self._cache.put(stage.key, stage.entry), None
            elif (offset := self._cache.touch(stage.key, stage.at)) is not None:
                stage.at = offset
            else:
                return None
        return encode_record(msgspec.structs.replace(record, line=b""))

    def flush(self) -> None:
        """Makes new entries visible to readers."""
        self._cache.flush()
        self._step("values-written")

    def sync(self) -> None:
        """Syncs new entries to the disk."""
        self._cache.sync()
