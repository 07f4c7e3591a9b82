"""Tells whether more came than a response's Content-Length announced: then its body is cut there, and is not whole.

libcurl reads as much as was announced and does not tell that there was more. Two things give it away. A connection that
could have been kept is dropped, because what follows is no next answer. And where the connection was to be closed, the
kernel has counted more bytes than the answer has; of an answer that is its connection's only one, over plain HTTP.
What arrives after the announced bytes were read stays unknown.
"""

from __future__ import annotations

import socket
import struct

from weft.fetch.headers import Head

_INFO_BYTES = 136
_RECEIVED_AT = 128  # tcpi_bytes_received, since Linux 4.1
_ESTABLISHED = 1


def has_surplus(head: bytes, answer_bytes: int, opened: socket.socket | None) -> bool:
    """Of a page that came whole, after which libcurl dropped the connection; `opened`, if it was opened for it."""
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
    """The bytes that came over a connection; 0 where the kernel does not tell."""
    info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return 0
    received: int = struct.unpack_from("=Q", info, _RECEIVED_AT)[0]
    return received - (info[0] != _ESTABLISHED)  # the other side's FIN counts as one
