"""The descriptors that a worker needs, and whether an item has closed or replaced them.

An item may close whatever it finds (`os.closerange(3, 256)` is a common way to tidy up), and the next file that is
opened gets the number: bells would then go into another socket, and another file would be emptied as if it were
the worker's output. Invariant: a worker writes to a descriptor of its own only while that is the file it was.
"""

from __future__ import annotations

import os
import select

Identity = tuple[int, int]


def identity(fd: int) -> Identity | None:
    """The device and inode of the file behind a descriptor; None if it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Descriptors:
    """Remembers which files some descriptors of this process referred to at construction."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = {fd: identity(fd) for fd in fds}
        self._poll = select.poll()
        for fd in fds:
            self._poll.register(fd, 0)

    def intact(self) -> bool:
        """Whether each descriptor still refers to the same file."""
        return all(identity(fd) == before for fd, before in self._fds.items())

    def open(self) -> bool:
        """Whether none was closed, by one cheap system call for every item; a replaced descriptor is not noticed."""
        return not self._poll.poll(0) or self.intact()
