"""Logins, cookies and configured headers are sent, and not kept; what is kept is its owner's alone."""

from __future__ import annotations

import gzip
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from crawling import Crawler
from exporting import make_crawl, page

from weft.cli.main import run as weft_here
from weft.store.pages import PageStore


class Guarded(BaseHTTPRequestHandler):
    """Wants a login, and sets a cookie."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        is_known = self.headers.get("Authorization") is not None
        body = b"<a href=/two>two</a>" if is_known else b"no"
        self.send_response(200 if is_known else 401)
        if not is_known:
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Set-Cookie", "sid=cookie-secret")
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawler]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tmp_path_factory.mktemp("crawled")
    (folder / "config.yaml").write_text(
        "auth: {127.0.0.1: 'me:login-secret'}\nheaders: {X-Key: header-secret, Accept-Language: de}\n"
        "store: [warc, text]\n"
    )
    before = os.umask(0o022)
    try:
        crawler = Crawler(
            [f"http://127.0.0.1:{server.server_port}/"], folder, "--config", folder / "config.yaml", delay_s=0
        )
        assert crawler.run() == 0, crawler.said
        yield crawler
    finally:
        os.umask(before)
        server.shutdown()
        server.server_close()


SECRETS = (b"bWU6bG9naW4tc2VjcmV0", b"login-secret", b"header-secret")


def requests_in(path: Path) -> bytes:
    """What a WARC file holds, but for responses' own cookies."""
    return gzip.decompress(path.read_bytes()).replace(b"Set-Cookie: sid=cookie-secret", b"")


def test_credentials_are_sent_and_not_stored(crawled: Crawler) -> None:
    sent = Guarded.seen[-1]
    assert sent["authorization"] == "Basic bWU6bG9naW4tc2VjcmV0" and sent["x-key"] == "header-secret"
    assert sent["cookie"] == "sid=cookie-secret"
    assert len(crawled.pages()) == 2
    stored = b"".join(requests_in(path) for path in (crawled.data_dir / "warc").glob("*/*"))
    assert not [secret for secret in (*SECRETS, b"cookie-secret") if secret in stored]
    for header in (b"Authorization: [masked]", b"X-Key: [masked]", b"Cookie: [masked]", b"Accept-Language: de"):
        assert header in stored


def test_what_a_crawl_stores_is_its_owner_s_alone(crawled: Crawler) -> None:
    found = [path for name in ("warc", "content", "index-*") for path in crawled.data_dir.glob(name)]
    found += [path for folder in found if folder.is_dir() for path in folder.rglob("*")]
    assert {path.suffix for path in found} >= {".gz", ".txt", ".db", ".lock"}
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_modes_hold_while_it_is_written_and_after_a_rebuild_and_given_folders_keep_theirs(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        dirs = make_crawl(tmp_path, 5, data_dirs=1)
        (dirs[0] / "warc").chmod(0o755)
        store = PageStore.open(dirs, crawl_id="c", slot="second")
        store.add(*page(6))
        store.write()
        store.commit()
        index = list(dirs[0].glob("index-*"))
        assert {path.suffix for path in index} >= {".db", ".db-wal", ".db-shm"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in index} == {0o600}
        assert stat.S_IMODE((dirs[0] / "warc").stat().st_mode) == 0o755
        store.close()
        fresh = tmp_path / "new" / "data"
        PageStore.open([fresh], crawl_id="c").close()
        assert stat.S_IMODE(fresh.stat().st_mode) == stat.S_IMODE((fresh / "warc").stat().st_mode) == 0o700
        assert stat.S_IMODE(fresh.parent.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_exports_are_masked_and_readable_as_the_user_wants(crawled: Crawler, tmp_path: Path) -> None:
    out = tmp_path / "o.warc.gz"
    assert weft_here(["export", str(crawled.data_dir), "--format", "warc", "--out", str(out), "--quiet"]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert not [secret for secret in SECRETS if secret in requests_in(out)]
