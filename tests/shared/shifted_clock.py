"""A wall clock that tests put forward, for processes that they start: the time module of each of them is changed before
anything else is imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SITE = """
import os, time
_real, _file = time.time, {file!r}
def _shifted():
    with open(_file) as file:
        return _real() + float(file.read() or 0)
time.time = _shifted
"""


class ShiftedClock:
    """`forward(seconds)` holds for every Python process that was started with the environment since."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._file = folder / "ahead"
        self.ahead_s = 0.0
        self.forward(0)
        (folder / "sitecustomize.py").write_text(_SITE.format(file=str(self._file)))
        before = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))

    def forward(self, seconds: float) -> None:
        self.ahead_s += seconds
        new = self._file.with_suffix(".new")
        new.write_text(str(self.ahead_s))
        new.replace(self._file)
