"""Large seed files, read while the crawl runs: a slice between two rounds of the loop, so that it never stands still.

A pod's first fetcher admits its seeds; how far it is, is noted in the frontier with them, so that a restart goes on
there: each seed is admitted once, and none is lost. Seeds before that place are read after the others, and only for
their origins, whose sitemaps are asked for at the usual place; other fetchers do that with all. Where seeds decide what
is in scope, their origins are known before anything is asked for (`learn_scope`): a link that is refused is not found
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
_LINES = 100  # admitted together
_MOST_TOLD = 100  # lines that are no URL, in the log
_ORIGINS = 50_000  # taken into the scope between two heartbeats
_NOTE = "seeds"
log = Log("weft.crawl.seeds.feeding")


class FeedProgress(msgspec.Struct):
    """How far each stream was admitted, as the frontier notes it."""

    places: dict[str, StreamPosition] = {}
    seeds: int = 0  # so far
    is_over: bool = False


class Feeding:
    """The streams of one crawl, for one process. `is_over` when all is read."""

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
        """`expand` is given what was fetched before, as some page's link, and is nearer now."""
        self._folder = folder
        self._frontier = frontier
        self._crawl = crawl
        self._owns = owns
        self._admits = admits
        self._expand = expand
        self._ended = ended
        self._told = 0
        self._streams = folder.streams()
        self._text_bytes = sum(stream.text_bytes for stream in self._streams) or 1
        self._done = FeedProgress()
        if admits and self._streams and (noted := frontier.notes.note(_NOTE)):
            self._done = msgspec.json.decode(noted, type=FeedProgress)
        self._is_new = any(self._place(stream).at < stream.bytes for stream in self._streams)
        self.is_over = not self._streams or (crawl.scope.seeded_urls_only and not (admits and self._is_new))
        self._pieces = self._read()
        self._piece: tuple[SeedStream, Piece] | None = None
        self._line = 0  # of the piece: those before it are done
        if self.is_over:
            self._end()

    def __call__(self) -> None:
        """Reads for a moment. What fails because of a full disk or a server that is away is read again."""
        until = time.monotonic() + SLICE_S
        while not self.is_over and time.monotonic() < until:
            if self._piece is None:
                self._piece, self._line = next(self._pieces, None), 0
            if self._piece is None:
                self._end()
            else:
                self._step(*self._piece)

    def _read(self) -> Iterator[tuple[SeedStream, Piece]]:
        """First what is not admitted yet, so that a run that is short gets further than the one before it."""
        starts = {stream.name: self._place(stream).at for stream in self._streams}
        before = 0
        for stream in self._streams:
            for piece in self._folder.pieces(stream, starts[stream.name]):
                self._tell((before + piece.text_before) / self._text_bytes)
                yield stream, piece
            before += stream.text_bytes
        for stream in self._streams:
            for piece in self._folder.pieces(stream):
                if piece.at >= starts[stream.name]:
                    break
                yield stream, piece

    def _end(self) -> None:
        self.is_over = True
        self._ended()
        self._tell(1.0)
        if self._admits and self._is_new:
            log.info("seeds taken in", seeds=self._done.seeds, not_urls=self._told)

    def _step(self, stream: SeedStream, piece: Piece) -> None:
        lines, last = piece.lines[self._line : self._line + _LINES], min(self._line + _LINES, len(piece.lines))
        here = StreamPosition(piece.end) if last == len(piece.lines) else StreamPosition(piece.at, last)
        there = self._place(stream)
        if not self._admits or (here.at, here.lines) <= (there.at, there.lines):
            self._know(lines)
        else:
            self._admit(stream, lines, piece.lines_before + self._line, here)
        self._line = last
        if last == len(piece.lines):
            self._piece = None

    def _know(self, lines: list[str]) -> None:
        if not self._crawl.scope.seeded_urls_only:
            found = [one for seed in all_seeds(lines) for one in self._late_sitemap(seed)]
            self._frontier.queue.admit(self._crawl.number, found)

    def _admit(self, stream: SeedStream, lines: list[str], before: int, place: StreamPosition) -> None:
        """Admits this pod's seeds, and notes how far it is; the next commit makes both durable."""
        crawl, found = self._crawl, list[Found]()
        for number, line in enumerate(lines, before + 1):
            if (seed := self._seed(stream, line, number)) is None:
                continue
            found += self._late_sitemap(seed)
            url = crawl.rules.rewritten(seed)
            if not self._owns(url):
                continue
            reason = crawl.rules.refusal(url, 0, is_link=False, included=True)
            if reason is None:
                found.append(Found(url, 0))
            else:
                crawl.progress.refused[reason] += 1
        admission = self._frontier.queue.admit(crawl.number, found)
        self._done.places[stream.name] = place
        self._done.seeds += sum(one.purpose is Purpose.PAGE for one in found)
        self._frontier.notes.note(_NOTE, msgspec.json.encode(self._done).decode())
        if admission.expand:
            self._expand(admission)

    def _late_sitemap(self, seed: str) -> list[Found]:
        """The sitemap of a seed's origin of which a page came first, as some page's link."""
        crawl, origin = self._crawl, urls.origin_of(seed)
        if not crawl.add_seed_origin(seed) or origin not in crawl.known_origins or crawl.book.of(origin)[1].sitemaps:
            return []
        at = f"{origin}/sitemap.xml"
        is_wanted = crawl.scope.max_depth != 0 and not crawl.scope.seeded_urls_only and self._owns(at)
        if not is_wanted or crawl.rules.refusal(at, 0, is_link=False, included=True) is not None:
            return []
        return [Found(at, 0, 0, 0, Purpose.SITEMAP, origin)]

    def _seed(self, stream: SeedStream, line: str, number: int) -> str | None:
        try:
            seed = seed_of(line)
        except BadUrl as bad:
            self._crawl.progress.refused[bad.reason] += 1
            self._told += 1
            if self._told <= _MOST_TOLD:
                log.warning("a line of a seed file is no URL", file=stream.name, line=number, why=bad)
            return None
        if seed is not None:
            check_email((seed,), self._crawl.fetch)
        return seed

    def _place(self, stream: SeedStream) -> StreamPosition:
        return self._done.places.get(stream.name, StreamPosition())

    def _tell(self, share: float) -> None:
        status = self._crawl.progress.status
        status.seeds, status.seeds_read = self._done.seeds, share


class Feeds:
    """Several feeds as one: each is read a little at each call."""

    def __init__(self, feeds: Sequence[UrlFeed]) -> None:
        self._left = list(feeds)
        self.is_over = False
        self._poll()

    def __call__(self) -> None:
        """One after the other; an error of one is raised, and the next call tries it again."""
        for feed in self._left:
            feed()
        self._poll()

    def _poll(self) -> None:
        self._left = [feed for feed in self._left if not feed.is_over]
        self.is_over = not self._left


def learn_scope(rules: AdmissionRules, folder: CrawlFolder, progress: CrawlProgress, alive: Callable[[], None]) -> None:
    """Where seeds decide what is in scope: extends it by the origins of the streams, which are recorded (`start`)."""
    for number, seed in enumerate(folder.scope_seeds()):
        rules.extend(seed)
        if number % _ORIGINS == 0:
            alive()
            progress.write("starting", f"taking up the scope of the seeds: {number:,} origins")
