"""The log file and the metrics of a process.

Logs: one file for each process, `{log_dir}/pod_{N}/{role}_{i}.log`, each line with the process's label, rotated; a file
has one writer, and its owner alone may read it, because URLs may hold secrets. A message is constant, variable parts go
into fields: `log.info("breaker opened", domain=d)`. Where it is asked for, every process also writes its lines to the
standard output that it shares with the others, which never waits for a reader: only the file is complete.

Metrics: a process counts in plain Python numbers and saves them all to one small file named after its slot
(`pod0-fetcher1`), which stays the same when the process is restarted, so that counters continue. One endpoint reads the
files of all slots and serves them together. Never label by URL or domain.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import socket
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

import msgspec

from weft.errors import BadInput, Busy, DiskFull
from weft.files import replace_file, try_lock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOG_BYTES = 100 * 1024 * 1024
LOGS_KEPT = 5
LINE_BYTES = 4096  # a pipe accepts this much at once: lines of several processes do not mix
FD_KINDS = ("redis", "http", "file", "pipe", "other")
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BYTES_BUCKETS = (1e3, 4e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3, 1e6, 2e6, 4e6, 8e6, 16e6)
Peer = str | tuple[str, int]  # the other end of a connection: the path of a local socket, or address and port


@dataclass(frozen=True, slots=True)
class Slot:
    """A process's fixed place in the crawl, which its log, its label and its metrics are named after."""

    pod: int
    role: str  # orchestrator, fetcher, parser
    index: int = 0

    @property
    def name(self) -> str:
        """`pod0-fetcher1`."""
        return f"pod{self.pod}-{self.process}"

    @property
    def process(self) -> str:
        """`fetcher1`; there is one orchestrator."""
        return self.role if self.role == "orchestrator" else f"{self.role}{self.index}"

    @property
    def label(self) -> str:
        """`Pod-0-Fetcher-1`, as log lines carry it."""
        if self.role == "orchestrator":
            return "Orchestrator"
        return f"Pod-{self.pod}-{self.role.capitalize()}-{self.index}"

    def log_path(self, log_dir: Path) -> Path:
        """The path of this process's log."""
        name = self.role if self.role == "orchestrator" else f"{self.role}_{self.index}"
        return log_dir / f"pod_{self.pod}" / f"{name}.log"


class Log:
    """A logger whose calls take a constant message and fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    @property
    def debugs(self) -> bool:
        """Whether the level is DEBUG: for hot paths, which check once and not for every URL."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def always(self, message: str, **fields: object) -> None:
        """Logs at any level: that a process has started, so that no log is empty."""
        record = self._logger.makeRecord(
            self._logger.name, logging.INFO, "", 0, message, (), None, extra={"fields": fields}
        )
        self._logger.handle(record)

    def debug(self, message: str, **fields: object) -> None:
        """Details, one line a URL at most."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """Logs an event."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """Logs a condition that needs attention."""
        self._logger.warning(message, extra={"fields": fields})

    def error(self, message: str, *, exc_info: bool = False, **fields: object) -> None:
        """Logs a failure."""
        self._logger.error(message, exc_info=exc_info, extra={"fields": fields})


class LineFormatter(logging.Formatter):
    """`2026-02-04T10:30:45.123Z INFO [Pod-0-Fetcher-1] breaker opened domain=example.com failures=5`."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label = label

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the fields hold; a traceback follows indented."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} [{self._label}] {record.getMessage()}"
        for name, value in getattr(record, "fields", {}).items():
            text += f" {name}={_field(value)}"
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        if record.exc_info:
            text += "\n  " + self.formatException(record.exc_info).replace("\n", "\n  ")
        return text


def _field(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if " " in text or not text else text


LogFormat = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `process`, `logger`, `message`, `fields`; `exception` where there is one."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label = label

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON; fields that are neither numbers nor texts as texts."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._label,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if fields := getattr(record, "fields", {}):
            line["fields"] = {name: _plain(value) for name, value in fields.items()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        text = msgspec.json.encode(line)
        if len(text) >= LINE_BYTES:  # the file has all of it
            line = {name: line[name] for name in ("time", "level", "process", "logger", "message")}
            line["message"] = str(line["message"])[: LINE_BYTES // 8]
            text = msgspec.json.encode({**line, "cut": True})
        return text.decode()


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float) or value is None else str(value)


class StandardOutput(logging.Handler):
    """Standard output, which all processes of a service share: one line at a time, and none while it has no reader.

    A line that finds no room is left out and counted; a crawl never waits for a terminal or a collector of logs.
    """

    def __init__(self, fd: int = 1) -> None:
        super().__init__()
        self._fd = fd
        self._left_out = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, if there is room for it."""
        if self._left_out and self._has_room():
            record, left_out = logging.makeLogRecord(record.__dict__), self._left_out
            record.fields = {**getattr(record, "fields", {}), "lines_left_out": left_out}
        line = self.format(record).encode()
        if len(line) >= LINE_BYTES:
            line = line[: LINE_BYTES - 4].decode("utf-8", "ignore").encode() + "…".encode()
        if not self._has_room():
            self._left_out += 1
            return
        self._left_out = 0
        with suppress(OSError):  # the reader has ended; the file has the line
            os.write(self._fd, line + b"\n")

    def _has_room(self) -> bool:
        return any(event & select.POLLOUT for _, event in self._poll.poll(0))


class LogFile(RotatingFileHandler):
    """A process's log file; its owner alone may read it.

    With `alone` its folder is locked until `close`, so that two crawls do not rotate each other's files. On a full disk
    a line is lost, and no traceback is printed to the terminal.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        _private_folder(path.parent.parent)
        _private_folder(path.parent)
        self._lock = _locked(path.parent) if alone else -1
        try:
            super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT, encoding="utf-8")
        except OSError:
            if self._lock >= 0:
                os.close(self._lock)
            raise

    def close(self) -> None:
        """Releases the folder; later lines are dropped, and not printed to the terminal."""
        logger = logging.getLogger("weft")
        if self in logger.handlers:
            logger.removeHandler(self)
            logger.addHandler(logging.NullHandler())
        with suppress(OSError):  # the disk is full: closing writes what is buffered
            super().close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def _open(self) -> TextIO:  # type: ignore[override]  # also called for each file that a rotation begins
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(fd, "a", encoding=self.encoding, errors=self.errors)


def _private_folder(folder: Path) -> None:
    """Creates a folder with mode 0700; an existing one keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _locked(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if not try_lock(fd):
        os.close(fd)
        raise Busy(f"log_dir {folder.parent}: another crawl logs there; choose another `log_dir`") from None
    return fd


def log_to_file(
    log_dir: Path,
    slot: Slot,
    level: str = "INFO",
    *,
    alone: bool = False,
    name: str | None = None,
    shown_as: LogFormat | None = None,
) -> LogFile:
    """Sends this process's log to its own file; the handler is returned so that it can be closed.

    `alone`: Busy where another process holds the slot's folder. `name`: of the file in `log_dir`, else the slot's.
    `shown_as`: the form in which its lines go to standard output, too; None: they do not.
    """
    logger = logging.getLogger("weft")
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    try:
        handler = LogFile(slot.log_path(log_dir) if name is None else log_dir / name, alone=alone)
    except OSError as error:
        raise BadInput(f"log_dir {log_dir}: cannot be written: {error.strerror}; choose another `log_dir`") from None
    handler.setFormatter(LineFormatter(slot.label))
    logger.addHandler(handler)
    if shown_as is not None:
        output = StandardOutput()
        output.setFormatter(JsonFormatter(slot.label) if shown_as == "json" else LineFormatter(slot.label))
        logger.addHandler(output)
    logger.setLevel(level)
    logger.propagate = False
    return handler


class Counter:
    """A number that only grows; add to `.value` on a hot path."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value

    def inc(self, amount: float = 1) -> None:
        """Adds."""
        self.value += amount


class Gauge:
    """A number that goes up and down; not served once its process has ended."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """Replaces."""
        self.value = value


class Histogram:
    """Counts by size."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Saved(msgspec.Struct, array_like=True):
    """One series in a slot's file."""

    kind: str
    name: str
    help: str
    labels: dict[str, str]
    values: list[float]
    bounds: list[float] = []


class Snapshot(msgspec.Struct):
    """A slot's file: the process that wrote it, and everything that it counts."""

    pod: str
    process: str
    pid: int
    started: float
    series: list[Saved]


class Metrics:
    """The numbers of one process. Counters and histograms continue from what the slot's last process saved."""

    def __init__(self, directory: Path, slot: Slot, redis: Collection[Peer] = ()) -> None:
        """`redis`: the targets of this process's connections to Redis."""
        self.redis_peers = redis
        self._path = directory / f"{slot.name}.metrics"
        self._slot = slot
        self._series: dict[tuple[str, tuple[str, ...]], tuple[Saved, Counter | Gauge | Histogram]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        earlier = read_snapshot(self._path)
        self._earlier = {(s.name, *s.labels.values()): s for s in earlier.series} if earlier else {}
        self._cpu = self.counter("weft_process_cpu_seconds_total", "User and system CPU time spent.")
        self._cpu_before = self._cpu.value
        self._memory = self.gauge("weft_process_resident_memory_bytes", "Resident memory.")
        self._sockets: dict[str, str] = {}  # what `open_files` knows of them
        self._files = {
            kind: self.gauge("weft_process_open_fds", "Open file descriptors, by kind.", kind=kind) for kind in FD_KINDS
        }
        self._io = {
            name: (counter, counter.value)
            for name, counter in (
                ("read_bytes", self.counter("weft_process_read_bytes_total", "Bytes read from disks.")),
                ("write_bytes", self.counter("weft_process_written_bytes_total", "Bytes written to disks.")),
                ("syscr", self.counter("weft_process_read_calls_total", "Read calls made to the system.")),
                ("syscw", self.counter("weft_process_write_calls_total", "Write calls made to the system.")),
            )
        }

    def counter(self, name: str, help_: str, **labels: str) -> Counter:
        """The counter of that name and labels, created on first use."""
        saved, made = self._get("counter", name, help_, labels, lambda old: Counter(old.values[0] if old else 0))
        assert isinstance(made, Counter), saved
        return made

    def gauge(self, name: str, help_: str, **labels: str) -> Gauge:
        """The gauge of that name and labels."""
        saved, made = self._get("gauge", name, help_, labels, lambda _: Gauge())
        assert isinstance(made, Gauge), saved
        return made

    def histogram(self, name: str, help_: str, bounds: Sequence[float] = SECONDS_BUCKETS, **labels: str) -> Histogram:
        """The histogram of that name and labels."""

        def make(old: Saved | None) -> Histogram:
            histogram = Histogram(bounds)
            if old and old.bounds == list(histogram.bounds):
                histogram.counts, histogram.total = [int(n) for n in old.values[:-1]], old.values[-1]
            return histogram

        saved, made = self._get("histogram", name, help_, labels, make)
        assert isinstance(made, Histogram), saved
        return made

    def grown(self, name: str, help_: str, value: float, **labels: str) -> None:
        """Sets a counter to a count kept elsewhere in this process, added to the saved value of its predecessor."""
        counter = self.counter(name, help_, **labels)
        earlier = self._earlier.get((name, *labels.values()))
        counter.value = value + (earlier.values[0] if earlier else 0)

    def _get(self, kind: str, name: str, help_: str, labels: dict[str, str], make: Any) -> Any:
        where = (name, tuple(labels.values()))
        if where not in self._series:
            made = make(self._earlier.get((name, *labels.values())))
            saved = Saved(kind, name, help_, labels, [], list(getattr(made, "bounds", ())))
            self._series[where] = (saved, made)
        return self._series[where]

    def save(self) -> None:
        """Writes everything to the slot's file, atomically."""
        self._measure_process()
        series = []
        for saved, made in self._series.values():
            if isinstance(made, Histogram):
                saved.values = [*made.counts, made.total]
            else:
                saved.values = [made.value]
            series.append(saved)
        snapshot = Snapshot(str(self._slot.pod), self._slot.process, os.getpid(), _started(os.getpid()), series)
        with suppress(DiskFull):  # a crawl that waits for room must not end for its metrics
            replace_file(self._path, msgspec.msgpack.encode(snapshot), durable=False)

    def _measure_process(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._cpu.value = self._cpu_before + usage.ru_utime + usage.ru_stime
        try:
            self._memory.set(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
            for kind, number in open_files(self.redis_peers, self._sockets).items():
                self._files[kind].set(number)
            for line in Path("/proc/self/io").read_text().splitlines():
                name, _, value = line.partition(": ")
                if name in self._io:
                    counter, before = self._io[name]
                    counter.value = before + int(value)
        except OSError:  # no /proc on this system, or one without these files
            self._memory.set(self._memory.value or usage.ru_maxrss * 1024)


def open_files(redis: Collection[Peer] = (), known: dict[str, str] | None = None) -> dict[str, int]:
    """This process's descriptors by kind. A TCP connection that is not to a Redis counts as HTTP.

    `known`: the kinds of sockets that an earlier call has looked at; kept from call to call, it spares a crawl with
    thousands of connections a pause. Where there is a Redis all are looked at: one may not be connected yet.
    """
    counts = dict.fromkeys(FD_KINDS, 0)
    before, met = known or {}, dict[str, str]()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (names alone, no objects)
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:
            continue  # the one that the listing itself had open
        kind = target.partition(":")[0]
        if kind == "socket":
            kind = met[target] = before.get(target) or _socket_kind(int(name), redis)
        counts["file" if target.startswith("/") else kind if kind in counts else "other"] += 1
    if known is not None:
        known.clear()
        known.update(met if not redis else {})
    return counts


def _socket_kind(fd: int, redis: Collection[Peer]) -> str:
    try:
        with socket.socket(fileno=os.dup(fd)) as other:  # a copy: closing it leaves the connection alone
            try:
                peer = other.getpeername()
            except OSError:
                peer = None  # it listens, or is not connected yet
            if other.family == socket.AF_UNIX:
                return "redis" if peer in redis else "other"
            if other.family not in (socket.AF_INET, socket.AF_INET6) or other.type != socket.SOCK_STREAM:
                return "other"
            return "redis" if peer and peer[:2] in redis else "http"
    except OSError:
        return "other"  # closed meanwhile


def read_snapshot(path: Path) -> Snapshot | None:
    """A slot's file, or None if there is no readable one."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Snapshot)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _started(pid: int) -> float:
    """When a process began, in clock ticks since boot: distinguishes it from a later one with the same pid."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0.0


class SlotCollector:
    """Reads every slot's file and gives them to prometheus_client as one set of metrics.

    With `own`, the serving process is measured for each scrape and included.
    """

    def __init__(self, directory: Path, own: Slot | None = None) -> None:
        self._directory = directory
        self._own = Metrics(directory, own) if own else None
        self._saving = threading.Lock()  # scrapes come in threads

    def talks_to(self, redis: Collection[Peer]) -> None:
        """Sets the targets of the serving process's connections to Redis."""
        if self._own is not None:
            self._own.redis_peers = redis

    def collect(self) -> Iterable[Metric]:
        """Every series of every slot; gauges of ended processes are left out."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        if self._own is not None:
            with self._saving, suppress(OSError):  # on a full disk the old figures must do
                self._own.save()
        families: dict[str, Any] = {}
        load = PodLoad()
        for path in sorted(self._directory.glob("*.metrics")):
            snapshot = read_snapshot(path)
            if snapshot is None:
                continue
            alive = _started(snapshot.pid) == snapshot.started
            for series in snapshot.series:
                if series.kind == "gauge" and not alive:
                    continue
                names = ["pod", "process", *series.labels]
                if series.name not in families:
                    families[series.name] = kinds[series.kind](series.name, series.help, labels=names)
                labels = [snapshot.pod, snapshot.process, *series.labels.values()]
                _add(families[series.name], series, labels)
                load.count(snapshot.pod, series)
        ratio = GaugeMetricFamily("weft_hot_pod_ratio", "The largest pod over the mean of all.", labels=["by"])
        for what, value in load.ratios().items():
            ratio.add_metric([what], value)
        return [*families.values(), ratio]


class PodLoad:
    """How evenly the pods share the work: a pod's processes report their own pages, but each the pod's whole queue."""

    def __init__(self) -> None:
        self._pages: dict[str, float] = {}
        self._queued: dict[str, float] = {}

    def count(self, pod: str, series: Saved) -> None:
        """Includes a series, if it measures a pod's load."""
        if series.name == "weft_pages_total":
            self._pages[pod] = self._pages.get(pod, 0) + series.values[0]
        elif series.name == "weft_queue_urls":
            self._queued[pod] = max(self._queued.get(pod, 0), series.values[0])

    def ratios(self) -> dict[str, float]:
        """The largest value divided by the mean, for each measure that is not empty."""
        return {
            what: imbalance(list(figures.values()))
            for what, figures in (("pages", self._pages), ("queued", self._queued))
            if figures
        }


def imbalance(figures: Sequence[float]) -> float:
    """The largest over the mean: 1 when all are equal, or all are nothing."""
    total = sum(figures)
    return max(figures) * len(figures) / total if total else 1.0


def _add(family: Any, series: Saved, labels: list[str]) -> None:
    if series.kind != "histogram":
        family.add_metric(labels, series.values[0])
        return
    buckets, below = [], 0.0
    for bound, count in zip([*map(str, series.bounds), "+Inf"], series.values[:-1], strict=True):
        below += count
        buckets.append((bound, below))
    family.add_metric(labels, buckets, sum_value=series.values[-1])


class Collector(Protocol):
    """A source of metrics, called at each scrape."""

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""


class MetricsEndpoint:
    """`/metrics` over HTTP for every slot that saves into one directory, and for further collectors."""

    def __init__(
        self,
        directory: Path,
        port: int,
        host: str = "127.0.0.1",
        *,
        own: Slot | None = None,
        collectors: Iterable[Collector] = (),
    ) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._registry = CollectorRegistry(auto_describe=False)
        self._slots = SlotCollector(directory, own)
        for collector in (self._slots, *collectors):
            self.add(collector)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise Busy(
                f"prometheus_port {port}: {error.strerror}; choose another, or 0 for no metrics endpoint"
            ) from None
        self.port: int = self._server.server_address[1]

    def add(self, collector: Collector) -> None:
        """Adds a collector, from the next scrape on."""
        self._registry.register(collector)

    def talks_to(self, redis: Collection[Peer]) -> None:
        """Sets the targets of this process's connections to Redis."""
        self._slots.talks_to(redis)

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        assert isinstance(self._thread, threading.Thread)
        self._thread.join()
