"""`weft explain` and `weft audit` on a crawl of the messy web: the oracle and the server's log are the judges."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import weft_here

from weft.crawl.reports.crawls import ReportFolder
from weft.crawl.reports.explain import Explanations
from weft.crawl.start import Prepared, prepare
from weft.frontier.requests import with_checksum
from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prepared, SyntheticWeb]]:
    folder = tmp_path_factory.mktemp("explained") / "crawl"
    settings = {
        "scope": "any", "politeness_delay_seconds": 0.03, "allow_private": True, "data_dirs": [str(folder)],
        "prometheus_port": 0, "retry_backoff_seconds": 0.2, "robots_patience_seconds": 0,
    }  # fmt: skip
    with synthetic_web(hosts=10, pages=60, seed=12, profile="messy") as web:
        prepared = prepare(web.seeds, settings, environment={})
        assert prepared.orchestrator.run() == 0
        prepared.close()
        yield prepared, web


def test_two_hundred_urls_of_every_kind_are_explained_as_the_oracle_says(
    crawled: tuple[Prepared, SyntheticWeb],
) -> None:
    prepared, web = crawled
    expected = web.expect()
    chosen = random.Random(1)
    by_reason: dict[str, list[str]] = {}
    for url, reasons in expected.never.items():
        by_reason.setdefault(reasons[0], []).append(url)
    assert {"extension", "robots", "nofollow", "robots-unreachable", "length"} <= set(by_reason)
    report = ReportFolder(prepared.folder.data_dirs)
    searched: Counter[str] = Counter()
    explanations = Explanations(report, search=lambda what, _: searched.update([what]))
    try:
        wrong, asked = [], 0
        for urls in by_reason.values():
            for url in chosen.sample(urls, min(20, len(urls))):
                asked += 1
                (answer,) = explanations.explain(url)
                # An image is no link, and its extension would keep it out as well: both are right.
                right = {*expected.never[url], *(["extension"] if "no-link" in expected.never[url] else [])}
                if answer.crawled or answer.reason not in right:
                    wrong.append((url, expected.never[url], answer))
        for url in chosen.sample(sorted(expected.must), 220 - asked):
            asked += 1
            (answer,) = explanations.explain(url)
            # What fails for good, or is left at its head, is asked for all the same, and is not called crawled.
            ended = ("error", "too_large", "too_many_redirects", "content-type")
            failed = answer.reason in ended or "redirect to" in answer.reason
            if answer.crawled == failed:
                wrong.append((url, ["must"], answer))
        assert wrong == []
        assert asked >= 200
        assert searched["rows"] and searched["pages"], "what is known otherwise is not searched for"
    finally:
        explanations.close()
        report.close()


def test_explain_gives_its_evidence_on_the_command_line(crawled: tuple[Prepared, SyntheticWeb]) -> None:
    prepared, web = crawled
    home, seed = str(prepared.folder.home), web.seeds[0]
    done = weft_here("explain", home, seed, "http://127.200.0.1/nobody-links-here", "gopher://x/", "--json")
    page, stranger, no_url = json.loads(done.stdout)["urls"]
    assert (page["crawled"], stranger["reason"], no_url["reason"]) == (True, "unknown", "scheme")
    assert any("--search-pages" in line for line in stranger["evidence"])
    searched = weft_here("explain", home, "http://127.200.0.1/nobody-links-here", "--search-pages", "--json")
    assert json.loads(searched.stdout)["urls"][0]["reason"] == "no-link"
    robots = next(url for url, reasons in web.expect().never.items() if reasons == ["robots"])
    said = weft_here("explain", home, robots).stdout
    assert "robots.txt forbids it" in said
    assert "(line " in said


def test_audit_finds_nothing_in_a_clean_crawl_and_every_doctored_request(
    crawled: tuple[Prepared, SyntheticWeb], tmp_path: Path
) -> None:
    prepared, web = crawled
    clean = weft_here("audit", str(prepared.folder.home))
    assert clean.returncode == 0, clean.stdout
    assert f"{len(web.arrivals()):,} requests" in clean.stdout, "every request that arrived is in the log"
    doctored = tmp_path / "doctored"
    shutil.copytree(prepared.folder.home, doctored)
    doctor(doctored / "frontier" / "requests" / "requests-00000.log", web)
    done = weft_here("audit", str(doctored), "--json")
    assert done.returncode == 1
    violations = json.loads(done.stdout)["violations"]
    assert sorted(v["kind"] for v in violations) == ["delay", "delay", "no-robots", "places", "robots"], violations
    assert "violations" in weft_here("audit", str(doctored)).stdout


def test_a_claim_that_a_kill_cut_off_before_robots_txt_was_looked_at_is_no_request(
    crawled: tuple[Prepared, SyntheticWeb], tmp_path: Path
) -> None:
    prepared, web = crawled
    killed = tmp_path / "killed"
    shutil.copytree(prepared.folder.home, killed)
    log = killed / "frontier" / "requests" / "requests-00000.log"
    (boot,) = {line for line in log.read_text().splitlines() if line[0] == "B"}
    last = max(float(line.split("\t")[2]) for line in log.read_text().splitlines() if line[0] in "SE")
    forbidden = next(url for url, reasons in web.expect().never.items() if reasons == ["robots"])
    key = forbidden.split("/")[2].partition(":")[0]
    with log.open("ab") as file:
        file.write(with_checksum(f"S\t900001\t{last + 100:.6f}\t4e9\t{key}\t0.03\t1\t{forbidden}"))
        fields = boot.split("\t")
        file.write(with_checksum(f"B\t{fields[1]}\t{last + 101:.6f}\t{fields[3]}"))
    done = weft_here("audit", str(killed), "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["cut_off"] == 1
    assert "could reject them: 1" in weft_here("audit", str(killed)).stdout


def doctor(log: Path, web: SyntheticWeb) -> None:
    """Adds five requests at the end of the log that should not have been made."""
    last = max(float(line.split("\t")[2]) for line in log.read_text().splitlines() if line[0] in "SE")
    wall = 4e9
    expected = web.expect()
    forbidden = next(url for url, reasons in expected.never.items() if reasons == ["robots"])
    host = forbidden.split("/")[2].partition(":")[0]
    seed_host = web.seeds[0].split("/")[2].partition(":")[0]

    def lines(number: int, start: float, end: float | None, key: str, url: str) -> bytes:
        begun = with_checksum(f"S\t{number}\t{start:.6f}\t{wall}\t{key}\t0.03\t1\t{url}")
        return begun + (with_checksum(f"E\t{number}\t{end:.6f}\t200") if end is not None else b"")

    with log.open("ab") as file:
        file.write(lines(900001, last + 100, last + 101, seed_host, web.seeds[0]))
        file.write(lines(900002, last + 101.001, last + 102, seed_host, web.seeds[0] + "?delay"))  # too early
        file.write(lines(900003, last + 200, None, seed_host, web.seeds[0] + "?open"))
        file.write(lines(900004, last + 201, last + 202, seed_host, web.seeds[0] + "?second"))  # two at once
        file.write(with_checksum(f"E\t900003\t{last + 203:.6f}\t200"))
        file.write(lines(900005, last + 300, last + 301, host, forbidden))  # forbidden
        file.write(lines(900006, last + 400, last + 401, "127.201.0.1", "http://127.201.0.1/"))  # robots.txt not read
        file.write(lines(-900007, last + 401.001, last + 402, "127.201.0.1", "http://127.201.0.1/robots.txt"))


def test_a_url_is_found_without_its_scheme(crawled: tuple[Prepared, SyntheticWeb]) -> None:
    prepared, web = crawled
    home, seed = str(prepared.folder.home), web.seeds[0]
    bare = seed.removeprefix("http://")
    assert json.loads(weft_here("get", home, bare).stdout)["url"] == seed
    said = weft_here("explain", home, bare).stdout.splitlines()
    assert (said[0], said[1].strip(), said[2].strip()) == (seed, "crawled: HTTP 200, stored [page]", "a seed")
    missing = weft_here("get", home, f"{bare}nowhere")
    assert missing.returncode == 2 and f"looked for https://{bare}nowhere and {seed}nowhere" in missing.stderr


def test_what_nobody_linked_to_came_from_a_sitemap(crawled: tuple[Prepared, SyntheticWeb]) -> None:
    prepared, _ = crawled
    exported = weft_here(
        "export", str(prepared.folder.home), "--format", "jsonl", "--out", "-", "--fields", "url,parent"
    )
    rows = [json.loads(line) for line in exported.stdout.splitlines()]
    listed = next(row["url"] for row in rows if not row["parent"] and row["url"] not in prepared.folder.seeds())
    assert "\n    listed in a sitemap\n" in weft_here("explain", str(prepared.folder.home), listed).stdout


def test_figures_are_told_with_their_units(crawled: tuple[Prepared, SyntheticWeb], tmp_path: Path) -> None:
    home = str(crawled[0].folder.home)
    said = {line.partition(" ")[0]: line for line in weft_here("stats", home).stdout.splitlines()}
    assert "no response " in said["statuses"] and " 0 " not in said["statuses"]
    assert "no type " in said["types"] and " - " not in said["types"]
    for name, unit in {"jsonl": "rows", "markdown": "files", "warc": "responses", "cdxj": "lines"}.items():
        assert f" {unit} in " in weft_here("export", home, "--format", name, "--out", str(tmp_path / name)).stderr
