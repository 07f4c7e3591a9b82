"""The processes of a pod on Redis, as its orchestrator registers them: which exist, and what dead ones held."""

from __future__ import annotations

from collections.abc import Iterable

from weft.frontier.redis.link import OwnPodLink
from weft.frontier.redis.parts.held import HeldLeases
from weft.frontier.requests import RequestLog


class PodProcesses:
    """The registry of a pod's processes; see the module."""

    def __init__(self, link: OwnPodLink, held: HeldLeases, requests: RequestLog) -> None:
        self._link = link
        self._held = held
        self._requests = requests

    def assign_slots(self, slots: Iterable[str]) -> None:
        """Sets the slots that this pod has from now on; recovery does not wait for others.

        If this opening has detected a loss, all of them have to report: the server may have lost the list.
        """
        self._link.run_command("DEL", "crew")
        self._link.run_command("SADD", "crew", *slots)
        if self._link.has_lost_data:
            self._link.run_command("SUNIONSTORE", "settling", "crew")
        else:
            self._link.run_command("SINTERSTORE", "settling", "settling", "crew")

    def release_owner(self, owner: str, *, but: str = "") -> int:
        """Ends all leases of an owner (or of all incarnations of `slot#`); returns how many requests were in flight."""
        (in_flight,) = self._link.call_script("release", [owner, but])
        self._held.log_expired(in_flight)
        self._requests.flush()
        return len(in_flight)

    def report_again(self) -> None:
        """Makes every process of the pod restart, and report everything in its store, with the links of those pages."""
        self._link.renew_claim()
