"""A scrape in the background: submitted, watched live, and its pages taken as they come in.

weft serve --email you@example.com          # in another terminal
python examples/jobs_demo.py http://localhost:8000 https://example.com
"""

from __future__ import annotations

import sys

from weft.client import Weft


def main(server: str, url: str) -> int:
    weft = Weft(server)
    task = weft.submit(url, max_depth=1, max_pages=10, formats=["markdown"])
    print(f"task {task.task_id}: {task.status}", flush=True)
    for event in weft.events(task.task_id):
        if event.kind == "state":
            print(f"{event.number}: {event.data['state']}", flush=True)
        elif event.kind == "page":
            print(f"{event.number}: {event.data['status']} {event.data['url']}", flush=True)
        elif event.kind == "error":
            print(f"{event.number}: {event.data['error_class']} {event.data['url']}", flush=True)
    for page in weft.pages(task.task_id):
        print(f"{page.title or page.url}: {len(page.markdown or '')} characters")
    status = weft.status(task.task_id)
    progress = status.progress
    print(f"{status.status}, {status.finish_reason}: {progress.completed} pages of {progress.discovered} URLs")
    return 0 if status.status == "COMPLETED" else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
