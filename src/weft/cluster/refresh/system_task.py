"""The tasks of the queue `system`, which the supervisor's own worker alone consumes: what needs this machine's files.

    collect   the proxies of all sources, kept on the broker
    dispatch  cut into chunks: a chord of `proxies` tasks, which calls `publish` back
    publish   all verdicts together: live_proxies.json is replaced
    tick      a time of the scheduler's; claimed here, so that it runs once

    weft:{cluster}:refresh:{job}:found   what was collected, signed; SET NX; time to live REFRESH_S
    weft:{cluster}:refresh:{job}:done    what came of it, signed; SET NX
    weft:{cluster}:refresh:latest:{file} the job that was begun last: an older one does not publish any more
    weft:{cluster}:wanted                hash: what the supervisor is to begin; read and deleted by it

Each step may run twice, when its hand died before Celery knew that it had ended, and does its work once. What goes
wrong is the result, signed: the next step passes it on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from weft.cluster.application import make_application, queue_name
from weft.cluster.chunk_progress import COMPLETE, FAILED, PROCESSING, RedisProgress
from weft.cluster.dispatch import Cluster
from weft.cluster.refresh.proxy_task import REFRESH_S, ChunkOrder, ChunkOutcome, KeptChunks
from weft.cluster.signing import RefusedMessage
from weft.cluster.supervised.ticks import WANTED, Ticks
from weft.cluster.tasks import SYSTEM, HandSide, task_name
from weft.config import FetchSection, ProxySection
from weft.engine.process.channel import error_name
from weft.engine.transports.transports import address_refusal
from weft.errors import BadInput, WeftError
from weft.fetch.proxies import live as live_file
from weft.fetch.proxies.entry import Proxy
from weft.fetch.proxies.live import Live
from weft.fetch.proxies.refresh import KIND, Refresh, Refreshed, refreshed
from weft.fetch.proxies.sources import Collected
from weft.fetch.proxies.tally import ProxyTally, publish
from weft.telemetry import Log

FOUND, DONE = "refresh-found", "refresh-done"  # what signatures are for
MISSING_S = 100.0  # a chord that calls back too early: this long a chunk is waited for
POLL_S = 0.2
CHUNK_UNTIL_S = 3600.0
log = Log("weft.cluster.refresh.system_task")


class RefreshOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of the three steps of a refresh."""

    step: str
    job: str
    sources: tuple[str, ...]
    section: ProxySection
    fetch: FetchSection
    live: str
    chunk: int
    is_private: bool  # no stranger can read what goes over the broker

    def refresh(self) -> Refresh:
        """What is refreshed."""
        return Refresh(self.sources, self.section, self.fetch, address_refusal(self.fetch), Path(self.live))


class DoneRefresh(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a refresh; an error has the kind by which a caller decides what to do."""

    done: Refreshed | None = None
    error: str = ""
    error_kind: str = ""


class RefreshKeys:
    """What is kept of one refresh besides its chunks."""

    def __init__(self, side: HandSide | Cluster, order: RefreshOrder) -> None:
        self._broker, self._signer, self._job = side.broker, side.signer, order.job
        self._latest = self._broker.key(f"refresh:latest:{sha256(order.live.encode()).hexdigest()[:16]}")
        self.progress = RedisProgress(side.broker)

    def put(self, what: str, body: Mapping[str, Any]) -> bool:
        """Keeps it signed; False if it is there already."""
        now = self._broker.now_ms()
        signed = self._signer.sign(what, {"job": self._job, **body}, made_ms=now, until_ms=now + REFRESH_S * 1000)
        with self._broker.asking():
            return bool(self._broker.client.set(self._key(what), signed, nx=True, ex=REFRESH_S))

    def get(self, what: str) -> dict[str, Any] | None:
        """What was kept; None if it is not there, or is not ours."""
        with self._broker.asking():
            stored: Any = self._broker.client.get(self._key(what))
        if stored is None:
            return None
        try:
            body = self._signer.verify(stored.decode("utf-8", "replace"), what).body
        except (RefusedMessage, msgspec.DecodeError):
            return None
        return body if body.get("job") == self._job else None

    def collected(self) -> Collected | None:
        """What was collected."""
        body = self.get(FOUND)
        return None if body is None else msgspec.convert(body["found"], Collected)

    def done(self) -> DoneRefresh | None:
        """What came of it; None while it has not ended."""
        body = self.get(DONE)
        return None if body is None else msgspec.convert(body, DoneRefresh)

    def begin(self) -> None:
        """This is the latest refresh now."""
        with self._broker.asking():
            self._broker.client.set(self._latest, self._job, ex=REFRESH_S)

    @property
    def is_latest(self) -> bool:
        """No other was begun since."""
        with self._broker.asking():
            stored: Any = self._broker.client.get(self._latest)
        return stored is None or stored.decode("utf-8", "replace") == self._job

    def _key(self, what: str) -> str:
        return self._broker.key(f"refresh:{self._job}:{what.removeprefix('refresh-')}")


def run(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """Carries out one step; its result says what is wrong, if something is."""
    step = str(body.get("step", ""))
    if step == "tick":
        return _tick(body, side)
    if step not in _STEPS:
        raise BadInput(f"queue {SYSTEM!r}: no step {step[:50]!r}")
    order = msgspec.convert(body, RefreshOrder)
    keys = RefreshKeys(side, order)
    if (done := keys.done()) is not None:
        return _summary(order, done)
    try:
        return _STEPS[step](order, side, keys)
    except WeftError as error:
        return _failed(order, keys, DoneRefresh(error=str(error), error_kind=error_name(error)))
    except Exception as error:
        log.error("a step of a refresh failed", step=step, job=order.job, exc_info=True)
        return _failed(order, keys, DoneRefresh(error=f"{type(error).__name__}: {error}", error_kind="WeftError"))


def _tick(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """The supervisor begins a refresh: it holds the lock of its folder, and follows the job."""
    ticks = Ticks(side.broker)
    entry = str(body.get("entry", ""))[:50]
    if not ticks.claim(entry, int(body["tick"]), int(body["every"]), side.hand):
        return {"ran": False}
    if entry == KIND:
        with side.broker.asking():
            side.broker.client.hset(side.broker.key(WANTED), KIND, str(body["tick"]))
    return {"ran": True}


def _collect(order: RefreshOrder, side: HandSide, keys: RefreshKeys) -> dict[str, Any]:  # noqa: ARG001
    keys.begin()
    if keys.get(FOUND) is None:
        collected = order.refresh().collect()
        if not order.is_private and any(proxy.user or proxy.password for proxy in collected.proxies):
            raise BadInput("the proxies have logins, and others can read what goes to the broker: use rediss://")
        keys.put(FOUND, {"found": msgspec.to_builtins(collected)})
    return {"job_id": order.job}


def _dispatch(order: RefreshOrder, side: HandSide, keys: RefreshKeys) -> dict[str, Any]:
    collected = _collected(keys)
    chunks = [collected.proxies[at : at + order.chunk] for at in range(0, len(collected.proxies), order.chunk)]
    keys.progress.put(KIND, order.job, {"status": PROCESSING, "total_chunks": len(chunks)})
    app = make_application(side.broker.url, side.broker.cluster_id)
    now = side.broker.now_ms()
    until_ms = now + int(CHUNK_UNTIL_S * 1000)

    def signature(kind: str, body: object, task_id: str) -> Any:
        text = side.signer.sign(kind, msgspec.to_builtins(body), made_ms=now, until_ms=until_ms, id_=task_id)
        queue = queue_name(side.broker.cluster_id, kind)
        return app.signature(task_name(kind), args=[text], queue=queue, task_id=task_id)

    def test(number: int, proxies: list[Proxy]) -> Any:
        body = ChunkOrder(
            job=order.job, number=number, proxies=tuple(proxies), section=order.section, fetch=order.fetch
        )
        return signature("proxies", body, f"{order.job}-{number}")

    from celery import chord

    last = signature(SYSTEM, msgspec.structs.replace(order, step="publish"), chord_id(order.job))
    chord([test(number, proxies) for number, proxies in enumerate(chunks)], last, app=app).apply_async()
    log.info("chunks of proxies dispatched", job=order.job, chunks=len(chunks), proxies=len(collected.proxies))
    return {"job_id": order.job, "chord_id": chord_id(order.job), "total_chunks": len(chunks)}


def chord_id(job: str) -> str:
    """The id of the task that a refresh ends with."""
    return f"{job}-publish"


def _publish(order: RefreshOrder, side: HandSide, keys: RefreshKeys) -> dict[str, Any]:
    collected = _collected(keys)
    count = -(-len(collected.proxies) // order.chunk)
    outcomes = _outcomes(KeptChunks(side.broker, side.signer, order.job), count)
    tally, untested = ProxyTally(), dict[int, str]()
    for number in range(count):
        outcome = outcomes.get(number)
        if outcome is None or outcome.error:
            untested[number] = outcome.error if outcome is not None else "its worker died each time"
        else:
            tally.merge(outcome.tally)
    if not keys.is_latest:
        raise WeftError("another refresh was begun since: this one is not published")
    if len(untested) == count:
        raise BadInput(untested[0])
    kept = _as_before(order, collected, untested)
    publish(Path(order.live), tally, order.section.test_url, kept)
    done = refreshed(order.job, collected, tally)
    if untested:
        why = next(iter(untested.values()))
        text = f"{len(untested)} of {count} chunks could not be tested ({why}); their proxies stay as they were"
        return _failed(order, keys, DoneRefresh(done=done, error=text, error_kind="WeftError"))
    keys.put(DONE, msgspec.to_builtins(DoneRefresh(done=done)))
    keys.progress.end(KIND, order.job, COMPLETE, done.passed, count)
    return {"job_id": order.job, "passed": done.passed}


def _outcomes(kept: KeptChunks, count: int, clock: Callable[[], float] = time.monotonic) -> dict[int, ChunkOutcome]:
    """All that there are. Celery counts a member twice whose hand died after its result was stored: then the chord
    calls back while another is still at work."""
    until = clock() + MISSING_S
    outcomes: dict[int, ChunkOutcome] = {}
    while True:
        for number in range(count):
            if number not in outcomes and (outcome := kept.get(number)) is not None:
                outcomes[number] = outcome
        if len(outcomes) == count or clock() >= until:
            return outcomes
        time.sleep(POLL_S)


def _as_before(order: RefreshOrder, collected: Collected, untested: Mapping[int, str]) -> tuple[Live, ...]:
    """The live proxies among those that could not be tested."""
    size = order.chunk
    chunks = [collected.proxies[number * size : (number + 1) * size] for number in untested]
    urls = {proxy.url for chunk in chunks for proxy in chunk}
    before = live_file.read(Path(order.live)) if urls else None
    return tuple(one for one in (before.proxies if before is not None else ()) if one.url in urls)


def _collected(keys: RefreshKeys) -> Collected:
    if (collected := keys.collected()) is None:
        raise WeftError("what was collected is gone from the broker")
    return collected


def _failed(order: RefreshOrder, keys: RefreshKeys, done: DoneRefresh) -> dict[str, Any]:
    log.warning("a refresh failed", job=order.job, step=order.step, why=done.error)
    keys.put(DONE, msgspec.to_builtins(done))
    keys.progress.end(KIND, order.job, FAILED, done.done.passed if done.done is not None else 0)
    return {"job_id": order.job, "error": done.error}


def _summary(order: RefreshOrder, done: DoneRefresh) -> dict[str, Any]:
    """Of a refresh that has ended: this is a step that was delivered again, or follows one that failed."""
    passed = done.done.passed if done.done is not None else 0
    return {"job_id": order.job, "passed": passed} | ({"error": done.error} if done.error else {})


_STEPS: dict[str, Callable[[RefreshOrder, HandSide, RefreshKeys], dict[str, Any]]] = {
    "collect": _collect,
    "dispatch": _dispatch,
    "publish": _publish,
}
