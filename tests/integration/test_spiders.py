"""Spiders through the real command line and the Python door, against a site of quotes on loopback."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from carving import found_in
from crawling import weft as weft_command
from crawling import weft_here
from quotes_site import AUTHORS, QuotesSite, quotes_site
from spider_files import QUOTES, spider_file

import weft
from weft.errors import BadConfig, BadInput
from weft.store.pages import PageStore

PAGES = 4


@pytest.fixture
def site() -> Iterator[QuotesSite]:
    with quotes_site(PAGES) as site:
        yield site


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_order(items: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in items)


def expected(site: QuotesSite) -> list[dict[str, Any]]:
    authors = [{"name": name, "born": str(1800 + len(name))} for name in AUTHORS]
    turing = sum(one["author"] == "Alan Turing" for one in site.quotes())
    return [*site.quotes(), *authors, {"found": turing, "from": f"{site.url}search"}]


def run(*arguments: object, code: int = 0) -> str:
    done = weft_command("run", *arguments)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_the_tutorial_from_its_start_to_its_files(site: QuotesSite, tmp_path: Path) -> None:
    file, data = spider_file(tmp_path, QUOTES.format(url=site.url)), tmp_path / "data"
    out = tmp_path / "quotes.jsonl"
    said = run(file, "--data-dir", data, "-o", out)
    assert in_order(lines(out)) == in_order(expected(site))
    assert f"{len(expected(site))} items." in said
    assert site.paths("POST") == ["/search"]
    assert sorted(site.paths("GET")) == sorted(set(site.paths("GET")))  # each page once
    (post,) = [one for one in site.asked if one.method == "POST"]
    assert post.body == "token=t1&order=up&author=Alan+Turing"
    assert post.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert found_in(data, ["author=Alan+Turing"]) == []  # bodies are not kept

    # Resumed with nothing left: the file stays as it is; other formats are made of what is committed.
    asked = len(site.asked)
    run("--resume", "--data-dir", data, "-o", out)
    assert in_order(lines(out)) == in_order(expected(site))
    assert len(site.asked) == asked
    listed = weft_command("items", data)
    assert in_order([json.loads(line) for line in listed.stdout.splitlines()]) == in_order(expected(site))
    assert weft_command("items", data, "-o", tmp_path / "q.csv").returncode == 0
    with (tmp_path / "q.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["text"] for row in rows if row["text"]] == [one["text"] for one in site.quotes()]
    assert weft_command("items", data, "-o", tmp_path / "q.json").returncode == 0
    assert in_order(json.loads((tmp_path / "q.json").read_text())) == in_order(expected(site))
    assert weft_command("items", data, "-o", tmp_path / "q.parquet").returncode == 0
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "q.parquet").to_pylist()
    assert sorted(row["name"] for row in table if row["name"]) == sorted(AUTHORS)

    # The rows say how each page was asked for; a POST stands beside the page of its URL.
    store = PageStore.open([data], read_only=True)
    rows_of = {row.method: row for row in store.rows_of_url(f"{site.url}search")}
    assert set(rows_of) == {"GET", "POST"}
    assert len(rows_of["POST"].request_digest) == 64
    assert store.rows_of_url(site.url)[0].method == "GET"
    store.close()
    shown = weft_command("get", data, f"{site.url}search")
    assert "csrf" not in shown.stdout
    explained = weft_command("explain", data, f"{site.url}search").stdout
    assert f"found on {site.url}\n" in explained
    assert "requested with POST: HTTP 200" in explained
    exported = weft_command("export", data, "--format", "cdxj", "--out", "-")
    assert exported.stdout.count('/search"') == 1


def test_what_a_callback_does_to_its_process_costs_its_page_alone(site: QuotesSite, tmp_path: Path) -> None:
    text = f'''
import os, time
import weft

class Bad(weft.Spider):
    start_urls = ["{site.url}"]
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "callback_seconds": 3,
                "callback_memory_mb": 100, "spider_workers": 2}}
    kinds = ["hang", "exit", "crash", "leak", "raise", "yield", "base", "print", "chdir", "fork", "item", "late", "ok"]

    def parse(self, page):
        if page.depth == 0:
            for n in range({site.pages}):
                for kind in self.kinds:
                    yield page.follow(f"/api/{{n + 1}}?{{kind}}", self.odd, meta={{"kind": kind, "n": n}})

    def odd(self, page):
        kind, n = page.meta["kind"], page.meta["n"]
        if n != 1:
            kind = "ok"
        if kind == "hang":
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass
        elif kind == "exit":
            os._exit(0)
        elif kind == "crash":
            os.abort()
        elif kind == "leak":
            self.kept = bytearray(os.urandom(1 << 20)) * 300
            time.sleep(60)
        elif kind == "raise":
            yield {{"lost": True}}
            raise ValueError("bad price on " + page.url)
        elif kind == "yield":
            yield 7
        elif kind == "base":
            raise KeyboardInterrupt
        elif kind == "print":
            print("x" * 3_000_000)
        elif kind == "chdir":
            os.chdir("/")
        elif kind == "fork":
            os.fork()
        elif kind == "item":
            yield {{"page": page}}
        elif kind == "late":
            yield page.follow("/", "nothing_of_that_name")
        yield {{"kind": page.meta["kind"], "n": n, "first": page.json()["quotes"][0]["text"]}}
'''
    file, data, out = spider_file(tmp_path, text), tmp_path / "data", tmp_path / "out.jsonl"
    run(file, "--data-dir", data, "-o", out)
    failing = {"hang", "exit", "crash", "leak", "raise", "yield", "base", "item", "late"}
    kinds = "hang exit crash leak raise yield base print chdir fork item late ok".split()
    wanted = [(kind, n) for n in range(site.pages) for kind in kinds if n != 1 or kind not in failing]
    assert sorted((item["kind"], item["n"]) for item in lines(out)) == sorted(wanted)

    found = json.loads(weft_command("errors", data, "--json").stdout)["failures"]
    causes = {one["cause"].removeprefix("callback_error: "): one for one in found}
    assert sum(one["count"] for one in found) == len(failing)
    assert any("took longer than 3 s" in cause for cause in causes)
    assert any("over the memory limit" in cause for cause in causes)
    assert any(cause.startswith("ValueError at spider.py:") for cause in causes)
    raised = next(one for cause, one in causes.items() if cause.startswith("ValueError"))
    assert "bad price on" in raised["traceback"]
    assert raised["urls"] == [f"{site.url}api/2?raise"]
    shown = weft_command("errors", data).stdout
    assert "callback_error: ValueError at spider.py:" in shown
    assert sum(path.startswith("/api/") for path in site.paths()) == len(kinds) * site.pages  # nothing asked twice


def test_first_requests_hooks_and_state(site: QuotesSite, tmp_path: Path) -> None:
    text = f'''
import weft

class Hooks(weft.Spider):
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "max_pages": 30}}
    allowed_domains = ["127.0.0.1"]

    def start(self):
        for n in range(1000):
            yield weft.Request(f"{site.url}api/1?n={{n}}", meta={{"n": n}}, priority=-n)

    def parse(self, page):
        self.state["pages"] = self.state.get("pages", 0) + 1
        yield {{"n": page.meta["n"], "state": self.state["pages"]}}
        yield weft.Request("http://elsewhere.test/")
        if page.meta["n"] == 3:
            yield page.follow("/missing", meta={{"kept": [1, "two"]}})
            yield weft.Request(page.url, "again", unique=False)

    def again(self, page):
        yield {{"again": page.url}}

    def on_error(self, failure):
        yield {{"failed": failure.url, "status": failure.status, "meta": failure.meta, "callback": failure.callback}}

    def closed(self, reason):
        print("closed because", reason)
'''
    file, data, out = spider_file(tmp_path, text), tmp_path / "data", tmp_path / "out.jsonl"
    summary = run(file, "--data-dir", data, "-o", out, "--spider-workers", 1, code=3)
    assert "30 pages" in summary
    assert f"Continue: weft run --resume -o {out} " in summary  # with its file, or that would lack what comes next
    first = [item["n"] for item in lines(out) if "n" in item]
    assert sorted(first) == list(range(len(first)))  # by their priority
    run("--resume", "--data-dir", data, "-o", out, "--max-pages", 2000)
    items = lines(out)
    assert sorted(item["n"] for item in items if "n" in item) == list(range(1000))
    assert [item for item in items if "failed" in item] == [
        {"failed": f"{site.url}missing", "status": 404, "meta": {"kept": [1, "two"]}, "callback": "parse"}
    ]
    assert [item["again"] for item in items if "again" in item] == [f"{site.url}api/1?n=3"]
    assert max(item["state"] for item in items if "state" in item) == 1000  # saved between the two runs
    log = (data / "logs" / "pod_0" / "fetcher_0.log").read_text()
    assert "closed because max_pages" in log
    status = json.loads((data / "status.json").read_text())
    assert status["refused"]["scope"] == 1000


def test_a_spider_in_a_program(site: QuotesSite, tmp_path: Path) -> None:
    spider_file(tmp_path, QUOTES.format(url=site.url), "quotes_of_a_program.py")
    sys.path.insert(0, str(tmp_path))
    try:
        Quotes = import_module("quotes_of_a_program").Quotes
    finally:
        sys.path.remove(str(tmp_path))
    items = list(weft.run(Quotes, spider_workers=1))
    assert in_order(items) == in_order(expected(site))

    async def gather() -> list[dict[str, Any]]:
        return [item async for item in weft.arun(Quotes, data_dir=tmp_path / "data", max_pages=3)]

    some = asyncio.run(gather())
    rest = list(weft.run(resume=True, data_dir=tmp_path / "data", max_pages=100))
    assert in_order(some + rest) == in_order(expected(site))
    assert list(weft.run(resume=True, data_dir=tmp_path / "data")) == []
    with pytest.raises(BadConfig, match="there is nothing to run"):
        weft.run()
    with pytest.raises(BadInput, match="under a name"):
        weft.run(type("Local", (weft.Spider,), {"__module__": __name__, "__qualname__": "f.<locals>.Local"}))


def test_a_function_is_given_each_page(site: QuotesSite, tmp_path: Path) -> None:
    text = """
def authors(page):
    for quote in page.css("div.quote"):
        yield {"author": quote.css("small.author").text, "url": page.url}
    if page.depth == 0:
        yield page.follow("/api/2")
"""
    file, data = spider_file(tmp_path, text), tmp_path / "data"
    done = weft_command(
        "crawl", site.url, "--on-page", f"{file}:authors", "--delay", 0, "--allow-private", "--data-dir", data,
        "--prometheus-port", 0, "-o", tmp_path / "out.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(item["author"] for item in lines(tmp_path / "out.jsonl")) == sorted(
        one["author"] for one in site.quotes()
    )
    assert "/api/2" in site.paths()
    assert any(path.startswith("/author/") for path in site.paths())  # links are followed as in any crawl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "nothing.py: there is no such file"),
        ([], "which spider?"),
        (["{file}:Other"], "has no 'Other'"),
        (["{file}", "-o", "{folder}/there.jsonl"], "there.jsonl exists already"),
        (["{file}", "-o", "out.txt"], "out.txt: its suffix is not that of a format"),
        (["{file}", "-o", "{folder}/no/such/out.csv"], "there is no folder"),
        (["{file}", "-o", 300 * "x" + ".csv"], "no file can have this name: File name too long"),
        (["--resume"], "weft run FILE.py --data-dir"),
        (["{file}", "--append"], "need the file of `--out`"),
        (["{file}", "--pods", "managed"], "does not run on pods on Redis yet"),
        (["{file}", "--on-page", "{file}:f"], "give one of them"),
        (["{wrong}"], "settings of the spider: no setting 'dealy'; did you mean 'delay'?"),
        (["{none}"], "None_ has no `start_urls` and no `start()`"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    names = {
        "folder": tmp_path,
        "file": spider_file(tmp_path, QUOTES.format(url="http://127.0.0.1:1/")),
        "wrong": spider_file(tmp_path, "import weft\nclass A(weft.Spider):\n    settings = {'dealy': 1}\n", "wrong.py"),
        "none": spider_file(tmp_path, "import weft\nclass None_(weft.Spider): pass\n", "none.py"),
    }
    (tmp_path / "there.jsonl").write_text("mine\n")
    done = weft_here("run", *(text.format(**names) for text in arguments), "--data-dir", tmp_path / "data")
    assert done.returncode == 2, done
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data" / "engine.json").exists()
    assert (tmp_path / "there.jsonl").read_text() == "mine\n"


def test_a_crawl_without_code_has_no_items(site: QuotesSite, tmp_path: Path) -> None:
    done = weft_command("crawl", site.url, "--allow-private", "--data-dir", tmp_path / "data", "-o", "-")
    assert done.returncode == 2
    assert "--out is for the items of a spider" in done.stderr


def test_a_callback_that_is_gone_is_refused_on_resume(site: QuotesSite, tmp_path: Path) -> None:
    text, data = QUOTES.format(url=site.url), tmp_path / "data"
    file = spider_file(tmp_path, text)
    run(file, "--data-dir", data, "--max-pages", 1, code=3)
    file.write_text(text.replace("def author(", "def writer(").replace("self.author", "self.writer"))
    said = run("--resume", "--data-dir", data, "--max-pages", 100, code=2)
    assert "Quotes has changed since the crawl ran last" in said
    assert "Quotes has no method 'author' any more" in said
    file.write_text(text + "\n# changed\n")
    said = run("--resume", "--data-dir", data, "--max-pages", 100)
    assert "Quotes has changed since the crawl ran last" in said


def test_stored_pages_are_extracted_again_without_a_request(site: QuotesSite, tmp_path: Path) -> None:
    text, data = QUOTES.format(url=site.url), tmp_path / "data"
    file = spider_file(tmp_path, text.replace('"author": quote', '"author": 1 / 0 if page.depth else quote'))
    run(file, "--data-dir", data, "--max-callback-errors", 9)
    asked = len(site.asked)
    file.write_text(text)
    done = weft_command("extract", data, "--spider", file, "-o", tmp_path / "again.jsonl")
    assert done.returncode == 0, done.stderr
    again = lines(tmp_path / "again.jsonl")
    others = [item for item in expected(site) if "text" not in item and item.get("name") != AUTHORS[4]]
    assert in_order(again) == in_order([*site.quotes()[:8], *others])  # the second page's links were never queued
    file.write_text(text.replace('page.css("h3").text', 'page.css("h3").missing'))
    done = weft_command("extract", data, "-o", tmp_path / "again.csv")
    assert done.returncode == 1
    assert f"{len(AUTHORS) - 1} pages: AttributeError at spider.py:" in done.stderr
    assert len(site.asked) == asked
    done = weft_command("extract", data, "-o", tmp_path / "again.csv")
    assert "exists already" in done.stderr


def test_the_python_names_are_discoverable() -> None:
    import inspect
    import pydoc

    import_module("weft.crawl.start")  # the package of that name does not replace the function
    assert "function weft.crawl" in pydoc.render_doc(weft.crawl)
    assert {"crawl", "run", "arun", "Spider", "Page", "Request", "try_spider", "Engine"} <= set(dir(weft))
    assert not {"TYPE_CHECKING", "Any", "annotations"} & set(dir(weft))
    assert all(getattr(weft, name) is not None for name in dir(weft))
    parameters = inspect.signature(weft.crawl).parameters
    assert list(parameters)[:4] == ["seeds", "data_dir", "config", "on_page"]
    assert "Runs a spider" in (weft.run.__doc__ or "")


def test_too_many_callback_errors_end_a_crawl_that_can_go_on(site: QuotesSite, tmp_path: Path) -> None:
    text = f'''
import weft

class Wrong(weft.Spider):
    settings = {{"delay": 0.02, "allow_private": True, "prometheus_port": 0, "max_callback_errors": 3}}

    def start(self):
        yield weft.Request("{site.url}no/1")
        yield from (weft.Request(f"{site.url}api/1?{{n}}") for n in range(200))

    def parse(self, page):
        1 / 0

    def on_error(self, failure):
        yield {{"failed": failure.url, "why": failure.error}}
'''
    site.answers["/robots.txt"] = (200, {}, "User-agent: *\nDisallow: /no\n")
    file, data = spider_file(tmp_path, text), tmp_path / "data"
    said = run(file, "--data-dir", data, "-o", tmp_path / "out.jsonl", code=3)
    assert "Stopped by a limit (callback_errors)" in said
    assert lines(tmp_path / "out.jsonl") == [{"failed": f"{site.url}no/1", "why": "robots"}]
    (more,) = re.findall(r"--max-callback-errors (\d+)", said)
    asked = len(site.asked)
    run("--resume", "--data-dir", data, "--max-callback-errors", more, code=3)
    assert len(site.asked) > asked


def test_what_failed_is_tried_again_with_its_callback(site: QuotesSite, tmp_path: Path) -> None:
    down = [True]

    def flaky(_asked: Any) -> tuple[int, dict[str, str], str]:
        return (500, {}, "") if down[0] else (200, {"Content-Type": "text/html"}, "<h3>Back</h3>")

    site.answers["/author/Ada-Lovelace"] = flaky
    file, data, out = spider_file(tmp_path, QUOTES.format(url=site.url)), tmp_path / "data", tmp_path / "out.jsonl"
    run(file, "--data-dir", data, "-o", out, "--max-retries", 0)
    assert {"name": "Back", "born": None} not in lines(out)
    down[0] = False
    run("--resume", "--retry-failed", "--data-dir", data, "-o", out)
    assert lines(out)[-1] == {"name": "Back", "born": None}
    assert len(lines(out)) == len(expected(site))


def test_a_new_spider_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert weft_here("new", "my-quotes", "--url", "http://h.test/").returncode == 0
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_quotes.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "exists already" in weft_here("new", "my_quotes").stderr
    assert "is not a name of a module" in weft_here("new", "7 things").stderr


def test_pods_hand_requests_to_each_other(site: QuotesSite, tmp_path: Path) -> None:
    port = site.url.rsplit(":", 1)[1].strip("/")
    text = f"""
import weft

HOSTS = "abcd"

class Pods(weft.Spider):
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "num_pods": 2, "spider_workers": 1,
                "resolve": {{f"{{host}}.test": "127.0.0.1" for host in HOSTS}}}}

    def start(self):
        for host in HOSTS:
            yield weft.Request(f"http://{{host}}.test:{port}/page/1", meta={{"host": host}})

    def parse(self, page):
        yield {{"first": page.meta["host"]}}
        after = HOSTS[(HOSTS.index(page.meta["host"]) + 1) % 4]
        form = {{"token": "t1", "author": "Alan Turing"}}
        yield weft.Request(f"http://{{after}}.test:{port}/search", self.found, method="POST", form=form, meta=page.meta)

    def found(self, page):
        yield {{"from": page.meta["host"], "found": len(page.css("div.quote")), "parent": page.parent}}
"""
    file, out = spider_file(tmp_path, text), tmp_path / "out.jsonl"
    run(file, "--data-dir", tmp_path / "data", "-o", out)
    items = lines(out)
    assert sorted(item["first"] for item in items if "first" in item) == list("abcd")
    found = {item["from"]: item for item in items if "from" in item}
    assert sorted(found) == list("abcd")
    assert all(one["found"] > 0 and one["parent"].startswith(f"http://{host}.test") for host, one in found.items())
    assert len(site.paths("POST")) == 4
