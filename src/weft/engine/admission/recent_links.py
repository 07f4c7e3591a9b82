"""Recently seen links, as pages write them, and what became of each.

A page's links are mostly those of the pages around it. A link that was resolved, judged and looked up a moment ago is
only counted, under the same reason as then. This applies only where the reason cannot change: with a limit of depth, of
hops or of pages per domain, a link that was refused may be admitted later (see RunningCrawl).

On a site whose pages lead to new URLs only, remembering links is useless: there one page in eight is checked, until one
of them has recently seen links. The classification of a site is kept even when there is no more room for links; on a
web of thousands of hosts each site would otherwise start again before it is classified.
"""

from __future__ import annotations

from collections import Counter

from weft.records import Reason

_MOST_LINKS_KEPT = 60_000
_MOST_UNKNOWN_PAGES = 4  # pages in a row without a recently seen link, after which a site's links are not remembered
_COMPARED_EVERY = 8  # Of such a site, one page in this many is still compared.
# These reasons depend on the URL and the settings alone. When a scope is extended, all remembered links are forgotten.
_LASTING_REASONS = frozenset(
    {Reason.SCOPE, Reason.EXTENSION, Reason.LENGTH, Reason.SYNTAX, Reason.SCHEME, Reason.PATTERN, Reason.EXCLUDED}
)


class RecentLinks:
    """For each site, its links as its pages write them, with the reason under which each is counted from now on."""

    def __init__(self, refused: Counter[str]) -> None:
        self._refused = refused
        self._sites: dict[str, dict[str, str]] = {}
        self._strange: dict[str, int] = {}  # by site: how many pages in a row had no recently seen link
        self._kept = 0

    def select_unseen_links(self, base: str, hrefs: list[str]) -> list[str]:
        """The links of a page that must be judged; recently seen ones are counted."""
        site = base[: base.index("/", 8)]
        strange = self._strange.get(site, 0)
        if strange >= _MOST_UNKNOWN_PAGES and strange % _COMPARED_EVERY:
            self._strange[site] = strange + 1
            return hrefs
        fates = self._sites.get(site)
        if fates is None or self._kept > _MOST_LINKS_KEPT:
            if self._kept + len(self._sites) > _MOST_LINKS_KEPT:
                self._sites.clear()
                self._kept = 0
            if len(self._strange) > _MOST_LINKS_KEPT:
                self._strange.clear()
            fates = self._sites.setdefault(site, {})
        met = list(map(fates.get, hrefs))
        again = met.count(Reason.DUPLICATE)
        if again != len(met):
            hrefs = self._resolve_unseen_links(fates, _folder_of_url(base), hrefs, met)
            again = met.count(Reason.DUPLICATE)
            if again + len(hrefs) != len(met):
                self._refused.update(fate for fate in met if fate is not None and fate is not Reason.DUPLICATE)
        else:
            hrefs = []
        if met:
            self._strange[site] = strange + 1 if len(hrefs) == len(met) else 0
        self._refused[Reason.DUPLICATE] += again
        return hrefs

    def _resolve_unseen_links(
        self, fates: dict[str, str], folder: str, hrefs: list[str], met: list[str | None]
    ) -> list[str]:
        """Looks up again the links whose text has not been seen, since a relative link means another page on another
        page. The rest is fresh, and recently seen from now on.
        """
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

    def record_refusal(self, page: str, url: str, reason: Reason) -> None:
        """Records that a fresh link of a page was rejected."""
        root = page.index("/", 8)
        fates = self._sites.get(page[:root], {})
        keys = [url, url[url.index("/") :]]
        if url.startswith(page[: root + 1]):
            keys.append(url[root:])
            folder = _folder_of_url(page)
            if url.startswith(folder + "/"):
                keys.append(f"{folder} {url[len(folder) + 1 :]}")
        for key in keys:
            if key in fates:
                if reason in _LASTING_REASONS:
                    fates[key] = reason
                else:
                    del fates[key]

    def forget_links(self) -> None:
        """Forgets all links: one that was rejected may be admitted from now on."""
        self._sites.clear()
        self._strange.clear()
        self._kept = 0


def _folder_of_url(base: str) -> str:
    return base.partition("?")[0].rpartition("/")[0]
