"""Metrics of the machine itself for Prometheus: CPU, memory, disks, network. Read from /proc at each scrape.

Node-wide, so it has no pod and no process; a crawl does not share these figures out. Invariant: values that a kernel
does not provide are left out, never guessed and never an error.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.telemetry import Log

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECTOR_BYTES = 512
# Partitions repeat the values of their disk, loop and RAM disks those of the disk below.
_WHOLE_DISK = re.compile(r"(sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|nvme\d+n\d+|mmcblk\d+)$")
_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
log = Log("weft.supervise.node")


class NodeMetrics:
    """Collects metrics of one node; `folders` are those whose disks hold the crawl."""

    def __init__(self, folders: Sequence[str | Path], proc: Path = Path("/proc")) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._proc = proc

    def collect(self) -> Iterable[Metric]:
        """Every metric that can be read."""
        for part in (self._cpu, self._memory, self._disks, self._traffic, self._network):
            try:
                yield from part()
            except (OSError, ValueError, IndexError) as error:
                log.debug("a figure of this machine cannot be read", error=error)

    def _cpu(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily

        spent = CounterMetricFamily("weft_node_cpu_seconds_total", "CPU time of all cores, by mode.", labels=["mode"])
        first = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
        for mode, ticks in zip(_CPU_MODES, first, strict=False):
            spent.add_metric([mode], int(ticks) / os.sysconf("SC_CLK_TCK"))
        yield spent

    def _memory(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lines = (self._proc / "meminfo").read_text().splitlines()
        facts = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if line}
        yield GaugeMetricFamily("weft_node_memory_bytes", "Memory of the machine.", value=facts["MemTotal"])
        yield GaugeMetricFamily(
            "weft_node_memory_available_bytes", "Memory that could be had now.", value=facts["MemAvailable"]
        )

    def _disks(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        size = GaugeMetricFamily("weft_disk_bytes", "Size of the disk of a data dir.", labels=["data_dir"])
        free = GaugeMetricFamily("weft_disk_free_bytes", "Room left on the disk of a data dir.", labels=["data_dir"])
        for folder in self._folders:
            usage = shutil.disk_usage(folder)
            size.add_metric([str(folder)], usage.total)
            free.add_metric([str(folder)], usage.free)
        yield size
        yield free

    def _traffic(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily

        read = CounterMetricFamily("weft_node_disk_read_bytes_total", "Bytes read from a disk.", labels=["device"])
        written = CounterMetricFamily(
            "weft_node_disk_written_bytes_total", "Bytes written to a disk.", labels=["device"]
        )
        reads = CounterMetricFamily("weft_node_disk_reads_total", "Reads of a disk.", labels=["device"])
        writes = CounterMetricFamily("weft_node_disk_writes_total", "Writes to a disk.", labels=["device"])
        for line in (self._proc / "diskstats").read_text().splitlines():
            fields = line.split()
            if _WHOLE_DISK.match(fields[2]):
                reads.add_metric([fields[2]], int(fields[3]))
                writes.add_metric([fields[2]], int(fields[7]))
                read.add_metric([fields[2]], int(fields[5]) * SECTOR_BYTES)
                written.add_metric([fields[2]], int(fields[9]) * SECTOR_BYTES)
        yield from (read, written, reads, writes)

    def _network(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily

        received = CounterMetricFamily(
            "weft_node_network_received_bytes_total", "Bytes received by an interface.", labels=["device"]
        )
        sent = CounterMetricFamily(
            "weft_node_network_sent_bytes_total", "Bytes sent by an interface.", labels=["device"]
        )
        packets_in = CounterMetricFamily(
            "weft_node_network_received_packets_total", "Packets received by an interface.", labels=["device"]
        )
        packets_out = CounterMetricFamily(
            "weft_node_network_sent_packets_total", "Packets sent by an interface.", labels=["device"]
        )
        for line in (self._proc / "net/dev").read_text().splitlines()[2:]:
            device, _, figures = line.partition(":")
            fields = figures.split()
            name = device.strip()
            received.add_metric([name], int(fields[0]))
            sent.add_metric([name], int(fields[8]))
            packets_in.add_metric([name], int(fields[1]))
            packets_out.add_metric([name], int(fields[9]))
        yield from (received, sent, packets_in, packets_out)
