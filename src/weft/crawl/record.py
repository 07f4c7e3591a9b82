"""The settings of a crawl as config.json keeps them: every value in force, defaults included, and every change of them.

A default that was derived when the crawl was started (its scope, its delay) is recorded like a value that was given: a
resume keeps it, whatever it would derive itself. Each explicit change on a resume adds a revision. The request logs
name the revision that a process runs with, so `weft audit` finds what was in force when a request was sent without
comparing clocks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec


class SettingsChange(msgspec.Struct, frozen=True):
    """What one resume changed."""

    at: float  # by the wall clock: for people, nothing is judged by it
    weft: str
    changed: dict[str, tuple[Any, Any]]  # by key: the old value and the new one


class SettingsRecord(msgspec.Struct, frozen=True):
    """The content of config.json. Revision 1 is what the crawl was started with; each change begins another."""

    values: dict[str, Any]
    defaults: list[str] = []  # keys of `values` that nobody named
    changes: list[SettingsChange] = []
    is_paused: bool = False  # by a command; `weft crawl --resume` continues it
    is_cancelled: bool = False
    is_complete: bool = True  # an older Weft recorded only what was given: its defaults are unknown

    @classmethod
    def read(cls, content: dict[str, Any]) -> SettingsRecord:
        """From the JSON; an older Weft's is the given values alone."""
        if "values" not in content:
            return cls(content, is_complete=False)
        return msgspec.convert(content, cls)

    @property
    def revision(self) -> int:
        """The number of the settings in force."""
        return len(self.changes) + 1

    def values_of(self, revision: int) -> dict[str, Any]:
        """The settings that were in force then."""
        values = dict(self.values)
        for change in reversed(self.changes[max(0, revision - 1) :]):
            values |= {key: old for key, (old, _) in change.changed.items()}
        return values

    def changed(self, values: Mapping[str, Any], defaults: Collection[str], at: float, weft: str) -> SettingsRecord:
        """With new values; a key that was not recorded before is added without a change."""
        known = self.values.keys() & values.keys()
        changed = {key: (self.values[key], values[key]) for key in sorted(known) if self.values[key] != values[key]}
        changes = [*self.changes, SettingsChange(at, weft, changed)] if changed else self.changes
        return msgspec.structs.replace(
            self, values=dict(values), defaults=sorted(defaults), changes=changes, is_complete=True
        )
