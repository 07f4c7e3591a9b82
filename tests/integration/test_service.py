"""`weft serve` from outside, over real HTTP: what curl sees, what a web page may not, kills, streams, floods, and the
OpenAPI document held against the service."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from crawling import environment, until, weft
from pace import patience
from served_http import Service, service_in
from warcio.archiveiterator import ArchiveIterator

from weft.client import Weft
from weft.client.errors import Refused
from weft.scraping import TaskStatus

CHAOS = os.environ.get("WEFT_TEST_CHAOS") == "1"
EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = 30


class Site(BaseHTTPRequestHandler):
    """A front page with links to articles, which take as long as their URLs say; and a few odd ones."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/to-metadata":
            self._answer(302, "", ("Location", "http://169.254.169.254/latest/meta-data/"))
        elif self.path == "/robots.txt":
            self._answer(404, "")
        elif found := re.fullmatch(r"/(slow|quick)/", self.path):
            links = "".join(f'<a href="{number}">{number}</a>' for number in range(PAGES))
            self._answer(200, f"<title>{found[1]}</title>{links}", ("Set-Cookie", "session=secret; Path=/"))
        else:
            time.sleep(0.3 if self.path.startswith("/slow") else 0)
            self._answer(200, f"<title>{self.path}</title><p>{'a text ' * 50}</p>")

    def _answer(self, status: int, body: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", "text/html"), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("service") / "data") as service:
        yield service


def check_sum(status: TaskStatus) -> TaskStatus:
    p = status.progress
    assert p.discovered == p.completed + p.gone + p.failed + p.refused + p.queued + p.in_flight, status
    return status


def test_curl_as_in_the_readme(service: Service, site: str) -> None:
    def curl(*words: str) -> str:
        done = subprocess.run(["curl", "-sS", *words], capture_output=True, text=True, timeout=patience(30))
        assert done.returncode == 0, done
        return done.stdout

    if shutil.which("curl") is None:
        pytest.skip("no curl is here")
    order = json.dumps({"url": f"{site}/slow/", "max_depth": 1, "max_concurrent_articles": 1})
    made = json.loads(curl("-H", "Content-Type: application/json", "-d", order, f"{service.url}/scraping/async-scrape"))
    status, results, task = (service.url + made["links"][name] for name in ("status", "results", "cancel"))
    found = until(lambda: json.loads(curl(results))["results"], what="a page while it runs")
    assert found[0]["title"] == "slow"
    running = json.loads(curl(status))
    assert (running["status"], running["finish_reason"]) == ("RUNNING", None)
    assert json.loads(curl("-X", "DELETE", task))["status"] == "CANCELLED"
    ended = json.loads(curl(status))
    assert (ended["status"], ended["finish_reason"], ended["progress"]["in_flight"]) == ("CANCELLED", "cancelled", 0)
    kept = json.loads(curl(results))["results"]
    assert 1 <= len(kept) == ended["progress"]["completed"] <= PAGES, "what was scraped is kept"


def test_a_page_in_a_browser_cannot_use_the_service(service: Service, site: str) -> None:
    before = len(list(service.client.tasks()))
    order, own = {"url": f"{site}/quick/"}, f"127.0.0.1:{service.port}"
    for headers, field in (
        ({"Origin": "https://evil.example"}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"Origin": "http://127.0.0.1:3000"}, "Origin"),
        ({"Host": "evil.example"}, "Host"),
        ({"Host": f"evil.example:{service.port}", "Origin": f"http://evil.example:{service.port}"}, "Host"),
        ({"Host": own, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, "Sec-Fetch-Site"),
    ):  # fmt: skip
        status, found, body = service.submit_raw(order, **headers)
        assert (status, json.loads(body)["errors"][0]["field"]) == (403, field), headers
        assert not [name for name in found if name.startswith("access-control")]
        assert service.ask("GET", "/scraping/tasks", None, **headers)[0] == 403
    form = service.ask("POST", "/scraping/async-scrape", b'{"url":"x"}', Content_Type="text/plain")
    assert form[0] == 415, "what a form can send is not read"
    assert len(list(service.client.tasks())) == before
    assert service.submit_raw(order, Host=own, Origin=f"http://{own}")[0] == 202


def test_bodies_that_are_too_large_or_no_json_are_refused(service: Service) -> None:
    large = json.dumps({"url": "https://example.com/", "exclude": ["x" * 2_000_000]}).encode()
    kind = {"Content_Type": "application/json"}
    assert service.ask("POST", "/scraping/async-scrape", large, **kind)[0] == 413
    assert service.ask("POST", "/scraping/async-scrape", b"{nonsense", **kind)[0] == 400
    chunked = b"10\r\n{ \r\n"
    status, _, _ = service.ask("POST", "/scraping/async-scrape", chunked[:0], Transfer_Encoding="nonsense", **kind)
    assert status in (400, 501)


def test_a_redirect_to_a_metadata_address_is_not_followed(service: Service, site: str) -> None:
    with pytest.raises(Refused, match="cloud metadata"):
        service.client.submit("http://169.254.169.254/latest/meta-data/")
    found = service.client.scrape(f"{site}/to-metadata", max_depth=0, progress=False)
    assert (list(found), found.status.status) == ([], "FAILED")
    assert [(error.error_class, "169.254.169.254" in error.url) for error in found.errors] == [("blocked", True)]


def test_the_client_scrapes_and_shows_how_far_it_is(service: Service, site: str) -> None:
    seen: list[TaskStatus] = []
    order = {"name": "title", "body": {"css": "p", "required": True}}
    pages = service.client.scrape(
        f"{site}/quick/", max_depth=1, formats=["markdown"], extract=order, progress=seen.append
    )
    assert len(pages) == len({page.url for page in pages}) == PAGES + 1
    assert [check_sum(status).status for status in seen][-1] == "COMPLETED"
    assert {page.title for page in pages} == {"quick", *(f"/quick/{number}" for number in range(PAGES))}
    assert all(page.fields["name"] == page.title for page in pages)
    articles = [page for page in pages if page.title != "quick"]
    assert all("a text" in (page.markdown or "") and "a text" in page.fields["body"] for page in articles)
    (linked,) = service.client.scrape(f"{site}/quick/", max_depth=0, progress=False)
    (bare,) = service.client.scrape(f"{site}/quick/", max_depth=0, links="text", progress=False)
    assert "](http" in (linked.markdown or "") and "](http" not in (bare.markdown or "](http")


def test_the_command_line_submits_watches_and_takes(service: Service, site: str, tmp_path: Path) -> None:
    where = ("--server", service.url)
    done = weft("jobs", "submit", f"{site}/quick/", "--max-depth", 1, "--watch", "--json", *where)
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "COMPLETED"), done
    task_id = json.loads(done.stdout)["task_id"]
    assert weft("jobs", "results", task_id, "--format", "csv", "--out", tmp_path / "a.csv", *where).returncode == 0
    assert len((tmp_path / "a.csv").read_bytes().split(b"\r\n")) == PAGES + 3
    assert weft("jobs", "results", task_id, "--format", "warc", "--out", tmp_path / "a.warc.gz", *where).returncode == 0
    kinds, asked = _records(tmp_path / "a.warc.gz")
    assert kinds == Counter(warcinfo=1, request=PAGES + 1, response=PAGES + 1)
    assert asked == Counter({None: 1, "[masked]": PAGES}), "each but the first had a cookie"
    assert weft("jobs", "watch", task_id, *where).returncode == 0
    assert task_id in weft("jobs", "list", *where).stdout


def _records(path: Path) -> tuple[Counter[str], Counter[str | None]]:
    """How many of each kind, and the cookies of the requests."""
    kinds, asked = Counter[str](), Counter[str | None]()
    with path.open("rb") as file:
        for record in ArchiveIterator(file):
            kinds[record.rec_type] += 1
            if record.rec_type == "request":
                asked[record.http_headers.get_header("Cookie")] += 1
    return kinds, asked


def test_streams_resume_by_number_after_any_kill(tmp_path: Path, site: str) -> None:
    with service_in(tmp_path / "data") as service:
        client = Weft(service.url, patience=patience(60))
        ids = [client.submit(f"{site}/slow/", max_depth=1, max_concurrent_articles=3).task_id for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(_numbers, client, one) for one in ids]
            for part in ("worker", "engine", "serve") * (5 if CHAOS else 1):
                before = client.status(ids[0]).progress.completed
                service.kill(part)
                if part == "serve":
                    service.start()
                until(partial(_moved, client, ids[0], before), what="a page after the kill")
            seen = [reader.result() for reader in readers]
        for task_id, numbers in zip(ids, seen, strict=True):
            status = check_sum(client.status(task_id))
            assert (status.status, status.progress.completed) == ("COMPLETED", PAGES + 1)
            stored = _numbers(client, task_id)
            assert numbers == stored == sorted(set(stored)), "no gap, and none twice"
            urls = [page.url for page in client.pages(task_id)]
            assert len(urls) == len(set(urls)) == PAGES + 1
    assert "killed by SIGKILL" in (tmp_path / "data" / "logs" / "supervisor.log").read_text()


def _numbers(client: Weft, task_id: str) -> list[int]:
    return [event.number for event in client.events(task_id) if event.number]


def _moved(client: Weft, task_id: str, before: int) -> bool:
    status = check_sum(client.status(task_id))
    return status.progress.completed > before or status.has_ended


def test_a_flood_of_submits_is_answered_and_loses_nothing(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", "--max-pending-tasks", 50, "--max-concurrent-tasks", 1) as service:
        order = json.dumps({"url": "http://127.0.0.1:9/", "retry_attempts": 0}).encode()

        def submit(_: int) -> tuple[int, str, bytes]:
            sent = {"Content_Type": "application/json"}
            status, headers, body = service.ask("POST", "/scraping/async-scrape", order, **sent)
            return status, headers.get("retry-after", ""), body

        with ThreadPoolExecutor(20) as threads:
            answers = list(threads.map(submit, range(50_000 if CHAOS else 300)))
        assert set(Counter(status for status, _, _ in answers)) == {202, 429}
        assert all(wait.isdigit() for status, wait, _ in answers if status == 429)
        ids = {json.loads(body)["task_id"] for status, _, body in answers if status == 202}
        service.kill()
        service.start()
        assert ids <= {task.task_id for task in service.client.tasks()}, "what was acknowledged is there"


def test_streams_that_nobody_reads_cost_little(service: Service, site: str) -> None:
    task_id = service.client.submit(f"{site}/slow/", max_depth=1, max_concurrent_articles=2).task_id
    before = service.memory_bytes()
    streams = [service.open_stream(task_id) for _ in range(5_000 if CHAOS else 200)]
    try:
        status = service.client.wait(task_id, timeout=patience(60), progress=False)
        assert status.status == "COMPLETED"
        assert service.memory_bytes() - before < (400 if CHAOS else 60) * 2**20
    finally:
        for stream in streams:
            stream.close()
    until(lambda: service.client.health()["event_streams"] == 0, what="the end of the streams")


def test_health_and_figures_are_told(service: Service) -> None:
    assert json.loads(service.ask("GET", "/healthz")[2])["status"] == "ok"
    assert json.loads(service.ask("GET", "/readyz")[2])["status"] == "ok"
    text = service.ask("GET", "/metrics")[2].decode()
    assert "weft_jobs_healthy 1.0" in text and "weft_pages_total" in text and "weft_api_requests_total" in text
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series)), "Prometheus refuses a series that is there twice"


@pytest.mark.parametrize(("cases", "examples"), [(5_000, 320) if CHAOS else (150, 3)])
def test_the_document_and_the_service_agree(
    service: Service, site: str, cases: int, examples: int, tmp_path: Path
) -> None:
    """Made from the document, right and wrong: no server error, no status, header or body that it does not have.

    A selector, a cursor or a URL may fit the document and be refused, so this is no part of it; nor that what was
    deleted is gone, because that ends a task, and keeps it. Streams end with their tasks and are held against it
    elsewhere.
    """
    before = {task.task_id for task in service.client.tasks()}
    _add_site(service, name="saved", start_urls=[f"{site}/alone/saved"], max_depth=0)
    ids = [service.client.submit(f"{site}/alone/{name}", max_depth=0).task_id for name in "abcdef"]
    done = subprocess.run(
        [Path(sys.executable).parent / "schemathesis", "--config-file", _schema_config(tmp_path), "run",
         f"{service.url}/openapi.json", "--max-examples", str(examples), "--no-color",
         "--exclude-operation-id", "events", "--exclude-checks",
         "positive_data_acceptance,use_after_free"],
        capture_output=True, text=True, cwd=tmp_path, timeout=patience(cases / 5),
        env=environment(SCHEMATHESIS_TASKS=" ".join(ids), SCHEMATHESIS_SITE=site),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert found is not None and int(found[1]) == int(found[2]) >= cases, done.stdout
    taken = {task.task_id for task in service.client.tasks()} - before - {*ids}
    assert len(taken) >= cases / 100, "some orders were accepted"


def _add_site(service: Service, **file: Any) -> None:
    body = json.dumps(file).encode()
    status, _, answer = service.ask("POST", "/scraping/sites", body, Content_Type="application/json")
    assert status == 201, answer


def test_the_results_of_a_sites_run_are_those_of_its_task(service: Service, site: str) -> None:
    _add_site(service, name="one-page", start_urls=[f"{site}/alone/run"], max_depth=0)
    status, _, answer = service.ask("POST", "/scraping/sites/one-page/run")
    task_id = json.loads(answer)["task_id"]
    assert (status, service.client.wait(task_id, timeout=patience(30), progress=False).status) == (202, "COMPLETED")
    assert [page.url for page in service.client.pages(task_id)] == [f"{site}/alone/run"]

    def reports() -> list[Any]:
        found: list[Any] = json.loads(service.ask("GET", "/scraping/sites/one-page/reports")[2])["reports"]
        return found

    until(lambda: bool(reports()), what="the report")
    assert (reports()[0]["task"], reports()[0]["counts"]["new"]) == (task_id, 1)


def _schema_config(folder: Path) -> Path:
    path = folder / "schemathesis.toml"
    hooks = Path(__file__).with_name("schemathesis_hooks.py")
    path.write_text(
        f'seed = 7\nrequest-timeout = 60\nhooks = "{hooks}"\n[phases.stateful.generation]\nmax-examples = 20\n'
    )
    return path
