"""Notices of an engine to its subscribers: that something was committed, and a crawl's snapshot; never the rows.

Subscribers read those from the index. A notice that is not sent yet is replaced by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft.engine.process.channel import ChannelServer, Peer


class NoticeSender:
    """Sends notices to all subscribers of a server. A topic is a crawl's name, or None for all crawls."""

    def __init__(
        self,
        number_of: Callable[[str], int | None],
        last_number: Callable[[int], int],
        standing: Callable[[int], object],
    ) -> None:
        """`number_of` a name; the `last_number` that was committed of a crawl; its `standing`."""
        self._number_of = number_of
        self._last_number = last_number
        self._standing = standing
        self._last_sent: dict[
            Peer, int
        ] = {}  # by subscriber: the last batch, or number of its crawl, in a notice to it

    def send_commit(self, server: ChannelServer, batch: int) -> None:
        """After a commit: sends the batch's number to subscribers of all crawls, a snapshot to those of one."""
        for peer in server.subscribers:
            if peer.topic is None:
                if self._last_sent.get(peer) != batch:
                    self._last_sent[peer] = batch
                    server.notify(peer, batch)
            elif (number := self._number_of(peer.topic)) is not None:
                last = self._last_number(number)
                if self._last_sent.get(peer) != last:
                    self._last_sent[peer] = last
                    server.notify(peer, self._standing(number))
        if len(self._last_sent) > 2 * len(server.subscribers) + 16:
            there = set(server.subscribers)
            self._last_sent = {peer: last for peer, last in self._last_sent.items() if peer in there}

    def send_changes(self, server: ChannelServer, crawls: Collection[int]) -> None:
        """Sends the changed snapshots of these crawls to their subscribers."""
        for peer in server.subscribers:
            number = self._number_of(peer.topic) if peer.topic is not None else None
            if number is not None and number in crawls:
                server.notify(peer, self._standing(number))
