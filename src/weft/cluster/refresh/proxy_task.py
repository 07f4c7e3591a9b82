"""The task of the queue `proxies`: a chunk of a refresh is tested, and its verdicts are kept on the broker.

    weft:{cluster}:refresh:{job}:chunk:{number}   what a chunk has shown, signed; SET NX; time to live REFRESH_S

The first verdicts of a chunk count: one whose hand died after it had kept them, and before Celery knew, is not tested
again. Nothing is raised for what a hand cannot test, because a chord whose member raises never calls back: the error is
the result.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.cluster.broker import Broker
from weft.cluster.chunk_progress import RedisProgress
from weft.cluster.signing import RefusedMessage, Signer
from weft.cluster.tasks import HandSide
from weft.config import FetchSection, ProxySection
from weft.engine.transports.transports import address_refusal
from weft.errors import WeftError
from weft.fetch.proxies.entry import Proxy
from weft.fetch.proxies.probe import Probe
from weft.fetch.proxies.refresh import KIND
from weft.fetch.proxies.tally import ProxyTally
from weft.telemetry import Log

REFRESH_S = 6 * 3600  # what is kept of a refresh on the broker
CHUNK = "proxies-chunk"  # what its signature is for
log = Log("weft.cluster.refresh.proxy_task")


class ChunkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a task."""

    job: str
    number: int
    proxies: tuple[Proxy, ...]
    section: ProxySection
    fetch: FetchSection


class ChunkOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of it."""

    number: int
    tally: ProxyTally
    hand: str
    error: str = ""  # it could not be tested


class KeptChunks:
    """The chunks of one refresh, on the broker."""

    def __init__(self, broker: Broker, signer: Signer, job: str) -> None:
        self._broker, self._signer, self._job = broker, signer, job

    def put(self, chunk: ChunkOutcome) -> bool:
        """Keeps one; False if there is one already."""
        now = self._broker.now_ms()
        body = {"job": self._job, "chunk": msgspec.to_builtins(chunk)}
        text = self._signer.sign(CHUNK, body, made_ms=now, until_ms=now + REFRESH_S * 1000)
        with self._broker.asking():
            return bool(self._broker.client.set(self._key(chunk.number), text, nx=True, ex=REFRESH_S))

    def get(self, number: int) -> ChunkOutcome | None:
        """One; None if it is not there, or is not signed."""
        with self._broker.asking():
            stored: Any = self._broker.client.get(self._key(number))
        if stored is None:
            return None
        try:
            body = self._signer.verify(stored.decode("utf-8", "replace"), CHUNK).body
            chunk = msgspec.convert(body["chunk"], ChunkOutcome)
        except (RefusedMessage, msgspec.ValidationError, KeyError, AttributeError):
            return None
        return chunk if body.get("job") == self._job and chunk.number == number else None

    def _key(self, number: int) -> str:
        return self._broker.key(f"refresh:{self._job}:chunk:{number}")


def run(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """Tests a chunk; the result says how many, or why not."""
    order = msgspec.convert(body, ChunkOrder)
    kept = KeptChunks(side.broker, side.signer, order.job)
    chunk = kept.get(order.number)
    if chunk is None:
        chunk = _tested(order, side.hand)
        if kept.put(chunk):
            progress = RedisProgress(side.broker)
            progress.complete_chunk(KIND, order.job, len(chunk.tally.passed))
    return {
        "chunk": order.number,
        "tested": chunk.tally.tested,
        "passed": len(chunk.tally.passed),
        "error": chunk.error,
    }


def _tested(order: ChunkOrder, hand: str) -> ChunkOutcome:
    tally = ProxyTally()
    try:
        probe = Probe(order.section, order.fetch, address_refusal(order.fetch))
        expected = probe.expect()
        for verdict in probe.run(order.proxies, expected):
            tally.add(verdict)
        tally.answers = expected.answers
    except Exception as error:  # whatever it is, the chord must be called back
        log.warning("a chunk of proxies could not be tested", job=order.job, chunk=order.number, why=error)
        known = isinstance(error, WeftError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        return ChunkOutcome(number=order.number, tally=ProxyTally(), hand=hand, error=text[:500])
    return ChunkOutcome(number=order.number, tally=tally, hand=hand)
