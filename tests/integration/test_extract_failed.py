"""`weft extract DIR --failed`: after a fix the pages whose callback had failed have their items, without a request."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import environment, until
from crawling import weft as weft_command
from pace import patience
from quotes_site import Asked, QuotesSite, quotes_site
from spider_files import spider_file

from weft.store.pages import PageStore

PAGES = 48
BAD = {7: "hang", 21: "crash", 33: "leak", 45: "raise"}
SPIDER = """
import os, time
import weft

BAD = {bad}

class Careless(weft.Spider):
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "callback_seconds": 3,
                "callback_memory_mb": 100, "spider_workers": 2, "max_depth": 3, {settings}}}

    def start(self):
        for n in range({pages}):
            yield weft.Request("{url}list/%d" % n, meta={{"n": n}}, priority=-n)

    def parse(self, page):
        n = page.meta["n"]
        kind = BAD.get(n, "")
        if kind == "hang":
            time.sleep(600)
        elif kind == "crash":
            os.abort()
        elif kind == "leak":
            kept = bytearray(os.urandom(1 << 20)) * 300
            time.sleep(60)
        elif kind == "raise":
            raise ValueError(page.url)
        yield {{"n": n, "text": page.css("p").text}}
        yield page.follow(f"/detail/{{n}}", self.detail, meta={{"n": n}}, unique=False)
        yield weft.Request("{url}vote", self.voted, method="POST", form={{"n": n}}, meta={{"n": n}})

    def detail(self, page):
        yield {{"detail": page.meta["n"]}}

    def voted(self, page):
        yield {{"voted": page.meta["n"]}}
"""


def answer(asked: Asked) -> tuple[int, dict[str, str], str]:
    return 200, {"Content-Type": "text/html"}, f"<p>{asked.method} {asked.path} {asked.body}"


@pytest.fixture
def site() -> Iterator[QuotesSite]:
    with quotes_site() as site:
        site.answers |= {f"/{kind}/{n}": answer for kind in ("list", "detail") for n in range(PAGES)}
        site.answers["/vote"] = answer
        yield site


def written(folder: Path, site: QuotesSite, bad: dict[int, str], settings: str = "") -> Path:
    return spider_file(folder, SPIDER.format(bad=bad, url=site.url, pages=PAGES, settings=settings))


def items(path: Path) -> Counter[str]:
    return Counter(path.read_text().splitlines())


def wanted(without: set[int]) -> Counter[str]:
    left = [n for n in range(PAGES) if n not in without]
    made = [{"n": n, "text": f"GET /list/{n}"} for n in left]
    return Counter(json.dumps(one, separators=(",", ":")) for one in [
        *made, *({"detail": n} for n in left), *({"voted": n} for n in left),
    ])  # fmt: skip


def run(*arguments: object, code: int = 0, crash_at: str = "") -> str:
    done = weft_command(*arguments, WEFT_TEST_CRASH_AT=crash_at)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_after_a_fix_the_failed_pages_have_their_items_without_a_request(site: QuotesSite, tmp_path: Path) -> None:
    file, data, out = written(tmp_path, site, BAD), tmp_path / "data", tmp_path / "out.jsonl"
    run("run", file, "--data-dir", data, "-o", out)
    assert items(out) == wanted(set(BAD))  # the others' are all there
    asked = len(site.asked)

    written(tmp_path, site, {45: "raise"})  # one is not fixed
    text = run("extract", data, "--failed", code=1)
    assert "3 items of 3 pages that had failed are committed" in text
    assert "1 pages: ValueError at spider.py:" in text
    written(tmp_path, site, {})
    done = weft_command("extract", data, "--failed", "--spider", file, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"schema": 1, "pages": 1, "items": 1, "requests": 2, "queued": 8, "failed": {}}
    assert "there are no pages with a failed callback" in run("extract", data, "--failed")
    assert len(site.asked) == asked  # by the server's log

    stats = json.loads(weft_command("stats", data, "--json").stdout)
    assert not any("callback_error" in one for one in stats["errors"])
    assert json.loads((data / "status.json").read_text())["state"] == "interrupted"
    assert "nothing has failed" in weft_command("errors", data).stderr
    run("run", "--resume", "--data-dir", data, "-o", out)
    assert items(out) == wanted(set())
    new = [one.path for one in site.asked[asked:]]
    assert sorted(new) == sorted([*(f"/detail/{n}" for n in BAD), *["/vote"] * len(BAD)])
    run("rebuild", data)
    assert Counter(weft_command("items", data).stdout.splitlines()) == wanted(set())
    store = PageStore.open([data], read_only=True)
    rows = store.rows_of_url(f"{site.url}list/7")
    store.close()
    assert [bool(row.error) for row in rows] == [True, False]
    assert rows[0].fetched_at == rows[1].fetched_at


def test_killed_between_two_of_its_steps_it_repeats_nothing(site: QuotesSite, tmp_path: Path) -> None:
    bad = dict.fromkeys(range(0, PAGES, 4), "raise")
    file, data, out = written(tmp_path, site, bad), tmp_path / "data", tmp_path / "out.jsonl"
    run("run", file, "--data-dir", data, "-o", out)
    asked = len(site.asked)
    written(tmp_path, site, {})
    steps = ("read-again:2", "after-links", "after-rows")  # each kills one of the processes that follow each other
    crashes = ",".join(f"{step}@{tmp_path / step}" for step in steps)
    run("extract", data, "--failed", crash_at=crashes)
    assert all((tmp_path / step).exists() for step in steps)
    assert len(site.asked) == asked
    run("run", "--resume", "--data-dir", data, "-o", out)
    assert items(out) == wanted(set())
    assert max(Counter((one.path, one.body) for one in site.asked).values()) == 1


def test_a_crawl_that_runs_does_it_itself(site: QuotesSite, tmp_path: Path) -> None:
    file = written(tmp_path, site, dict.fromkeys(range(10), "raise"), '"delay": 0.03')
    data, out, errors = tmp_path / "data", tmp_path / "out.jsonl", tmp_path / "stderr.txt"
    command = [sys.executable, "-m", "weft", "run", str(file), "--data-dir", str(data), "-o", str(out)]
    with errors.open("wb") as stderr:
        running = subprocess.Popen(command, stdout=stderr, stderr=stderr, env=environment())
    try:
        until(lambda: f"/list/{10}" in site.paths(), what="some pages")
        until(lambda: "callback_error" in (data / "status.json").read_text(), what="failures")
        other = spider_file(
            tmp_path, "import weft\nclass Other(weft.Spider):\n    def parse(self, page): pass\n", "o.py"
        )
        assert "the crawl that runs has another spider" in run("extract", data, "--failed", "--spider", other, code=2)
        written(tmp_path, site, {}, '"delay": 0.03')
        assert "that had failed are committed" in run("extract", data, "--failed")
        assert running.poll() is None
        assert running.wait(patience(60)) == 0, errors.read_text()
    finally:
        running.kill()
        running.wait()
    run("extract", data, "--failed")  # what failed with the old code while the new one came
    run("run", "--resume", "--data-dir", data, "-o", out)
    assert items(out) == wanted(set())
    assert max(Counter((one.path, one.body) for one in site.asked).values()) == 1


def test_what_cannot_be_extracted_is_refused(site: QuotesSite, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("crawl", site.url, "--allow-private", "--max-pages", 1, "--data-dir", data, "--prometheus-port", 0, code=3)
    assert "was started without a spider" in run("extract", data, "--failed", code=2)
    assert "leave `--out` out" in run("extract", data, "--failed", "-o", tmp_path / "x.jsonl", code=2)
    assert "or give `--failed`" in run("extract", data, code=2)
