"""What a recrawl's report calls the redirects that it met."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.crawl.folder import CrawlFolder
from weft.crawl.reports.changes import last_changes
from weft.records import FetchResult, Row
from weft.store.pages import PageStore


def row(item: int, url: str, status: int = 200, to: str = "", error: str = "") -> Row:
    url, to = f"http://a.test/{url}", f"http://a.test/{to or url}"
    return Row(item, 1, url, to, status, 1000.0 + item, "text/html", "", "", "", 0, 0, "", 1, error)


def result(one: Row) -> FetchResult:
    head = f"HTTP/1.1 {one.status} X\r\n\r\n".encode()
    return FetchResult(
        one.url, one.status, head, b"x" * (one.item % 7 + 1), None, "", 1.0, 2.0, "", b"GET / HTTP/1.1\r\n\r\n"
    )


def test_a_page_in_a_redirect_loop_has_failed_and_not_moved(tmp_path: Path) -> None:
    folder = CrawlFolder([tmp_path / "data"])
    folder.lock_folder()
    folder.start(["http://a.test/"])
    names = ("a", "b", "into", "moved", "out")
    rows = [row(number, name) for number, name in enumerate(names, 1)]
    rows += [
        row(11, "a", 302, "b"), row(12, "b", 302, "a", "too_many_redirects"), row(13, "into", 301, "a"),
        row(14, "moved", 301, "there"), row(15, "there"), row(16, "out", 301, "elsewhere", "redirect to scope"),
    ]  # fmt: skip
    store = PageStore.open(folder.data_dirs, crawl_id="c")
    for one in rows:
        store.add(one, result(one))
    store.write()
    store.commit()
    store.close()
    folder.begin_recrawl(0, 1010.0, 10)
    report = last_changes(folder)
    folder.release()
    assert report is not None
    assert msgspec.to_builtins(report) == {
        "new": ["http://a.test/there"], "changed": [], "gone": [], "unchanged": 0, "failed": 3,
        "moved": ["http://a.test/moved", "http://a.test/out"],
    }  # fmt: skip
