"""The arrival log: one line of JSON per request that reached the synthetic web, written by the server as it answers.

The times bracket the client's: `t` is taken after the request's first byte was read, so it is never before the client
began; `end` is taken before the last byte of the answer is handed to the kernel, so it is never after the client had
it. A request that the client aborted (`aborted`) ends with the last bytes that were sent while it was connected. A
request that was read only after its client had disconnected (`abandoned`: it gave up waiting, or was killed) has no
known start and end, except that both were before `t`. A polite client therefore shows no violation, however busy the
machine is.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from weft.errors import BadInput

FLUSH_S = 0.2


class Arrival(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request. Times are time.monotonic() seconds; `host` is the host as this web names it."""

    t: float
    end: float
    host: str
    port: int
    method: str
    path: str
    status: int
    bytes: int
    note: str
    headers: list[tuple[str, str]] = []
    connection: int = 0
    # where hosts are names: the address that was asked
    address: str = ""
    scheme: str = "http"
    retry_after_s: float | None = None
    aborted: bool = False
    # the client had hung up before this request was read
    abandoned: bool = False
    # another request to this host was open on the client's side when this one arrived
    overlaps: bool = False

    @property
    def url(self) -> str:
        default = 443 if self.scheme == "https" else 80
        return f"{self.scheme}://{self.host}{'' if self.port == default else f':{self.port}'}{self.path}"


class ArrivalLog:
    """Buffers lines and writes them on `flush`, which the server calls every FLUSH_S and at its end."""

    def __init__(self, path: Path | None) -> None:
        self._file: BinaryIO | None = path.open("ab", buffering=0) if path else None
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        self.count = 0

    def add(self, arrival: Arrival) -> None:
        self.count += 1
        if self._file:
            self._lines.append(self._encode(arrival))

    def flush(self) -> None:
        if self._file and self._lines:
            self._file.write(b"\n".join(self._lines) + b"\n")
            self._lines.clear()

    def close(self) -> None:
        self.flush()
        if self._file:
            self._file.close()
            self._file = None


def read_arrivals(path: Path | str) -> list[Arrival]:
    """The requests of a log, in the order they arrived; a last line still being written is left out."""
    data = Path(path).read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    decode = msgspec.json.Decoder(Arrival).decode
    try:
        arrivals = [decode(line) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: not an arrival log: {error}") from error
    return sorted(arrivals, key=lambda arrival: arrival.t)
