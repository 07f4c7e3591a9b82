"""`weft serve` as a container runs it: process 1, another user than root, a root that cannot be written, one folder
that can, secrets in files, watched by a service manager."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import until
from pace import patience
from ports import free_port

from weft.supervise import process

KILLS = 20 if os.environ.get("WEFT_TEST_CHAOS") else 4
KEY = "a-key-of-an-operator-0123456789"
# Nothing but the folder can be written; the last `unshare` makes another user of us, who owns what we own.
CONFINED = """
set -e
folder=$1; shift
mount --make-rprivate /
mount --bind "$folder" "$folder"
for at in $(cut -d' ' -f2 /proc/self/mounts | sort -r); do
  case $at in /proc*|/sys*|/dev*|"$folder") ;; *) mount -o remount,bind,ro "$at" || true;; esac
done 2>/dev/null
! touch /tmp/weft-was-here 2>/dev/null
exec env -i PATH="$PATH" unshare --user --map-user=1000 --map-group=1000 "$@"
"""
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.geteuid() != 0:
    NAMESPACES[1:1] = ["--user", "--map-root-user"]


def can_be_confined(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = [*NAMESPACES, "sh", "-c", CONFINED, "sh", str(folder), "true"]
    return subprocess.run(tried, capture_output=True).returncode == 0


class Container:
    """One `weft serve`, and what can be seen of it from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.data = folder / "data"
        self.data.mkdir(mode=0o700)
        keys = self.data / "keys"
        keys.write_text(KEY)
        keys.chmod(0o400)
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.bind(str(self.data / "notify"))
        self.heard.setblocking(False)
        self.told: list[str] = []
        variables = {
            "WEFT_API_KEYS_FILE": keys, "WEFT_ALLOW_PRIVATE": "true", "NOTIFY_SOCKET": self.data / "notify",
            "WATCHDOG_USEC": "3000000",
        }  # fmt: skip
        words = [*(f"{name}={value}" for name, value in variables.items()), sys.executable, "-m", "weft", "serve"]
        flags = ["--data-dir", self.data, "--port", self.port, "--log-format", "json"]
        self.outer = subprocess.Popen(
            [*NAMESPACES, "sh", "-c", CONFINED, "sh", self.data, "env", *words, *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.pid = until(lambda: next(iter(process.children(self.outer.pid)), 0), what="the first process")

    def messages(self) -> list[str]:
        while True:
            try:
                self.told += self.heard.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self.told

    def is_healthy(self) -> bool:
        assert self.outer.poll() is None, self.outer.communicate()
        self.messages()
        try:
            return bool(
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=patience(3)).status == 200
            )
        except OSError:
            return False

    def descendants(self) -> list[int]:
        found, waiting = list[int](), [self.pid]
        while waiting:
            children = process.children(waiting.pop())
            found += children
            waiting += children
        return found

    def zombies(self) -> list[int]:
        return [pid for pid in self.descendants() if process.state(pid) == "Z"]

    def stop(self) -> tuple[int, list[dict[str, Any]]]:
        """SIGTERM to process 1; the exit code, and the lines of its log."""
        os.kill(self.pid, signal.SIGTERM)
        out, err = self.outer.communicate(timeout=patience(60))
        assert b"Traceback" not in err, err.decode()
        return self.outer.returncode, [json.loads(line) for line in out.decode().splitlines()]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    if not can_be_confined(tmp_path):
        pytest.skip("no namespaces can be made here")
    made = Container(tmp_path)
    try:
        yield made
    finally:
        if made.outer.poll() is None:
            made.outer.kill()
            made.outer.wait()
        made.heard.close()


@pytest.mark.timeout(600)
def test_it_survives_the_deaths_of_its_children_and_leaves_no_zombie(container: Container) -> None:
    until(container.is_healthy, what="the service")
    asked = urllib.request.Request(
        f"http://127.0.0.1:{container.port}/scraping/status", headers={"Authorization": f"Bearer {KEY}"}
    )
    assert urllib.request.urlopen(asked, timeout=patience(10)).status == 200
    # An orphan: its parent ends at once, and process 1 gets it.
    inside = ["nsenter", "--target", str(container.pid), "--pid", "--mount", "sh", "-c", "sleep 0.2 & exit 0"]
    has_orphan = subprocess.run(inside, capture_output=True).returncode == 0
    choice = random.Random(5)
    for _ in range(KILLS):
        os.kill(choice.choice([pid for pid in container.descendants() if process.state(pid) != "Z"]), signal.SIGKILL)
        until(container.is_healthy, 90, "the service")
    assert has_orphan or os.geteuid() != 0
    until(lambda: not container.zombies(), 30, "the last zombie's end")
    code, lines = container.stop()
    assert code == 0
    assert {"Pod-0-Supervisor-0", "Pod-0-Engine-0", "Pod-0-Api-0"} <= {line["process"] for line in lines}
    told = container.messages()
    assert told.count("READY=1") == 1 and told.count("STOPPING=1") == 1 and "WATCHDOG=1" in told
    assert told.index("READY=1") < told.index("STOPPING=1")


def test_a_stop_while_it_starts_is_heard(container: Container) -> None:
    until(lambda: (container.data / "service.lock").exists(), what="the start")
    code, _ = container.stop()
    assert code in (0, 143)
    assert "READY=1" not in container.messages()
