"""Crawler traps: endless URL spaces, recognised by the form of a URL or by pages that keep leading to similar ones.

A session id is removed from a URL, not a reason to refuse it: the page behind it is real. The counts (variants of a
path, pages of one pattern) are kept in bounded memory and lost at a restart, which costs a few more requests.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from weft.frontier.link_lists import DATED_PATH

MAX_SEGMENTS = 24
MAX_SAME_SEGMENT = 3
MAX_VARIANTS = 40  # The most variants of one path with the same three or more parameters.
EARLIEST_YEAR = 1990
SAME_LEVELS = 12  # Near-identical pages, each one link deeper than the one before, after which a pattern is stopped.
SAME_PAGES = 1000  # Near-identical pages in a row, at any depth, after which a pattern is stopped.
# Pages whose pattern is remembered: far more than lie between parsing a page and admitting its links.
_PAGES_KEPT = 1024
NEARLY_ALL_WORDS = 0.95  # share of common words from which two pages count as the same

_SESSION_NAME = (
    r"(?:jsessionid|phpsessid|aspsessionid[a-z]*|sessionid|session_id|session|sid|cfid|cftoken|zenid|osCsid)"
)
_SESSION_IN_PATH = re.compile(rf";{_SESSION_NAME}=[^/?;]*", re.IGNORECASE)
_SESSION_IN_QUERY = re.compile(rf"(?<=[?&]){_SESSION_NAME}=[0-9A-Za-z._-]{{16,}}(?:&|$)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+")
_REPEATED_SEGMENTS = re.compile(r"((?:/[^/?]+){1,4}?)\1\1(?=[/?]|$)")
_DATE = re.compile(rf"{DATED_PATH}|[?&](?:year|y|date|month|day)=([1-3][0-9]{{3}})(?![0-9])")


def without_session(url: str) -> str:
    """The URL without session ids."""
    if ";" in url:
        url = _SESSION_IN_PATH.sub("", url)
    if "?" in url:
        shorter = _SESSION_IN_QUERY.sub("", url)
        if shorter != url:
            return shorter.rstrip("?&")
    return url


def without_parameters(url: str, patterns: tuple[str, ...]) -> str:
    """The URL without the query parameters whose names match."""
    path, mark, query = url.partition("?")
    if not mark:
        return url
    kept = [part for part in query.split("&") if not any(fnmatchcase(part.partition("=")[0], p) for p in patterns)]
    return path + ("?" + "&".join(kept) if kept else "")


def trap_reason(url: str, this_year: int) -> str | None:
    """Why a URL looks like part of an endless space, or None."""
    path = url[url.find("/", 8) :]
    slashes = path.count("/")
    if slashes >= 3:
        if slashes > MAX_SEGMENTS:
            return "too many path segments"
        if _REPEATED_SEGMENTS.search(path):
            return "repeating path segments"
        if slashes > MAX_SAME_SEGMENT:
            segments = path.partition("?")[0].split("/")[1:]
            if any(segments.count(segment) > MAX_SAME_SEGMENT for segment in set(segments) if segment):
                return "repeating path segments"
    return "a calendar out of its years" if _is_out_of_years(url, this_year) else None


def _is_out_of_years(url: str, this_year: int) -> bool:
    found = _DATE.search(url, url.find("/", 8))
    return found is not None and not EARLIEST_YEAR <= int(found[1] or found[2]) <= this_year + 1


class ParameterGuard:
    """Finds paths whose three or more parameters are combined with each other, as the filters of a shop are.

    The last MAX_VARIANTS URLs of a path are looked at together. Where one parameter has another value in most of them,
    it numbers the pages of a list, which has an end; where none has, the same few values come in ever new combinations.
    """

    def __init__(self, kept: int = 20_000) -> None:
        self._variants: OrderedDict[str, set[str] | None] = OrderedDict()  # None: a path that explodes
        self._most_paths = kept

    def explodes(self, url: str) -> bool:
        """Counts a URL; True if its path has too many variants."""
        path, _, query = url.partition("?")
        if query.count("=") < 3:
            return False
        parts = sorted(query.split("&"))
        name = path + "?" + "&".join(part.partition("=")[0] for part in parts)
        variants = self._variants.pop(name, set())
        if variants is not None:
            variants.add("&".join(parts))
            if len(variants) > MAX_VARIANTS:
                variants = set() if _have_a_page_number(variants) else None
        self._variants[name] = variants
        if len(self._variants) > self._most_paths:
            self._variants.popitem(last=False)
        return variants is None


def _have_a_page_number(queries: set[str]) -> bool:
    """Whether a parameter has another value in most of some queries with the same parameters."""
    values: dict[str, set[str]] = {}
    for query in queries:
        for part in query.split("&"):
            name, _, value = part.partition("=")
            values.setdefault(name, set()).add(value)
    return max(map(len, values.values())) > len(queries) // 2


class SamenessGuard:
    """Stops spaces of near-identical pages that lead to ever more of them.

    A pattern is a URL with its numbers and parameter values taken out. When pages of one pattern have the same title
    (but for numbers) and as many links, one after the other, and each led to a URL not found before, their words are
    compared too. The pattern is stopped after SAME_LEVELS such pages that are nearly the same and lie one link deeper
    each: an endless space is found by following its own links. A single page that differs restarts the count.

    What a list links to is no trap, however alike the pages are. They lie at one depth, and most lead nowhere new: such
    a pattern is a leaf, and not counted. Where each page of a list leads to the next, it leads to leaves as well: that
    restarts the count, too. A generated list may be endless, so SAME_PAGES of its pages stop the pattern in any case.

    From pages of a stopped pattern no URL of a stopped pattern is followed; what other pages link to is.

    Each process that parses has one, for its own pages. It is consulted where links are found and nowhere else, so it
    works the same whether or not the process that parses also fetches.
    """

    def __init__(self, kept: int = 20_000, *, is_on: bool = True) -> None:
        self._runs: OrderedDict[str, _SamePages] = OrderedDict()
        self._stopped: set[str] = set()
        self._most_patterns = kept
        self._is_enabled = is_on
        # Page -> pattern and depth, kept until the page's new links are known.
        self._pages_read: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def observe(self, url: str, title: str, links: int, depth: int, words: Callable[[], frozenset[str]]) -> None:
        """Records a fetched page; `words` is called only if it looks like the ones before."""
        pattern = pattern_of(url) if self._is_enabled else None
        if pattern is None or pattern in self._stopped:
            return
        shape = (_DIGITS.sub("", title), links)
        run = self._runs.pop(pattern, None)
        if run is None or run.shape != shape:
            run = _SamePages(shape, run)
        run.seen += 1
        self._runs[pattern] = run
        if run.pages >= SAME_LEVELS // 2:
            run.compare(words())
        self._pages_read[url] = pattern, depth
        if len(self._runs) > self._most_patterns:
            self._runs.popitem(last=False)
        if len(self._pages_read) > _PAGES_KEPT:
            self._pages_read.popitem(last=False)

    def may_compare(self, url: str) -> bool:
        """Whether `observe` may soon ask for the words of this page."""
        pattern = pattern_of(url)
        run = self._runs.get(pattern) if pattern is not None else None
        return run is not None and run.pages > 0

    def needs_new_links(self, page: str) -> bool:
        """Whether `record_links` should be called for a page's new links."""
        return page in self._pages_read

    def _leads_to_leaves(self, pattern: str, new: list[str]) -> bool:
        others = {other for url in new if (other := pattern_of(url)) is not None and other != pattern}
        return any((run := self._runs.get(other)) is not None and run.is_leaf for other in others)

    def record_links(self, page: str, new: Iterable[str]) -> bool:
        """Records the new URLs that a page has links to; True if its pattern is stopped by that."""
        if page not in self._pages_read:
            return False
        pattern, depth = self._pages_read.pop(page)
        origin = page[: page.index("/", 8) + 1]
        own = [url for url in new if url.startswith(origin)]
        run = self._runs.get(pattern)
        if run is None or all(pattern_of(url) is None for url in own):
            return False
        # Patterns of all links cost more than the rest of the admission, so they are computed only when the count nears
        # its end.
        run.led_on(depth, to_leaves=run.levels >= SAME_LEVELS // 2 and self._leads_to_leaves(pattern, own))
        if run.levels < SAME_LEVELS and run.pages < SAME_PAGES:
            return False
        self._stopped.add(pattern)
        del self._runs[pattern]
        return True

    def has_stopped(self, page: str) -> bool:
        """Whether a page is of a stopped pattern: `stops` must be asked about its links."""
        return bool(self._stopped) and pattern_of(page) in self._stopped

    def stops(self, url: str, page: str) -> bool:
        """Whether a link from a page to a URL stays within stopped patterns."""
        return self.has_stopped(page) and pattern_of(url) in self._stopped


class _SamePages:
    """Consecutive pages of one pattern that looked the same; `pages` counts those with a link to a new URL."""

    __slots__ = ("deepest", "levels", "pages", "pages_with_new_links", "seen", "shape", "words")

    def __init__(self, shape: tuple[str, int], before: _SamePages | None) -> None:
        self.shape = shape
        self.seen: int = before.seen if before is not None else 0  # pages of the pattern, whatever they look like
        self.pages_with_new_links: int = (
            before.pages_with_new_links if before is not None else 0
        )  # pages of the pattern that had a link to a new URL
        self.pages = self.levels = self.deepest = 0
        self.words: frozenset[str] | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether most pages of the pattern lead to no new URL; a few may link to the next page of the list."""
        return 2 * self.pages_with_new_links <= self.seen

    def led_on(self, depth: int, *, to_leaves: bool) -> None:
        self.pages_with_new_links += 1
        self.pages += 1
        if to_leaves or self.is_leaf:
            self.levels = 0
        elif depth > self.deepest or not self.levels:
            self.levels += 1
        self.deepest = max(depth, self.deepest)

    def compare(self, words: frozenset[str]) -> None:
        before, self.words = self.words, words
        if before is not None and len(before & words) < NEARLY_ALL_WORDS * len(before | words):
            self.pages = self.levels = self.deepest = 0


def pattern_of(url: str) -> str | None:
    """The URL without its numbers and parameter values; None if it has neither."""
    at = url.index("/", 8)
    path, mark, query = url[at:].partition("?")
    plain, numbers = _DIGITS.subn("0", path)
    if not mark:
        return url[:at] + plain if numbers else None
    names = "&".join(sorted(part.partition("=")[0] for part in query.split("&")))
    return url[:at] + plain + mark + names
