"""A crawl's Redis pods as a whole: servers that it keeps, all checked before one is touched, and their stats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from crawling import weft_here
from pace import patience
from server_kills import kill_written_at

from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.servers import ManagedServers, claim_pods, forget_pods, managed_folder
from weft.engine.loop.progress import CrawlStatus
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.pod_view import PodCounters, read_counters
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import FetchResult, Found, Row
from weft.store.pages import PageStore
from weft.supervise.redis_server import RedisServer, socket_path

SETTINGS = RedisSettings(socket_timeout_s=1, connect_timeout_s=1)
StartServer = Callable[..., RedisServer]


def test_managed_servers_come_together_and_come_back(tmp_path: Path) -> None:
    servers = ManagedServers(tmp_path, range(3))
    servers.start()
    try:
        assert claim_pods("crawl1", servers.urls, SETTINGS, here=range(3)) == {0: True, 1: True, 2: True}
        kill_written_at(servers.urls[1])
        until = time.monotonic() + patience(20)
        for is_back in (False, True):  # its threads end after it, and only then is its death told
            while servers.check() != is_back:
                assert time.monotonic() < until
                time.sleep(0.01)
        assert claim_pods("crawl1", servers.urls, SETTINGS, here=range(3)) == {0: False, 1: False, 2: False}
    finally:
        servers.stop()
    again = ManagedServers(tmp_path, range(3))
    again.start()
    assert claim_pods("crawl1", again.urls, SETTINGS, here=range(3)) == {0: False, 1: False, 2: False}
    forget_pods("crawl1", again.urls, SETTINGS)
    assert claim_pods("crawl2", again.urls, SETTINGS, here=range(3)) == {0: True, 1: True, 2: True}
    again.stop()


def test_a_crawl_that_is_refused_has_touched_no_pod(start_server: StartServer) -> None:
    servers = [start_server() for _ in range(3)]
    urls = {pod: server.url for pod, server in enumerate(servers)}
    connect(urls[2]).set("shop:basket", 1)
    with pytest.raises(BadInput, match="holds 1 keys that are not a crawl's"):
        claim_pods("crawl1", urls, SETTINGS, here=range(3))
    assert [connect(url).dbsize() for url in urls.values()] == [0, 0, 1]
    with pytest.raises(BadInput, match="pods 0 and 1 are one database"):
        claim_pods("crawl1", {0: urls[0], 1: urls[0] + "?db=0"}, SETTINGS, here=range(2))
    assert connect(urls[0]).dbsize() == 0


def test_a_pod_of_another_node_may_be_away(start_server: StartServer, tmp_path: Path) -> None:
    urls = {0: start_server().url, 1: f"unix://{tmp_path}/none.sock"}
    said: list[str] = []
    assert claim_pods("crawl1", urls, SETTINGS, here=[0], complain=said.append) == {0: True}
    (complaint,) = said
    assert complaint.startswith("pod 1, of another node: unix://") and "no server is running there" in complaint
    with pytest.raises(BadInput, match=r"pod 1: unix://.*no server is running there"):
        claim_pods("crawl1", urls, SETTINGS, here=[0, 1])


def store(folder: CrawlFolder, slot: str, pages: int, first: int) -> None:
    """Pages of a slot, as its process would have left them."""
    opened = PageStore.open(folder.data_dirs, crawl_id="c", slot=slot, software="Weft/9")
    for item in range(first, first + pages):
        url = f"http://h.test/{item}"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
        row = Row(
            item=item, crawl=1, url=url, final_url=url, status=200, fetched_at=1e9, content_type="text/html",
            charset="utf-8", language="", title="", depth=0, parent=0, digest="", length=4, error="",
        )  # fmt: skip
        opened.add(
            row, FetchResult(url, 200, head, b"page", None, "", 1e9, 1e9, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
        )
    opened.write()
    opened.commit()
    opened.close()


def queue(url: str, folder: Path, urls: int) -> None:
    section = PolitenessSection(delay_s=1.0, places=1)
    frontier = RedisFrontier(connect(url), folder, section, slot="pod0-fetcher0")
    crawl = frontier.crawls.open_crawl("crawl", CrawlLimits())
    frontier.queue.admit(crawl, [Found(f"http://h{n % 5}.test/{n}", 0) for n in range(urls)])
    frontier.durability.commit()
    frontier.close()


def test_stats_tell_how_the_pods_share_the_work(start_server: StartServer, tmp_path: Path) -> None:
    folder = CrawlFolder([tmp_path / "crawl"])
    folder.lock_folder()
    folder.start(["http://h.test/"], 3, on_redis=True)
    servers = [start_server(), start_server("valkey", folder=managed_folder(folder.frontier, 1)), start_server()]
    store(folder, "pod0-parser0", 3, 1)
    store(folder, "pod0-parser1", 4, 10)
    store(folder, "pod1-parser0", 2, 20)
    queue(servers[0].url, tmp_path / "f0", 5)
    queue(servers[1].url, tmp_path / "f1", 70)
    pods = [{"redis_url": servers[0].url}, {"managed": True}, {"redis_url": servers[2].url}]
    folder.keep_settings({"pods": pods})
    assert servers[1].socket == socket_path(managed_folder(folder.frontier, 1))
    (folder.home / "status").mkdir()
    for name, queued, at in (("pod2-fetcher0", 1, 5.0), ("pod2-fetcher1", 40, 6.0), ("pod0-fetcher0", 999, 7.0)):
        status = CrawlStatus(queued=queued, seen=queued * 2, sites=3, updated_at=at)
        (folder.home / "status" / f"{name}.json").write_bytes(msgspec.json.encode(status))
    servers[2].stop()

    facts = json.loads(weft_here("stats", folder.home, "--json").stdout)["pods"]
    assert facts["each"] == [
        {"pod": 0, "pages": 7, "rows": 7, "queued": 5, "seen": 5, "sites": 5, "source": "server"},
        {"pod": 1, "pages": 2, "rows": 2, "queued": 70, "seen": 70, "sites": 5, "source": "server"},
        {"pod": 2, "pages": 0, "rows": 0, "queued": 40, "seen": 80, "sites": 3, "source": "status"},
    ]
    assert facts["imbalance"] == {"pages": pytest.approx(7 / 3, abs=0.001), "queued": pytest.approx(1.826, abs=0.001)}
    assert facts["hot"] == [0, 1]
    text = weft_here("stats", folder.home).stdout
    assert "pods       3, largest over mean: pages 2.33, queued 1.83" in text
    assert [line.split() for line in text.splitlines() if line.endswith("hot")] == [
        ["0", "7", "5", "5", "5", "hot"],
        ["1", "2", "70", "70", "5", "hot"],
    ]
    folder.keep_settings({"pods": pods, "only_pods": "1,2"})
    facts = json.loads(weft_here("stats", folder.home, "--json").stdout)["pods"]
    assert ([each["pod"] for each in facts["each"]], facts["hot"], facts["of"]) == ([1, 2], [1], 3)
    assert "runs 2 of 3 pods; the others' pages are on other nodes" in weft_here("stats", folder.home).stdout


def test_a_server_that_is_no_pods_tells_nothing(start_server: StartServer) -> None:
    server = start_server()
    client = connect(server.url)
    assert read_counters(client, "here") == PodCounters(0, 0, 0, 0, 0)
    client.set("n", "a string")
    with pytest.raises(BadInput, match="here: "):
        read_counters(client, "here")
