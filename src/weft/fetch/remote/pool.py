"""The hands, shared by all transports of a process: requests are routed when they are claimed, sent in batches, and end
with their result, or at their deadline.

What must stay true: a request that was routed to a hand goes to that hand or nowhere, because the request log names it;
one without a result is taken to have been sent, and ends at its deadline, not before; a result counts once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from weft import urls
from weft.bodies import Body
from weft.config import ClusterSection, FetchSection
from weft.credentials import HARMLESS
from weft.fetch.contract import Done
from weft.fetch.remote.contract import HandDispatcher, RemoteArrival
from weft.fetch.remote.messages import BATCH, LATE, FetchTask, RemoteRequest, fetch_result
from weft.fetch.remote.routing import FAILURES, HAND_ERRORS, OUT_S, Routing
from weft.records import FetchResult, HandRoute, Lease
from weft.telemetry import Log

GRACE_S = 5.0  # after a deadline, for a result that is on its way; a part of the slack, at most
LOST_S = 15.0  # a lease lasts this much longer than its task
# A request without a result is no attempt at its site; but one that was lost so often may be what its workers die of.
LOSSES = 5
ITEMS_KEPT = 10_000
CHECK_S = 1.0
MARGIN = 3  # this part of a task's slack is left when its last transfer must have ended
log = Log("weft.fetch.remote.pool")


class Waiter(Protocol):
    """The submitter of a request."""

    done: Done


class RemoteFlight(Struct):
    """A request that is sent to a hand, or about to be."""

    request: RemoteRequest
    tag: object
    key: str
    hand: str
    owner: Waiter
    settings: dict[str, object]
    sent: float
    start_by: float
    deadline: float

    @property
    def host(self) -> str:
        """The host of the request."""
        return urls.host_of(self.request.url)

    def failed(self, error: str, detail: str, ended: float, *, was_sent: bool) -> FetchResult:
        """Its result, if none arrived."""
        return FetchResult(
            self.request.url, 0, b"", b"", error, detail, min(self.sent, ended), ended, "", b"", was_sent=was_sent
        )


class HandPool:
    """The pool of hands; see the module."""

    def __init__(
        self, section: ClusterSection, dispatcher: HandDispatcher, clock: Callable[[], float] = time.monotonic
    ):
        self._section = section
        self._clock = clock
        self._dispatcher = dispatcher
        self._routing = Routing(section.hand_in_flight)
        self._routes: dict[int, tuple[str, float]] = {}  # by item: the hand, and when it was claimed
        self._pending: dict[str, list[RemoteFlight]] = {}  # by hand
        self._out: dict[str, RemoteFlight] = {}
        self._losses: OrderedDict[object, int] = OrderedDict()  # of the items that were lost lately
        self._next_check = 0.0

    @property
    def dispatcher(self) -> HandDispatcher:
        """The connection to the hands."""
        return self._dispatcher

    @property
    def has_hands(self) -> bool:
        """Whether a working hand is connected."""
        return self._routing.any_in(self._dispatcher.hands(), self._clock()) and not self._dispatcher.trouble()

    @property
    def room(self) -> int:
        """How many requests the hands can accept now."""
        if self._dispatcher.trouble():
            return 0
        return self._routing.room(self._dispatcher.hands(), self._clock())

    def held_up(self) -> str:
        """Why no request can be sent to a hand; empty while some can."""
        if why := self._dispatcher.trouble():
            return f"workers cannot be asked: {why}"
        if not self._dispatcher.hands():
            return "no worker is connected: start one with `weft worker`"
        if not self.has_hands:
            return f"every worker has failed {FAILURES} times, and is asked again after {OUT_S:.0f} s"
        return ""

    def times(self, section: FetchSection) -> tuple[float, float]:
        """Seconds from a claim until its task must have begun, and until it is over."""
        queued_s, run_s = self._section.hand_queue_s, section.total_timeout_s + self._section.hand_slack_s
        return queued_s, queued_s + run_s

    def route(self, lease: Lease, section: FetchSection, claimed: float, *, has_secrets: bool) -> HandRoute | None:
        """The hand for a request that is being claimed; None if this process must make it, or has to wait. The task's
        deadline counts from `claimed`, which is the time in the request log: a later one would outlive what a restart
        waits for.
        """
        hands = self._dispatcher.hands()
        if not hands or self._dispatcher.trouble() or (has_secrets and not self._dispatcher.is_private):
            return None
        hand = self._routing.choose(urls.host_of(lease.url), hands, claimed, keep=has_secrets)
        if not hand:
            return None
        self._routes[lease.item] = hand, claimed
        self._routing.out[hand] += 1
        _, lasts_s = self.times(section)
        return HandRoute(hand, lasts_s, lasts_s + LOST_S)

    def routed(self, tag: object) -> tuple[str, float] | None:
        """The hand that a claimed request was routed to, and when; can be read once."""
        return self._routes.pop(tag.item, None) if isinstance(tag, Lease) else None

    def unroute(self, hand: str) -> None:
        """Cancels a route: the request is not sent to its hand after all."""
        self._routing.out[hand] -= 1

    def may_have(self, headers: Sequence[tuple[str, str]], body: bytes | None) -> bool:
        """Whether hands may get a request: one that may contain a secret only if no stranger can read it."""
        is_plain = body is None and all(name.lower() in HARMLESS for name, _ in headers)
        return is_plain or self._dispatcher.is_private

    def submit(
        self, owner: Waiter, request: RemoteRequest, tag: Lease, hand: str, claimed: float, section: FetchSection,
        settings: dict[str, object],
    ) -> None:  # fmt: skip
        """Submits a request to a hand, sent with the next `flush`."""
        queued_s, lasts_s = self.times(section)
        flight = RemoteFlight(
            request, tag, tag.key, hand, owner, settings, self._clock(), claimed + queued_s, claimed + lasts_s
        )  # fmt: skip
        self._pending.setdefault(hand, []).append(flight)

    def flush(self) -> None:
        """Sends submitted requests in as few tasks as possible; routed requests that were not submitted are dropped."""
        for hand, _ in self._routes.values():
            self._routing.out[hand] -= 1
        self._routes.clear()
        if not self._pending:
            return
        pending, self._pending = self._pending, {}
        gone = pending.keys() - self._dispatcher.hands().keys()
        for hand, flights in pending.items():
            if hand in gone:
                for flight in flights:
                    self._end(flight, flight.failed("unasked", "its worker is gone", self._clock(), was_sent=False))
                continue
            for batch in _batches(flights):
                self._send(hand, batch)

    def abort(self, tag: object) -> None:
        """Ends the requests with a tag. A hand may still send its requests until their deadline, which counts as their
        end.
        """
        for hand, flights in self._pending.items():
            for flight in [one for one in flights if one.tag is tag or one.tag == tag]:
                self._pending[hand].remove(flight)
                self._end(flight, flight.failed("aborted", "by the caller", self._clock(), was_sent=False))
        for id_, flight in list(self._out.items()):
            if flight.tag is tag or flight.tag == tag:
                del self._out[id_]
                self._end(flight, flight.failed("aborted", "by the caller", flight.deadline, was_sent=True))

    def collect(self) -> None:
        """Passes arrived results to their submitters, and ends overdue requests."""
        for arrival in self._dispatcher.arrivals():
            flight = self._out.get(arrival.result.id)
            if flight is None or flight.hand != arrival.result.hand:
                self._dispatcher.count("fetch:refused:unexpected_result")
                continue
            del self._out[arrival.result.id]
            self._arrived(flight, arrival)
        if (now := self._clock()) >= self._next_check:
            self._next_check = now + CHECK_S
            self._end_overdue(now)
            self._routing.forget_all_but(self._dispatcher.hands())

    def failures(self) -> dict[tuple[str, str], int]:
        """Failures by hand and kind."""
        return dict(self._routing.failures)

    def close(self) -> None:
        """Closes the pool; pending tasks are not waited for."""
        self._dispatcher.close()

    def _send(self, hand: str, batch: list[RemoteFlight]) -> None:
        for flight in batch:
            self._out[flight.request.id] = flight
        first = batch[0]
        requests = tuple(flight.request for flight in batch)
        start_by = min(flight.start_by for flight in batch)
        run_s = first.deadline - first.start_by
        most, is_shared = self._section.bytes_, bool(self._section.shared_dir)
        margin_s = self._section.hand_slack_s / MARGIN

        def make(slot: str, epoch: int) -> FetchTask:
            ids = tuple(request.id for request in requests)
            return FetchTask(slot, epoch, ids, requests, dict(first.settings), run_s, most, is_shared, margin_s)

        self._dispatcher.task(make, hand, start_by)

    def _end_overdue(self, now: float) -> None:
        grace_s = min(GRACE_S, self._section.hand_slack_s / MARGIN)
        for id_, flight in [(id_, one) for id_, one in self._out.items() if one.deadline + grace_s <= now]:
            del self._out[id_]
            self._lost(flight, now)

    def _arrived(self, flight: RemoteFlight, arrival: RemoteArrival) -> None:
        result, hand, now = arrival.result, flight.hand, self._clock()
        body: Body | None = arrival.body
        if body is None:
            self._lost(flight, now, "its body was lost")
            return
        answer = fetch_result(result, flight.request.url, body, arrival.at, flight.sent)
        if result.error == LATE:
            self._routing.lost(hand, LATE, now)
            answer = flight.failed("unasked", f"worker {hand} had no time for it", now, was_sent=False)
        elif result.status:
            self._routing.reached(hand, flight.host, now)
        elif result.error in HAND_ERRORS and not self._routing.is_sites_fault(hand, flight.host, now):
            self._routing.failed(hand, result.error or "", now)
            detail = f"worker {hand}: {result.error}: {result.detail}"
            answer = flight.failed("hand", detail, answer.ended, was_sent=result.was_sent)
        self._end(flight, answer)

    def _lost(self, flight: RemoteFlight, now: float, why: str = "no result until its deadline") -> None:
        self._routing.lost(flight.hand, "lost", now)
        log.warning("a worker has lost a request", hand=flight.hand, url=flight.request.url, why=why)
        error = "lost" if self._count_loss(flight.tag) <= LOSSES else "hand"
        self._end(flight, flight.failed(error, f"worker {flight.hand}: {why}", flight.deadline, was_sent=True))

    def _count_loss(self, tag: object) -> int:
        """How often the request of a lease was lost, with this time."""
        item = tag.item if isinstance(tag, Lease) else tag
        self._losses[item] = losses = self._losses.pop(item, 0) + 1
        if len(self._losses) > ITEMS_KEPT:
            self._losses.popitem(last=False)
        return losses

    def _end(self, flight: RemoteFlight, result: FetchResult) -> None:
        self._routing.out[flight.hand] -= 1
        flight.owner.done.append((flight.tag, result))


def _batches(flights: list[RemoteFlight]) -> list[list[RemoteFlight]]:
    """Tasks of requests with the same settings, no two of one politeness key; a request other than GET has a task of
    its own.
    """
    batches = list[list[RemoteFlight]]()
    open_of = dict[int, list[list[RemoteFlight]]]()
    for flight in flights:
        if flight.request.method or flight.request.body is not None:
            batches.append([flight])
            continue
        mine = open_of.setdefault(id(flight.settings), [])
        for batch in mine:
            if len(batch) < BATCH and all(other.key != flight.key for other in batch):
                batch.append(flight)
                break
        else:
            mine.append([flight])
            batches.append(mine[-1])
    return batches
