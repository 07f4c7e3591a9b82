"""The search of the documentation site: what a newcomer types leads to the page with the answer.

The questions were written before the pages were read. `make docs` builds the site and names it in WEFT_TEST_SITE.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FIRST = 5  # results that are seen without scrolling
SCRIPT = Path(__file__).parents[1] / "shared/site_search.mjs"

# Who asks what, and the pages that answer.
QUESTIONS = {
    # a user of Scrapy
    "run scrapy spider": ["from-scrapy"],
    "DOWNLOAD_DELAY": ["from-scrapy"],
    "items csv": ["how-to/own-code", "from-scrapy", "spiders"],
    "item pipeline": ["from-scrapy"],
    "login form": ["how-to/login", "tutorials/spider-with-login"],
    "pause and resume": ["how-to/continue"],
    "user agent": ["settings"],
    "css selector": ["how-to/fields", "spiders"],
    "concurrent requests per domain": ["settings"],
    "javascript page": ["how-to/javascript"],
    # an operator
    "systemd": ["deploy"],
    "backup": ["operations/backup"],
    "upgrade": ["operations/upgrade"],
    "revoke api key": ["reference/cli", "tutorials/service-for-a-team"],
    "how much memory": ["operations/capacity"],
    "alerts": ["how-to/prometheus"],
    "disk full": ["operations/incidents"],
    "health check": ["how-to/prometheus"],
    "exit code": ["reference/exit-codes"],
    "several machines": ["how-to/several-machines"],
    # a data scientist
    "pandas": ["how-to/pandas"],
    "parquet": ["how-to/pandas"],
    "main text without navigation": ["extraction"],
    "english language only": ["tutorials/data-set"],
    "duplicates": ["tutorials/data-set", "pages"],
    "jupyter notebook": ["how-to/notebook"],
    "list of urls": ["how-to/list-of-urls"],
    "markdown for llm": ["how-to/markdown", "tutorials/manual-for-a-model"],
    "only changed pages": ["how-to/what-has-changed"],
    "pdf text": ["extraction"],
}

pytestmark = [
    pytest.mark.skipif("WEFT_TEST_SITE" not in os.environ, reason="needs the built site: `make docs`"),
    pytest.mark.skipif(shutil.which("node") is None, reason="the site's search runs on node, which is not here"),
]


def test_what_newcomers_type_leads_to_the_answer_without_scrolling() -> None:
    done = subprocess.run(
        ["node", SCRIPT, os.environ["WEFT_TEST_SITE"]],
        input=json.dumps([*QUESTIONS]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = dict(zip(QUESTIONS, json.loads(done.stdout), strict=True))
    missed = {
        typed: found[typed][:FIRST]
        for typed, pages in QUESTIONS.items()
        if not {f"{page}.html" for page in pages} & {*found[typed][:FIRST]}
    }
    assert missed == {}
