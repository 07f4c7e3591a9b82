"""A name server on loopback, over UDP and TCP, with configurable faults: for tests and benchmarks.

    with NameServer({"a.example": Says("192.0.2.1")}) as names:
        ... names.address ...          # "127.0.0.1:PORT", as `dns_servers` wants it

A name that is not in the zone does not exist; `*.example` represents every name below it.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Self

_HEAD = struct.Struct(">HHHHHH")
_A, _CNAME, _AAAA = 1, 5, 28
_ANSWER, _CUT = 0x8180, 0x8380
_RESPONSE_CODES = {"formerr": 1, "servfail": 2, "absent": 3, "refused": 5}


class Says:
    """The answer for a name: `addresses`, `ttl_s`, and in `how` a fault.

    `how`: servfail, refused, absent, never; `late` (after `late_s`), `cut` (truncated over UDP, complete over TCP),
    `loop` (a circular CNAME), `alias` (through a CNAME), `garbage` (not DNS), `forged` (first an answer with a wrong id
    and the addresses of an attacker, then the right one), `other` (an answer to another question).
    """

    def __init__(self, *addresses: str, ttl_s: int = 60, how: str = "", late_s: float = 0.0) -> None:
        self.addresses = addresses
        self.ttl_s = ttl_s
        self.how = how
        self.late_s = late_s


ABSENT = Says(how="absent")


@dataclass(frozen=True, slots=True)
class _Question:
    id: int
    name: str
    kind: int
    raw: bytes  # as it is in the message


class NameServer:
    """Serves a zone from a thread."""

    def __init__(self, zone: Mapping[str, Says], stranger: str = "203.0.113.66") -> None:
        self.zone = dict(zone)
        self.asked: Counter[tuple[str, str]] = Counter()  # questions by name and transport
        self._stranger = stranger
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._udp.bind(self._tcp.getsockname())
        self._late_messages: list[tuple[float, bytes, tuple[str, int]]] = []
        self._wake_pipe, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="name-server", daemon=True)

    @property
    def address(self) -> str:
        """The address for the setting `dns_servers`."""
        return f"127.0.0.1:{self._tcp.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()
        self._thread.join()
        for one in (self._tcp, self._udp, self._wake_pipe):
            one.close()

    def _serve(self) -> None:
        while True:
            wait_s = (
                max(0.0, min(at for at, _, _ in self._late_messages) - time.monotonic())
                if self._late_messages
                else None
            )
            ready = select.select([self._udp, self._tcp, self._wake_pipe], [], [], wait_s)[0]
            if self._wake_pipe in ready:
                return
            if self._udp in ready:
                self._answer_udp()
            if self._tcp in ready:
                self._answer_tcp()
            self._send_late()

    def _answer_udp(self) -> None:
        try:
            while True:
                message, sender = self._udp.recvfrom(4096, socket.MSG_DONTWAIT)
                question = _parse_question(message)
                self.asked[question.name, "udp"] += 1
                for late_s, answer in self._messages_for(question, is_tcp=False):
                    if late_s:
                        self._late_messages.append((time.monotonic() + late_s, answer, sender))
                    else:
                        self._udp.sendto(answer, sender)
        except BlockingIOError:
            pass

    def _answer_tcp(self) -> None:
        connection, _ = self._tcp.accept()
        with connection:
            connection.settimeout(5)
            length = int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")
            question = _parse_question(connection.recv(length, socket.MSG_WAITALL))
            self.asked[question.name, "tcp"] += 1
            for _, answer in self._messages_for(question, is_tcp=True):
                connection.sendall(len(answer).to_bytes(2, "big") + answer)

    def _send_late(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._late_messages if entry[0] <= now]:
            self._late_messages.remove(entry)
            self._udp.sendto(entry[1], entry[2])

    def _messages_for(self, question: _Question, *, is_tcp: bool) -> list[tuple[float, bytes]]:
        """The messages to send, each with its delay."""
        says = self._answer_for(question.name)
        right = _encode_answer(question, says.addresses, says.ttl_s)
        match says.how:
            case "never":
                return []
            case "late":
                return [(says.late_s, right)]
            case "cut" if not is_tcp:
                return [(0.0, _encode_answer(question, (), 0, flags=_CUT))]
            case "loop":
                return [(0.0, _encode_answer(question, (), says.ttl_s, alias=question.name))]
            case "alias":
                return [(0.0, _encode_answer(question, says.addresses, says.ttl_s, alias="alias." + question.name))]
            case "garbage":
                return [(0.0, b"\xff" * 40)]
            case "forged":
                forged = _Question(question.id ^ 0x5555, question.name, question.kind, question.raw)
                return [(0.0, _encode_answer(forged, (self._stranger,), 3600)), (0.0, right)]
            case "other":
                other = _Question(
                    question.id, "other.example", question.kind, _encode_question("other.example", question.kind)
                )
                return [(0.0, _encode_answer(other, (self._stranger,), 3600))]
            case "" | "cut":
                return [(0.0, right)]
            case how:
                return [(0.0, _encode_answer(question, (), 0, flags=_ANSWER | _RESPONSE_CODES[how]))]

    def _answer_for(self, name: str) -> Says:
        return self.zone.get(name) or self.zone.get("*." + name.partition(".")[2]) or ABSENT


def _parse_question(message: bytes) -> _Question:
    at, labels = _HEAD.size, list[str]()
    while size := message[at]:
        labels.append(message[at + 1 : at + 1 + size].decode("latin-1").lower())
        at += 1 + size
    raw = message[_HEAD.size : at + 5]
    return _Question(int.from_bytes(message[:2], "big"), ".".join(labels), int.from_bytes(raw[-4:-2], "big"), raw)


def _encode_question(name: str, kind: int) -> bytes:
    return _encode_name(name) + kind.to_bytes(2, "big") + b"\0\x01"


def _encode_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".")) + b"\0"


def _encode_answer(
    question: _Question, addresses: tuple[str, ...], ttl_s: int, flags: int = _ANSWER, alias: str = ""
) -> bytes:
    """An answer with the addresses of the requested type, owned by the alias if there is one."""
    records, owner = list[bytes](), b"\xc0\x0c"
    if alias:
        records.append(_record(owner, _CNAME, ttl_s, _encode_name(alias)))
        owner = _encode_name(alias)
    for address in map(ip_address, addresses):
        kind = _A if address.version == 4 else _AAAA
        if kind == question.kind:
            records.append(_record(owner, kind, ttl_s, address.packed))
    return _HEAD.pack(question.id, flags, 1, len(records), 0, 0) + question.raw + b"".join(records)


def _record(owner: bytes, kind: int, ttl_s: int, data: bytes) -> bytes:
    return owner + struct.pack(">HHIH", kind, 1, ttl_s, len(data)) + data
