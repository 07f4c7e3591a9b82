"""Handles each transfer that has ended: the fetcher's half.

It does not look into pages: it sets the site's clock, stores cookies, handles robots.txt, and retries or records
failures. Logins are the exception: a form is read, and pages reveal whether the user is logged in. What must be read
(pages, redirects, sitemaps) is passed to `onward`: to the parsing half in the same process, or into a spool that a
parser process reads.

Reading takes much longer than fetching, and a wave of answers must not delay the sites behind it: their clocks are set
at once, and the answers are read in slices, between which transfers continue.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from weft import urls
from weft.bodies import held_bytes
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.login.session import LoginSession, PageOfSession
from weft.engine.loop.fetcher import robots as robots_txt
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.fetcher.revisits import is_unchanged
from weft.engine.loop.fetcher.verdict import REDIRECTS, VerdictKind, backoff_s, site_health
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.parsing import MOST_PAGES_TOGETHER, Parsing
from weft.engine.loop.round import Round
from weft.engine.loop.rows import RowMaker
from weft.engine.model import end_kind
from weft.engine.user_code.calls import CallResult, decode_spec
from weft.engine.user_code.running import request_name
from weft.errors import BadUrl
from weft.frontier.contract import End, Item, Rejection, TransferEnd
from weft.records import FetchResult, Found, Lease, Purpose, Reason, Rendered
from weft.telemetry import Log

UNREAD_BYTES = 16 << 20  # more than this does not wait to be read
UNREAD_ANSWERS = 400  # nor more answers than this: the last of them, perhaps of another crawl, would wait too long
USUAL_BYTES = 256 << 10  # a larger body takes long even from a fast site
MOST_AT_ONCE = 32  # answers that are read together: a page of 42 KB costs 4 % less than with AT_ONCE of them
BYTES_AT_ONCE = 1 << 20  # a group of answers with this many bytes is large enough: large ones take long
_READ_FIRST = (Purpose.ROBOTS, Purpose.LOGIN)
LOGGED_OUT = "logged_out"  # the error of a page that was sent twice as to a user who is not logged in
log = Log("weft.engine.loop.fetcher.results")


class ResultHandler:
    """Handles results, and ends those that need no parsing."""

    def __init__(
        self,
        round_: Round,
        rows: RowMaker,
        onward: Callable[[Sequence[EndedTransfer]], None],
        crawls: dict[int, RunningCrawl],
        metrics: EngineMetrics,
        *,
        parsing: Parsing | None = None,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.round = round_
        self._rows = rows
        self._handoff = onward
        self._crawls = crawls
        self._metrics = metrics
        self._parsing = parsing
        self._wall = wall
        self._chance = chance
        self._unread_answers: deque[EndedTransfer] = deque()
        self._unreported_rejections: deque[Rejection] = (
            deque()
        )  # the user's code is called for these before their rows are made
        self._ended_rejections: list[int] = []  # rejected items whose rows are made
        self._unread_bytes = 0
        self._busy_elsewhere_s = 0.0
        self._read_together = MOST_PAGES_TOGETHER
        self._logs_debug = log.debugs

    @property
    def unread(self) -> int:
        """How many answers wait to be read, including those at parser children."""
        return (
            len(self._unread_answers)
            + len(self._unreported_rejections)
            + (self._parsing.sent if self._parsing is not None else 0)
        )

    @property
    def is_readable(self) -> bool:
        """Whether `read` has something to do now."""
        parsing = self._parsing
        waits = bool(self._unread_answers) or bool(self._unreported_rejections)
        return parsing is not None and ((waits and parsing.has_room) or parsing.has_returned)

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be fetched: parser children are behind, and enough waits for them."""
        return (
            self._parsing is not None
            and (self._unread_bytes > UNREAD_BYTES or len(self._unread_answers) > UNREAD_ANSWERS)
            and not self._parsing.has_room
        )

    def fileno(self) -> int | None:
        """Readable when `poll` has something to do; None if there are no parser children."""
        return None if self._parsing is None else self._parsing.fileno()

    def poll(self) -> None:
        """Sends to and receives from the parser children."""
        if self._parsing is not None:
            self._parsing.poll()

    def call_code(self, message: bytes, ended: Callable[[CallResult], None]) -> None:
        """Calls the user's code about no page; `ended` gets the result in `read`."""
        assert self._parsing is not None
        self._parsing.call_code(message, ended)

    def wait_for_code(self) -> None:
        """Called when the loop has ended: waits until the user's code has returned something, or a moment has
        passed.
        """
        assert self._parsing is not None
        self._parsing.wait()

    def close(self) -> None:
        """Ends the parser children."""
        if self._parsing is not None:
            self._parsing.close()

    def handle_ended(self, ended: Iterable[tuple[Lease, FetchResult]]) -> None:
        """Handles transfers that have ended: sets their sites' clocks; `read` continues with the answers.

        An answer that is handed to a parser takes the end of its transfer along.
        """
        answers = [self._make_answer(lease, result) for lease, result in ended]
        if self._parsing is not None:
            for answer in answers:
                self._cool_site(answer)
            self.round.flush_cooled()
            # They are short, and all pages of a site wait for them: they must not queue behind those of other crawls.
            self._handle_answers([answer for answer in answers if answer.lease.purpose in _READ_FIRST])
            pages = [answer for answer in answers if answer.lease.purpose not in _READ_FIRST]
            self._unread_bytes += sum(held_bytes(answer.result.body) for answer in pages)
            self._unread_answers.extend(pages)
            return
        self._handle_answers(answers)
        for answer in answers:
            if not answer.handed:
                self._cool_site(answer)

    def read_answers(self, slice_s: float) -> None:
        """Reads answers for `slice_s` seconds; longer while too much would be left."""
        parsing, unread = self._parsing, self._unread_answers
        assert parsing is not None
        until = time.monotonic() + slice_s
        parsing.finish_returned()
        while self._unreported_rejections and parsing.has_room:
            self._call_code_for_rejection(self._unreported_rejections.popleft())
        while (
            unread
            and parsing.has_room
            and (self._unread_bytes > UNREAD_BYTES or len(unread) > UNREAD_ANSWERS or time.monotonic() < until)
        ):
            answers, left_bytes = list[EndedTransfer](), BYTES_AT_ONCE
            while unread and len(answers) < self._read_together and left_bytes > 0:
                answers.append(unread.popleft())
                held = held_bytes(answers[-1].result.body)
                left_bytes -= held or len(answers[-1].result.body)
                self._unread_bytes -= held
            began = time.monotonic()
            self._handle_answers(answers)
            self._read_together = most_read_together(len(answers), time.monotonic() - began, slice_s)

    def drop_crawl(self, crawl: int) -> None:
        """Drops the answers of an ended crawl that wait to be read, also at parser children; their leases end."""
        self.round.drop_crawl(crawl)
        dropped = [answer for answer in self._unread_answers if answer.lease.crawl == crawl]
        self._unreported_rejections = deque(one for one in self._unreported_rejections if one.crawl != crawl)
        if dropped:
            self._unread_answers = deque(answer for answer in self._unread_answers if answer.lease.crawl != crawl)
            self._unread_bytes -= sum(held_bytes(answer.result.body) for answer in dropped)
        sent = self._parsing.drop_crawl(crawl) if self._parsing is not None else []
        for lease in (*sent, *(answer.lease for answer in dropped)):
            self.round.end_lease(lease, End.OTHER)  # one of them may be a robots.txt that other crawls wait for

    def note_busy_time(self, seconds: float) -> None:
        """Called when the loop was busy elsewhere for some seconds: answers of that time look late, and are not."""
        self._busy_elsewhere_s = max(seconds, 0.9 * self._busy_elsewhere_s)

    def _response_time_s(self, result: FetchResult) -> float | None:
        """How long a site took to answer, as far as the site is responsible; None if the time is not its own."""
        if not result.status:
            return None
        took_s = max(0.0, result.ended - result.started - self._busy_elsewhere_s)
        return took_s if len(result.body) <= USUAL_BYTES else took_s * USUAL_BYTES / len(result.body)

    def _make_answer(self, lease: Lease, result: FetchResult) -> EndedTransfer:
        crawl, spent_s, wall = self._crawls[lease.crawl], result.ended - result.started, self._wall()
        crawl.progress.status.requests += 1
        self._metrics.count_transfer(lease.purpose, result)
        answer = EndedTransfer(crawl, lease, result, wall - spent_s)
        slow = answer.kind is VerdictKind.SLOW_DOWN
        if slow:
            crawl.progress.slowed[str(result.status)] += 1
        wait_s = answer.head.retry_after_s(wall) if slow else None
        outcome = result.error or str(result.status)
        answer.ended = TransferEnd(
            lease,
            result.site_free_at,
            site_health(result),
            slow,
            wait_s,
            outcome,
            result.status == 503,
            self._response_time_s(result),
        )
        if self._logs_debug:
            log.debug(
                "fetched",
                url=lease.url,
                purpose=lease.purpose,
                outcome=outcome,
                bytes=len(result.body),
                seconds=round(spent_s, 4),
                attempt=lease.attempt,
                depth=lease.depth,
            )
        if crawl.jar is not None and result.status:
            crawl.keep_cookies(lease.url, answer.head.set_cookies, wall, answer.asked_at, lease)
        if result.rendered is not None:
            self._handle_rendered(answer, result.rendered, wall)
        if crawl.session is not None and crawl.session.covers(lease.url):
            answer.mask_cookies()  # no later step needs their values
        return answer

    def _handle_rendered(self, answer: EndedTransfer, rendered: Rendered, wall: float) -> None:
        """Handles what a browser did besides reading the page: requests of its parts, and cookies that scripts set."""
        crawl, lease = answer.crawl, answer.lease
        self.round.add_requested_parts(lease, rendered.parts)
        crawl.keep_cookies(lease.url, rendered.cookies, wall, answer.asked_at, lease)
        if crawl.session is not None:
            crawl.session.keep_storage(lease, rendered, answer.asked_at)
        crawl.progress.count_rendered(rendered)
        self._metrics.observe_render_time(rendered)

    def _cool_site(self, answer: EndedTransfer) -> None:
        assert answer.ended is not None
        self.round.add_cooled(answer.ended)

    def _handle_answers(self, answers: Sequence[EndedTransfer]) -> None:
        self._handoff([answer for answer in answers if not self._settle_without_reading(answer)])

    def _settle_without_reading(self, answer: EndedTransfer) -> bool:
        """Ends an answer that need not be read; False for the others."""
        crawl, lease, result, kind = answer.crawl, answer.lease, answer.result, answer.kind
        before = crawl.revisits.earlier_row(lease) if crawl.revisits is not None else None
        if crawl.session is not None and self._handle_session(crawl.session, answer):
            return True
        if lease.request and crawl.must_be_sent_once(lease) and self._handle_sent_once(answer):
            return True
        if kind is VerdictKind.AGAIN:
            self.round.end_lease(lease, End.RELEASE)
        elif before is not None and is_unchanged(before, result):
            self._rows.make_unchanged_row(answer, before)
        elif lease.purpose is Purpose.ROBOTS:
            self._handle_robots(answer)
        elif kind in (VerdictKind.RETRY, VerdictKind.SLOW_DOWN):
            self._handle_failure(answer)
        elif kind is VerdictKind.PAGE or lease.purpose is Purpose.SITEMAP or answer.redirects:
            return False
        elif result.status == 401 and crawl.answers(
            lease,
            answer.head.get_all("www-authenticate"),
            sent=b"\r\nAuthorization: " in result.request_head.partition(b"\r\n\r\n")[0],
        ):
            self.round.end_lease(lease, End.RETRY)
        elif result.error == Reason.CONTENT_TYPE:
            if self._logs_debug:
                log.debug(
                    "turned away", url=lease.url, purpose=lease.purpose, reason=result.error, detail=result.detail
                )
            self._record_failure(answer, f"{result.error}: {result.detail}", stored=False)
        else:
            self._record_failure(answer, result.error or "", stored=result.error != "too_large")
        return True

    def _handle_session(self, session: LoginSession, answer: EndedTransfer) -> bool:
        """Handles a step of a login, or a page for a user who is not logged in; True if it has ended here."""
        crawl, lease, result = answer.crawl, answer.lease, answer.result
        if lease.purpose is Purpose.LOGIN:
            assert self._parsing is not None
            session.handle_step(lease, result, answer.kind, partial(self._parsing.parse_here, answer), self._wall())
            self.round.end_lease(lease, End.OTHER)
            return True
        if lease.purpose is not Purpose.PAGE or not result.status or not session.covers(lease.url):
            return False
        is_once = crawl.must_be_sent_once(lease)
        repeat = session.judge_page(
            lease, answer.asked_at, is_out=self._is_logged_out(session, answer), may_repeat=not is_once
        )
        if repeat is PageOfSession.ONCE:
            self.round.end_lease(lease, End.RELEASE)
        elif repeat is PageOfSession.USELESS:
            self._record_failure(answer, LOGGED_OUT, stored=True)
        return repeat is not PageOfSession.NO

    def _is_logged_out(self, session: LoginSession, answer: EndedTransfer) -> bool:
        """Whether an answer is one for a user who is not logged in."""
        lease, css = answer.lease, session.login.logged_out
        if answer.redirects:
            try:
                return session.leads_out(urls.join(lease.url, answer.head.location or ""))
            except BadUrl:
                return False
        if not css or session.leads_out(lease.url) or answer.result.error or self._parsing is None:
            return False
        return self._parsing.has_match(answer, css)

    def _handle_sent_once(self, answer: EndedTransfer) -> bool:
        """Handles a request that must not be sent twice; True if it has ended here. One that was not sent may be sent
        again.
        """
        lease, result = answer.lease, answer.result
        if not result.was_sent or result.status == 401:
            self.round.mark_unsent(lease)
            return False
        if answer.kind is VerdictKind.AGAIN or (
            not result.status and answer.kind in (VerdictKind.RETRY, VerdictKind.FAILED)
        ):
            detail = result.error or "no answer"
            self._record_failure(answer, f"{Reason.UNKNOWN_OUTCOME}: {detail}", stored=False)
            return True
        if answer.kind in (VerdictKind.RETRY, VerdictKind.SLOW_DOWN):
            self._record_failure(answer, result.error or "", stored=True)
            return True
        return False

    def _record_failure(self, answer: EndedTransfer, error: str, *, stored: bool = True) -> None:
        """Records a failed request, with or without an answer; the user's code may be called first."""
        spider = answer.crawl.spider
        if spider is not None and spider.description.hears_failures and self._parsing is not None:
            self._parsing.fail_request(answer, error, stored=stored)
        else:
            self._rows.make_row(answer, error=error, stored=stored)

    def refuse_lease(self, lease: Lease, reason: Reason, detail: str = "") -> None:
        """Ends a lease for which no request was made."""
        self._count_refusal(lease, lease.crawl, reason, detail)
        crawl = self._crawls[lease.crawl]
        if lease.purpose is Purpose.LOGIN and crawl.session is not None and crawl.session.is_current(lease):
            why = f"robots.txt forbids {lease.url} ({detail})" if reason is Reason.ROBOTS else f"{reason}: {detail}"
            crawl.session.fail_attempt(why, is_final=True)
        if lease.purpose is not Purpose.PAGE:
            self.round.end_lease(lease, End.OTHER)
            return
        if crawl.spider is not None and crawl.spider.description.hears_failures and self._parsing is not None:
            self._parsing.refuse_request(
                crawl, lease, reason, detail, lambda: self.round.end_with_row(lease, End.OTHER)
            )
            return
        request = "" if crawl.spider is None else crawl.spider.request_of(lease)
        self._rows.make_refused_row(lease, lease.crawl, reason, detail, request=request)
        self.round.end_with_row(lease, End.OTHER)

    def record_rejection(self, rejection: Rejection) -> None:
        """Records an item that the frontier removed from its queue, or did not admit to it."""
        self._count_refusal(rejection.item, rejection.crawl, rejection.reason, rejection.detail)
        session = self._crawls[rejection.crawl].session
        if rejection.item.purpose is Purpose.LOGIN and session is not None:
            session.fail_lost_request(
                rejection.item.about, f"{rejection.reason}: {rejection.detail or rejection.item.url}"
            )
        spider = self._crawls[rejection.crawl].spider
        is_page = rejection.item.purpose is Purpose.PAGE
        if is_page and spider is not None and spider.description.hears_failures and self._parsing is not None:
            self._unreported_rejections.append(rejection)
            return
        if is_page:
            request = request_name(decode_spec(rejection.request)) if rejection.request else ""
            self._rows.make_refused_row(
                rejection.item, rejection.crawl, rejection.reason, rejection.detail, request=request
            )
        self._ended_rejections.append(rejection.item.item)

    def ended_rejections(self) -> list[int]:
        """The rejected items whose rows were made since the last call."""
        ended, self._ended_rejections = self._ended_rejections, []
        return ended

    def _call_code_for_rejection(self, rejection: Rejection) -> None:
        """Calls the user's code for a rejected item; its row is made when the call has ended."""
        item, crawl = rejection.item, self._crawls[rejection.crawl]
        lease = Lease(
            item.item, rejection.crawl, item.url, "", item.depth, item.parent, item.hops, item.purpose, item.about,
            item.offsite, item.attempt, "", 0, 0.0, 0.0, rejection.request,
        )  # fmt: skip
        assert self._parsing is not None
        self._parsing.refuse_request(
            crawl, lease, rejection.reason, rejection.detail, lambda: self._ended_rejections.append(item.item)
        )

    def _count_refusal(self, item: Item | Lease, crawl: int, reason: Reason, detail: str) -> None:
        progress = self._crawls[crawl].progress
        progress.refused[reason] += 1
        if item.purpose is Purpose.PAGE:
            progress.statuses["0"] += 1  # its row has no status
            progress.kinds[0, end_kind(f"{reason}: {detail}" if detail else str(reason))] += 1
        if self._logs_debug:
            log.debug("turned away", url=item.url, purpose=item.purpose, reason=reason, detail=detail)

    def _handle_failure(self, answer: EndedTransfer) -> None:
        lease, result = answer.lease, answer.result
        retry_after_s = answer.ended.retry_after_s if answer.ended is not None else None
        politeness = answer.crawl.politeness
        too_long = (retry_after_s or 0.0) > politeness.max_retry_after_s
        if lease.attempt < politeness.max_retries and not too_long:
            answer.crawl.progress.status.retries += lease.purpose is Purpose.PAGE
            wait_s = backoff_s(politeness.retry_backoff_s, lease.attempt, self._chance())
            self.round.end_lease(lease, End.RETRY, max(wait_s, retry_after_s or 0.0))
            return
        log.info(
            "retries exhausted" if not too_long else "not waited for",
            url=lease.url,
            tries=lease.attempt + 1,
            outcome=result.error or result.status,
            retry_after_s=retry_after_s or 0.0,
        )
        if lease.purpose is Purpose.SITEMAP:
            self.round.end_lease(lease, End.OTHER)
        else:
            self._record_failure(answer, result.error or (str(Reason.RETRY_AFTER) if too_long else ""))

    def _handle_robots(self, answer: EndedTransfer) -> None:
        lease, result, head = answer.lease, answer.result, answer.head
        led_on = answer.kind is VerdictKind.REDIRECT or (result.error == "too_large" and result.status in REDIRECTS)
        if led_on and head.location is not None and lease.hops < robots_txt.MAX_ROBOTS_REDIRECTS:
            try:
                target = urls.join(lease.url, head.location)
            except BadUrl:
                pass
            else:
                hop = Found(target, lease.depth, lease.parent, lease.hops + 1, Purpose.ROBOTS, lease.about)
                self.round.add_robots_and_sitemaps(answer.crawl, [hop])
                self.round.end_lease(lease, End.OTHER)
                return
        politeness = answer.crawl.politeness
        record = robots_txt.record_of(result, self._wall(), politeness.robots_ttl_s)
        known = answer.crawl.robots_book.was_known(lease.about)
        if record is None and robots_txt.is_worth_another_attempt(result, lease.attempt, politeness, known=known):
            wait_s = backoff_s(politeness.retry_backoff_s, lease.attempt, self._chance())
            self.round.end_lease(lease, End.RETRY, max(wait_s, head.retry_after_s(self._wall()) or 0.0))
            return
        if record is None:
            log.info(
                "robots.txt cannot be had",
                origin=lease.about,
                tries=lease.attempt + 1,
                outcome=result.error or result.status,
            )
        answer.crawl.robots_book.store_record(
            lease.about, record or robots_txt.unreachable_record(result, self._wall())
        )
        self.round.end_lease(lease, End.OTHER)


def most_read_together(read: int, spent_s: float, slice_s: float) -> int:
    """How many answers are read together next: as many as fit into a slice of time, judged by those read last."""
    fitting = int(read * slice_s / max(spent_s, 1e-6))
    return max(MOST_PAGES_TOGETHER, min(MOST_AT_ONCE, fitting))
