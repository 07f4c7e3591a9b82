"""A real browser, Debian's Chromium, for the tests of pages: one for all of them, and a fresh profile for each.

`scripts/tools` puts Chromium and axe-core where they are found; without them the tests are skipped, and say so, or fail
where WEFT_REQUIRE_TOOLS is set.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))  # the harness of the service
from browsing import Open, missing
from pace import patience
from playwright.sync_api import Browser, Page, expect, sync_playwright

# Nothing of its own may go out: there is no network beyond this machine, and there are no updates here.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--mute-audio",
)  # fmt: skip


@pytest.fixture(scope="module")  # while it runs no test of the process may have an event loop of its own
def browser() -> Iterator[Browser]:
    """The browser."""
    program = shutil.which("chromium")
    if program is None:
        missing("chromium")
    with sync_playwright() as playwright:
        expect.set_options(timeout=patience(5) * 1000)  # a context's own limit is not for these
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS), timeout=patience(30) * 1000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Makes pages with a profile of their own; none may have had an error, in the console or out of it."""
    contexts, errors = [], list[str]()

    def one(**options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(patience(10) * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"a page has asked: {dialog.message}"))
        return page

    yield one
    for context in contexts:
        context.close()
    assert errors == []
