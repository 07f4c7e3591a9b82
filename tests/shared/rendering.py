"""A browser process without an engine: what it is asked and what it answers, as a test sees it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pace import patience

from weft.fetch.browser.messages import HostSettings, PartQuestion, RenderedPage, RenderOptions, RenderOrder
from weft.fetch.browser.renderer import Rendering, RenderLink
from weft.records import FetchResult

NOTHING = FetchResult("", 200, b"", b"", None, "", 0.0, 0.0, "", b"")


class BrowserProcess:
    """A browser process, and the engine's end of it."""

    def __init__(self, folder: Path, **more: Any) -> None:
        """`more`: of the settings."""
        self.settings = HostSettings(shutil.which("chromium") or "", str(folder), max_browsers=1, **more)
        self.link = RenderLink(self.settings)
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        here, there = socket.socketpair()
        argv = [sys.executable, "-m", "weft.fetch.browser.host", str(there.fileno())]
        process = subprocess.Popen(argv, pass_fds=[there.fileno()])
        there.close()
        self.link.connect(here)
        return process

    def begin(
        self,
        url: str,
        html: str,
        done: Callable[[RenderedPage], None],
        *,
        refuse: Callable[[PartQuestion], str | None] = lambda _: "",
        left_s: float = 0.0,
        options: RenderOptions | None = None,
        **more: Any,
    ) -> None:
        """Has a page rendered; `more`: of its order. A part that is neither refused nor permitted (None) waits on."""
        left_s = left_s or patience(20)
        order = RenderOrder(
            0, url, 200, [("Content-Type", "text/html; charset=utf-8")], html.encode(), "Tester/1.0", left_s,
            options or RenderOptions(longest_settle_s=patience(3)),
            **{"allow_private": True, "loopback_only": True} | more,
        )  # fmt: skip

        def judge(question: PartQuestion) -> None:
            if (refused := refuse(question)) is not None:
                self.link.answer(question, refused)

        page = Rendering(order, NOTHING, url, time.monotonic() + left_s + patience(10), done, judge)
        self.link.render(page)

    def render(self, url: str, html: str, **how: object) -> RenderedPage:
        """A page, waited for."""
        came: list[RenderedPage] = []
        self.begin(url, html, came.append, **how)  # type: ignore[arg-type]
        self.until(lambda: bool(came))
        return came[0]

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + patience(60)
        while not is_so():
            assert time.monotonic() < end, "it takes too long"
            self.link.poll()
            time.sleep(0.01)

    def close(self) -> None:
        self.link.close()
        self.process.wait(patience(10))


@contextmanager
def profiles() -> Iterator[Path]:
    """A folder that an unprivileged browser can reach, and whose name is short enough for its sockets."""
    folder = Path(tempfile.mkdtemp(prefix="wb-"))
    folder.chmod(0o711)
    yield folder / "p"
    shutil.rmtree(folder, ignore_errors=True)


def chromiums(folder: str) -> list[int]:
    """The processes whose profile lies in a folder: browsers, and what they have started."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if folder.encode() in command and b"weft.fetch.browser" not in command and state != "Z":
                pids.append(int(entry.name))
    return pids


def belongs_to(pid: int, ancestor: int) -> bool:
    """Whether a process descends from another."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return False
    return False
