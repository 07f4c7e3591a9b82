"""The settings of a crawl as they are recorded: every value in force, and every change of them.

A default that was derived when the crawl was started (its scope, its delay) is recorded like a value that was given: a
resume keeps it, whatever it would derive itself. Each explicit change adds a revision. The request logs name the
revision that requests follow, so `weft audit` finds what was in force when a request was sent without comparing clocks.
`weft crawl` keeps its record in config.json; the crawls of an engine keep theirs in the index (`tenant.Record`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from weft.config import Config, load


class SettingsChange(msgspec.Struct, frozen=True):
    """What one resume or edit changed."""

    at: float  # by the wall clock: for people to read; no code compares it
    weft: str
    changed: dict[str, tuple[Any, Any]]  # by key: the old value and the new one


def values_of(values: Mapping[str, Any], changes: Sequence[SettingsChange], revision: int) -> dict[str, Any]:
    """The settings of a revision, from those in force now. Revision 1 is what the crawl was started with."""
    found = dict(values)
    for change in reversed(changes[max(0, revision - 1) :]):
        found |= {key: old for key, (old, _) in change.changed.items()}
    return found


class SettingsRecord(msgspec.Struct, frozen=True):
    """The content of config.json."""

    values: dict[str, Any]
    defaults: list[str] = []  # keys of `values` that the user has not set
    changes: list[SettingsChange] = []
    is_paused: bool = False  # by a command, or by the crawl itself; `weft crawl --resume` continues it
    is_cancelled: bool = False
    pause_reason: str = ""  # why it is paused, if it has paused itself

    @property
    def revision(self) -> int:
        """The number of the settings in force."""
        return len(self.changes) + 1

    def values_of(self, revision: int) -> dict[str, Any]:
        """The settings that were in force at a revision."""
        return values_of(self.values, self.changes, revision)

    def changed_at(self, key: str) -> float:
        """When a setting was changed last (wall clock); 0 if it is as the crawl was started with."""
        return max((change.at for change in self.changes if key in change.changed), default=0.0)

    def config(self, revision: int = 0) -> Config:
        """The configuration of a revision; 0: as it is now."""
        values = self.values_of(revision or self.revision)
        return load(environment={}, earlier=values, earlier_defaults=self.defaults).config

    def changed(self, values: Mapping[str, Any], defaults: Collection[str], at: float, weft: str) -> SettingsRecord:
        """The record with new values; a key that was not recorded before is added without a change."""
        known = self.values.keys() & values.keys()
        changed = {key: (self.values[key], values[key]) for key in sorted(known) if self.values[key] != values[key]}
        changes = [*self.changes, SettingsChange(at, weft, changed)] if changed else self.changes
        return msgspec.structs.replace(self, values=dict(values), defaults=sorted(defaults), changes=changes)
