"""Reads the requests of some sites from a log: the units into which `weft audit` divides its work.

A partition is a share of the politeness keys, by their hash; of each site it has all requests, in the order of the log
and over all files. Open files are packed first, into a folder that the caller deletes: from then on a log is a list of
parts (`packed`) for each slot, with a `LogLoss` where lines are known to be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf, log
from pathlib import Path

from msgspec import Struct

from weft.frontier.requests.log_packing import BUCKETS, share_of_key
from weft.frontier.requests.packed_log import LogPart, PackedSegment, PairFilter, UnreadableLog, WallRange
from weft.frontier.requests.reading import boot_numbers, merge_slots, slots_of, with_boot_times
from weft.frontier.requests.request_lines import BootLine, LogEvent, LogLine, LostLines, RequestStart
from weft.frontier.requests.segments import (
    DeletedRequests,
    Segment,
    deleted_from,
    open_requests_after,
    pack_segment,
    segments_of,
)

LONGEST_REQUEST_S = 3600.0  # how long before a range of time the search for requests without an end begins
MOST_CLOCK_CHANGE_S = 10.0  # by which the wall clock may have been set without hiding the requests before a range
_MAP_BYTES = 1 << 18


class PackedLogFile(Struct, frozen=True):
    """A packed file of a log; `why` is the reason if it cannot be read."""

    name: str  # of the file of the log, which may not be packed there
    path: str
    why: str = ""


class LogLoss(Struct, frozen=True, order=True):
    """Requests that cannot be judged: between which times of the wall clock, if known, and how many."""

    file: str
    since: float
    until: float
    requests: int | None
    why: str


class LogPartition(Struct, frozen=True):
    """Some sites, and a range of time. `hosts`: names; with `*.` in front also all names under them; empty: all.
    `before_s`: the longest delay, for which the requests before the range count.
    """

    bucket: int
    share: int = 0
    shares: int = 1
    hosts: tuple[str, ...] = ()
    since: float = -inf
    until: float = inf
    before_s: float = 0.0

    @property
    def span(self) -> WallRange:
        """The times of the wall clock of the requests that are read."""
        return self.since - self.before_s - MOST_CLOCK_CHANGE_S, self.until


def log_files(folder: Path, scratch: Path) -> dict[str, list[PackedLogFile]]:
    """The files of a pod's log by slot, each of which can be read in blocks: open ones are packed into `scratch`."""
    scratch.mkdir(parents=True)
    return {
        slot: _files_of_log(path, scratch / f"{at}") for at, (slot, path) in enumerate(slots_of(folder).items())
    }  # fmt: skip


def _files_of_log(folder: Path, scratch: Path) -> list[PackedLogFile]:
    files: list[PackedLogFile] = []
    try:
        expected = deleted_from(folder).through + 1
    except UnreadableLog as error:
        files.append(PackedLogFile(str(error.path), "", "the record of what was deleted is damaged"))
        expected = -1
    before: Segment | None = None
    for segment in segments_of(folder):
        if expected >= 0 and segment.serial > expected:
            number = segment.serial - expected
            files.append(PackedLogFile(str(folder), "", f"{number} files before {segment.path.name} are gone"))
        expected = segment.serial + 1
        segment = _packed_segment(segment, before, scratch)
        files.append(PackedLogFile(str(segment.plain or segment.packed), str(segment.packed)))
        before = segment
    return files


def _packed_segment(segment: Segment, before: Segment | None, scratch: Path) -> Segment:
    """A segment with a packed file; a damaged one is replaced by the plain file if that still exists."""
    if segment.packed is not None:
        try:
            PackedSegment(segment.packed)
        except (UnreadableLog, FileNotFoundError):
            if segment.plain is None:
                return segment
        else:
            return Segment(segment.serial, None, segment.packed)
    assert segment.plain is not None
    scratch.mkdir(exist_ok=True)
    out = scratch / f"{segment.plain.stem}.packed"
    try:
        pack_segment(segment.plain, out, open_requests_after(before))
    except FileNotFoundError:  # packed meanwhile by the process that writes the log
        return Segment(segment.serial, None, segment.plain.with_suffix(".packed"))
    return Segment(segment.serial, segment.plain, out)


class LogReader:
    """The log of one pod, as `log_files` has listed it. `losses` is filled while it is read."""

    def __init__(self, files: dict[str, list[PackedLogFile]]) -> None:
        self.losses: set[LogLoss] = set()
        self._slots: dict[str, list[LogPart | PackedLogFile]] = {}
        self._names: dict[int, str] = {}
        for slot, of_slot in files.items():
            entries = self._slots[slot] = []
            for file in of_slot:
                entries += self._open_file(file)
            self._note_losses(entries)
        logs = [[boot for part in self._parts_of_slot(slot) for boot in part.index.boots] for slot in self._slots]
        self._boots = boot_numbers(logs)

    def _open_file(self, file: PackedLogFile) -> Sequence[LogPart | PackedLogFile]:
        if file.why:
            return [file]
        try:
            parts = PackedSegment(Path(file.path)).parts
        except UnreadableLog:
            return [PackedLogFile(file.name, "", "its index is damaged")]
        except FileNotFoundError:
            return [PackedLogFile(file.name, "", "it was deleted while it was read")]
        self._names |= {id(part): file.name for part in parts}
        return parts

    def _note_losses(self, entries: Sequence[LogPart | PackedLogFile]) -> None:
        for at, entry in enumerate(entries):
            if isinstance(entry, PackedLogFile):
                before = [part.index.last_wall for part in entries[:at] if isinstance(part, LogPart)]
                after = [part.index.first_wall for part in entries[at:] if isinstance(part, LogPart)]
                since = max((wall for wall in before if wall is not None), default=-inf)
                until = min((wall for wall in after if wall is not None), default=inf)
                self.losses.add(LogLoss(entry.name, since, until, None, entry.why))

    def _parts_of_slot(self, slot: str) -> list[LogPart]:
        return [entry for entry in self._slots[slot] if isinstance(entry, LogPart)]

    def parts(self) -> list[LogPart]:
        """All readable parts."""
        return [part for slot in self._slots for part in self._parts_of_slot(slot)]

    def losses_in(self, since: float, until: float) -> set[LogLoss]:
        """The losses in a range of time."""
        return {loss for loss in self.losses if loss.until >= since and loss.since <= until}

    def file_of(self, part: LogPart) -> str:
        """The name of the log file that a part belongs to."""
        return self._names[id(part)]

    def longest_delay_s(self, since: float, until: float) -> float:
        """The longest delay of the requests of a range of time, as they were logged."""
        parts = self.parts_in_range(LogPartition(0, since=since, until=until))
        return max((part.index.longest_delay_s for part in parts), default=0.0)

    def sites_of(self, partition: LogPartition) -> int:
        """About how many sites a block has over all parts that are read: by linear counting, in constant memory."""
        seen = bytearray(_MAP_BYTES)
        for part in self.parts_in_range(partition):
            try:
                for key, _ in part.key_origin_pairs(partition.bucket):
                    seen[share_of_key(key.encode(), _MAP_BYTES)] = 1
            except UnreadableLog:
                continue
        taken = sum(seen)
        if taken == _MAP_BYTES:
            return 8 * _MAP_BYTES
        return round(-_MAP_BYTES * log(1 - taken / _MAP_BYTES))

    def blocks_with(self, hosts: Sequence[str], since: float, until: float) -> set[int]:
        """The blocks in which some hosts may occur: their sites may have other names, or be addresses."""
        names, blocks = _names_in(hosts), set[int]()
        for bucket in range(BUCKETS):
            for part in self.parts_in_range(LogPartition(bucket, since=since, until=until)):
                try:
                    is_there = part.mentions_any(bucket, names)
                except (UnreadableLog, FileNotFoundError):
                    is_there = True  # reported when its requests are read
                if is_there:
                    blocks.add(bucket)
                    break
        return blocks

    def events(self, partition: LogPartition) -> Iterator[LogEvent]:
        """The requests of a partition, and the records they are judged by."""
        chosen = {slot: self._slice_in_range(entries, partition) for slot, entries in self._slots.items()}
        keys, origins = self._wanted_keys(chosen, partition)
        yield from merge_slots(
            with_boot_times(self._slot_events(slot, span, partition, keys, origins), self._boots, slot)
            for slot, span in chosen.items()
        )

    def parts_in_range(self, partition: LogPartition) -> list[LogPart]:
        """The parts that must be read for a partition."""
        spans = ((entries, self._slice_in_range(entries, partition)) for entries in self._slots.values())
        return [entry for entries, span in spans for entry in entries[span] if isinstance(entry, LogPart)]

    def _slice_in_range(self, entries: list[LogPart | PackedLogFile], partition: LogPartition) -> slice:
        """From the first part that a request of the range can depend on, to the last with one. Parts note when requests
        began: the one before the first may have the ends of some."""
        parts = _walls(entries)
        since, _ = partition.span
        from_ = [at for at, _, last in parts if last >= since]
        to = [at for at, first, _ in parts if first < partition.until]
        if not from_ or not to:
            return slice(0, 0)
        first = max((at for at, _, _ in parts if at < from_[0]), default=from_[0]) if partition.since > -inf else 0
        return slice(first, to[-1] + 1 if partition.until < inf else len(entries))

    def _wanted_keys(self, chosen: dict[str, slice], partition: LogPartition) -> tuple[set[str] | None, set[str]]:
        """The keys of some hosts, or None for all of the partition; and the origins that were requested."""
        parts = [
            part for slot, span in chosen.items() for part in self._slots[slot][span] if isinstance(part, LogPart)
        ]  # fmt: skip
        if not partition.hosts:
            pairs = (pair for part in parts for pair in _pairs(part, partition.bucket))
            return None, {origin for key, origin in pairs if _is_in_partition(key, partition)}
        is_wanted, names = host_filter(partition.hosts), _names_in(partition.hosts)
        pairs = (pair for part in parts for pair in _pairs(part, partition.bucket, names))
        keys = {key for key, origin in pairs if is_wanted(origin)}
        pairs = (pair for part in parts for pair in _pairs(part, partition.bucket, _texts(keys)))
        return keys, {origin for key, origin in pairs if key in keys}

    def _slot_events(
        self, slot: str, span: slice, partition: LogPartition, keys: set[str] | None, origins: set[str]
    ) -> Iterator[LogLine]:
        def takes(key: str, _: str) -> bool:
            return key in keys if keys is not None else _is_in_partition(key, partition)

        is_all, wanted = keys is None and partition.shares == 1, _texts(origins)
        texts = None if keys is None else _texts(keys)
        yield from self._state_before(slot, span, wanted)
        yield from self._starts_in_flight(slot, span, partition, takes)
        for entry in self._slots[slot][span]:
            if isinstance(entry, PackedLogFile):
                yield LostLines(0.0, slot)
                continue
            try:
                yield from entry.events(partition.bucket, slot, None if is_all else takes, partition.span, texts=texts)
                yield from entry.settings(slot)
                yield from entry.robots(slot, wanted)
            except (UnreadableLog, FileNotFoundError) as error:
                self._note_loss(entry, partition, error)
                yield LostLines(0.0, slot)

    def _note_loss(self, part: LogPart, partition: LogPartition, error: Exception) -> None:
        index, name = part.index, self._names[id(part)]
        since = -inf if index.first_wall is None else index.first_wall
        until = inf if index.last_wall is None else index.last_wall
        is_gone = isinstance(error, FileNotFoundError)
        why = "it was deleted while it was read" if is_gone else "the requests of some sites are damaged"
        why = f"{why} (block {partition.bucket + 1} of {BUCKETS})"
        self.losses.add(LogLoss(name, since, until, index.blocks[partition.bucket].requests, why))

    def _state_before(self, slot: str, span: slice, origins: frozenset[bytes]) -> Iterator[LogLine]:
        """The state at the beginning of a range: the opening, settings and robots.txt files of the parts before it."""
        behind = [entry for entry in self._slots[slot][: span.start] if isinstance(entry, LogPart)]
        if not behind or not origins:
            return
        with_boot = max((at for at, part in enumerate(behind) if part.index.boots), default=0)
        lines: list[BootLine] = behind[with_boot].index.boots[-1:]
        yield from lines
        try:
            for part in behind[with_boot:]:
                yield from part.settings(slot)
            missing = set(origins)
            for part in reversed(behind):
                if not missing:
                    return
                # State at the end of the part: the last record of an origin is in force.
                latest = {line.origin: line for line in part.robots(slot, missing)}
                missing -= {origin.rpartition(" ")[2].encode() for origin in latest}
                yield from latest.values()
        except (UnreadableLog, FileNotFoundError):
            yield LostLines(0.0, slot)

    def _starts_in_flight(
        self, slot: str, span: slice, partition: LogPartition, takes: PairFilter
    ) -> Iterator[LogLine]:
        """The starts of the requests that are open at the beginning of a range: their ends are in it."""
        behind = [entry for entry in self._slots[slot][: span.start] if isinstance(entry, LogPart)]
        found = list[RequestStart]()
        try:
            opened = behind[-1].open_requests() if behind else {}
            wanted = {item for item, bucket in opened.items() if bucket == partition.bucket}
            for part in reversed(behind):
                last = part.index.last_wall
                if not wanted or (last is not None and last < partition.span[0] - LONGEST_REQUEST_S):
                    break
                starts = part.starts_of(partition.bucket, wanted, slot)
                wanted -= {start.item for start in starts}
                found += starts
        except (UnreadableLog, FileNotFoundError):
            yield LostLines(0.0, slot)
        yield from sorted((start for start in found if takes(start.key, "")), key=lambda start: start.at)


def _walls(entries: Sequence[LogPart | PackedLogFile]) -> list[tuple[int, float, float]]:
    """The parts among the entries, with the times of their first and last requests. A part without any, as one of
    robots.txt files alone, has the last time before it.
    """
    walls, before = list[tuple[int, float, float]](), -inf
    for at, entry in enumerate(entries):
        if isinstance(entry, LogPart):
            first, last = entry.index.first_wall, entry.index.last_wall
            walls.append((at, before if first is None else first, before if last is None else last))
            before = walls[-1][2]
    return walls


def _names_in(hosts: Sequence[str]) -> frozenset[bytes]:
    """The texts of which one is in every origin of these hosts."""
    return frozenset(host.removeprefix("*.").lower().encode() for host in hosts)


def _texts(keys: Collection[str]) -> frozenset[bytes]:
    return frozenset(key.encode() for key in keys)


def _pairs(part: LogPart, bucket: int, texts: Collection[bytes] | None = None) -> list[tuple[str, str]]:
    """The keys and origins of a block; none if it mentions none of these texts, or is damaged, which is reported when
    its requests are read.
    """
    try:
        return part.key_origin_pairs(bucket) if texts is None or part.mentions_any(bucket, texts) else []
    except UnreadableLog:
        return []


def _is_in_partition(key: str, partition: LogPartition) -> bool:
    return partition.shares == 1 or share_of_key(key.encode(), partition.shares) == partition.share


def host_filter(hosts: Sequence[str]) -> Callable[[str], bool]:
    """Returns a test whether an origin belongs to one of these hosts; `*.example.com` is the host itself and all hosts
    under it.
    """
    names = {host.lower() for host in hosts if not host.startswith("*.")}
    under = tuple(host[1:].lower() for host in hosts if host.startswith("*."))

    def is_wanted(origin: str) -> bool:
        host = origin.split("/", 3)[2]
        host = host if host.endswith("]") else host.rpartition(":")[0] if ":" in host else host
        return host in names or (bool(under) and ("." + host).endswith(under))

    return is_wanted


def all_deleted(folder: Path) -> DeletedRequests:
    """What retention has deleted of all logs of a pod."""
    deletions = []
    for path in slots_of(folder).values():
        try:
            deletions.append(deleted_from(path))
        except UnreadableLog:
            continue  # reported as a loss
    return DeletedRequests(
        0, max((one.until for one in deletions), default=0.0), sum(one.requests for one in deletions)
    )
