"""A scraped page as its task has ordered it: what `Result.document` holds, for every front door and export.

The first keys are in every document; formats and fields are added to them where the task's spec asks for them.
"""

from __future__ import annotations

from typing import Any

from weft.engine.stored_page import CrawledPage
from weft.jobs.model import TaskSpec


def document(page: CrawledPage, spec: TaskSpec) -> dict[str, Any]:  # noqa: ARG001
    """What a caller gets of a page."""
    row = page.row
    return {
        "url": row.url,
        "final_url": row.final_url,
        "status": row.status,
        "title": row.title,
        "content_type": row.content_type,
        "depth": row.depth,
        "fetched_at": row.fetched_at,
        "length": row.length,
    }
