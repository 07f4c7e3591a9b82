"""Sixty of sixty: every behaviour of spec/behaviours.md has its test, by its number, in the files beside this one."""

from __future__ import annotations

import re
from pathlib import Path


def test_each_of_the_sixty_behaviours_has_one_test() -> None:
    files = sorted(Path(__file__).parent.glob("test_behaviours_*.py"))
    found = [int(number) for file in files for number in re.findall(r"(?m)^def test_(\d\d)_", file.read_text())]
    assert sorted(found) == list(range(1, 61))
