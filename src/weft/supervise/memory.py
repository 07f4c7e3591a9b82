"""The memory limit of this process: the machine's memory, or less if a control group or a limit demands it.

Containers and systemd limit by control groups, of version 2 or 1; the limits of enclosing groups count as well. Values
that the kernel does not provide are skipped; without any, one GB is assumed.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

ASSUMED_BYTES = 1 << 30
_NO_LIMIT = 1 << 60  # version 1 has a number near 2**63 if there is no limit


def limit_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The most memory that this process and its children may use together."""
    found = [_meminfo(proc, "MemTotal"), *(limit for limit, _ in _groups(proc, cgroup))]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    found.append(None if soft == resource.RLIM_INFINITY else soft)
    return min((one for one in found if one is not None), default=ASSUMED_BYTES)


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory that is available now."""
    found = [_meminfo(proc, "MemAvailable"), *(limit - used for limit, used in _groups(proc, cgroup))]
    return max(0, min((one for one in found if one is not None), default=ASSUMED_BYTES))


def _meminfo(proc: Path, name: str) -> int | None:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _groups(proc: Path, cgroup: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of each group of this process. In a container its own group may be mounted at the top."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", "1:memory:/"]
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield from _group(cgroup, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _group(cgroup / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _group(root: Path, path: str, limit: str, used: str) -> Iterator[tuple[int, int]]:
    folder = root / path.lstrip("/")
    for one in {root, *(above for above in (folder, *folder.parents) if above.is_relative_to(root))}:
        try:
            text = (one / limit).read_text().strip()
            if text != "max" and int(text) < _NO_LIMIT:
                yield int(text), int((one / used).read_text())
        except (OSError, ValueError):
            continue
