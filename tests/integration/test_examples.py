"""Every program in examples/, run as a user would: a process, its output, its exit code, against a synthetic web."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from crawling import environment, weft
from pace import patience
from served_http import service_in

from weft.config import load
from weft.crawl.pods.process_slots import slots, slots_and_cores
from weft.testing.web import SyntheticWeb, synthetic_web

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_LINES = 60
PROGRAMS = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yaml"))
FEW = {"WEFT_MAX_PAGES": "12"}


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=3, pages=30) as web:
        yield web


@pytest.fixture(scope="module")
def seed(web: SyntheticWeb) -> str:
    return web.seeds[0]


@pytest.fixture(scope="module")
def corpus(seed: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of one host, for the examples that read one."""
    folder = tmp_path_factory.mktemp("corpus") / "data"
    done = weft("crawl", seed, "--delay", 0, "--allow-private", "--data-dir", folder, "--prometheus-port", 0)
    assert done.returncode == 0, done
    return folder


def settings(**more: str) -> dict[str, str]:
    """What makes a crawl of the synthetic web short: the examples take every setting from the environment."""
    return environment(WEFT_ALLOW_PRIVATE="true", WEFT_POLITENESS_DELAY_SECONDS="0", **more)


def run(name: str, *arguments: object, code: int = 0, text: str = "", few: bool = False) -> list[str]:
    """The lines that an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True, text=True, timeout=patience(60), env=settings(**FEW if few else {}), input=text,
    )  # fmt: skip
    assert done.returncode == code, done
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_is_short_tested_and_listed(name: str) -> None:
    path = EXAMPLES / name
    assert len(path.read_text().splitlines()) <= MAX_LINES
    assert f"test_{path.stem.replace('-', '_')}" in globals(), f"{name} has no test here"
    assert f"`{name}`" in (EXAMPLES / "README.md").read_text() or f"]({name})" in (EXAMPLES / "README.md").read_text()


def test_examples_without_arguments_say_what_they_are_for() -> None:
    names = [name for name in PROGRAMS if name.endswith(".py")]
    with ThreadPoolExecutor(4) as threads:
        for name, done in zip(names, threads.map(run_bare, names), strict=True):
            assert done.returncode == 1, done
            assert f"python examples/{name}" in done.stderr
            assert "Traceback" not in done.stderr


def run_bare(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=patience(60))


def test_spider(seed: str, web: SyntheticWeb) -> None:
    items = [json.loads(line) for line in run("spider.py", seed, few=True)]
    assert len(items) == 12
    assert items[0]["url"] == seed and items[0]["from"] is None
    assert all(item["title"] and item["from"] for item in items[1:])


def test_pipelines(tmp_path: Path) -> None:
    folder = EXAMPLES / "pipelines"
    assert all(len(path.read_text().splitlines()) <= MAX_LINES for path in folder.iterdir() if path.is_file())
    (tmp_path / "docs").mkdir()
    for name in ("pool", "crawl"):
        (tmp_path / "docs" / f"{name}.md").write_text(f"# On {name}\n\nWords about [links](a.md) and words.\n")

    for _ in range(2):
        said, rows = run_pipeline(tmp_path, "word_counts", "word_counts.yaml")
    assert "2 unchanged" in said
    assert {"word": "words", "count": 4, "documents": ["crawl.md", "pool.md"]} in rows
    _, titles = run_pipeline(tmp_path, "titles", "stage-graph.json:titles")
    assert [row["read"]["title"] for row in titles] == ["On crawl", "On pool"]


def test_pipelines_over_a_crawl(corpus: Path, tmp_path: Path) -> None:
    source = ("--set", f"items.from={corpus}")
    _, (host,) = run_pipeline(tmp_path, "site_summary", "site_summary.yaml", *source)
    contents = (tmp_path / "output/site_summary/contents.md").read_text()
    assert host["pages"] == contents.count("\n# ") + 1 > 10 and host["words"] > 0
    _, passages = run_pipeline(tmp_path, "passages", "passages.yaml", *source)
    assert len({row["id"] for row in passages}) == len(passages) > len({row["url"] for row in passages}) > 5
    assert all(0 < len(row["text"].split()) <= 200 for row in passages)
    assert "# Pages" in (tmp_path / "output/passages/README.md").read_text()


def run_pipeline(folder: Path, name: str, file: str, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """What a pipeline of the examples says, and its rows."""
    done = subprocess.run(
        [sys.executable, "-m", "weft", "pipeline", "run", str(EXAMPLES / "pipelines" / file), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=patience(60), env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done
    lines = (folder / "output" / name / "shard-00000.jsonl").read_text().splitlines()
    return done.stderr, [json.loads(line) for line in lines]


def test_fields(seed: str) -> None:
    head, *lines = run("fields.py", seed, few=True)
    assert head.split(",")[:2] == ["url", "heading"]
    assert lines and all(line.startswith("http") and ",'" in line for line in lines)


def test_titles(seed: str) -> None:
    lines = run("titles.py", seed, few=True)
    assert len(lines) == 12
    assert lines[0].startswith(f"200 {seed}  ")
    assert all(re.fullmatch(r"200 http://127\.1\.0\.1:\d+/\S*  .*", line) for line in lines)


def test_save_markdown(seed: str, tmp_path: Path) -> None:
    lines = run("save_markdown.py", seed, tmp_path / "pages", few=True)
    assert sorted(lines) == sorted(str(path) for path in (tmp_path / "pages").iterdir())
    assert 10 <= len(lines) <= 12
    texts = [Path(line).read_text(encoding="utf-8") for line in lines]
    assert texts[0].startswith(f"<!-- {seed} -->\n\n")
    assert any("](http://127.1.0.1:" in text for text in texts), "links are kept, and lead where they led"


def test_link_graph(seed: str, tmp_path: Path) -> None:
    (said,) = run("link_graph.py", seed, tmp_path / "links.csv", few=True)
    with (tmp_path / "links.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert said == f"{len(rows)} links on 12 pages: {tmp_path / 'links.csv'}"
    assert rows[0]["from"] == seed
    assert len(rows) > 100
    assert all(row["to"].startswith("http") for row in rows)
    assert any(row["text"] for row in rows)
    assert any(row["rel"] == "nofollow" for row in rows)


def test_broken_links(web: SyntheticWeb, seed: str, tmp_path: Path) -> None:
    lines = run("broken_links.py", seed, tmp_path / "check", code=1)
    assert f"HTTP 404: {seed}gone/404" in lines
    assert lines[lines.index(f"HTTP 404: {seed}gone/404") + 1].startswith(f"    on {seed}")
    assert any(line.startswith("too_many_redirects: ") for line in lines)
    assert lines[-1] == f"{len(lines) // 2} broken links"
    asked = {arrival.host for arrival in web.arrivals()}
    assert "127.1.0.2" in asked, "links to other hosts are tried"


def test_from_sitemap(web: SyntheticWeb) -> None:
    sitemap = f"http://127.1.0.2:{web.port}/sitemap.xml"
    fetched = [line.split()[1] for line in run("from_sitemap.py", sitemap)]
    with urlopen(sitemap) as answer:
        listed = re.findall(r"<loc>(.*?)</loc>", answer.read().decode())
    wanted = {url.replace("&amp;", "&") for url in listed if "/private/" not in url}
    assert len(wanted) >= 5
    assert sorted(fetched) == sorted(wanted), "what the sitemap lists and robots.txt allows, and nothing else"


def test_resume(seed: str, corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "resume.py"), str(tmp_path / "data"), seed]
    slow = settings() | {"WEFT_POLITENESS_DELAY_SECONDS": "0.05"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=slow, process_group=0) as running:
        assert running.stdout is not None and running.stderr is not None
        first = [running.stdout.readline() for _ in range(4)]
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGINT)
        rest, said = running.stdout.read().splitlines(), running.stderr.read()
    assert first[0] == "starting\n"
    assert (running.returncode, first[1], said) == (0, f"{seed}\n", "")
    assert re.fullmatch(r"interrupted after \d+ pages: call again to go on", rest[-1])
    lines = run("resume.py", tmp_path / "data", seed)
    assert lines[0] == "going on"
    pages = lines[1:-1]
    assert lines[-1] == f"finished: {len(pages)} pages in {tmp_path / 'data'}"
    pages += [line.strip() for line in first[1:]] + rest[:-1]
    assert len(set(pages)) == json.loads(weft("stats", corpus, "--json").stdout)["pages"]
    assert len(pages) <= len(set(pages)) + 1, "the page at which the loop was left may come again"


def test_engine_demo(web: SyntheticWeb, tmp_path: Path) -> None:
    names = [f"127.1.0.{number}" for number in (1, 2)]
    arguments = [tmp_path / "engine", "me@example.com", *(f"http://{name}:{web.port}/" for name in names)]
    lines = run("engine_demo.py", *arguments)
    for name in names:
        numbers = [int(line.split()[1].rstrip(":")) for line in lines if line.startswith(f"{name} ")]
        assert numbers == sorted(set(numbers)), "each event once, in its order"
        assert f"{name} {numbers[-1]}: ended, max_pages" in lines
        assert sum(line.startswith(f"{name} ") and ": 200 " in line for line in lines) == 10
    assert [line.split(",")[0] for line in lines[-2:]] == [f"{name}: 10 pages" for name in names]
    assert run("engine_demo.py", *arguments) == lines, "nothing is fetched again; the events are the same"


def test_async_engine(web: SyntheticWeb, tmp_path: Path) -> None:
    names = [f"127.1.0.{number}" for number in (1, 2)]
    seeds = [f"http://{name}:{web.port}/" for name in names]
    lines = run("async_engine.py", tmp_path / "engine", "me@example.com", *seeds)
    assert {name: sum(line.startswith(f"{name} ") for line in lines) for name in names} == dict.fromkeys(names, 5)


def test_jobs_demo(web: SyntheticWeb, tmp_path: Path) -> None:
    with service_in(tmp_path / "service") as service:
        lines = run("jobs_demo.py", service.url, f"http://127.1.0.2:{web.port}/")
        assert re.fullmatch(r"task [0-9a-f]{32}: PENDING", lines[0])
        assert lines[-1].startswith("COMPLETED, max_pages: 10 pages of "), lines
        assert sum(": 200 " in line for line in lines) == 10
        if shutil.which("curl") is None:
            pytest.skip("no curl is here")
        with_curl = subprocess.run(
            ["sh", str(EXAMPLES / "jobs_curl.sh"), service.url, f"http://127.1.0.2:{web.port}/"],
            capture_output=True, text=True, timeout=patience(60),
        )  # fmt: skip
        assert with_curl.returncode == 0, with_curl
        pages = [json.loads(line) for line in with_curl.stdout.splitlines() if line.startswith("{")]
        assert len({page["url"] for page in pages}) == 10


def test_search_corpus(corpus: Path, seed: str) -> None:
    words = weft("get", corpus, seed, "--text").stdout.split()
    word = max(words, key=len)
    lines = run("search_corpus.py", corpus, word.upper())
    assert lines
    assert all(word.casefold() in line.casefold() for line in lines)
    assert run("search_corpus.py", corpus, "a word that nobody has written") == []


def test_check_robots() -> None:
    robots = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n\nSitemap: https://example.com/sitemap.xml\n"
    site = "https://example.com"
    lines = run("check_robots.py", "-", "MyBot", f"{site}/a", f"{site}/private/b", code=1, text=robots)
    assert lines == [
        f"allowed: {site}/a: no rule speaks of it",
        f"forbidden: {site}/private/b: Disallow: /private/ (line 2)",
        "Crawl-delay: 2 s",
        f"Sitemap: {site}/sitemap.xml",
    ]


def test_why_missing(corpus: Path, seed: str, tmp_path: Path) -> None:
    wanted = [seed, f"{seed}private/x", f"{seed}files/film.mp4", "http://127.9.9.9/elsewhere", f"{seed}gone/404"]
    (tmp_path / "wanted.txt").write_text("\n".join(wanted))
    lines = run("why_missing.py", corpus, tmp_path / "wanted.txt")
    reasons = [line.partition(": ")[0] for line in lines[:-1]]
    assert reasons == ["robots", "extension", "scope", "error"]
    assert lines[-1] == "page 1, robots 1, extension 1, scope 1, error 1"


def test_languages(corpus: Path) -> None:
    (line,) = run("languages.py", corpus)
    host, counts = line.split(" ", 1)
    assert host == "127.1.0.1"
    assert re.match(r"[a-z]{2} [5-9]\d\b", counts), "the one language that the host is written in"


def test_judge_your_crawler() -> None:
    lines = run("judge_your_crawler.py", 3, 12, code=1)
    faults = {line.partition(":")[0] for line in lines[:-1]}
    assert {"forbidden", "robots", "delay"} <= faults
    assert lines[-1].endswith("requests: not a right crawl")


def test_laptop() -> None:
    check_configuration("laptop.yaml")


def check_configuration(name: str) -> None:
    done = weft("config", "check", EXAMPLES / name)
    assert (done.returncode, done.stderr) == (0, f"{EXAMPLES / name}: valid for `weft crawl`\n")
    text = (EXAMPLES / name).read_text()
    assert text.startswith("# yaml-language-server: $schema=weft.schema.json\n")
    known = json.loads(weft("config", "schema").stdout)["properties"]
    assert set(yaml.safe_load(text)) <= set(known)


def test_local_pods() -> None:
    check_configuration("local-pods.yaml")
    local = load(EXAMPLES / "local-pods.yaml", environment={}).config
    assert [slot.name for slot in slots(local.pods)] == [
        f"pod{pod}-{process}" for pod in (0, 1) for process in ("fetcher0", "fetcher1", "parser0")
    ]
    assert (local.fetch.workers, local.pods.parser_workers, local.politeness.delay_s) == (50, 20, 10)
    assert (local.limits.max_pages, local.limits.max_duration_s) == (10_000, 3600)
    assert (local.pods.seen_filter, local.pods.bloom_capacity) == ("bloom", 1_000_000), "small filters"


def test_sixteen_pods() -> None:
    check_configuration("sixteen-pods.yaml")
    large = load(EXAMPLES / "sixteen-pods.yaml", environment={}, flags={"only_pods": "2-3"}).config
    assert [pod.redis_url for pod in large.pods.pods] == [f"redis://localhost:{port}" for port in range(6379, 6395)]
    assert (large.pods.fetchers_per_pod, large.pods.parsers_per_pod) == (6, 2)
    assert (large.fetch.workers, large.pods.parser_workers, large.politeness.delay_s) == (200, 50, 70)
    assert (len(large.store.data_dirs), large.store.store, large.pods.affinity) == (4, ("text",), True)
    few = load(EXAMPLES / "sixteen-pods.yaml", environment={}, flags={"num_pods": 4}).config.pods
    assert few.pods == large.pods.pods[:4]
    cores = {slot.name: core for slot, core in slots_and_cores(large.pods)}
    assert (cores["pod2-fetcher0"], cores["pod2-parser1"], cores["pod3-fetcher0"], len(cores)) == (0, 7, 8, 16)
