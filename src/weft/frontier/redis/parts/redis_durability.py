"""Durability of a process of a pod on Redis. The server syncs its own file every second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.requests import RequestLog


class RedisDurability:
    """See the contract."""

    def __init__(
        self,
        link: PodLink,
        slot: str,
        requests: RequestLog,
        shelf: SharedRecords,
        sync_outbox: Callable[[], None] | None = None,
    ) -> None:
        self._link = link
        self._slot = slot
        self._requests = requests
        self._shared_records = shelf
        self._sync_outbox = sync_outbox
        acknowledged: Any = link.run_command("HGET", "slots", slot)
        self.acknowledged = int(acknowledged or 0)

    def commit(self) -> None:
        """Writes the logs, and sends the deferred calls."""
        self._requests.flush()
        self._shared_records.commit()
        self._link.send_deferred()

    def sync(self) -> None:
        """Makes this node's files safe against a power cut."""
        self._requests.sync()
        self._shared_records.sync()
        if self._sync_outbox is not None:
            self._sync_outbox()

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable: their prepared items have ended."""
        self.acknowledged = batch
        self._link.scripts.defer("acknowledge", lambda: [self._slot, batch])

    def knows_finished(self) -> Callable[[int], bool] | None:
        """None: the server forgets finished items."""
        return None
