"""The text of a script: what it calls of the part that all share, and no more."""

from __future__ import annotations

import re

import pytest

from weft.frontier.redis.scripts import SCRIPT_NAMES, script_source


@pytest.mark.parametrize("name", sorted(SCRIPT_NAMES))
def test_a_script_has_the_functions_that_it_needs_and_no_other(name: str) -> None:
    text = re.sub(r"--.*", "", script_source(name))
    defined = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    assert len(set(defined)) == len(defined)
    for function in defined:
        assert len(re.findall(rf"\b{function}\b", text)) > 1, function
