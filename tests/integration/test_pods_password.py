"""Managed pods with a password: their servers have it, every process of the crawl gives it, and nobody else sees it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from crawling import Crawler, check_corpus, processes, weft
from pace import patience

from weft.crawl.pods.servers import managed_folder
from weft.errors import BadInput
from weft.frontier.redis.connection import RedisSettings, connect, inspect_server
from weft.supervise.redis_server import socket_path
from weft.testing.web import synthetic_web

pytestmark = pytest.mark.timeout(240)
PASSWORD = 'not "for" your eyes'
PODS = ("--pods", "managed", "--fetchers-per-pod", 1, "--parsers-per-pod", 1)


def test_a_crawl_with_a_password_runs_is_looked_at_and_resumes(tmp_path: Path) -> None:
    with synthetic_web(hosts=4, pages=400, stocked=1, seed=3, profile="calm") as web:
        crawler = Crawler(web.seeds, tmp_path, *PODS, delay_s=0.5)
        folder = managed_folder(crawler.data_dir / "frontier", 0)
        url = f"unix://{socket_path(folder)}"
        with crawler.running(WEFT_REDIS_PASSWORD=PASSWORD) as running:
            crawler.pages_at_least(2, 60)
            with pytest.raises(BadInput, match="needs a password"):
                inspect_server(url, connect(url))
            assert inspect_server(url, connect(url, RedisSettings(password=PASSWORD))).address == url + "?db=0"
            looked = weft("explain", crawler.data_dir, "http://127.1.0.1:1/never-found")
            assert "password" not in looked.stdout + looked.stderr, looked
            (server,) = processes(crawler, running.pid, "server")
            assert PASSWORD.encode() not in Path(f"/proc/{server}/cmdline").read_bytes()
            running.terminate()
            assert running.wait(patience(60)) == 130, crawler.said
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not [path for path in folder.rglob("*") if path.lstat().st_mode & 0o077]
        pages = len(crawler.pages())
        assert crawler.run("--max-pages", pages + 5, resume=True) == 3, "it is kept with the crawl's settings"
        assert len(crawler.pages()) == pages + 5
        check_corpus(crawler)
        assert PASSWORD not in "".join(path.read_text() for path in (crawler.data_dir / "logs").rglob("*.log"))
