"""The live display on a real terminal: what is left on the screen when somebody presses Ctrl-C, once or twice."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crawling import WEFT, environment, until
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web

# Makes the terminal on its standard input its own, as a shell would, so that Ctrl-C reaches it.
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
BOX = re.compile("[╭╮╰╯│]")
_PIECE = re.compile(r"\x1b\[[?]?([0-9;]*)([A-Za-z])|([\r\n])|(.)", re.DOTALL)


class Screen:
    """As much of a terminal as the display uses: lines, the cursor in them, and what has scrolled off the top."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._lines = [""] * rows
        self._above: list[str] = []
        self._row = self._column = 0

    def write(self, text: str) -> None:
        for number, command, control, letter in _PIECE.findall(text):
            if control == "\r":
                self._column = 0
            elif control == "\n":
                self._down()
            elif letter:
                self._put(letter)
            elif command == "A":
                self._row = max(0, self._row - int(number or 1))
            elif command == "K":
                self._lines[self._row] = "" if number == "2" else self._lines[self._row][: self._column]

    def text(self) -> str:
        """Everything that can be seen, by scrolling up, too."""
        return "\n".join(line.rstrip() for line in (*self._above, *self._lines)).strip()

    def _put(self, letter: str) -> None:
        if self._column == self._columns:  # a full line wraps with the next letter
            self._column = 0
            self._down()
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
        self._column += 1

    def _down(self) -> None:
        if self._row < self._rows - 1:
            self._row += 1
            return
        self._above.append(self._lines.pop(0))
        self._lines.append("")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, columns: int, rows: int, *command: object) -> None:
        self._size = columns, rows
        self._keyboard, self._device = os.openpty()
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._written = b""
        plain = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *WEFT, *map(str, command)],
            stdin=self._device, stdout=self._device, stderr=self._device, start_new_session=True,
            env=plain | {"TERM": "xterm-256color", "LANG": "C.UTF-8"},
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self._written += os.read(self._keyboard, 65536)
            except OSError:
                return

    def text(self) -> str:
        """What is on the screen now."""
        screen = Screen(*self._size)
        screen.write(self._written.decode("utf-8", "ignore"))
        return screen.text()

    def press(self, key: bytes) -> None:
        os.write(self._keyboard, key)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._device)[3] & termios.ECHO)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)
        os.close(self._device)


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=6, pages=200, seed=4, latency_s=0.05) as web:
        yield web


@contextmanager
def crawling(web: SyntheticWeb, folder: Path, columns: int, rows: int, *flags: object) -> Iterator[Terminal]:
    """A crawl whose display is drawn."""
    seeds = folder / "seeds.txt"
    seeds.write_text("".join(f"{seed}\n" for seed in web.seeds))
    terminal = Terminal(
        columns, rows, "crawl", "--seed-file", seeds, "--allow-private", "--delay", 0.5, "--prometheus-port", 0,
        "--data-dir", folder / "data", *flags,
    )  # fmt: skip
    try:
        until(lambda: "weft crawl · running" in terminal.text() and "http://" in terminal.text(), 90, "the display")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize(
    ("columns", "rows", "flags", "presses"),
    [(100, 40, (), 1), (140, 40, ("--num-pods", 2), 2), (44, 14, ("--num-pods", 2), 1), (80, 8, (), 2)],
    ids=["one process", "pods, wide, twice", "pods, narrow", "low, twice"],
)
def test_ctrl_c_leaves_the_summary_alone_on_the_screen(
    web: SyntheticWeb, tmp_path: Path, columns: int, rows: int, flags: tuple[object, ...], presses: int
) -> None:
    with crawling(web, tmp_path, columns, rows, *flags) as terminal:
        assert not terminal.echoes()
        terminal.press(b"\n\x03" if presses == 1 else b"\x03")  # Enter would move the rows, too
        if presses == 2:
            until(lambda: "stopping:" in terminal.text(), 60, "the answer to the first")
            terminal.press(b"\x03")
        assert terminal.process.wait(patience(60)) == 130
        text = until(lambda: text if "The corpus is in" in (text := terminal.text()) else None, 20, "the summary")
        assert terminal.echoes(), "the terminal is as it was"
    assert not BOX.search(text), text
    assert "^C" not in text.partition("Interrupted")[0], "a second one may come when all is over"
    joined = text.replace("\n", "")
    said_before, stopping, rest = joined.partition("stopping: ")
    assert said_before.startswith("weft: 5 seeds of 4 domains over 2 pods") == bool(flags), "told at the start"
    assert (stopping + rest).startswith(
        "stopping: requests in flight are finished first (Ctrl-C again stops at once)Interrupted: "
    )


def test_a_crawl_that_ends_by_itself_and_one_that_is_watched_leave_no_rows(web: SyntheticWeb, tmp_path: Path) -> None:
    with crawling(web, tmp_path, 100, 30, "--max-pages", 40) as terminal:
        watching = Terminal(100, 12, "watch", tmp_path / "data")
        try:
            until(lambda: "weft crawl · running" in watching.text(), 60, "the display of who watches")
            assert terminal.process.wait(patience(120)) == 3
            assert watching.process.wait(patience(60)) == 0
            seen = until(lambda: text if "limit:" in (text := watching.text()) else None, 20, "its last line")
            text = until(lambda: text if "The corpus is in" in (text := terminal.text()) else None, 20, "the summary")
            assert watching.echoes() and terminal.echoes()
        finally:
            watching.close()
    assert text.startswith("Stopped by a limit (max_pages): 40 pages in ")
    assert re.fullmatch(r"limit: 40 pages, [\d,]+ URLs queued", seen)
