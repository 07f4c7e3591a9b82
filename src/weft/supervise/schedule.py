"""Recurring times: a cron line in a time zone. Pure: times in, times out.

When a clock is set forward, times in the skipped hour occur right after it; when it is set back, times in the repeated
hour occur once (a line with `*` hours continues through both).
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from weft.errors import BadInput

WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
LONGEST_LINE = 200


class Schedule(Struct, frozen=True):
    """A schedule that `schedule_of` has checked."""

    line: str
    zone: str = "UTC"

    def after(self, moment: float) -> float:
        """The first scheduled time after a time of the wall clock."""
        next_s = _after(self.line, self.zone, moment)
        assert next_s is not None  # it fires: `schedule_of` has checked that
        return next_s


def schedule_of(line: str, zone: str = "UTC", now: float = 0.0) -> Schedule:
    """The schedule of a cron line; BadInput for an invalid one, or one that never fires after `now`."""
    fields = WORDS.get(line.strip(), line).split()
    if len(line) > LONGEST_LINE or len(fields) != 5:
        raise BadInput(
            f"schedule: {line[:LONGEST_LINE]!r} is no cron line; write five fields, minute hour day month weekday, "
            f"like '30 2 * * mon', or one of {', '.join(WORDS)}"
        )
    check_zone(zone)
    schedule = Schedule(line.strip(), zone)
    try:
        first_s = _after(schedule.line, zone, now)
    except CronSimError as error:
        raise BadInput(f"schedule: {line!r} is no cron line that ever fires: {str(error).lower()}") from None
    if first_s is None:
        raise BadInput(f"schedule: {line!r} is no cron line that ever fires: there is no such day")
    return schedule


def check_zone(zone: str) -> None:
    """BadInput for an unknown time zone."""
    try:
        _zone(zone)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a folder's name an OSError
        raise BadInput(f"timezone: {zone!r} is not known; write one like 'Europe/Berlin', or 'UTC'") from None


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _after(line: str, zone: str, moment: float) -> float | None:
    """The next time, or None if it does not fire within fifty years."""
    start = datetime.fromtimestamp(moment, UTC).astimezone(_zone(zone))
    for due in CronSim(WORDS.get(line, line), start):
        at = due.timestamp()
        if at > moment:  # in a repeated hour the library may return a time that has passed
            return at
    return None
