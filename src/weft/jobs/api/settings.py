"""What the HTTP interface is told when it starts; limits are of the whole service, and divided between its workers."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from msgspec import Struct

from weft.config import ServerSection
from weft.errors import BadInput

KEYS_FILE = "api-keys.json"
# Written out in full: `127.evil.example` begins like a loopback address, and is none.
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1|\[::1\]", re.IGNORECASE)


class ApiSettings(Struct, frozen=True, kw_only=True):
    """How one worker answers."""

    data_dir: Path
    host: str = "127.0.0.1"
    workers: int = 1
    index: int = 0  # which of the workers this is
    allow_private: bool = False  # tasks may go to loopback and private addresses
    has_proxies: bool = False  # that tasks may ask for
    logins: tuple[str, ...] = ()  # the names of those that tasks may use
    max_articles: int = 10  # pages that a task has in flight, if it does not say otherwise
    retention_s: float = 86_400.0  # tasks are kept for so long after their end
    max_body_bytes: int = 1024 * 1024
    body_timeout_s: float = 20.0  # for a request's body to arrive
    submits_per_s: float = 300.0  # of one key, over time
    submit_burst: int = 600  # and at once
    max_streams: int = 5_000
    max_streams_per_key: int = 2_500
    stall_s: float = 20.0  # a stream whose reader has taken nothing for this long is cut off
    heartbeat_s: float = 15.0  # a stream that has nothing to say says so this often
    listed_keys: Path | None = None  # a file of keys that the operator keeps
    log_dir: Path | None = None  # of the service's log files
    metrics_dir: Path | None = None  # of all processes of the service; none: the worker's own figures alone

    @property
    def keys_file(self) -> Path:
        """Where the API keys are."""
        return self.data_dir / KEYS_FILE

    def share(self, whole: float) -> float:
        """What one worker has of a limit."""
        return max(1.0, whole / self.workers)


def is_loopback(host: str) -> bool:
    """Whether a host, without a port, is a name of this machine that no other machine can use."""
    return _LOOPBACK.fullmatch(host) is not None


def listed_keys_of(server: ServerSection) -> Path | None:
    """The operator's file of keys."""
    return None if server.api_keys_file is None else Path(server.api_keys_file).expanduser()


def check_address(host: str, has_keys: bool, data_dir: str) -> None:
    """Refuses an address that others can reach while nobody needs a key."""
    if not has_keys and not is_loopback(host):
        raise BadInput(
            f"host: {host!r} can be reached by others, and there are no API keys: make one with "
            f"`weft keys create NAME --data-dir {quote(data_dir)}`, name a file of keys in `api_keys_file`, or listen "
            "at 127.0.0.1"
        )
