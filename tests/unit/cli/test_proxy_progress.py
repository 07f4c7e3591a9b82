"""What a refresh of proxies shows while it runs."""

from __future__ import annotations

import io
import sys

import pytest

from weft.cli.proxies import RefreshDisplay
from weft.fetch.proxies.refresh import RefreshJob


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, quiet: bool = False) -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    progress = RefreshDisplay(quiet=quiet)
    for status, chunks in (("DISPATCHED", 0), ("PROCESSING", 1), ("PROCESSING", 2), ("COMPLETE", 2)):
        progress(RefreshJob(job_id="1", status=status, total_chunks=2, completed_chunks=chunks, result_count=7))
    progress.close()
    return screen.getvalue()


def test_on_a_terminal_it_is_one_line_and_elsewhere_a_line_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = shown_on(Terminal(), monkeypatch)
    assert "\n" not in drawn and drawn.count("\r") == 3 and drawn.endswith("\r\x1b[K")
    lines = shown_on(io.StringIO(), monkeypatch).splitlines()
    assert lines == [f"weft: testing proxies: {number} of 2 chunks, 7 work" for number in (1, 2)]
    assert shown_on(Terminal(), monkeypatch, quiet=True) == ""
