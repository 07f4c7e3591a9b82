"""Reads the requests of some sites from a log: the units into which `weft audit` divides its work.

A partition is a share of the politeness keys, by their hash; of each site it has all requests, in the order of the log
and over all files. Open files are packed first, into a folder that the caller deletes: from then on a log is a list of
parts (`packed`) for each slot, with a `Loss` where lines are known to be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf, log
from pathlib import Path

from msgspec import Struct

from weft.frontier.requests.log_packing import BUCKETS, share_of
from weft.frontier.requests.packed_log import LogPart, PackedSegment, Span, Takes, Unjudged
from weft.frontier.requests.reading import boot_numbers, merged, slots_of, timed
from weft.frontier.requests.request_lines import Boot, Event, Line, Lost, RequestStart
from weft.frontier.requests.segments import Deleted, Segment, deleted_from, open_after, pack, segments_of

LONGEST_REQUEST_S = 3600.0  # how long before a range of time the search for requests without an end begins
CLOCK_S = 10.0  # by which the wall clock may have been set without hiding the requests before a range
_MAP_BYTES = 1 << 18


class PackedLogFile(Struct, frozen=True):
    """A packed file of a log; `why` is the reason if it cannot be read."""

    name: str  # of the file of the log, which may not be packed there
    path: str
    why: str = ""


class Loss(Struct, frozen=True, order=True):
    """Requests that cannot be judged: between which times of the wall clock, if known, and how many."""

    file: str
    since: float
    until: float
    requests: int | None
    why: str


class Partition(Struct, frozen=True):
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
    def span(self) -> Span:
        """The times of the wall clock of the requests that are read."""
        return self.since - self.before_s - CLOCK_S, self.until


def log_files(folder: Path, scratch: Path) -> dict[str, list[PackedLogFile]]:
    """The files of a pod's log by slot, each of which can be read in blocks: open ones are packed into `scratch`."""
    scratch.mkdir(parents=True)
    return {
        slot: _files(path, scratch / f"{at}") for at, (slot, path) in enumerate(slots_of(folder).items())
    }  # fmt: skip


def _files(folder: Path, scratch: Path) -> list[PackedLogFile]:
    found: list[PackedLogFile] = []
    try:
        expected = deleted_from(folder).through + 1
    except Unjudged as error:
        found.append(PackedLogFile(str(error.path), "", "the record of what was deleted is damaged"))
        expected = -1
    before: Segment | None = None
    for segment in segments_of(folder):
        if expected >= 0 and segment.serial > expected:
            number = segment.serial - expected
            found.append(PackedLogFile(str(folder), "", f"{number} files before {segment.path.name} are gone"))
        expected = segment.serial + 1
        segment = _packed(segment, before, scratch)
        found.append(PackedLogFile(str(segment.plain or segment.packed), str(segment.packed)))
        before = segment
    return found


def _packed(segment: Segment, before: Segment | None, scratch: Path) -> Segment:
    """A segment with a packed file; a damaged one is replaced by the plain file if that still exists."""
    if segment.packed is not None:
        try:
            PackedSegment(segment.packed)
        except (Unjudged, FileNotFoundError):
            if segment.plain is None:
                return segment
        else:
            return Segment(segment.serial, None, segment.packed)
    assert segment.plain is not None
    scratch.mkdir(exist_ok=True)
    out = scratch / f"{segment.plain.stem}.packed"
    try:
        pack(segment.plain, out, open_after(before))
    except FileNotFoundError:  # packed meanwhile by the process that writes the log
        return Segment(segment.serial, None, segment.plain.with_suffix(".packed"))
    return Segment(segment.serial, segment.plain, out)


class LogReader:
    """The log of one pod, as `log_files` has listed it. `losses` is filled while it is read."""

    def __init__(self, files: dict[str, list[PackedLogFile]]) -> None:
        self.losses: set[Loss] = set()
        self._slots: dict[str, list[LogPart | PackedLogFile]] = {}
        self._names: dict[int, str] = {}
        for slot, of_slot in files.items():
            entries = self._slots[slot] = []
            for file in of_slot:
                entries += self._opened(file)
            self._note_losses(entries)
        logs = [[boot for part in self._parts(slot) for boot in part.index.boots] for slot in self._slots]
        self._boots = boot_numbers(logs)

    def _opened(self, file: PackedLogFile) -> Sequence[LogPart | PackedLogFile]:
        if file.why:
            return [file]
        try:
            parts = PackedSegment(Path(file.path)).parts
        except Unjudged:
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
                self.losses.add(Loss(entry.name, since, until, None, entry.why))

    def _parts(self, slot: str) -> list[LogPart]:
        return [entry for entry in self._slots[slot] if isinstance(entry, LogPart)]

    def parts(self) -> list[LogPart]:
        """All readable parts."""
        return [part for slot in self._slots for part in self._parts(slot)]

    def losses_in(self, since: float, until: float) -> set[Loss]:
        """The losses in a range of time."""
        return {loss for loss in self.losses if loss.until >= since and loss.since <= until}

    def file_of(self, part: LogPart) -> str:
        """The name of the log file that a part belongs to."""
        return self._names[id(part)]

    def longest_delay_s(self, since: float, until: float) -> float:
        """The longest delay of the requests of a range of time, as they were logged."""
        parts = self.in_range(Partition(0, since=since, until=until))
        return max((part.index.longest_delay_s for part in parts), default=0.0)

    def sites_of(self, partition: Partition) -> int:
        """About how many sites a block has over all parts that are read: by linear counting, in constant memory."""
        seen = bytearray(_MAP_BYTES)
        for part in self.in_range(partition):
            try:
                for key, _ in part.pairs(partition.bucket):
                    seen[share_of(key.encode(), _MAP_BYTES)] = 1
            except Unjudged:
                continue
        taken = sum(seen)
        if taken == _MAP_BYTES:
            return 8 * _MAP_BYTES
        return round(-_MAP_BYTES * log(1 - taken / _MAP_BYTES))

    def blocks_with(self, hosts: Sequence[str], since: float, until: float) -> set[int]:
        """The blocks in which some hosts may occur: their sites may have other names, or be addresses."""
        names, found = _names_in(hosts), set[int]()
        for bucket in range(BUCKETS):
            for part in self.in_range(Partition(bucket, since=since, until=until)):
                try:
                    is_there = part.mentions(bucket, names)
                except (Unjudged, FileNotFoundError):
                    is_there = True  # reported when its requests are read
                if is_there:
                    found.add(bucket)
                    break
        return found

    def events(self, partition: Partition) -> Iterator[Event]:
        """The requests of a partition, and the records they are judged by."""
        chosen = {slot: self._in_range(entries, partition) for slot, entries in self._slots.items()}
        keys, origins = self._wanted(chosen, partition)
        yield from merged(
            timed(self._slot_events(slot, span, partition, keys, origins), self._boots, slot)
            for slot, span in chosen.items()
        )

    def in_range(self, partition: Partition) -> list[LogPart]:
        """The parts that must be read for a partition."""
        spans = ((entries, self._in_range(entries, partition)) for entries in self._slots.values())
        return [entry for entries, span in spans for entry in entries[span] if isinstance(entry, LogPart)]

    def _in_range(self, entries: list[LogPart | PackedLogFile], partition: Partition) -> slice:
        """From the first part that a request of the range can depend on, to the last with one. Parts note when requests
        began: the one before the first may have the ends of some."""
        parts = [(at, entry.index) for at, entry in enumerate(entries) if isinstance(entry, LogPart)]
        since, _ = partition.span
        from_ = [at for at, part in parts if part.last_wall is None or part.last_wall >= since]
        to = [at for at, part in parts if part.first_wall is None or part.first_wall < partition.until]
        if not from_ or not to:
            return slice(0, 0)
        first = max((at for at, _ in parts if at < from_[0]), default=from_[0]) if partition.since > -inf else 0
        return slice(first, to[-1] + 1 if partition.until < inf else len(entries))

    def _wanted(self, chosen: dict[str, slice], partition: Partition) -> tuple[set[str] | None, set[str]]:
        """The keys of some hosts, or None for all of the partition; and the origins that were requested."""
        parts = [
            part for slot, span in chosen.items() for part in self._slots[slot][span] if isinstance(part, LogPart)
        ]  # fmt: skip
        if not partition.hosts:
            found = (pair for part in parts for pair in _pairs(part, partition.bucket))
            return None, {origin for key, origin in found if _is_in(key, partition)}
        is_wanted, names = host_filter(partition.hosts), _names_in(partition.hosts)
        found = (pair for part in parts for pair in _pairs(part, partition.bucket, names))
        keys = {key for key, origin in found if is_wanted(origin)}
        found = (pair for part in parts for pair in _pairs(part, partition.bucket, _texts(keys)))
        return keys, {origin for key, origin in found if key in keys}

    def _slot_events(
        self, slot: str, span: slice, partition: Partition, keys: set[str] | None, origins: set[str]
    ) -> Iterator[Line]:
        def takes(key: str, _: str) -> bool:
            return key in keys if keys is not None else _is_in(key, partition)

        is_all, wanted = keys is None and partition.shares == 1, _texts(origins)
        texts = None if keys is None else _texts(keys)
        yield from self._before(slot, span, wanted)
        yield from self._in_flight(slot, span, partition, takes)
        for entry in self._slots[slot][span]:
            if isinstance(entry, PackedLogFile):
                yield Lost(0.0, slot)
                continue
            try:
                yield from entry.events(partition.bucket, slot, None if is_all else takes, partition.span, texts=texts)
                yield from entry.settings(slot)
                yield from entry.robots(slot, wanted)
            except (Unjudged, FileNotFoundError) as error:
                self._lose(entry, partition, error)
                yield Lost(0.0, slot)

    def _lose(self, part: LogPart, partition: Partition, error: Exception) -> None:
        index, name = part.index, self._names[id(part)]
        since = -inf if index.first_wall is None else index.first_wall
        until = inf if index.last_wall is None else index.last_wall
        is_gone = isinstance(error, FileNotFoundError)
        why = "it was deleted while it was read" if is_gone else "the requests of some sites are damaged"
        why = f"{why} (block {partition.bucket + 1} of {BUCKETS})"
        self.losses.add(Loss(name, since, until, index.blocks[partition.bucket].requests, why))

    def _before(self, slot: str, span: slice, origins: frozenset[bytes]) -> Iterator[Line]:
        """The state at the beginning of a range: the opening, settings and robots.txt files of the parts before it."""
        behind = [entry for entry in self._slots[slot][: span.start] if isinstance(entry, LogPart)]
        if not behind or not origins:
            return
        with_boot = max((at for at, part in enumerate(behind) if part.index.boots), default=0)
        lines: list[Boot] = behind[with_boot].index.boots[-1:]
        yield from lines
        try:
            for part in behind[with_boot:]:
                yield from part.settings(slot)
            missing = set(origins)
            for part in reversed(behind):
                if not missing:
                    return
                # State at the end of the part: the last record of an origin is in force.
                found = {line.origin: line for line in part.robots(slot, missing)}
                missing -= {origin.rpartition(" ")[2].encode() for origin in found}
                yield from found.values()
        except (Unjudged, FileNotFoundError):
            yield Lost(0.0, slot)

    def _in_flight(self, slot: str, span: slice, partition: Partition, takes: Takes) -> Iterator[Line]:
        """The starts of the requests that are open at the beginning of a range: their ends are in it."""
        behind = [entry for entry in self._slots[slot][: span.start] if isinstance(entry, LogPart)]
        found = list[RequestStart]()
        try:
            opened = behind[-1].open() if behind else {}
            wanted = {item for item, bucket in opened.items() if bucket == partition.bucket}
            for part in reversed(behind):
                last = part.index.last_wall
                if not wanted or (last is not None and last < partition.span[0] - LONGEST_REQUEST_S):
                    break
                starts = part.starts_of(partition.bucket, wanted, slot)
                wanted -= {start.item for start in starts}
                found += starts
        except (Unjudged, FileNotFoundError):
            yield Lost(0.0, slot)
        yield from sorted((start for start in found if takes(start.key, "")), key=lambda start: start.at)


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
        return part.pairs(bucket) if texts is None or part.mentions(bucket, texts) else []
    except Unjudged:
        return []


def _is_in(key: str, partition: Partition) -> bool:
    return partition.shares == 1 or share_of(key.encode(), partition.shares) == partition.share


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


def deleted_of(folder: Path) -> Deleted:
    """What retention has deleted of all logs of a pod."""
    found = []
    for path in slots_of(folder).values():
        try:
            found.append(deleted_from(path))
        except Unjudged:
            continue  # reported as a loss
    return Deleted(0, max((one.until for one in found), default=0.0), sum(one.requests for one in found))
