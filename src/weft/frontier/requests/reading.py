"""Reads a request log: all of it, or the end that a start needs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from weft.alive import Alive, silent
from weft.frontier.requests.log_packing import block_of_key
from weft.frontier.requests.packed_log import LogPart, PackedSegment, UnreadableLog
from weft.frontier.requests.request_lines import (
    BootLine,
    LogEvent,
    LogLine,
    LogOpening,
    LostLines,
    RequestStart,
    RobotsKnown,
    SettingsInForce,
    boot_id,
    parse_log_line,
    without_checksum,
)
from weft.frontier.requests.segments import Segment, deleted_from, segment_serial, segments_of

LONGEST_REQUEST_S = 600.0
_LINES_PER_HEARTBEAT = 1000  # lines between two heartbeats
_ROUNDING_S = 1e-3  # more than the error of rounding a time to the microsecond


class UnreadableLines(Struct):
    """The lines of a log that could not be read."""

    lines: int = 0
    files: list[str] = []  # that contain them


class RecentRequests(Struct):
    """The last requests that earlier processes logged."""

    # By key: the end of its last request in this boot. None: it had not ended; of one that a hand makes the end is then
    # its deadline, which may lie ahead.
    ended: dict[str, float | None] = {}
    unreadable: int = 0
    # A time from which sites without a known last request wait a full delay: an unreadable line may have been theirs.
    # None: every line could be read.
    unsure_at: float | None = None
    lasts_s: float = 0.0  # how long requests of an earlier boot may be under way at hands, at most


def last_requests(
    folder: Path, not_before: float, now: float, alive: Alive = silent, *, longest_delay_s: float = math.inf
) -> RecentRequests:
    """The sites' last requests. Those that ended before `not_before` (monotonic) may be left out, and those that ended
    longer ago than the longest delay of any crawl, and their own."""
    started: dict[int, tuple[str, float, float]] = {}
    running: dict[str, int] = {}
    at_hands: dict[str, float] = {}  # by key: the deadline of what a hand may still send
    recent = RecentRequests({})
    last = recent.ended
    hidden = False  # a line since the last opening could not be read
    is_of_this_boot = True  # a rotated file may not show it: otherwise it would be too old to matter
    for number, event in enumerate(_recent_lines(folder, not_before, now, longest_delay_s)):
        if number % _LINES_PER_HEARTBEAT == 0:
            alive()
        if event is None:
            recent.unreadable += 1
            hidden = True
        elif isinstance(event, BootLine):
            # Requests in flight in an earlier process have no end line; times of an earlier boot do not compare.
            started.clear()
            running.clear()
            is_of_this_boot = event.boot == boot_id()
            if not is_of_this_boot:
                last.clear()
                at_hands.clear()
                recent.unsure_at = None
            elif hidden:
                recent.unsure_at = min(event.at, now)  # the process that opened it then also waited from there
            hidden = False
        elif isinstance(event, RobotsKnown | SettingsInForce | LostLines) or not is_of_this_boot:
            if isinstance(event, RequestStart):
                recent.lasts_s = max(recent.lasts_s, event.lasts_s)
            continue  # its times are of another clock: they would be taken for waits, or for damage
        elif isinstance(event, RequestStart):
            started[event.item] = event.key, event.at, event.lasts_s
            running[event.key] = running.get(event.key, 0) + 1
            _note_start(event, last, at_hands)
        elif (ended := started.pop(event.item, None)) is not None:
            key, began, lasts_s = ended
            running[key] -= 1
            # What was given up is taken to last until its deadline.
            if not began - _ROUNDING_S <= event.at <= max(now, began + lasts_s) + _ROUNDING_S:
                # An impossible time. Trusting it could let a request go too early, or make the site wait for ever.
                recent.unreadable += 1
                hidden = True
            elif not running[key]:
                last[key] = event.at
                at_hands.pop(key, None)
    if hidden:
        recent.unsure_at = now
    for key, deadline in at_hands.items():
        # An unknown end of another request is now at the latest, because its process is gone; a hand is not.
        if (known := last[key]) is not None or deadline > now:
            last[key] = max(known or 0.0, deadline)
    return recent


def _note_start(request: RequestStart, last: dict[str, float | None], at_hands: dict[str, float]) -> None:
    """Records when a site's requests are over at the latest, if no end of this one is found."""
    if request.lasts_s:
        last.setdefault(request.key, 0.0)
        at_hands[request.key] = max(at_hands.get(request.key, 0.0), request.at + request.lasts_s)
    else:
        last[request.key] = None


def missing_bytes(folder: Path, place: tuple[str, int] | None) -> int:
    """How many bytes a log has lost since its size was recorded (`RequestLog.place`)."""
    if place is None:
        return 0
    path, size = folder / place[0], place[1]
    for _ in range(2):  # a file may be packed between the two checks
        if path.exists():
            return max(0, size - path.stat().st_size)
        try:
            return max(0, size - PackedSegment(path.with_suffix(".packed")).raw_bytes)
        except FileNotFoundError:
            continue
        except UnreadableLog:
            return size
    try:
        return 0 if segment_serial(path) <= deleted_from(folder).through else size
    except UnreadableLog:
        return size


def read_events(folder: Path, gaps: UnreadableLines | None = None) -> Iterator[LogEvent]:
    """The whole log in chronological order; the logs of several slots lie in folders of their own.

    Between two openings packed requests of different sites are in the order of their times. `gaps` counts the lines
    that could not be read.
    """
    slots = slots_of(folder)
    order = boot_numbers(_read_boots(path) for path in slots.values())
    gaps = UnreadableLines() if gaps is None else gaps
    streams = (with_boot_times(_read_counting_gaps(path, slot, gaps), order, slot) for slot, path in slots.items())
    yield from merge_slots(streams)


def read_site(folder: Path, key: str | None) -> Iterator[LogEvent]:
    """The readable requests to one site; None: to all sites."""
    if key is None:
        yield from read_events(folder)
        return
    slots = slots_of(folder)
    order = boot_numbers(_read_boots(path) for path in slots.values())
    yield from merge_slots(with_boot_times(_site_lines(path, slot, key), order, slot) for slot, path in slots.items())


def slots_of(folder: Path) -> dict[str, Path]:
    """The folders of the logs of a pod's slots; a pod without slots has one log."""
    return {"": folder} | {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}


def merge_slots(streams: Iterable[Iterator[tuple[tuple[int, float], LogEvent]]]) -> Iterator[LogEvent]:
    """The events of several slots by their boots and times; an opening states whether its boot is new."""
    boot = -1
    for (at, _), event in heapq.merge(*streams, key=_sort_key):
        if not isinstance(event, LogOpening):
            yield event
            continue
        yield LogOpening(at != boot, event.slot, event.revision)
        boot = at


def boot_numbers(logs: Iterable[Iterable[BootLine]]) -> dict[str, int]:
    """The boots that occur in some logs, numbered in their order.

    Each log has its boots in order. The wall clock, which may have been wrong, decides only between boots that no log
    has both of.
    """
    orders, first = list[list[str]](), dict[str, float]()
    for boots in logs:
        order = dict[str, None]()
        for event in boots:
            order[event.boot] = None
            first[event.boot] = min(event.wall, first.get(event.boot, math.inf))
        orders.append(list(order))
    numbers = dict[str, int]()
    while orders := [rest for order in orders if (rest := [boot for boot in order if boot not in numbers])]:
        heads = {order[0] for order in orders}
        behind = {boot for order in orders for boot in order[1:]}
        numbers[min(heads - behind or heads, key=first.__getitem__)] = len(numbers)
    return numbers


def with_boot_times(
    lines: Iterable[LogLine], boots: dict[str, int], slot: str
) -> Iterator[tuple[tuple[int, float], LogEvent]]:
    """One log's events, each with its boot and a time that never decreases: the latest time so far."""
    boot, latest = 0, 0.0
    for event in lines:
        if isinstance(event, BootLine):
            latest = event.at if boots[event.boot] != boot else max(latest, event.at)
            boot = boots[event.boot]
            yield (boot, latest), LogOpening(False, slot, event.revision)
            continue
        if event.at > latest:
            latest = event.at
        yield (boot, latest), event


def _sort_key(event: tuple[tuple[int, float], LogEvent]) -> tuple[int, float]:
    return event[0]


def _read_boots(folder: Path) -> Iterator[BootLine]:
    for segment in segments_of(folder):
        if segment.packed is None:
            yield from (event for event in _parse_segment(segment, prefix=b"B\t") if isinstance(event, BootLine))
            continue
        try:
            for part in PackedSegment(segment.packed).parts:
                yield from part.index.boots
        except UnreadableLog:
            continue


def _read_counting_gaps(folder: Path, slot: str, gaps: UnreadableLines) -> Iterator[LogLine]:
    """One log's lines; those that cannot be read are counted."""
    for segment in segments_of(folder):
        for event in _parse_segment(segment, slot):
            if event is not None:
                yield event
                continue
            gaps.lines += 1
            if str(segment.path) not in gaps.files:
                gaps.files.append(str(segment.path))


def _parse_segment(segment: Segment, slot: str = "", prefix: bytes = b"") -> Iterator[LogLine | None]:
    """The parsed lines of one file, or those with a prefix; None for a line that is damaged or incomplete, and for
    damage in a packed file.
    """
    if segment.packed is None or not segment.packed.exists():
        try:
            yield from _plain_lines(segment, slot, prefix)
            return
        except FileNotFoundError:
            segment = _packed_meanwhile(segment)
    try:
        assert segment.packed is not None
        for part in PackedSegment(segment.packed).parts:
            yield from part.lines_in_order(slot)
    except UnreadableLog:
        yield None
    except FileNotFoundError:
        return  # retention has deleted it


def _packed_meanwhile(segment: Segment) -> Segment:
    """The packed file of a segment that a thread of its writer has packed since it was listed."""
    assert segment.plain is not None
    return Segment(segment.serial, None, segment.plain.with_suffix(".packed"))


def _site_lines(folder: Path, slot: str, key: str) -> Iterator[LogLine]:
    """One log's requests to a site, and its openings."""
    for segment in segments_of(folder):
        if segment.packed is None or not segment.packed.exists():
            try:
                yield from _plain_site_lines(segment, slot, key)
                continue
            except FileNotFoundError:
                segment = _packed_meanwhile(segment)
        with suppress(UnreadableLog, FileNotFoundError):
            assert segment.packed is not None
            for part in PackedSegment(segment.packed).parts:
                yield from part.events(block_of_key(key.encode()), slot, lambda one, _: one == key)


def _plain_site_lines(segment: Segment, slot: str, key: str) -> Iterator[LogLine]:
    assert segment.plain is not None
    needle, items = f"\t{key}\t".encode(), set[bytes]()
    with segment.plain.open("rb") as file:
        for line in file:
            kind, _, rest = line.partition(b"\t")
            item = rest.partition(b"\t")[0]
            if kind == b"S" and needle in line:
                items.add(item)
            elif kind == b"S" or (kind == b"E" and item not in items):
                continue
            text = without_checksum(line)
            if text is not None and (event := parse_log_line(text, slot)) is not None:
                yield event


def _plain_lines(segment: Segment, slot: str, prefix: bytes) -> Iterator[LogLine | None]:
    assert segment.plain is not None
    with segment.plain.open("rb") as file:
        for line in file:
            if prefix and not line.startswith(prefix):
                continue
            text = without_checksum(line)
            yield None if text is None else parse_log_line(text, slot)


def _recent_lines(folder: Path, not_before: float, now: float, longest_delay_s: float) -> Iterator[LogLine | None]:
    """The lines of the newest files, from a little before the given time on; each site's in their order. Parts in which
    no site has a wait left contribute only the requests still in flight at their end.
    """
    old, is_behind_read = list[LogPart](), False
    in_flight_since = now - longest_delay_s - LONGEST_REQUEST_S
    for entry in _recent_entries(folder, not_before, in_flight_since):
        # The part after one that is read must be read, too: it has the ends of requests in flight.
        if isinstance(entry, LogPart) and not is_behind_read and _are_requests_over(entry, now, longest_delay_s):
            old.append(entry)
            continue
        yield from _open_at_end(old, in_flight_since)
        old.clear()
        is_behind_read = not (isinstance(entry, LogPart) and _are_requests_over(entry, now, longest_delay_s))
        try:
            yield from entry.requests("") if isinstance(entry, LogPart) else _parse_segment(entry)
        except UnreadableLog:
            yield None
    yield from _open_at_end(old, in_flight_since)


def _recent_entries(folder: Path, not_before: float, in_flight_since: float) -> list[Segment | LogPart]:
    """Files, or parts of packed ones, oldest first; of an earlier boot only the last one. Of those that do not record
    their range (written by an earlier Weft version), none older than the longest request.
    """
    newest_first = list[Segment | LogPart]()
    for segment in reversed(segments_of(folder)):
        parts: list[LogPart] | None = None
        if segment.packed is not None and segment.packed.exists():
            with suppress(UnreadableLog):
                parts = PackedSegment(segment.packed).parts
        if parts is None:
            newest_first.append(segment)
            boots = [line for line in _parse_segment(segment, prefix=b"B\t") if isinstance(line, BootLine)]
            if _first_time(segment) <= not_before or _is_of_another_boot(boots):
                break
            continue
        for part in reversed(parts):
            newest_first.append(part)
            begin = not_before if part.index.last_at is not None else max(not_before, in_flight_since)
            if _ends_before(part, begin) or _is_of_another_boot(part.index.boots):
                return newest_first[::-1]
    return newest_first[::-1]


def _is_of_another_boot(boots: Iterable[BootLine]) -> bool:
    """Whether earlier entries belong to another boot: their times do not compare, and no site waits for them
    any more.
    """
    return any(boot.boot != boot_id() for boot in boots)


def _are_requests_over(part: LogPart, now: float, longest_delay_s: float) -> bool:
    last_at = part.index.last_at
    return last_at is not None and last_at + max(longest_delay_s, part.index.longest_delay_s) <= now


def _open_at_end(parts: list[LogPart], not_before: float) -> Iterator[LogLine | None]:
    """The openings of some parts, one after the other, and the starts of the requests without an end in them."""
    for part in parts:
        yield from part.index.boots
    try:
        opened = parts[-1].open_requests() if parts else {}
        for part in reversed(parts):
            if not opened or (part.index.last_at or 0.0) < not_before:
                return
            for bucket in {*opened.values()}:
                wanted = {item for item, at in opened.items() if at == bucket}
                for start in part.starts_of(bucket, wanted):
                    del opened[start.item]
                    yield start
    except UnreadableLog:
        yield None


def _ends_before(part: LogPart, at: float) -> bool:
    return part.index.first_at is not None and part.index.first_at <= at


def _first_time(segment: Segment) -> float:
    """The time of a file's first readable line; infinite if there is none, so that older files are read as well."""
    if segment.packed is not None:
        try:
            at = PackedSegment(segment.packed).parts[0].index.first_at
        except UnreadableLog:
            at = None
        return math.inf if at is None else at
    return next((event.at for event in _parse_segment(segment) if event is not None), math.inf)
