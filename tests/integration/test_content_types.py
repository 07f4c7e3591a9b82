"""What `accept` leaves out: it ends at its head, with a row and its reason, counted and explained; and large bodies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

LARGE = b"<a href=/end>end</a>" + b"<p>words of a large page</p>\n" * 200_000  # 5.8 MB, the end of it not parsed
PAGES = {
    "/": ("text/html", b"".join(b"<a href=%b>x</a>" % path for path in (b"/video", b"/data", b"/bare", b"/large"))),
    "/video": ("video/mp4", b"\0" * 3_000_000),
    "/data": ("application/json", b"{}"),
    "/bare": ("", b"\0\1\2 not text"),
    "/large": ("text/html", LARGE),
    "/end": ("text/html", b"the end"),
}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        media, body = PAGES.get(self.path, ("", b""))
        self.send_response(200 if self.path in PAGES else 404)
        if media:
            self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def weft(*args: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "weft", *args, "--json"], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def crawl(site: str, folder: Path, *flags: str) -> dict[str, Any]:
    settings = ["--delay", "0", "--allow-private", "--data-dir", str(folder), "--prometheus-port", "0"]
    return weft("crawl", f"{site}/", *settings, *flags)


def test_by_default_text_is_stored_and_the_rest_is_left_at_its_head(site: str, tmp_path: Path) -> None:
    said = crawl(site, tmp_path / "crawl")
    assert said["status"]["pages"] == 4
    assert said["status"]["refused"]["content-type"] == 2 and "content-type" not in said["status"]["errors"]
    assert said["status"]["body_bytes"] == sum(len(PAGES[path][1]) for path in ("/", "/data", "/large", "/end"))
    for path, media in (("/video", "video/mp4"), ("/bare", "application/octet-stream")):
        (told,) = weft("explain", str(tmp_path / "crawl"), site + path)["urls"]
        assert (told["crawled"], told["reason"]) == (False, "content-type") and media in told["evidence"]


def test_everything_is_stored_where_that_is_asked_for(site: str, tmp_path: Path) -> None:
    assert crawl(site, tmp_path / "crawl", "--accept", "*/*")["status"]["pages"] == 6


def test_a_large_page_is_stored_whole_and_read_from_its_beginning(site: str, tmp_path: Path) -> None:
    said = crawl(site, tmp_path / "crawl", "--body-memory-bytes", "1048576")
    assert said["status"]["pages"] == 4
    done = subprocess.run(
        [sys.executable, "-m", "weft", "get", str(tmp_path / "crawl"), f"{site}/large", "--body"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == LARGE
