"""What systemd is told, at a socket of its kind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.supervise.notify import ServiceManager


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def messages(listener: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


def test_ready_and_stopping_are_sent_once_and_children_do_not_inherit_the_socket(heard: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "3000000", "OTHER": "1"}
    manager = ServiceManager.from_environment(environment)
    assert environment == {"OTHER": "1"}
    for _ in range(2):
        manager.ready("up\nat http://127.0.0.1")
        manager.stopping()
    assert messages(heard) == ["READY=1\nSTATUS=up at http://127.0.0.1", "STOPPING=1"]


def test_the_watchdog_hears_from_a_loop_that_turns(heard: socket.socket) -> None:
    now = [100.0]
    manager = ServiceManager(heard.getsockname(), 3.0, clock=lambda: now[0])
    manager.ready()
    messages(heard)
    for _ in range(13):
        manager.turn()
        now[0] += 0.25
    assert messages(heard) == ["WATCHDOG=1"] * 4


def test_a_long_start_and_a_long_stop_are_extended_while_the_loop_turns(heard: socket.socket) -> None:
    now = [100.0]
    manager = ServiceManager(heard.getsockname(), clock=lambda: now[0])
    manager.turn()
    now[0] += 1
    manager.turn()
    assert messages(heard) == ["EXTEND_TIMEOUT_USEC=30000000"]
    now[0] += 5
    manager.ready()
    manager.turn()
    assert len(messages(heard)) == 1
    manager.stopping()
    manager.turn()
    assert messages(heard) == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000"]


def test_without_a_manager_and_for_another_process_nothing_is_sent(heard: socket.socket) -> None:
    ServiceManager.from_environment({}).ready()
    other = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid() + 1)}
    manager = ServiceManager.from_environment(other)
    manager.ready()
    manager.turn()
    assert [message.partition("\n")[0] for message in messages(heard)] == ["READY=1"]
    ServiceManager("/nowhere/at/all", 3.0).turn()  # whoever does not listen is no reason to fail
