"""Links met lately, as pages write them, and what became of them.

A page's links are mostly those of the pages around it. One that was joined, judged and looked up a moment ago need not
be again: it is counted under the same reason as then, and that is all. Only where that reason cannot change: with a
limit of depth, of hops or of pages for each domain, what was refused may be let in later (see RunningCrawl).
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from weft.records import Reason

_KEPT = 40_000
# What depends on the URL and the settings alone; a scope that is extended makes everything be forgotten.
_LASTING = frozenset(
    {Reason.SCOPE, Reason.EXTENSION, Reason.LENGTH, Reason.SYNTAX, Reason.SCHEME, Reason.PATTERN, Reason.EXCLUDED}
)
_ABSOLUTE = ("http://", "https://")


class Familiar:
    """By how it would be joined, the reason under which a link is counted from now on."""

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._fates: dict[str, str] = {}

    def fresh(self, base: str, hrefs: list[str]) -> list[str]:
        """Those that must be looked at; the others are counted."""
        fates = self._fates
        root = base.index("/", 8)
        origin, folder = base[:root], base.partition("?")[0].rpartition("/")[0] + " "
        keys = [
            origin + href if href[:1] == "/" else href if href.startswith(_ABSOLUTE) else folder + href
            for href in hrefs
        ]
        met = list(map(fates.get, keys))
        if None not in met:
            self._refused.update(cast(list[str], met))
            return []
        self._refused.update(filter(None, met))
        if len(fates) > _KEPT:
            fates.clear()
        new = [at for at, fate in enumerate(met) if fate is None]
        for at in new:
            fates[keys[at]] = Reason.DUPLICATE
        return [hrefs[at] for at in new]

    def refused(self, url: str, reason: Reason) -> None:
        """A link that was fresh was turned away."""
        if reason in _LASTING:
            self._fates[url] = reason
        else:
            self._fates.pop(url, None)

    def forget(self) -> None:
        """What was turned away may be let in from now on."""
        self._fates.clear()
