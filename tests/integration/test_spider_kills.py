"""A spider with a login that is killed again and again: each item once, each POST that was answered not sent again, and
the file is as in an undisturbed run, but for what is listed as `unknown_outcome`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import environment, fetcher_of, until
from pace import patience
from quotes_site import PASSWORD, USER, Asked, QuotesSite, quotes_site
from spider_files import spider_file

from weft.store.pages import PageStore

PAGES = int(os.environ.get("WEFT_TEST_SPIDER_PAGES", "30"))  # lists: each leads to three more pages
ITEMS = int(os.environ.get("WEFT_TEST_SPIDER_ITEMS", "4"))  # of each list
KILLS = int(os.environ.get("WEFT_TEST_SPIDER_KILLS", "3"))
SPIDER = """
import weft


class Votes(weft.Spider):
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0, "spider_workers": 2}}
    login = weft.FormLogin(
        url="{url}login", fields={{"user": "${{env:SITE_USER}}", "password": "${{env:SITE_PASSWORD}}"}},
        success="a.logout", logged_out="form#login",
    )

    def start(self):
        for n in range({pages}):
            yield weft.Request("{url}list/%d" % n, meta={{"n": n}})

    def parse(self, page):
        n = page.meta["n"]
        for k in range({items}):
            yield {{"item": f"{{n}}-{{k}}"}}
        yield page.follow(f"/detail/{{n}}", self.detail, meta={{"n": n}})
        yield weft.Request("{url}vote", self.voted, method="POST", form={{"n": n}}, meta={{"n": n}})
        yield weft.Request("{url}look", self.looked, method="POST", json={{"n": n}}, meta={{"n": n}}, idempotent=True)

    def detail(self, page):
        yield {{"detail": page.meta["n"], "from": page.parent}}

    def voted(self, page):
        yield {{"voted": page.meta["n"], "answer": page.text}}

    def looked(self, page):
        yield {{"looked": page.meta["n"]}}
"""


@pytest.fixture
def site() -> Iterator[QuotesSite]:
    with quotes_site() as site:

        def answer(asked: Asked) -> tuple[int, dict[str, str], str]:
            time.sleep(0.01)
            html = {"Content-Type": "text/html"}
            if asked.headers.get("Cookie", "").removeprefix("sid=") not in site.sessions:
                return 200, html, "<form id=login method=post><input type=password name=p></form>"
            return 200, html, f"<p>{asked.method} {asked.path} {asked.body}"

        site.answers |= {f"/{kind}/{n}": answer for kind in ("list", "detail") for n in range(PAGES)}
        site.answers |= {"/vote": answer, "/look": answer}
        yield site


def expected(site: QuotesSite) -> Counter[str]:
    items: list[dict[str, object]] = []
    for n in range(PAGES):
        items += [{"item": f"{n}-{k}"} for k in range(ITEMS)]
        items += [{"detail": n, "from": f"{site.url}list/{n}"}, {"looked": n}]
        items += [{"voted": n, "answer": f"<p>POST /vote n={n}"}]
    return Counter(json.dumps(item, sort_keys=True) for item in items)


def written(path: Path) -> Counter[str]:
    return Counter(json.dumps(json.loads(line), sort_keys=True) for line in path.read_text().splitlines())


class Runs:
    """The runs of one crawl."""

    def __init__(self, site: QuotesSite, folder: Path) -> None:
        self.site, self.data, self.out = site, folder / "data", folder / "out.jsonl"
        folder.mkdir(exist_ok=True)
        self._file = spider_file(folder, SPIDER.format(url=site.url, pages=PAGES, items=ITEMS))
        self._said = folder / "stderr.txt"

    def start(self, **variables: str) -> subprocess.Popen[bytes]:
        begin = ["--resume"] if (self.data / "engine.json").exists() else [str(self._file)]
        command = [sys.executable, "-m", "weft", "run", *begin, "--data-dir", str(self.data), "-o", str(self.out)]
        secrets = {"SITE_USER": USER, "SITE_PASSWORD": PASSWORD}
        with self._said.open("wb") as said:
            return subprocess.Popen(command, stdout=said, stderr=said, env=environment(**secrets | variables))

    def finish(self) -> None:
        running = self.start()
        assert running.wait(patience(100 + PAGES)) == 0, self._said.read_text()

    def unknown(self) -> set[int]:
        """The votes whose outcome is unknown, by the rows that list them."""
        store = PageStore.open([self.data], read_only=True)
        rows = [row for row in store.rows() if row.error.startswith("unknown_outcome")]
        store.close()
        assert all(row.url == f"{self.site.url}vote" and row.request.startswith("POST ") for row in rows), rows
        return {row.item for row in rows}

    def check(self) -> None:
        """Each item once, no vote twice, and all that is missing is listed."""
        items, wanted = written(self.out), expected(self.site)
        assert max(items.values()) == 1
        assert not items - wanted
        missing = wanted - items
        assert all('"voted"' in item for item in missing), missing
        assert len(missing) == len(self.unknown())
        votes = Counter(one.body for one in self.site.asked if one.path == "/vote")
        assert set(votes.values()) <= {1}
        store = PageStore.open([self.data], read_only=True)
        assert store.items_made() == sum(items.values())
        assert len({row.item for row in store.rows()}) == sum(1 for _ in store.rows())
        store.close()


@pytest.mark.parametrize("step", ["sending", "fetched:40", "after-links:3", "index-committed:4", "after-rows:5"])
def test_killed_at_a_step_nothing_is_lost_or_doubled(site: QuotesSite, tmp_path: Path, step: str) -> None:
    runs = Runs(site, tmp_path)
    running = runs.start(WEFT_TEST_CRASH_AT=f"{step}@{tmp_path / 'crashed'}")  # the fetcher, which is started again
    assert running.wait(patience(100)) == 0
    assert (tmp_path / "crashed").exists()
    runs.check()
    if step == "sending":
        assert len(runs.unknown()) == 1  # it had not been sent: nobody can know
        assert len([path for path in site.paths("POST") if path != "/login"]) == 2 * PAGES - 1


@pytest.mark.timeout(600 + 40 * KILLS)
def test_killed_again_and_again_at_any_moment(site: QuotesSite, tmp_path: Path) -> None:
    runs, chance, kills = Runs(site, tmp_path), random.Random(7), 0
    most = max(2, int(1.2 * 4 * PAGES / (1.5 * KILLS + 1)))  # requests between two kills

    def goes_on(running: subprocess.Popen[bytes]) -> bool:
        """Whether it is still under way when it has made some more requests."""
        wanted = len(site.asked) + chance.randint(1, most)
        until(lambda: len(site.asked) >= wanted or running.poll() is not None, what="requests")
        return running.poll() is None

    while kills < KILLS:
        running = runs.start()
        try:
            if not goes_on(running):
                break
            if kills % 2:
                os.kill(fetcher_of(running), signal.SIGKILL)
                kills += 1
                if not goes_on(running):
                    break
        finally:
            running.kill()
            running.wait(patience(100))
        kills += 1
    print(f"{kills} kills, {len(site.asked)} requests")
    assert kills >= KILLS
    runs.finish()
    runs.check()
    logins = sum(one.path == "/login" for one in site.asked if one.method == "POST")
    assert logins > kills / 2, "no run but the first has logged in"

    undisturbed = Runs(site, tmp_path / "undisturbed")
    undisturbed.finish()
    whole, lines = (sorted(one.out.read_bytes().splitlines(True)) for one in (undisturbed, runs))
    kept = set(lines)
    assert lines == [line for line in whole if line in kept], "but for the votes that `check` has accounted for"
    assert len(whole) == PAGES * (ITEMS + 3)
