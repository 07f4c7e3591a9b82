"""How far jobs of several chunks are, as keys in Redis that any process may read.

    {kind}:{job}:status            DISPATCHED, PROCESSING, COMPLETE or FAILED
    {kind}:{job}:total_chunks      written once they are known
    {kind}:{job}:completed_chunks  counted up by the process that completes one
    {kind}:{job}:result_count      counted up with them; at the end what has come of all
    {kind}:{job}:started_at, {kind}:{job}:completed_at    ISO 8601

`kind` is `proxy_refresh`, or `scrape_{site}` for a site's run. Every key has a time to live, which each write renews: a
job that no process ends is forgotten. Invariant: nothing that decides what is stored is read from here; a job whose
keys are lost is followed by another signal (see `following`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from weft.cluster.broker import Broker
from weft.config import ClusterSection

DISPATCHED, PROCESSING, COMPLETE, FAILED = "DISPATCHED", "PROCESSING", "COMPLETE", "FAILED"
ENDED = (COMPLETE, FAILED)
TTL_S = 24 * 3600
_COUNTS = ("total_chunks", "completed_chunks", "result_count")
_TEXTS = ("status", "started_at", "completed_at")
_LONGEST = 200  # of a value that a stranger may have written


class ChunkProgress(Struct, frozen=True, kw_only=True):
    """The keys of one job."""

    status: str = DISPATCHED
    total_chunks: int = 0
    completed_chunks: int = 0
    result_count: int = 0
    started_at: str | None = None
    completed_at: str | None = None

    @property
    def has_ended(self) -> bool:
        """Nothing more will happen to it."""
        return self.status in ENDED


class FollowLimits(Struct, frozen=True, kw_only=True):
    """The time limits of the configuration, and how many workers share the chunks."""

    chunk_s: float = 60.0
    margin: float = 2.0
    poll_s: float = 15.0
    unknown_s: float = 1800.0

    def seconds(self, chunks: int, workers: int) -> float:
        """For this many chunks."""
        return math.ceil(chunks / max(1, workers)) * self.chunk_s * self.margin


def limits_of(section: ClusterSection) -> FollowLimits:
    """Those of the settings."""
    return FollowLimits(
        chunk_s=section.chunk_s, margin=section.wait_margin, poll_s=section.poll_s, unknown_s=section.unknown_s
    )


class RedisProgress:
    """Reads and writes them; ServerAway while the server does not answer. Safe under threads, as the client is."""

    def __init__(self, broker: Broker, ttl_s: float = TTL_S) -> None:
        self._broker, self._client = broker, broker.client
        self._ttl_s = max(1, int(ttl_s))

    def put(self, kind: str, job_id: str, values: Mapping[str, Any]) -> None:
        """Writes some of a job's values; None deletes one."""
        with self._broker.asking(), self._client.pipeline() as batch:
            for name, value in values.items():
                key = f"{kind}:{job_id}:{name}"
                batch.delete(key) if value is None else batch.set(key, str(value), ex=self._ttl_s)
            batch.execute()

    def begin(self, kind: str, job_id: str, at: str = "") -> None:
        """A job was dispatched."""
        self.put(kind, job_id, {
            "status": DISPATCHED, "started_at": at or now(), "completed_at": None, "completed_chunks": 0,
            "result_count": 0,
        })  # fmt: skip

    def complete_chunk(self, kind: str, job_id: str, results: int) -> None:
        """One more chunk, with what came of it. Once for each: the caller knows that it is the first."""
        with self._broker.asking(), self._client.pipeline() as batch:
            for name, count in (("completed_chunks", 1), ("result_count", results)):
                batch.incrby(f"{kind}:{job_id}:{name}", count)
            for name in (*_COUNTS, *_TEXTS):
                batch.expire(f"{kind}:{job_id}:{name}", self._ttl_s)
            batch.execute()

    def end(self, kind: str, job_id: str, status: str, result_count: int, chunks: int | None = None) -> None:
        """It is over. `chunks`: how many are complete, where that is known better than by counting: a worker that dies
        between keeping a chunk and counting it leaves the count one short."""
        values = {"status": status, "result_count": result_count, "completed_at": now()}
        self.put(kind, job_id, values if chunks is None else values | {"completed_chunks": chunks})

    def read(self, kind: str, job_id: str) -> ChunkProgress | None:
        """How far it is; None where nothing is known of it, or what is there can be no progress."""
        with self._broker.asking():
            stored: Any = self._client.mget([f"{kind}:{job_id}:{name}" for name in (*_COUNTS, *_TEXTS)])
        values = dict(zip((*_COUNTS, *_TEXTS), stored, strict=True))
        if values["status"] is None:
            return None
        texts = {name: _text(values[name]) for name in _TEXTS if values[name] is not None}
        if texts["status"] not in (DISPATCHED, PROCESSING, *ENDED):
            return None
        return ChunkProgress(**texts, **{name: _count(values[name]) for name in _COUNTS})  # type: ignore[arg-type]


def now() -> str:
    """The wall clock, as these keys have it."""
    return datetime.now(UTC).isoformat()


def _text(value: bytes) -> str:
    return value[:_LONGEST].decode("utf-8", "replace")


def _count(value: bytes | None) -> int:
    text = b"0" if value is None else value
    return int(text) if text.isdigit() and len(text) <= 15 else 0
