"""Memory that a process may have: the machine's, or what its control groups allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.supervise.memory import available_bytes, limit_bytes


def machine(folder: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup; `files`: their contents by path."""
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:   2 kB\n")
    (folder / "self/cgroup").write_text(groups)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder, folder


@pytest.mark.parametrize(
    ("limit", "current", "found"), [("max", "5", 2048), ("1500", "500", 1000), ("100", "500", 0), ("what", "5", 2048)]
)
def test_it_is_what_the_machine_or_the_control_group_has_left(
    limit: str, current: str, found: int, tmp_path: Path
) -> None:
    assert available_bytes(*machine(tmp_path, "0::/\n", {"memory.max": limit, "memory.current": current})) == found


def test_the_groups_above_limit_as_well(tmp_path: Path) -> None:
    where = machine(
        tmp_path,
        "0::/weft.slice/weft.service\n",
        {
            "weft.slice/memory.max": "1000",
            "weft.slice/memory.current": "400",
            "weft.slice/weft.service/memory.max": "max",
            "weft.slice/weft.service/memory.current": "9",
        },
    )
    assert (limit_bytes(*where), available_bytes(*where)) == (1000, 600)


def test_control_groups_of_version_1_count(tmp_path: Path) -> None:
    where = machine(
        tmp_path,
        "5:cpu:/x\n4:memory:/docker/abc\n",
        {"memory/memory.limit_in_bytes": "1500", "memory/memory.usage_in_bytes": "500"},
    )
    assert (limit_bytes(*where), available_bytes(*where)) == (1500, 1000)
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limit_bytes(*where) == 9 * 1024


def test_a_machine_that_does_not_tell_has_a_gigabyte(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path) == limit_bytes(tmp_path, tmp_path) == 1 << 30
