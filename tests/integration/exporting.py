"""A crawl made without a crawl: rows and records put into a store directly, some of them odd."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.engine.parsing.page_reader import PageReader
from weft.engine.parsing.parsers import Parsers
from weft.records import FetchResult, Row
from weft.store.export.job import Export, ExportResult
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore

AT = 1_794_000_000.25
ODD_TITLES = {
    3: '=HYPERLINK("http://evil.test")',
    4: 'a "quoted", one\nand another',
    6: "+1",
    7: "é ü 漢字 \u2028 \x85",
    8: "-2",
}


def url_of(n: int) -> str:
    """The n-th page's address: five hosts, some with a port, queries and escapes."""
    host = f"www.h{n % 5}.example.com"
    return f"http://{host}:8080/p{n}?b=2&A={n}" if n % 5 == 1 else f"https://{host}/Path/p%20{n}"


def html(n: int) -> str:
    words = f"This is page {n}, and the text that it holds is written in English words for a reader. " * 6
    words += "See <a href=/other>another</a>." if n == 1 else ""
    return f"<html lang=en><head><title>Page {n}</title></head><body><h1>Page {n}</h1><p>{words}</p></body></html>"


def page(n: int, size: int = 0) -> tuple[Row, FetchResult | None]:
    """The n-th item: mostly a page; some were refused, moved, not found, or are no text."""
    url, at = url_of(n), AT + n
    common = {"item": n, "crawl": 1, "url": url, "final_url": url, "fetched_at": at, "depth": n % 4, "parent": n // 2}
    plain = {"content_type": "", "charset": "", "language": "", "title": "", "digest": "", "length": 0, "error": ""}
    if n % 9 == 0:
        return Row(**(common | plain | {"status": 0, "error": "robots: Disallow: /é (line 3)"})), None  # type: ignore[arg-type]
    status, body, content_type = 200, html(n).encode() + b" " * size, "text/html; charset=utf-8"
    if n % 11 == 0:
        common["final_url"], status, body = url_of(n + 1), 301, b""
    elif n % 13 == 0:
        status, body = 404, b"gone"
    elif n % 17 == 0:
        body, content_type = b"\x89PNG\r\n\r\n" + bytes(50), "image/png"
    told = {"status": status, "content_type": content_type.partition(";")[0], "length": len(body), "charset": "utf-8"}
    row = Row(**(common | plain | told | {"title": ODD_TITLES.get(n, f"Page {n}")}))  # type: ignore[arg-type]
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    request = f"GET /{n} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode()
    return row, FetchResult(url, status, head, body, None, "", at - 0.5, at, "127.0.0.1", request)


def make_crawl(folder: Path, pages: int, data_dirs: int = 2, first: int = 1, **options: object) -> list[Path]:
    """A crawl of so many items in the folder; called again, it goes on with it."""
    dirs = [folder / f"data{number}" for number in range(data_dirs)]
    for path in dirs:
        path.mkdir(parents=True, exist_ok=True)
    crawl = CrawlFolder(dirs)
    identity = crawl.open_existing() if crawl.exists() else crawl.start([url_of(1)])
    store = PageStore.open(dirs, crawl_id=identity.id, **options)  # type: ignore[arg-type]
    for n in range(first, first + pages):
        store.add(*page(n))
        if n % 23 == 0:
            store.write()
            store.commit()
    store.close()
    return dirs


def run(dirs: list[Path], order: ExportRequest, out: Path, **options: object) -> ExportResult:
    """An export in this process."""
    with Parsers() as parsers:
        job = Export(order, dirs, PageReader(parsers), crawl_id="c1", info={"software": "Weft"}, **options)  # type: ignore[arg-type]
        return job.to_path(out)


def killed(action: Callable[[Callable[[], None]], object], times: int) -> None:
    """Runs an action in a process of its own, and kills it after so many reports of progress."""
    child = os.fork()
    if child == 0:
        left = times

        def live() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            action(live)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
