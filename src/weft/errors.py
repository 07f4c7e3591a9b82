"""The errors of Weft, divided by what the caller does about them.

    WeftError                the root; `exit_code` is that of the command line
    ├── BadInput             the user can correct it: one message that names what is wrong and what to do (exit 2)
    │   ├── BadUrl           a text that is not a crawlable URL; `reason` is a word to count by
    │   ├── NoCrawl          a data dir that was asked about holds no crawl
    │   ├── Occupied         a data dir holds a crawl already: continue it, start it over, or choose another
    │   ├── LoginFailed          a crawl's login has failed: correct it, and continue the crawl
    │   ├── Damaged          a file of a crawl is lost, cut off or altered; the message gives the remedy
    │   └── BadConfig        one or more problems in a configuration, all reported at once
    ├── Busy                 a port, a data dir: another process holds it (exit 2)
    ├── Missing              an optional dependency or program is not installed; the message has the command (exit 2)
    ├── Unparsed             a page kills or blocks its parser: skip it and continue with the rest
    ├── DiskFull             no room: free some, then call the same step again; nothing is lost or half done
    ├── ServerAway           a server that is needed does not answer now: wait, then call the same step again
    └── ServerFull           a server has no room left: make some, then call the same step again

Expected outcomes (404, robots refusal, duplicate) are values, not exceptions.
"""

from __future__ import annotations

import errno
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WeftError(Exception):
    """The root of all errors that Weft raises on purpose."""

    exit_code = 1


class BadInput(WeftError):
    """The user's input is invalid, and the user can correct it."""

    exit_code = 2


class BadUrl(BadInput, ValueError):
    """A text that is not a crawlable URL."""

    def __init__(self, url: str, reason: str, detail: str) -> None:
        shown = url if len(url) <= 120 else url[:100] + "…"
        super().__init__(f"{shown!r}: {detail}")
        self.url = url
        self.reason = reason


class NoCrawl(BadInput):
    """There is no crawl to continue, or to read."""

    def __init__(self, home: Path) -> None:
        super().__init__(f"{home} holds no crawl: start one there first")
        self.home = home


class Occupied(BadInput):
    """A new crawl was requested in a folder that already has one."""

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"{home} holds a crawl already: go on with `resume=True`, start over with `fresh=True`, or choose another "
            "`data_dir`"
        )
        self.home = home


class LoginFailed(BadInput):
    """The login of a crawl has failed, and the crawl has ended: what is queued is kept."""


class NothingStored(UserWarning):
    """A crawl in Python has stored nothing; the message gives the reason, as exit code 4 does on the command line."""


class BadConfig(BadInput):
    """Every problem found in a configuration."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Damaged(BadInput):
    """A file of a crawl is not as it was written, and continuing would lose something silently."""

    def __init__(self, path: Path, detail: str, remedy: str) -> None:
        super().__init__(f"{path}: {detail}; {remedy}")
        self.path = path


# These errors are about the machine or the user, not damage of a file: a backup does not help.
_NOT_DAMAGED = {
    errno.EMFILE: "allow the process more open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files: close some, or raise fs.file-max",
    errno.ENOMEM: "the machine is out of memory",
    errno.EACCES: "run as the user who started the crawl",
    errno.EPERM: "run as the user who started the crawl",
}


def unreadable(path: Path, error: Exception, remedy: str) -> BadInput:
    """The exception for a file that cannot be read: Damaged with the remedy, unless the file is not the reason."""
    advice = _NOT_DAMAGED.get(error.errno or 0) if isinstance(error, OSError) else None
    if advice is not None:
        return BadInput(f"{path}: {error}; {advice}")
    return Damaged(path, f"cannot be read: {error}", remedy)


class Busy(WeftError):
    """Something that only one process can hold is held by another."""

    exit_code = 2


class Missing(WeftError):
    """An optional part is not installed."""

    exit_code = 2

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what} is not installed: {how}")

    @classmethod
    def of_extra(cls, what: str, name: str, otherwise: str = "") -> Missing:
        """The error for a missing extra of Weft; `otherwise` is an alternative to installing it."""
        how = f"it comes with the extra {name!r}: {installing(f'weft[{name}]')}"
        return cls(what, f"{how}; {otherwise}" if otherwise else how)

    @classmethod
    def said(cls, message: str) -> Missing:
        """The error as another process has raised it."""
        error = cls("", "")
        error.args = (message,)
        return error


def installing(requirement: str) -> str:
    """The command that installs something for this Python: environments that uv made have no pip."""
    import shlex
    from importlib.util import find_spec
    from shutil import which

    python, wanted = shlex.quote(sys.executable or "python3"), shlex.quote(requirement)
    if find_spec("pip") is not None:
        return f"{python} -m pip install {wanted}"
    if which("uv") is not None:
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m ensurepip && {python} -m pip install {wanted}"


class Unparsed(WeftError):
    """One page cannot be parsed: `kind` is parse_crash or parse_timeout; other pages are not affected."""

    def __init__(self, url: str, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.url = url
        self.kind = kind


class DiskFull(WeftError):
    """There is no room for data that must be written."""

    def __init__(self, path: Path) -> None:
        self.why = "no space left on the device (or a quota is used up): free some and go on"
        super().__init__(f"{path}: {self.why}")
        self.path = path


class ServerAway(WeftError):
    """A server cannot be reached, or is not ready yet; it may be later."""


class ServerFull(WeftError):
    """A server accepts no more data until there is room."""


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# SQLite reports ENOSPC as FULL, a quota or size limit as a failed write, a full tmpfs as a failed SHMSIZE.
_SQLITE_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"})


_SQLITE_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports that the file itself is broken, not that it is busy, full or misused."""
    return getattr(error, "sqlite_errorname", "").startswith(_SQLITE_DAMAGED)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's and SQLite's errors for a full disk into DiskFull."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull(path) from error
        raise
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") in _SQLITE_NO_ROOM:
            raise DiskFull(path) from error
        raise
