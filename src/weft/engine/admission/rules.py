"""Whether a URL is admitted: one crawl's rules of scope, exclusions, patterns, extensions, depth and traps.

Pure, but for the scope that a seed's redirect extends and the counts of the trap guards. `refusal` judges one URL.
`sift` judges a page's links: what depends on the origin alone is decided once for all links to it, and a quick check
finds the few links that must be judged one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from fnmatch import translate
from pathlib import Path

from weft import urls
from weft.config import ScopeSection
from weft.engine.admission.names import NameSet
from weft.engine.admission.traps import (
    EARLIEST_YEAR,
    MAX_SEGMENTS,
    ParameterGuard,
    SamenessGuard,
    trap_reason,
    without_parameters,
    without_session,
)
from weft.errors import BadInput
from weft.frontier.contract import PageLinks
from weft.frontier.link_lists import grouped
from weft.patterns import compile_url_pattern, is_url_pattern
from weft.records import Lease, Reason

_MOST_ORIGINS = 200_000  # The most origins whose verdicts are cached; the cache is cleared when it has more.


class AdmissionRules:
    """The admission rules of one crawl."""

    def __init__(self, section: ScopeSection, seeds: Iterable[str], *, this_year: int, extensions: Iterable[str] = ()):
        self._section = section
        self._this_year = this_year
        self._unusual_link_pattern = (
            EARLIEST_YEAR, this_year + 1, MAX_SEGMENTS, urls.LONGEST_EXTENSION, urls.SKIPPED_EXTENSIONS
        )  # fmt: skip
        self._excluded = read_domains(section.exclude_file) if section.exclude_file else frozenset()
        self.matched: set[str] = set()  # the patterns that have matched a URL, as `include /blog/*`
        self._include = Patterns("include", section.include) if section.include else None
        self._exclude = Patterns("exclude", section.exclude) if section.exclude else None
        self._inside = NameSet()
        self._prefixes: tuple[str, ...] = ()
        self._origins: dict[str, Reason | None] = {}
        self._parameter_guard = ParameterGuard()
        self.sameness = SamenessGuard(is_on=section.trap_rules)
        for seed in (*seeds, *extensions):
            self.extend(seed)

    def extend(self, url: str) -> None:
        """Adds the domain, host or prefix of a seed, or of its redirect's target, to the scope."""
        self._origins.clear()
        if self._section.scope == "domain":
            self._inside.add(urls.domain_of(url))
        elif self._section.scope == "host":
            self._inside.add(urls.host_of(url))
        elif self._section.scope == "prefix":
            self._prefixes += (url.partition("?")[0].rpartition("/")[0] + "/",)

    def edit(self, section: ScopeSection) -> None:
        """Applies other patterns and depths from now on; the scope that the seeds set is unchanged."""
        self._section = section
        self._include = Patterns("include", section.include) if section.include else None
        self._exclude = Patterns("exclude", section.exclude) if section.exclude else None
        self._origins.clear()

    def excludes(self, url: str) -> bool:
        """Whether the patterns keep a URL out."""
        if self._exclude and self._exclude.match(url, self.matched):
            return True
        return self._include is not None and not self._include.match(url, self.matched)

    def rewritten(self, url: str) -> str:
        """The URL as this crawl stores it: without session ids and the parameters of `strip_query`."""
        if "?" not in url and ";" not in url:
            return url
        url = without_session(url)
        return without_parameters(url, self._section.strip_query) if self._section.strip_query else url

    def candidates(
        self, base: str, hrefs: list[str], charset: str | None, refused: Callable[[str, str], None] | None = None
    ) -> list[str]:
        """What a page links to as this crawl stores it, each URL once; `refused` is called with what is no URL."""
        links = urls.join_all(base, hrefs, charset or "utf-8", refused)
        text = "\n".join(links)
        if "?" in text or ";" in text:
            return list(dict.fromkeys(map(self.rewritten, links)))
        return list(dict.fromkeys(links))

    def in_scope(self, url: str) -> bool:
        """Whether a URL lies within the scope that the seeds set."""
        if self._section.scope == "prefix":
            return url.startswith(self._prefixes)
        return self._refusal_of_origin(url[: url.index("/", 8)]) is not Reason.SCOPE

    def looks_like_a_trap(self, url: str) -> str | None:
        """Why a URL looks like part of an endless space, judged by the URL alone; None if it does not."""
        return trap_reason(url, self._this_year)

    def refusal(
        self,
        url: str,
        depth: int,
        *,
        is_link: bool = True,
        offsite: int = 0,
        included: bool = False,
        page: str | None = None,
    ) -> Reason | None:
        """Why a URL is not admitted, or None. `offsite` counts the hops already made outside the scope.

        `included`: a seed or a sitemap, to which `include` does not apply. `page`: where the link was found.
        """
        by_origin = self._refusal_of_origin(url[: url.index("/", 8)])
        if by_origin is Reason.EXCLUDED:
            return by_origin
        if is_link and urls.skipped_extension(url):
            return Reason.EXTENSION
        outside = by_origin is Reason.SCOPE or (self._prefixes and not url.startswith(self._prefixes))
        if outside and offsite >= self._section.offsite_hops:
            return Reason.SCOPE
        if self._exclude and self._exclude.match(url, self.matched):
            return Reason.PATTERN
        if self._include and not self._include.match(url, self.matched) and not included:
            return Reason.PATTERN
        if self._section.max_depth is not None and depth > self._section.max_depth:
            return Reason.DEPTH
        if is_link and self._section.trap_rules and self._looks_like_a_trap_of_this_crawl(url):
            return Reason.TRAP
        if page is not None and self.sameness.stops(url, page):
            return Reason.TRAP
        return None

    def _looks_like_a_trap_of_this_crawl(self, url: str) -> bool:
        return self.looks_like_a_trap(url) is not None or self._parameter_guard.explodes(url)

    def split_admitted(self, links: list[str], page: Lease) -> tuple[list[PageLinks], list[tuple[str, Reason]]]:
        """The links of a page that are admitted, by origin, and those that are not, with the reasons."""
        let_in: list[PageLinks] = []
        refused: list[tuple[str, Reason]] = []
        is_simple = self._is_decided_by_origin_and_form(page)
        for origin, there, odd in grouped(links, *self._unusual_link_pattern):
            verdict = self._refusal_of_origin(origin)
            if verdict is Reason.EXCLUDED:
                refused += [(url, verdict) for url in there]
                continue
            if verdict is Reason.SCOPE and page.offsite >= self._section.offsite_hops:
                refused += [(url, Reason.EXTENSION if urls.skipped_extension(url) else verdict) for url in there]
                continue
            good = there
            if odd or not is_simple:
                good = self._judge_links_one_by_one(there, odd if is_simple else there, page, refused)
            inside, outside = self._split_by_scope(good) if self._section.offsite_hops else (good, [])
            if inside:
                let_in.append(PageLinks(origin, inside, page.depth + 1, page.item))
            if outside:
                let_in.append(PageLinks(origin, outside, page.depth + 1, page.item, page.offsite + 1))
        return let_in, refused

    def _judge_links_one_by_one(
        self, links: list[str], odd: Container[str], page: Lease, refused: list[tuple[str, Reason]]
    ) -> list[str]:
        """Judges one by one those links of a page that need it; refused ones are added to `refused`."""
        good = []
        for url in links:
            reason = None
            if url in odd:
                reason = self.refusal(url, page.depth + 1, offsite=page.offsite, page=page.url)
            if reason is None:
                good.append(url)
            else:
                refused.append((url, reason))
        return good

    def _split_by_scope(self, links: list[str]) -> tuple[list[str], list[str]]:
        """Splits an origin's links into those within the scope and those outside it, which count as hops."""
        if not links:
            return [], []
        if self._section.scope != "prefix":
            return (links, []) if self.in_scope(links[0]) else ([], links)
        return [url for url in links if self.in_scope(url)], [url for url in links if not self.in_scope(url)]

    def _is_decided_by_origin_and_form(self, page: Lease) -> bool:
        """Whether nothing but its origin, its extension and its form decides about a link of this page."""
        limit = self._section.max_depth
        return (
            not (self._prefixes or self._exclude or self._include)
            and (limit is None or page.depth < limit)
            and not self.sameness.has_stopped(page.url)
        )

    def _refusal_of_origin(self, origin: str) -> Reason | None:
        try:
            return self._origins[origin]
        except KeyError:
            if len(self._origins) > _MOST_ORIGINS:
                self._origins.clear()
            verdict = self._origins[origin] = self._judge_origin(origin)
            return verdict

    def _judge_origin(self, origin: str) -> Reason | None:
        host = urls.host_of(origin + "/")
        if self._excluded and _is_subdomain_of_any(host, self._excluded):
            return Reason.EXCLUDED
        if self._section.scope == "domain" and urls.domain(host) not in self._inside:
            return Reason.SCOPE
        if self._section.scope == "host" and host not in self._inside:
            return Reason.SCOPE
        return None


def read_domains(path: str) -> frozenset[str]:
    """The domains of an exclude file; BadInput, with the line number, for a line that is not one."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(65536)  # the rest only if this is text: a device may be endless
            text = (raw if b"\0" in raw else raw + file.read()).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"exclude_file {path}: cannot be read: {getattr(error, 'strerror', 'it is not text')}") from None
    domains = set()
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip().lstrip(".")
        if not word:
            continue
        try:
            domains.add(urls.host_of(urls.seed(word)))
        except BadInput:
            raise BadInput(f"exclude_file {path}:{number}: {word!r} is not a domain") from None
    return frozenset(domains)


def _is_subdomain_of_any(host: str, domains: frozenset[str]) -> bool:
    while host:
        if host in domains:
            return True
        host = host.partition(".")[2]
    return False


class Patterns:
    """The patterns of one setting: a glob of the whole URL, of its path (one that begins with `/`), `re:`, or for RE2
    `re2:` and `re2-path:`.

    Those that have matched are recorded, so that one that never did can be reported: it is often a mistake.
    """

    def __init__(self, setting: str, patterns: Sequence[str]) -> None:
        self._searches = [(f"{setting} {pattern}", _compile_search(pattern)) for pattern in patterns]

    def match(self, url: str, matched: set[str]) -> bool:
        """Whether a pattern matches; each one that does for the first time is added to `matched`."""
        found = False
        for name, search in self._searches:
            if found and name in matched:
                continue
            if search(url):
                found = True
                matched.add(name)
        return found


def _compile_search(pattern: str) -> Callable[[str], object]:
    if is_url_pattern(pattern):
        return compile_url_pattern(pattern).matches
    return re.compile(expression(pattern)).search


def expression(pattern: str) -> str:
    """The regular expression of a pattern, to be searched for in a URL; `re:` patterns match anywhere in it.

    A glob of a path matches with any query.
    """
    if pattern.startswith("re:"):
        return pattern.removeprefix("re:")
    if not pattern.startswith("/"):
        return r"\A" + translate(pattern)
    body = translate(pattern).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
    return r"\A(?s:[a-z]+://[^/]*" + body + r"(?:\?.*)?)\Z"
