"""Pages to store, as the engine would hand them over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weft.records import FetchResult, Row
from weft.store.pages import PageStore

Pages = Callable[..., tuple[Row, FetchResult]]
Open = Callable[..., PageStore]


@pytest.fixture
def page() -> Pages:
    """Makes the n-th page."""

    def make(n: int, body: bytes = b"", head: bytes = b"", **changes: object) -> tuple[Row, FetchResult]:
        url = f"http://h{n % 7}.test/p{n}"
        body = body or b"<p>page %d</p>" % n * 8
        head = head or b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
        at = 1_794_000_000.25 + n
        fields: dict[str, object] = {
            "item": n, "crawl": 1, "url": url, "final_url": url, "status": 200, "fetched_at": at,
            "content_type": "text/html", "charset": "utf-8", "language": "en", "title": f"Page {n}", "depth": n % 4,
            "parent": n // 2, "digest": "", "length": len(body), "error": "",
        }  # fmt: skip
        request = f"GET /p{n} HTTP/1.1\r\nHost: h{n % 7}.test\r\nUser-Agent: Weft\r\n\r\n".encode()
        row = Row(**(fields | changes))  # type: ignore[arg-type]
        return row, FetchResult(row.url, 200, head, body, None, "", at, at + 0.1, "127.0.0.1", request)

    return make


@pytest.fixture
def open_store(tmp_path: Path) -> Open:
    """Opens the store in `tmp_path/data`."""

    def make(**options: object) -> PageStore:
        return PageStore.open([tmp_path / "data"], **({"crawl_id": "c1"} | options))  # type: ignore[arg-type]

    return make
