"""Spiders of Scrapy's, unmodified: each gives the items that Scrapy has made of the same site, whatever is killed.
The site and the spiders are in tests/shared."""

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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from carving import found_in
from crawling import environment, fetcher_of, until, weft_here
from crawling import weft as weft_command
from pace import patience
from quotes_site import Asked, QuotesSite
from scrapy_runs import NAMES, SPIDERS, by_scrapy, expected, in_order
from scrapy_site import scrapy_site

from weft.frontier.clock import FOLDER_VARIABLE

AT_ONCE = 3
KILLS = int(os.environ.get("WEFT_TEST_SPIDER_KILLS", "3"))
PAGES = int(os.environ.get("WEFT_TEST_SPIDER_PAGES", "20"))
ITEMS = int(os.environ.get("WEFT_TEST_SPIDER_ITEMS", "4"))  # of each list; a pipeline drops the first


class ScrapyRun(NamedTuple):
    """What came of a spider in Weft."""

    lines: list[str]
    stderr: str
    folder: Path
    asked: list[str]


def run(name: str, folder: Path) -> ScrapyRun:
    out = folder / "items.jsonl"
    with scrapy_site() as site:
        done = weft_command_in(
            folder, "run", "--scrapy", SPIDERS / f"{name}.py", "-a", f"site={site.url}", "--data-dir", folder / "data",
            "--allow-private", "--prometheus-port", "0", *([] if name == "pipelines" else ["-o", out]),
        )  # fmt: skip
        assert done.returncode == (3 if name == "closing" else 0), done.stderr
        asked = site.paths()
    listed = weft_command("items", folder / "data").stdout if name == "pipelines" else out.read_text()
    return ScrapyRun(in_order([json.loads(line) for line in listed.splitlines()]), done.stderr, folder, asked)


def alone(folder: Path) -> dict[str, str]:
    """As if this was the only crawl of the machine: all of them ask 127.0.0.1."""
    machine = folder / "machine"
    machine.mkdir(exist_ok=True)
    return environment(**{FOLDER_VARIABLE: str(machine)})


def weft_command_in(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=patience(60), env=alone(folder), check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[ScrapyRun]]]:
    """All spiders, side by side: they wait more than they work."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_spider_gives_the_items_that_scrapy_makes(runs: dict[str, Future[ScrapyRun]], name: str) -> None:
    assert runs[name].result(patience(200)).lines == expected(name)


@pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="what Scrapy makes of them is in expected/")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_is_what_scrapy_makes(tmp_path: Path, name: str) -> None:
    with scrapy_site() as site:
        assert in_order(by_scrapy(name, site.url, tmp_path)) == expected(name)


def test_pipelines_signals_and_feeds(runs: dict[str, Future[ScrapyRun]]) -> None:
    made = runs["pipelines"].result(patience(200))
    assert (made.folder / "closed.txt").read_text() == (
        "finished {'no Ada': 4, 'opened': 1, 'scraped': 12} 22 12 4"
    )  # the counts of the one spider object and of its stats
    rows = (made.folder / "pipelines-10.csv").read_text().splitlines()
    assert rows[0] == "number,author"
    assert rows[1:] == [f"{item['number']},{item['author']}" for item in _by_number(made.lines)]
    assert "12 items from the pipelines, which dropped 4." in made.stderr


def test_a_spider_ends_its_crawl(runs: dict[str, Future[ScrapyRun]]) -> None:
    made = runs["closing"].result(patience(200))
    assert "Ended by the spider (enough)" in made.stderr
    assert "/level/4" not in made.asked


def _by_number(lines: list[str]) -> list[dict[str, str]]:
    return sorted(map(json.loads, lines), key=lambda item: str(item["number"]))


SPIDER = """
import scrapy
from scrapy.exceptions import DropItem


class Numbered:
    def open_spider(self, spider):
        open("opened.txt", "a").write("opened ")

    def process_item(self, item, spider):
        if item.get("item", "").endswith("-0"):
            raise DropItem("the first")
        return {**item, "through": True}


class Lists(scrapy.Spider):
    name = "lists"
    custom_settings = {"DOWNLOAD_DELAY": 0, "ITEM_PIPELINES": {Numbered: 1}}

    async def start(self):
        for n in range(int(self.pages)):
            yield scrapy.Request(f"{self.site}list/{n}", meta={"n": (n,)})

    def parse(self, response):
        (n,) = response.meta["n"]
        for k in range(int(self.items)):
            yield {"item": f"{n}-{k}"}
        yield response.follow(f"/detail/{n}", self.detail, cb_kwargs={"n": n}, errback=self.failed)

    async def detail(self, response, n):
        yield {"detail": n}
        yield response.follow(f"/missing/{n}", self.detail, cb_kwargs={"n": n}, errback=self.failed)

    def failed(self, failure):
        yield {"failed": failure.request.cb_kwargs["n"], "status": failure.value.response.status}
"""


@pytest.fixture
def site() -> Iterator[QuotesSite]:
    with scrapy_site() as site:

        def answer(asked: Asked) -> tuple[int, dict[str, str], str]:
            time.sleep(0.01)
            return 200, {"Content-Type": "text/html"}, f"<p>{asked.path}"

        site.answers |= {f"/{kind}/{n}": answer for kind in ("list", "detail") for n in range(PAGES)}
        yield site


class KilledRuns:
    """The runs of one crawl, which are killed."""

    def __init__(self, site: QuotesSite, folder: Path) -> None:
        self.site, self.folder, self.out = site, folder, folder / "out.jsonl"
        self._file = folder / "lists.py"
        self._file.write_text(SPIDER)

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        arguments = (f"site={self.site.url}", f"pages={PAGES}", f"items={ITEMS}")
        begin = ["--scrapy", str(self._file), *(word for one in arguments for word in ("-a", one))]
        if (self.folder / "data" / "engine.json").exists():
            begin = ["--resume"]
        flags = ["--data-dir", "data", "--allow-private", "--prometheus-port", "0", "-o", "out.jsonl"]
        with (self.folder / "stderr.txt").open("wb") as told:
            return subprocess.Popen(
                [sys.executable, "-m", "weft", "run", *begin, *flags, *more],
                stdout=told, stderr=told, cwd=self.folder, env=alone(self.folder),
            )  # fmt: skip

    def finish(self) -> None:
        assert self.start().wait(patience(100 + PAGES)) == 0, (self.folder / "stderr.txt").read_text()

    def check(self) -> None:
        """Each item once, in the file and in what the crawl has."""
        wanted: list[dict[str, object]] = [{"item": f"{n}-{k}"} for n in range(PAGES) for k in range(1, ITEMS)]
        for n in range(PAGES):
            wanted += [{"detail": n}, {"failed": n, "status": 404}]
        texts = Counter(in_order([{**item, "through": True} for item in wanted]))
        assert Counter(in_order([json.loads(line) for line in self.out.read_text().splitlines()])) == texts
        listed = weft_command("items", self.folder / "data").stdout.splitlines()
        assert Counter(in_order([json.loads(line) for line in listed])) == texts


@pytest.mark.timeout(600 + 40 * KILLS)
def test_killed_again_and_again_each_item_comes_once(site: QuotesSite, tmp_path: Path) -> None:
    crawl, chance, kills = KilledRuns(site, tmp_path), random.Random(11), 0
    most = max(2, int(3 * PAGES / (1.5 * KILLS + 1)))  # requests between two kills

    def goes_on(running: subprocess.Popen[bytes]) -> bool:
        wanted = len(site.asked) + chance.randint(1, most)
        until(lambda: len(site.asked) >= wanted or running.poll() is not None, what="requests")
        return running.poll() is None

    while kills < KILLS:
        running = crawl.start()
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
    crawl.finish()
    crawl.check()
    assert (tmp_path / "opened.txt").read_text().count("opened") >= 2  # at each start


def test_items_come_once_where_the_index_was_made_again_between_two_runs(site: QuotesSite, tmp_path: Path) -> None:
    crawl = KilledRuns(site, tmp_path)
    crawl.start("--max-pages", str(PAGES)).wait(patience(100))
    before = crawl.out.read_text()
    assert before
    assert weft_command("rebuild", tmp_path / "data").returncode == 0
    more = crawl.start("--max-pages", str(4 * PAGES))
    assert more.wait(patience(100)) == 0, (tmp_path / "stderr.txt").read_text()
    assert crawl.out.read_text().startswith(before)
    crawl.check()


SECRETS = """
import scrapy


class Login(scrapy.Spider):
    name = "login"

    async def start(self):
        yield scrapy.FormRequest(f"{self.site}list/0", formdata={"password": self.password}, callback=self.parse)

    def parse(self, response):
        yield {"length": len(self.password), "file": self.token, "key": self.settings["SHOP_API_KEY"][::-1]}
"""


def test_a_secret_argument_is_a_reference_and_is_written_nowhere(site: QuotesSite, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken-of-a-file\n")
    (tmp_path / "login.py").write_text(SECRETS)
    start = ("run", "--scrapy", tmp_path / "login.py", "--data-dir", tmp_path / "data", "-a", f"site={site.url}")
    for given in (("-a", "password=s3cret-pass"), ("-a", "api_key=s3cret-pass"), ("-s", "SHOP_TOKEN=s3cret-pass")):
        refused = weft_here(*start, *given)
        assert refused.returncode == 2 and "as plain text would be recorded" in refused.stderr, refused.stderr
        assert "s3cret-pass" not in refused.stderr
    missing = weft_here(*start, "-a", "password=${env:NO_SUCH_NAME}")
    assert missing.returncode == 2 and "NO_SUCH_NAME is not set" in missing.stderr
    more = ("-a", "password=${env:SHOP_PASSWORD}", "-a", "token=${file:token}", "-s", "SHOP_API_KEY=${env:SHOP_KEY}")
    done = subprocess.run(
        [sys.executable, "-m", "weft", *map(str, (*start, *more)), "--allow-private", "--prometheus-port", "0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=patience(60), check=False,
        env=alone(tmp_path) | {"SHOP_PASSWORD": "s3cret-pass", "SHOP_KEY": "k3y-of-the-shop"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed = weft_here("items", tmp_path / "data").stdout
    assert listed == '{"length":11,"file":"t0ken-of-a-file","key":"pohs-eht-fo-y3k"}\n'
    assert [one.body for one in site.asked if one.method == "POST"] == ["password=s3cret-pass"]
    assert found_in(tmp_path / "data", ["s3cret-pass", "k3y-of-the-shop"]) == []


CLOSING = """
import scrapy


class First:
    def process_item(self, item, spider):
        return item

    def close_spider(self, spider):
        raise OSError("the database has gone")


class Second(First):
    def close_spider(self, spider):
        open("second.txt", "w").write("closed")


class Ends(scrapy.Spider):
    name = "ends"
    custom_settings = {"ITEM_PIPELINES": {First: 1, Second: 2}}

    async def start(self):
        yield scrapy.Request(f"{self.site}list/0")

    def parse(self, response):
        yield {"one": 1}

    def closed(self, reason):
        open("closed.txt", "w").write(reason)
"""


def test_a_pipeline_that_raises_at_the_end_is_listed_and_keeps_the_others_from_nothing(
    site: QuotesSite, tmp_path: Path
) -> None:
    (tmp_path / "ends.py").write_text(CLOSING)
    done = weft_command_in(
        tmp_path, "run", "--scrapy", "ends.py", "-a", f"site={site.url}", "--data-dir", "data", "--allow-private",
        "--prometheus-port", "0",
    )  # fmt: skip
    assert done.returncode == 0 and "The spider failed at the end of the crawl: weft errors data" in done.stderr
    assert (tmp_path / "second.txt").read_text() == "closed" and (tmp_path / "closed.txt").read_text() == "finished"
    listed = weft_here("errors", tmp_path / "data").stdout
    assert "at the end of the crawl: OSError at ends.py:10" in listed and "the database has gone" in listed
