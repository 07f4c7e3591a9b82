"""Detects that more arrived than a response's Content-Length announced: then its body was cut there.

libcurl reads the announced bytes and does not report that there were more. Two things show it. A connection that could
have been kept is dropped, because the surplus bytes are no response. And where the connection was to be closed, the
kernel has counted more bytes than the response has; that works for the only response of a connection, over plain HTTP,
and not behind a SOCKS proxy, whose handshake is counted too. Bytes that arrive after the announced ones were read go
unnoticed.
"""

from __future__ import annotations

import socket
import struct

from weft.fetch.headers import Head

_INFO_BYTES = 136
_RECEIVED_AT = 128  # tcpi_bytes_received, since Linux 4.1
_ESTABLISHED = 1


def has_surplus(head: bytes, answer_bytes: int, opened: socket.socket | None) -> bool:
    """For a complete response after which libcurl dropped the connection; `opened`: its socket, if it was a new one."""
    answer = Head(head)
    if answer.get("content-length") is None or answer.get("transfer-encoding") is not None:
        return False
    if not _closes(answer):
        return True
    return opened is not None and _received(opened) > answer_bytes


def _closes(answer: Head) -> bool:
    words = ",".join(answer.get_all("connection")).lower()
    return "close" in words or (answer.raw.startswith(b"HTTP/1.0") and "keep-alive" not in words)


def _received(opened: socket.socket) -> int:
    """The bytes received over a connection; 0 if the kernel does not report them."""
    info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return 0
    received: int = struct.unpack_from("=Q", info, _RECEIVED_AT)[0]
    return received - (info[0] != _ESTABLISHED)  # the other side's FIN counts as one
