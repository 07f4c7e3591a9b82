"""Settings of the HTTP interface. Limits are of the whole service, and divided between its workers."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from msgspec import Struct

from weft.config import ServerSection
from weft.errors import BadInput

KEYS_FILE = "api-keys.json"
# Anchored at the end: `127.evil.example` begins like a loopback address, and is none.
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1|\[::1\]", re.IGNORECASE)


class ApiSettings(Struct, frozen=True, kw_only=True):
    """The settings of one worker."""

    data_dir: Path
    host: str = "127.0.0.1"
    workers: int = 1
    index: int = 0  # of this worker, from 0
    allow_private: bool = False  # tasks may go to loopback and private addresses
    has_proxies: bool = False  # the service has proxies that tasks may use
    logins: tuple[str, ...] = ()  # names of the logins that tasks may use
    max_articles: int = 10  # pages that a task has in flight by default
    retention_s: float = 86_400.0  # how long tasks are kept after their end
    max_body_bytes: int = 1024 * 1024
    body_timeout_s: float = 20.0  # for a request's body to arrive
    submits_per_s: float = 300.0  # of one key, over time
    submit_burst: int = 600  # and in one burst
    max_streams: int = 5_000
    max_streams_per_key: int = 2_500
    stall_s: float = 20.0  # a stream whose reader has read nothing for this long is closed
    heartbeat_s: float = 15.0  # interval of heartbeats on a stream without events
    listed_keys: Path | None = None  # a file of keys that the operator maintains
    log_dir: Path | None = None  # of the service's log files
    metrics_dir: Path | None = None  # of all processes of the service; None: only this worker's metrics

    @property
    def keys_file(self) -> Path:
        """The path of the file with the API keys."""
        return self.data_dir / KEYS_FILE

    def share(self, whole: float) -> float:
        """This worker's share of a limit of the whole service."""
        return max(1.0, whole / self.workers)


def is_loopback(host: str) -> bool:
    """Whether a host, without a port, is a loopback name, which no other machine can use."""
    return _LOOPBACK.fullmatch(host) is not None


def listed_keys_of(server: ServerSection) -> Path | None:
    """The operator's file of keys, if one is configured."""
    return None if server.api_keys_file is None else Path(server.api_keys_file).expanduser()


def check_address(host: str, has_keys: bool, data_dir: str) -> None:
    """Refuses to listen on an address that other machines can reach while there are no API keys."""
    if not has_keys and not is_loopback(host):
        raise BadInput(
            f"host: {host!r} can be reached by others, and there are no API keys: make one with "
            f"`weft keys create NAME --data-dir {quote(data_dir)}`, name a file of keys in `api_keys_file`, or listen "
            "at 127.0.0.1"
        )
