"""Reads large seed files while the crawl runs: a slice between two rounds of the loop, so that requests are not
delayed.

A pod's first fetcher admits its seeds; its position is stored in the frontier with them, so that a restart continues
there: each seed is admitted once, and none is lost. Seeds before that position are read after the others, only for
their origins, whose sitemaps are requested at the usual path; other fetchers do that for all seeds. If seeds decide the
scope, their origins must be known before the first request (`learn_scope`): a link that was rejected is not found
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from weft import urls
from weft.crawl.folder import CrawlFolder
from weft.crawl.seeds.seed_file import all_seeds, seed_of
from weft.crawl.seeds.seed_streams import Piece, SeedStream, StreamPosition
from weft.engine.admission.rules import AdmissionRules
from weft.engine.crawls.limits import check_email
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.fetch_loop import UrlFeed
from weft.engine.loop.progress import CrawlProgress
from weft.errors import BadUrl
from weft.frontier.contract import Admission, Frontier
from weft.records import Found, Purpose
from weft.telemetry import Log

SLICE_S = 0.015
_LINES_AT_ONCE = 100  # lines that are admitted together
_MOST_LOGGED = 100  # invalid lines that are logged
_MOST_ORIGINS_REMEMBERED = 50_000  # added to the scope between two heartbeats
_PROGRESS_NOTE = "seeds"
log = Log("weft.crawl.seeds.feeding")


class FeedProgress(msgspec.Struct):
    """The position in each stream, as stored in the frontier."""

    positions: dict[str, StreamPosition] = msgspec.field(default_factory=dict, name="places")
    seeds: int = 0  # so far
    is_over: bool = False


class SeedFeed:
    """The streams of one crawl, for one process. `is_over` when everything is read."""

    def __init__(
        self,
        folder: CrawlFolder,
        frontier: Frontier,
        crawl: RunningCrawl,
        owns: Callable[[str], bool],
        *,
        admits: bool,
        expand: Callable[[Admission], None],
        ended: Callable[[], None],
    ) -> None:
        """`expand` is called with seeds that were fetched before, as a link of some page, and have a smaller depth
        now."""
        self._folder = folder
        self._frontier = frontier
        self._crawl = crawl
        self._owns_url = owns
        self._admits = admits
        self._expand_known = expand
        self._call_when_over = ended
        self._invalid_lines = 0
        self._streams = folder.seed_streams()
        self._text_bytes = sum(stream.text_bytes for stream in self._streams) or 1
        self._positions = FeedProgress()
        if admits and self._streams and (noted := frontier.notes.note(_PROGRESS_NOTE)):
            self._positions = msgspec.json.decode(noted, type=FeedProgress)
        self._is_new = any(self._position_in(stream).at < stream.bytes for stream in self._streams)
        self.is_over = not self._streams or (crawl.scope.seeded_urls_only and not (admits and self._is_new))
        self._pieces = self._unread_pieces()
        self._piece: tuple[SeedStream, Piece] | None = None
        self._line = 0  # in the piece: lines before it are done
        if self.is_over:
            self._end_feed()

    def __call__(self) -> None:
        """Reads for a short time. If a full disk or an unavailable server causes an error, the next call tries
        again."""
        until = time.monotonic() + SLICE_S
        while not self.is_over and time.monotonic() < until:
            if self._piece is None:
                self._piece, self._line = next(self._pieces, None), 0
            if self._piece is None:
                self._end_feed()
            else:
                self._admit_next_lines(*self._piece)

    def _unread_pieces(self) -> Iterator[tuple[SeedStream, Piece]]:
        """Yields unread pieces first, so that a short run gets further than the one before it."""
        starts = {stream.name: self._position_in(stream).at for stream in self._streams}
        before = 0
        for stream in self._streams:
            for piece in self._folder.read_stream(stream, starts[stream.name]):
                self._report_share((before + piece.text_before) / self._text_bytes)
                yield stream, piece
            before += stream.text_bytes
        for stream in self._streams:
            for piece in self._folder.read_stream(stream):
                if piece.at >= starts[stream.name]:
                    break
                yield stream, piece

    def _end_feed(self) -> None:
        self.is_over = True
        self._call_when_over()
        self._report_share(1.0)
        if self._admits and self._is_new:
            log.info("seeds admitted", seeds=self._positions.seeds, not_urls=self._invalid_lines)

    def _admit_next_lines(self, stream: SeedStream, piece: Piece) -> None:
        lines, last = (
            piece.lines[self._line : self._line + _LINES_AT_ONCE],
            min(self._line + _LINES_AT_ONCE, len(piece.lines)),
        )
        here = StreamPosition(piece.end) if last == len(piece.lines) else StreamPosition(piece.at, last)
        there = self._position_in(stream)
        if not self._admits or (here.at, here.lines) <= (there.at, there.lines):
            self._admit_late_sitemaps(lines)
        else:
            self._admit_lines(stream, lines, piece.lines_before + self._line, here)
        self._line = last
        if last == len(piece.lines):
            self._piece = None

    def _admit_late_sitemaps(self, lines: list[str]) -> None:
        if not self._crawl.scope.seeded_urls_only:
            sitemaps = [one for seed in all_seeds(lines) for one in self._sitemap_of_late_origin(seed)]
            self._frontier.queue.admit(self._crawl.number, sitemaps)

    def _admit_lines(self, stream: SeedStream, lines: list[str], before: int, position: StreamPosition) -> None:
        """Admits this pod's seeds, and stores the position; the next commit makes both durable."""
        crawl, links = self._crawl, list[Found]()
        for number, line in enumerate(lines, before + 1):
            if (seed := self._parse_seed(stream, line, number)) is None:
                continue
            links += self._sitemap_of_late_origin(seed)
            url = crawl.rules.rewritten(seed)
            if not self._owns_url(url):
                continue
            reason = crawl.rules.refusal(url, 0, is_link=False, included=True)
            if reason is None:
                links.append(Found(url, 0))
            else:
                crawl.progress.refused[reason] += 1
        admission = self._frontier.queue.admit(crawl.number, links)
        self._positions.positions[stream.name] = position
        self._positions.seeds += sum(one.purpose is Purpose.PAGE for one in links)
        self._frontier.notes.note(_PROGRESS_NOTE, msgspec.json.encode(self._positions).decode())
        if admission.expand:
            self._expand_known(admission)

    def _sitemap_of_late_origin(self, seed: str) -> list[Found]:
        """The sitemap of a seed's origin from which a page was fetched before, as a link of some page."""
        crawl, origin = self._crawl, urls.origin_of(seed)
        if (
            not crawl.add_seed_origin(seed)
            or origin not in crawl.known_origins
            or crawl.robots_book.rules_of_origin(origin)[1].sitemaps
        ):
            return []
        at = f"{origin}/sitemap.xml"
        is_wanted = crawl.scope.max_depth != 0 and not crawl.scope.seeded_urls_only and self._owns_url(at)
        if not is_wanted or crawl.rules.refusal(at, 0, is_link=False, included=True) is not None:
            return []
        return [Found(at, 0, 0, 0, Purpose.SITEMAP, origin)]

    def _parse_seed(self, stream: SeedStream, line: str, number: int) -> str | None:
        try:
            seed = seed_of(line)
        except BadUrl as bad:
            self._crawl.progress.refused[bad.reason] += 1
            self._invalid_lines += 1
            if self._invalid_lines <= _MOST_LOGGED:
                log.warning("a line of a seed file is not a URL", file=stream.name, line=number, why=bad)
            return None
        if seed is not None:
            check_email((seed,), self._crawl.fetch)
        return seed

    def _position_in(self, stream: SeedStream) -> StreamPosition:
        return self._positions.positions.get(stream.name, StreamPosition())

    def _report_share(self, share: float) -> None:
        status = self._crawl.progress.status
        status.seeds, status.seeds_read = self._positions.seeds, share


class CombinedFeed:
    """Several feeds as one: each call reads a little of each."""

    def __init__(self, feeds: Sequence[UrlFeed]) -> None:
        self._feeds_left = list(feeds)
        self.is_over = False
        self._poll_feeds()

    def __call__(self) -> None:
        """Reads from each feed; an error of one is raised, and the next call tries again."""
        for feed in self._feeds_left:
            feed()
        self._poll_feeds()

    def _poll_feeds(self) -> None:
        self._feeds_left = [feed for feed in self._feeds_left if not feed.is_over]
        self.is_over = not self._feeds_left


def learn_scope(rules: AdmissionRules, folder: CrawlFolder, progress: CrawlProgress, alive: Callable[[], None]) -> None:
    """If seeds decide the scope: extends it by the origins of the streams, which `start` has recorded."""
    for number, seed in enumerate(folder.scope_seeds()):
        rules.extend(seed)
        if number % _MOST_ORIGINS_REMEMBERED == 0:
            alive()
            progress.write("starting", f"loading the scope of the seeds: {number:,} origins")
