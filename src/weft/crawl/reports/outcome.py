"""Why a crawl has no useful pages: determined from the index when it has ended, and reported with advice.

A crawl that stored no page, or whose seeds all failed, or whose pages have no content (a JavaScript shell, a login
form), ends with exit code 4 and its causes. They come from the rows of the index, which every process of every pod has
written, from the counts in the status of the processes, and from the first pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import Struct

from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.reports.causes import CauseMeaning, meaning_of, meaning_of_lack, unmatched_words
from weft.engine.loop.progress import CrawlStatus
from weft.errors import WeftError
from weft.records import Reason, Row
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore

EXAMINED_PAGES = 20  # pages that are read when all of them may have no content
NO_TEXT = "no-text"
_OWN_RULES = frozenset({Reason.PATTERN, Reason.EXCLUDED, Reason.SCOPE})  # reasons for rejecting a seed without a row


class MissingCause(Struct, frozen=True):
    """One reason for a missing result, and how many URLs have it."""

    cause: str  # a reason, an error, http_404, javascript, login, ...
    urls: int
    message: str
    hint: str = ""
    may_pass: bool = False  # retrying failed URLs on resume requests it once more
    settings: str = ""  # settings that a retry needs, in backticks as in Python

    def __str__(self) -> str:
        counted = "1 URL" if self.urls == 1 else f"{self.urls:,} URLs"
        return f"{counted}: {self.message}." + (f" {self.hint}." if self.hint else "")


@dataclass(frozen=True, slots=True)
class CrawlOutcome:
    """The outcome of a crawl; `causes` is empty if there are useful pages."""

    headline: str = ""
    causes: tuple[MissingCause, ...] = ()
    unmatched: tuple[str, ...] = ()  # patterns that matched no URL: `include='/blog/*'`, in backticks

    @property
    def is_nothing(self) -> bool:
        """Whether the crawl has no useful pages."""
        return bool(self.causes)

    def message_lines(self) -> list[str]:
        """The message for people, as lines."""
        lines = [f"No URL matched {', '.join(self.unmatched)}."] if self.unmatched else []
        return [*lines, *([self.headline] if self.causes else []), *(f"  {cause}" for cause in self.causes)]


def outcome_of(folder: CrawlFolder, config: Config, status: CrawlStatus) -> CrawlOutcome:
    """Determines the outcome of a crawl from its folder; unreadable files are reported elsewhere."""
    unmatched = tuple(_unmatched_patterns(config, status))
    try:
        store = PageStore.open(folder.data_dirs, read_only=True)
    except WeftError:
        return CrawlOutcome(unmatched=unmatched)
    try:
        headline, causes = _judge_store(store, config, status)
    except WeftError:
        return CrawlOutcome(unmatched=unmatched)
    finally:
        store.abandon()
    return CrawlOutcome(headline, tuple(causes), unmatched)


def _judge_store(store: PageStore, config: Config, status: CrawlStatus) -> tuple[str, list[MissingCause]]:
    seeds, pages = store.kinds(depth=0), status.pages
    is_split = len(config.pods.here) < config.pods.num_pods
    if pages and (not seeds or _count_answered(seeds)):
        if lacking := _missing_in_first_pages(store, config):
            return "Nothing that can be read was stored:", lacking
        if _is_unmatched(config, status) and not is_split and _count_answered(store.kinds()) == _count_answered(seeds):
            return "Only seeds were stored:", [_cause_not_included(status)]
        return "", []
    causes = _causes_from_rows(seeds, config)
    if not causes and (pages or is_split):
        return "", []  # redirects to existing pages, or to those of another node
    causes = causes or _causes_from_rows(store.kinds(), config)
    if not pages:
        reported = {cause.cause.removeprefix("redirect-") for cause in causes}
        causes += _causes_from_counts({name: n for name, n in status.refused.items() if name not in reported}, config)
    headline = "Every seed failed:" if pages else "Nothing was stored:"
    return headline, causes or [MissingCause("unknown", 0, "no URL was requested")]


def _count_answered(kinds: Mapping[tuple[int, str], int]) -> int:
    """The number of visits that found a page, new or unchanged."""
    return sum(rows for (status, _), rows in kinds.items() if 200 <= status < 300 or status == 304)


def _is_unmatched(config: Config, status: CrawlStatus) -> bool:
    """Whether there are patterns to include, and none of them matched."""
    wanted = {f"include {pattern}" for pattern in config.scope.include}
    return bool(wanted) and wanted.isdisjoint(status.matched)


def _causes_from_rows(kinds: Mapping[tuple[int, str], int], config: Config) -> list[MissingCause]:
    """The causes from the rows' status and error, most frequent first; followed redirects have none."""
    counts: Counter[str] = Counter()
    meanings: dict[str, CauseMeaning] = {}
    for (status, error), rows in kinds.items():
        meaning = meaning_of(status, error, config)
        if meaning is not None:
            counts[meaning.cause] += rows
            meanings.setdefault(meaning.cause, meaning)
    return [_make_cause(meanings[cause], rows) for cause, rows in counts.most_common()]


def _causes_from_counts(refused: Mapping[str, int], config: Config) -> list[MissingCause]:
    """The causes of rejected URLs without a row: seeds that the crawl's own rules reject, and entries of sitemaps."""
    causes = []
    for reason, count in sorted(refused.items(), key=lambda item: -item[1]):
        if count > 0 and reason in _OWN_RULES:
            meaning = meaning_of(0, reason, config)
            assert meaning is not None
            causes.append(_make_cause(meaning, count))
    return causes


def _make_cause(meaning: CauseMeaning, urls: int) -> MissingCause:
    return MissingCause(meaning.cause, urls, meaning.message, meaning.hint, meaning.may_pass, meaning.settings)


def _cause_not_included(status: CrawlStatus) -> MissingCause:
    """The cause if only seeds were fetched: they are fetched whatever `include` says, and its patterns match
    nothing."""
    left_out = status.refused.get(Reason.PATTERN, 0)
    hint = "A pattern matches the whole URL, or the path where it begins with /"
    return MissingCause("include", left_out, "no pattern of `include` matches", hint)


def _missing_in_first_pages(store: PageStore, config: Config) -> list[MissingCause]:
    """What the first pages lack, if all of them lack something; the first good page ends the search."""
    counts: Counter[str] = Counter()
    for row in _first_pages(store):
        lack = _missing_content(store, row, config)
        if lack is None:
            return []
        counts[lack] += 1
    return [_make_cause(meaning_of_lack(lack), count) for lack, count in counts.most_common()]


def _first_pages(store: PageStore) -> Iterator[Row]:
    number = 0
    for row in store.rows(RowFilter(stored=True)):
        if 200 <= row.status < 300:
            yield row
            number += 1
        if number >= EXAMINED_PAGES:
            return


def _missing_content(store: PageStore, row: Row, config: Config) -> str | None:
    if row.error == "parse_crash":  # parsing it would crash this process, too
        return None
    if "warc" not in config.store.store:
        return None if (store.text(row) or "").strip() else NO_TEXT
    # Imported here: slow to import, and not needed by most commands.
    from weft.engine.stored.stored_page import read_page
    from weft.extract.missing_content import lack_of

    page = read_page(store.read_page(row))
    if page is None:
        return None
    return lack_of(page.page, redirected=row.hops > 0)


def _unmatched_patterns(config: Config, status: CrawlStatus) -> Iterator[str]:
    """The patterns that matched no URL, as written; unknown if other nodes process URLs, too."""
    if len(config.pods.here) == config.pods.num_pods:
        for flag, patterns in (("include", config.scope.include), ("exclude", config.scope.exclude)):
            yield from (unmatched_words(flag, one) for one in patterns if f"{flag} {one}" not in status.matched)
