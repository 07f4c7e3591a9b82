"""Links met lately, as pages write them, and what became of them.

A page's links are mostly those of the pages around it. One that was joined, judged and looked up a moment ago need not
be again: it is counted under the same reason as then, and that is all. Only where that reason cannot change: with a
limit of depth, of hops or of pages for each domain, what was refused may be let in later (see RunningCrawl).

Of a site whose pages lead to new URLs only, remembering them would be in vain: there one page in eight is looked at,
until one has links that were met. Which sites these are stays known when there is no more room for links, or on a web
of thousands of hosts each would begin anew before it was found out.
"""

from __future__ import annotations

from collections import Counter

from weft.records import Reason

_KEPT = 60_000
_STRANGE = 4  # pages in a row of which no link was met, from which on a site's are in vain
_LOOKED_AT = 8  # one in so many of such a site's pages is looked at
# What depends on the URL and the settings alone; a scope that is extended makes everything be forgotten.
_LASTING = frozenset(
    {Reason.SCOPE, Reason.EXTENSION, Reason.LENGTH, Reason.SYNTAX, Reason.SCHEME, Reason.PATTERN, Reason.EXCLUDED}
)


class RecentLinks:
    """By site, and how a link is written on its pages, the reason under which it is counted from now on."""

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._sites: dict[str, dict[str, str]] = {}
        self._strange: dict[str, int] = {}  # by site: how many pages in a row had no link that was met
        self._kept = 0

    def fresh(self, base: str, hrefs: list[str]) -> list[str]:
        """Those that must be looked at; the others are counted."""
        site = base[: base.index("/", 8)]
        strange = self._strange.get(site, 0)
        if strange >= _STRANGE and strange % _LOOKED_AT:
            self._strange[site] = strange + 1
            return hrefs
        fates = self._sites.get(site)
        if fates is None or self._kept > _KEPT:
            if self._kept + len(self._sites) > _KEPT:
                self._sites.clear()
                self._kept = 0
            if len(self._strange) > _KEPT:
                self._strange.clear()
            fates = self._sites.setdefault(site, {})
        met = list(map(fates.get, hrefs))
        again = met.count(Reason.DUPLICATE)
        if again != len(met):
            hrefs = self._learn(fates, _folder(base), hrefs, met)
            again = met.count(Reason.DUPLICATE)
            if again + len(hrefs) != len(met):
                self._refused.update(fate for fate in met if fate is not None and fate is not Reason.DUPLICATE)
        else:
            hrefs = []
        if met:
            self._strange[site] = strange + 1 if len(hrefs) == len(met) else 0
        self._refused[Reason.DUPLICATE] += again
        return hrefs

    def _learn(self, fates: dict[str, str], folder: str, hrefs: list[str], met: list[str | None]) -> list[str]:
        """Looks again at those that were not met as they are written, since some mean another page on another page;
        the rest is fresh, and familiar from now on."""
        fresh = []
        for at, href in enumerate(hrefs):
            if met[at] is not None:
                continue
            key = href
            if href[:1] != "/" and not href.startswith(("http://", "https://")):
                key = f"{folder} {href}"
                met[at] = fates.get(key)
                if met[at] is not None:
                    continue
            fates[key] = Reason.DUPLICATE
            fresh.append(href)
        self._kept += len(fresh)
        return fresh

    def refused(self, page: str, url: str, reason: Reason) -> None:
        """A link that was fresh on a page was turned away."""
        root = page.index("/", 8)
        fates = self._sites.get(page[:root], {})
        keys = [url, url[url.index("/") :]]
        if url.startswith(page[: root + 1]):
            keys.append(url[root:])
            folder = _folder(page)
            if url.startswith(folder + "/"):
                keys.append(f"{folder} {url[len(folder) + 1 :]}")
        for key in keys:
            if key in fates:
                if reason in _LASTING:
                    fates[key] = reason
                else:
                    del fates[key]

    def forget(self) -> None:
        """What was turned away may be let in from now on."""
        self._sites.clear()
        self._strange.clear()
        self._kept = 0


def _folder(base: str) -> str:
    return base.partition("?")[0].rpartition("/")[0]
