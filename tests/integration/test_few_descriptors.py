"""A crawl of many hosts in a process that may have few open files."""

from __future__ import annotations

import http.server
import resource
import threading
from pathlib import Path

from crawling import Crawler
from pace import patience

HOSTS, FILES = 300, 256


class Site(http.server.BaseHTTPRequestHandler):
    """Keeps connections open, as most servers do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"<title>page</title><p>Words of a page." if self.path == "/" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def test_every_page_comes_with_256_descriptors(tmp_path: Path) -> None:
    server = Server(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seeds = [f"http://h{number}.test:{server.server_address[1]}/" for number in range(HOSTS)]
    crawler = Crawler(seeds, tmp_path, "--resolve", "*=127.0.0.1", delay_s=0)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    running = crawler.start()
    resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    assert running.wait(patience(120)) == 0, crawler.said
    assert len(crawler.pages()) == HOSTS
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    server.shutdown()
    server.server_close()
