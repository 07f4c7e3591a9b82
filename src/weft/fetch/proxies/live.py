"""`live_proxies.json`: the proxies that have passed their last test. Replaced as a whole; readable only by its owner,
since it contains their passwords.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.fetch.proxies.entry import BadProxy, Proxy, parse
from weft.files import replace_file

FILE = "live_proxies.json"
LARGEST_BYTES = 64 << 20


class Live(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proxy, and the result of its test."""

    url: str  # with its password
    latency_s: float
    anonymity: str = "unknown"  # transparent, anonymous, elite, unknown
    tls: bool | None = None  # None: not tested
    tier: int = 0
    country: str = ""

    @property
    def proxy(self) -> Proxy:
        """The proxy for use."""
        return msgspec.structs.replace(parse(self.url, tier=self.tier), country=self.country)


class LiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    schema: int = 1
    tested_at: str = ""
    tested: int = 0  # how many were tested
    proxies: tuple[Live, ...] = ()


def read(path: Path) -> LiveFile | None:
    """The result of the last refresh; None if there was none. BadInput for a file that is something else."""
    try:
        found = msgspec.json.decode(_bytes(path), type=LiveFile)
        for live in found.proxies:
            parse(live.url)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, BadProxy) as error:
        told = error if isinstance(error, msgspec.DecodeError) else "an entry cannot be read"
        raise BadInput(f"{path}: is no {FILE} ({told}): delete it, and run `weft proxies refresh`") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    return found


def write(path: Path, found: LiveFile) -> None:
    """Replaces the file; readers see the old one or the new one."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(found), indent=1))


def is_live_file(path: Path) -> bool:
    """Whether a path is, or will be, a file of this kind, not a list."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except FileNotFoundError:
        return path.suffix == ".json"
    except OSError:
        return False


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        found = file.read(LARGEST_BYTES + 1)
    if len(found) > LARGEST_BYTES:
        raise BadInput(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB, and so no list of proxies")
    return found
