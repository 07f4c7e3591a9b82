"""Named strings that are stored with a pod, and scope extensions by redirects of seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.shelf import SharedRecords


class RedisNotes:
    """See the contract."""

    def __init__(
        self, link: PodLink, shelf: SharedRecords | None = None, elsewhere: Callable[[int, str], None] | None = None
    ) -> None:
        """`shelf`: the file for commands that read files only; None: the pod is another's. `elsewhere` extends the
        scope in the other pods."""
        self._link = link
        self._shared_records = shelf
        self._extend_elsewhere = elsewhere

    def note(self, name: str, value: str | None = None) -> str:
        """A string by name; a given value is stored, and an empty one deletes it."""
        if value is None:
            kept: Any = self._link.run_command("HGET", "meta", name)
            return kept.decode() if kept else ""
        self._link.run_command("HSET", "meta", name, value) if value else self._link.run_command("HDEL", "meta", name)
        return value

    def scope_extended(self, crawl: int, url: str) -> None:
        """Recorded with the crawl in every pod, for all processes."""
        self._link.run_command("SADD", f"scope:{crawl}", url)
        if self._shared_records is not None:
            self._shared_records.save_scope(crawl, self.scope_extensions(crawl))
        if self._extend_elsewhere is not None:
            self._extend_elsewhere(crawl, url)

    def scope_extensions(self, crawl: int) -> list[str]:
        """The URLs by which redirects of seeds extended the scope."""
        return sorted(member.decode() for member in self._link.run_command("SMEMBERS", f"scope:{crawl}"))
