"""Every report command on the folder of a service that runs and of an engine: over all crawls, and of one by name."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crawling import until, weft_here
from engines import ended, host, shared
from pace import patience
from served_http import Service, service_in

import weft
from weft.frontier.requests import SettingsInForce, read_events
from weft.testing.web import SyntheticWeb, synthetic_web

PAGES = 12
DELAY_S = 0.3


class Site(BaseHTTPRequestHandler):
    """A front page with links to pages; those under /held/ are answered when the test lets go."""

    protocol_version = "HTTP/1.1"
    release = threading.Event()

    def do_GET(self) -> None:
        links = "".join(f'<a href="{number}">{number}</a>' for number in range(PAGES))
        if self.path.startswith("/held/") and not self.path.endswith("/held/"):
            self.release.wait(patience(60))
        is_page = self.path != "/robots.txt"
        body = (f"<title>{self.path}</title><p>Some text.</p>{links if self.path.endswith('/') else ''}").encode()
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Served(NamedTuple):
    """A service with tasks: two that have ended, and one that runs until the site lets go."""

    service: Service
    site: str
    done: list[str]
    running: str

    @property
    def folder(self) -> Path:
        return self.service.folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    try:
        with service_in(tmp_path_factory.mktemp("service") / "data") as service:
            client = service.client
            done = [client.submit(f"{site}/{name}/", max_depth=1).task_id for name in ("one", "two")]
            for task in done:
                assert client.wait(task, timeout=patience(30)).status == "COMPLETED"
            running = client.submit(f"{site}/held/", max_depth=1).task_id
            until(lambda: client.status(running).progress.completed == 1, what="the first page of the task that runs")
            try:
                yield Served(service, site, done, running)
            finally:
                Site.release.set()
    finally:
        server.shutdown()
        server.server_close()


def asked(*words: object, code: int = 0) -> dict[str, Any]:
    done = weft_here(*words, "--json")
    assert done.returncode == code, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_stats_of_a_service_has_every_task_and_their_sum(served: Served) -> None:
    facts = asked("stats", served.folder)
    tasks = {one["crawl"]: one for one in facts["crawls"]}
    assert set(tasks) == {*served.done, served.running}
    assert {tasks[task]["state"] for task in served.done} == {"finished"}
    assert (tasks[served.running]["state"], tasks[served.running]["pages"]) == ("running", 1)
    assert facts["state"] == "running" and facts["pages"] == sum(one["pages"] for one in tasks.values())
    one = asked("stats", served.folder, "--crawl", served.done[0])
    assert (one["crawl"], one["rows"], one["pages"]) == (served.done[0], PAGES + 1, PAGES + 1)
    assert one["hosts"] == {"127.0.0.1": PAGES + 1} and facts["rows"] == 2 * (PAGES + 1) + 1
    text = weft_here("stats", served.folder).stdout
    assert served.running in text and "crawls     3" in text


def test_a_url_is_found_in_the_tasks_that_have_it(served: Served) -> None:
    url = f"{served.site}/two/3"
    page = asked("get", served.folder, url)
    assert (page["crawl"], page["crawls"], page["title"]) == (served.done[1], [served.done[1]], "/two/3")
    assert weft_here("get", served.folder, url, "--text", "--crawl", served.done[1]).stdout.strip() == "Some text."
    assert weft_here("get", served.folder, url, "--crawl", served.done[0]).returncode == 2
    (answer,) = asked("explain", served.folder, url)["urls"]
    assert (answer["crawl"], answer["crawled"], answer["reason"]) == (served.done[1], True, "page")
    (other,) = asked("explain", served.folder, url, "--crawl", served.done[0])["urls"]
    assert (other["crawl"], other["crawled"], other["reason"]) == (served.done[0], False, "unknown")
    (waits,) = asked("explain", served.folder, f"{served.site}/held/3")["urls"]
    assert (waits["crawl"], waits["reason"]) == (served.running, "queued")
    nobody = asked("explain", served.folder, f"{served.site}/nobody-links-here")["urls"]
    assert {one["crawl"] for one in nobody} == {*served.done, served.running}


def test_politeness_is_proved_for_every_task(served: Served) -> None:
    facts = asked("audit", served.folder)
    assert facts["violations"] == [] and facts["forgotten"] == facts["unproven"] == 0
    requests = {one["crawl"]: one["requests"] for one in facts["crawls"]}
    assert set(requests) == {*served.done, served.running} and sum(requests.values()) == facts["requests"]
    one = asked("audit", served.folder, "--crawl", served.done[1])
    assert one["requests"] == requests[served.done[1]] >= PAGES + 1
    assert served.running in weft_here("audit", served.folder).stdout


def test_exports_have_all_tasks_or_one(served: Served, tmp_path: Path) -> None:
    def rows(*words: object) -> list[dict[str, Any]]:
        done = weft_here("export", served.folder, "--format", "jsonl", "--out", tmp_path / "o.jsonl", *words)
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        (tmp_path / "o.jsonl").unlink()
        return found

    counted = Counter(row["crawl"] for row in rows())
    assert counted == {served.done[0]: PAGES + 1, served.done[1]: PAGES + 1, served.running: 1}
    alone = rows("--crawl", served.done[0])
    assert len(alone) == PAGES + 1 and all("/one/" in row["url"] and "crawl" not in row for row in alone)


def test_watch_shows_what_runs(served: Served) -> None:
    facts = asked("watch", served.folder)
    assert [one["crawl"] for one in facts["crawls"]] == [served.running] and facts["state"] == "running"
    assert asked("watch", served.folder, "--crawl", served.done[0])["state"] == "finished"
    said = weft_here("watch", served.folder, "--crawl", served.done[0])
    assert (said.returncode, said.stderr) == (0, f"finished: {PAGES + 1} pages, 0 URLs queued\n")


@pytest.mark.parametrize("command", ["stats", "get", "explain", "audit", "export", "watch"])
def test_a_name_that_is_wrong_gets_those_there_are(served: Served, tmp_path: Path, command: str) -> None:
    more: dict[str, list[object]] = {
        "get": ["http://a/"],
        "explain": ["http://a/"],
        "export": ["--format", "csv", "--out", tmp_path / "o"],
    }
    done = weft_here(command, served.folder, *more.get(command, []), "--crawl", "nobody")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "there is no crawl 'nobody'" in done.stderr and served.running in done.stderr


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=2, pages=30, stocked=1) as web:
        yield web


def test_an_engine_s_requests_are_judged_by_the_settings_in_force(web: SyntheticWeb, tmp_path: Path) -> None:
    """An edit leaves its trace in the log: without that trace the shorter delay would be a violation."""
    with weft.Engine(tmp_path, **shared(web) | {"robots_patience_seconds": 0}) as engine:
        engine.open("slow", host(web, 0), delay=DELAY_S)
        until(lambda: engine.standing("slow").requests > 3, what="requests by the first delay")
        engine.edit("slow", delay=0)
        engine.open("other", host(web, 1), max_pages=3)
        assert ended(engine, "slow").pages > 5 and ended(engine, "other").pages == 3
    events = [event for event in read_events(tmp_path / "frontier/requests") if isinstance(event, SettingsInForce)]
    assert [(one.crawl, one.revision) for one in events] == [(1, 1), (1, 2), (2, 1)]
    facts = asked("audit", tmp_path)
    assert facts["violations"] == [] and [one["crawl"] for one in facts["crawls"]] == ["slow", "other"]
    (log,) = (tmp_path / "frontier/requests").glob("*.log")
    lines = log.read_bytes().splitlines(True)
    log.write_bytes(b"".join(line for line in lines if not (line.startswith(b"C\t") and b"\t1\t2\t" in line)))
    wrong = asked("audit", tmp_path, code=1)["violations"]
    assert {(one["crawl"], one["kind"]) for one in wrong} == {("slow", "delay")}


def test_an_engine_s_folder_is_rebuilt_and_read(web: SyntheticWeb, tmp_path: Path) -> None:
    with weft.Engine(tmp_path, **shared(web)) as engine:
        for number, name in enumerate(("a", "b")):
            engine.open(name, host(web, number), max_pages=4)
            ended(engine, name)
        engine.open("gone", host(web, 0), max_pages=1)
        number = ended(engine, "gone").id
        engine.forget("gone")
        until(lambda: not (tmp_path / "warc" / str(number)).exists(), what="the end of its pages")
    before, audited = asked("stats", tmp_path), asked("audit", tmp_path)
    assert audited["forgotten"] > 0 and audited["violations"] == []
    assert audited["requests"] == audited["forgotten"] + sum(one["requests"] for one in audited["crawls"])
    states = [(one["crawl"], one["pages"], one["state"]) for one in before["crawls"]]
    assert states == [("a", 4, "limit"), ("b", 4, "limit")]
    assert before["state"] == "finished"
    for path in tmp_path.glob("index-*.db-*"):
        path.unlink()
    assert asked("rebuild", tmp_path)["pages"] == 8
    after = asked("stats", tmp_path)
    assert (after["pages"], after["crawls"][0]["crawl"]) == (8, "a")
    assert asked("stats", tmp_path, "--crawl", "b")["rows"] == asked("stats", tmp_path, "--crawl", "b")["urls"]
    refused = weft_here("crawl", "--resume", "--data-dir", tmp_path)
    assert refused.returncode == 2 and "holds an engine" in refused.stderr
    refused = weft_here("crawl", host(web, 0), "--fresh", "--allow-private", "--data-dir", tmp_path)
    assert refused.returncode == 2 and "holds an engine" in refused.stderr and asked("stats", tmp_path)["pages"] == 8
