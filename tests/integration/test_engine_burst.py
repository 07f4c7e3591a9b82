"""A crawl of an engine ends, also when its last answers take longer to read than one turn of the loop has time for."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest
from crawling import until

import weft

PAGES = 20
LONG = ("<p>" + "word <b>x</b> <a href='#a'>y</a> " * 12_000).encode()  # takes longer to parse than to send


class _Long(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = "".join(f"<a href=/{n}>x</a>" for n in range(PAGES)).encode()
        if self.path[1:].isdigit():
            body = LONG
        self.send_response(404 if self.path.endswith((".txt", ".xml")) else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("children", [0, 1])
def test_a_crawl_whose_last_answers_come_at_once_ends(tmp_path: Path, children: int) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Long)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with weft.Engine(tmp_path / "engine", parser_children=children) as engine:
            seed = f"http://127.0.0.1:{server.server_address[1]}/"
            engine.open("burst", seeds=[seed], delay=0, per_domain_concurrency=PAGES, allow_private=True)
            until(lambda: engine.standing("burst").pages == PAGES + 1, timeout_s=10, what="the last page")
            ended = until(lambda: engine.standing("burst").reason, timeout_s=5, what="the end of the crawl")
            assert ended == "done"
    finally:
        server.shutdown()
        server.server_close()
