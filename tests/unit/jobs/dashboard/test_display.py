"""How far a task is, as its bar shows it."""

from __future__ import annotations

from weft.jobs.dashboard.display import segments
from weft.jobs.model import JobProgress, Task, TaskSpec


def task(max_pages: int | None) -> Task:
    spec = TaskSpec(max_pages=max_pages)
    return Task(id="0" * 32, owner="", url="http://a.test/", url_count=1, spec=spec, created_at=0.0)


def test_a_bar_leads_to_the_limit_of_pages_however_many_are_known() -> None:
    progress = JobProgress(completed=20, gone=1, failed=2, refused=1, queued=2000, in_flight=30)
    parts = segments(task(40), progress)
    assert parts[0] == (0.0, 45.45) and parts[-1] == (54.55, 45.45), "what is in flight ends with the bar"
