"""Runs a program under limits: its time, the size of any file it writes, the length of what it prints. No shell.

What must stay true: when `run` returns, neither the program nor a process that it started in its group is running.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_ERROR_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class FinishedProgram:
    """The exit code and output of a program that has ended. `is_late`: it was killed at its time limit."""

    code: int
    output: bytes
    error: str
    is_late: bool = False


class TooMuchOutput(Exception):
    """A program printed more than its limit."""


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    folder: Path | None = None,
    max_file_bytes: int | None = None,
    max_output_bytes: int = 64 * 1024 * 1024,
) -> FinishedProgram:
    """Runs a program to its end. Its output goes to files: through a pipe it could fill the memory."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        with _file_limit(max_file_bytes):
            process = subprocess.Popen(  # noqa: S603
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error,
                process_group=0,
                restore_signals=False,  # SIGXFSZ stays ignored: a write beyond the limit fails, and the program says so
            )
        try:
            is_late = not _has_ended(process.pid, timeout_s)
        finally:
            # Also when it has ended: what it left behind ends with it. It is still a zombie, so its number is its own.
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if output.seek(0, os.SEEK_END) > max_output_bytes:
            raise TooMuchOutput(f"{Path(command[0]).name} printed more than {max_output_bytes:,} bytes")
        return FinishedProgram(
            code, _read_output(output), _read_output(error)[:_ERROR_CHARS].decode(errors="replace"), is_late
        )


@contextmanager
def _file_limit(max_file_bytes: int | None) -> Iterator[None]:
    """Lowers this process's own limit while the program is started, which inherits it.

    Setting it between fork and exec is unsafe where there are threads, and from outside it may come too late.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ceilings = [limit for limit in (max_file_bytes, soft, hard) if limit is not None and limit >= 0]
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(ceilings, default=resource.RLIM_INFINITY), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _has_ended(pid: int, timeout_s: float) -> bool:
    """Waits for a process's end without collecting it."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(100.0, timeout_s * 1000)))
    finally:
        os.close(handle)


def _read_output(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()
