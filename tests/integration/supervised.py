"""The system of one data dir, as `weft up` runs it: asked, killed, looked at from the kernel's side."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from crawling import environment, until, weft

from weft.supervise import process
from weft.system import state as kept


class System:
    """Commands of `weft` on one folder."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = ("--port", "0", "--allow-private", *flags)

    def up(self) -> dict[str, Any]:
        """Returns when all is healthy."""
        done = weft("up", "--json", "--data-dir", self.folder, *self._flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def down(self) -> dict[str, Any]:
        done = weft("down", "--json", "--data-dir", self.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def status(self) -> dict[str, dict[str, Any]]:
        """The rows, by service; the form is checked."""
        done = weft("status", "--json", "--data-dir", self.folder)
        document = json.loads(done.stdout)
        assert document["schema"] == 1
        rows = document["services"]
        for row in rows:
            assert set(row) == {
                "name", "state", "healthy", "pid", "since", "restarts", "last_error", "last_error_at",
            }  # fmt: skip
        assert done.returncode == (0 if rows and all(row["healthy"] for row in rows) else 1)
        return {row["name"]: row for row in rows}

    def pids(self) -> dict[str, int]:
        return {name: row["pid"] for name, row in self.status().items() if row["pid"] is not None}

    @property
    def supervisor(self) -> int:
        state = kept.read(self.folder)
        assert state is not None and state.supervisor is not None
        return state.supervisor.pid

    def processes(self) -> list[int]:
        """All that belong to it, as the kernel knows them: by mark, by command line, by parent."""
        place = str(self.folder)
        found = []
        for pid in process.pids():
            is_named = any(place in argument for argument in process.command_line(pid))
            if pid != os.getpid() and not process.has_ended(pid) and (is_named or self._is_marked(pid)):
                found.append(pid)
        return found

    def _is_marked(self, pid: int) -> bool:
        lock = self.folder / kept.LOCK
        if not lock.exists():
            return False
        fd = os.open(lock, os.O_RDWR)
        try:
            return process.carries(pid, kept.mark_of(fd))
        finally:
            os.close(fd)

    def mark(self) -> dict[str, str]:
        """The environment of this folder's processes."""
        fd = os.open(self.folder / kept.LOCK, os.O_RDWR)
        try:
            name, _, value = kept.mark_of(fd).partition("=")
        finally:
            os.close(fd)
        return environment() | {name: value}

    def is_gone(self) -> None:
        """Nothing of it is left; a process may take a moment to be reaped."""
        until(lambda: not self.processes(), 10, f"the end of {self.processes()}")
