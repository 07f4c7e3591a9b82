"""What tests in a browser need: what to do without one, and axe-core's word on a page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from playwright.sync_api import Page

AXE = Path(__file__).parents[2] / ".tools" / "axe" / "axe.min.js"
Open = Callable[..., Page]


def missing(what: str) -> NoReturn:
    """Skips, or fails where everything must be there."""
    said = f"{what} is missing: `scripts/tools` fetches it"
    if os.environ.get("WEFT_REQUIRE_TOOLS"):
        pytest.fail(said)
    pytest.skip(said)


def axe(page: Page, *rules: str) -> list[str]:
    """What axe-core finds that is serious or critical, with where; by some of its rules, or by all that are on."""
    if not AXE.exists():
        missing("axe-core")
    page.evaluate(AXE.read_text("utf-8"))  # past the page's policy, which forbids strange scripts
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']}: {one['help']}: {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
