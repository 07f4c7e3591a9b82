"""The machine's own figures, from the real /proc and from one that says less."""

from __future__ import annotations

from pathlib import Path

from weft.supervise.node import NodeMetrics


def figures(metrics: NodeMetrics) -> dict[str, dict[str, float]]:
    """Name -> the value by its label."""
    return {
        family.name: {next(iter(sample.labels.values()), ""): sample.value for sample in family.samples}
        for family in metrics.collect()
    }


def test_cpu_memory_disks_and_network_of_this_machine(tmp_path: Path) -> None:
    told = figures(NodeMetrics([tmp_path]))
    assert told["weft_node_cpu_seconds"]["user"] > 0
    assert told["weft_node_memory_bytes"][""] > told["weft_node_memory_available_bytes"][""] > 0
    assert told["weft_disk_bytes"][str(tmp_path)] > told["weft_disk_free_bytes"][str(tmp_path)] > 0
    assert "lo" in told["weft_node_network_received_bytes"]
    assert "lo" in told["weft_node_network_sent_bytes"]


def test_disks_count_once_and_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text(
        "   8       0 sda 100 0 200 0 50 0 30 0 0 0 0\n   8       1 sda1 90 0 180 0 40 0 20 0 0 0 0\n"
        "   7       0 loop0 9 0 9 0 9 0 9 0 0 0 0\n 259       0 nvme0n1 1 0 4 0 1 0 2 0 0 0 0\n"
    )
    told = figures(NodeMetrics([tmp_path], proc=tmp_path))
    assert told["weft_node_disk_read_bytes"] == {"sda": 200 * 512, "nvme0n1": 4 * 512}
    assert told["weft_node_disk_written_bytes"] == {"sda": 30 * 512, "nvme0n1": 2 * 512}
    assert told["weft_node_disk_reads"] == {"sda": 100, "nvme0n1": 1}
    assert told["weft_node_disk_writes"] == {"sda": 50, "nvme0n1": 1}


def test_packets_are_told_beside_bytes(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text("Inter-|\n face |\n  eth0: 5000 40 0 0 0 0 0 0 700 6 0 0 0 0 0 0\n")
    told = figures(NodeMetrics([tmp_path], proc=tmp_path))
    assert told["weft_node_network_received_bytes"] == {"eth0": 5000}
    assert told["weft_node_network_received_packets"] == {"eth0": 40}
    assert told["weft_node_network_sent_bytes"] == {"eth0": 700}
    assert told["weft_node_network_sent_packets"] == {"eth0": 6}


def test_what_the_kernel_does_not_tell_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("")
    told = figures(NodeMetrics([tmp_path, tmp_path / "gone"], proc=tmp_path))
    assert told == {"weft_node_cpu_seconds": {}}
