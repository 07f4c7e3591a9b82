"""What a crawl was started with, derived defaults included, is in force on every resume, until somebody changes it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import WEFT, audited, environment, until, weft, weft_here
from pace import patience
from ports import free_port
from proxying import EchoSite

import weft as library
from weft.config import Loaded
from weft.crawl.folder import CrawlFolder
from weft.crawl.start import prepare

# Derived at the start from other values: from a seed file, a delay of 0, a list of pods, a filter's size.
DERIVED = (
    "scope", "politeness_delay_seconds", "per_domain_concurrency", "fetchers_per_pod", "parsers_per_pod", "seen_filter",
    "store",
)  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite(pages=3) as site:
        yield site


@pytest.fixture
def seeds(site: EchoSite, tmp_path: Path) -> Path:
    path = tmp_path / "seeds.txt"
    path.write_text(f"{site.url}page/0\n")
    return path


def prepared(flags: dict[str, Any], said: list[str] | None = None, config_file: str | None = None) -> Loaded:
    """The settings that a run would have; it is prepared in full, and not run."""
    usual = {"allow_private": True, "prometheus_port": 0} if not flags.get("resume") else {}
    tell = (said if said is not None else []).append
    ready = prepare([], usual | flags, config_file, environment={}, announce=tell)
    ready.close()
    return ready.loaded


def derived(loaded: Loaded) -> dict[str, Any]:
    return {name: loaded.values[name] for name in DERIVED}


def test_a_resumed_crawl_has_the_scope_and_the_delay_that_it_was_started_with(
    site: EchoSite, seeds: Path, tmp_path: Path
) -> None:
    folder, before = tmp_path / "data", len(site.arrivals)
    flags = ("--seed-file", seeds, "--allow-private", "--data-dir", folder, "--prometheus-port", 0)
    with subprocess.Popen([*WEFT, "crawl", *map(str, flags)], stderr=subprocess.DEVNULL, env=environment()) as running:
        until(lambda: len(site.arrivals) > before, what="the request for robots.txt")
        running.send_signal(signal.SIGINT)
        assert running.wait(patience(30)) == 130
    ended = weft("crawl", "--resume", "--data-dir", folder, "--max-duration", 1)
    assert ended.returncode == 3, ended.stderr
    assert len(site.arrivals) - before == 1, "robots.txt; the page has to wait 70 seconds, in the second run, too"
    values = CrawlFolder([folder]).settings()
    assert (values["scope"], values["politeness_delay_seconds"]) == ("any", 70.0)
    log = (folder / "logs" / "pod_0" / "orchestrator.log").read_text()
    assert log.count("key=scope value=any") == 2 and "setting changed" not in log
    changed = weft("crawl", "--resume", "--data-dir", folder, "--max-duration", 1, "--delay", 0.05)
    assert "politeness_delay_seconds is 0.05 from now on; it was 70.0" in changed.stderr
    log = (folder / "logs" / "pod_0" / "orchestrator.log").read_text()
    assert "setting changed" in log and "key=politeness_delay_seconds old=70.0 new=0.05 origin=argument" in log
    assert not audited(folder).violations, "each request was in accord with the delay of its time"
    record = CrawlFolder([folder]).settings_record()
    assert record.changes[0].changed == {"politeness_delay_seconds": (70.0, 0.05)}


@pytest.mark.parametrize(
    "flags",
    [{}, {"delay": 0}, {"num_pods": 2}, {"delay": 0, "store": "text,warc", "num_pods": 2}],
    ids=["alone", "no-delay", "pods", "pods-no-delay"],
)
def test_every_derived_default_is_kept(seeds: Path, tmp_path: Path, flags: dict[str, Any]) -> None:
    folder, said = tmp_path / "data", list[str]()
    first = prepared({"seed_file": seeds, "data_dirs": [folder], **flags})
    again = prepared({"data_dirs": [folder], "resume": True}, said)
    assert derived(again) == derived(first)
    assert again.kept() == first.kept() and again.kept_defaults() == first.kept_defaults()
    assert again.origins["scope"] == "default, as the crawl was started" and not said
    other = prepared({"data_dirs": [folder], "resume": True, "scope": "host"}, said)
    assert derived(other) == derived(first) | {"scope": "host"}, "what is not named stays"
    assert said == ["scope is host from now on; it was any"]


@pytest.mark.timeout(120)
def test_pods_on_redis_keep_what_was_derived_for_them(seeds: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    flags = {"pods": "managed", "bloom_filter_capacity": 1000, "data_dirs": [folder]}
    first = prepared({"seed_file": seeds, **flags})
    assert derived(first)["seen_filter"] == "bloom" and derived(first)["parsers_per_pod"] == 2
    again = prepared({"data_dirs": [folder], "resume": True})
    assert derived(again) == derived(first) and again.config.pods == first.config.pods


def test_a_crawl_of_a_program_keeps_them_too(seeds: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.warns(library.errors.NothingStored):
        list(library.crawl([], seed_file=seeds, data_dir=folder, allow_private=True, max_duration=1))
    before = CrawlFolder([folder]).settings_record()
    assert before.values["scope"] == "any" and before.values["prometheus_port"] == 0
    with pytest.warns(library.errors.NothingStored):
        list(library.crawl([], resume=True, data_dir=folder, max_duration=1))
    assert CrawlFolder([folder]).settings_record() == before


def test_a_file_that_names_a_key_changes_it_and_one_that_does_not_changes_nothing(seeds: Path, tmp_path: Path) -> None:
    """As `weft up` does with a crawl that it keeps running: always with its file, then with --resume."""
    folder, file = tmp_path / "data", tmp_path / "crawl.yaml"
    text = f"seed_file: {seeds}\ndata_dirs: {folder}\nallow_private: true\nprometheus_port: 0\n"
    file.write_text(text)
    first = prepared({}, config_file=str(file))
    file.write_text(text + "max_depth: 2\n")
    said = list[str]()
    again = prepared({"resume": True}, said, str(file))
    assert derived(again) == derived(first) and said == ["max_depth is 2 from now on; it was null"]
    file.write_text(text)
    assert prepared({"resume": True}, config_file=str(file)).values["max_depth"] == 2, "no word of it is no change"


def test_a_crawl_that_stored_nothing_is_started_again_by_the_same_command(site: EchoSite, tmp_path: Path) -> None:
    """One that was stopped on purpose, or has a page, is not: that takes --resume or --fresh."""
    dead = f"http://127.0.0.1:{free_port()}/"
    command: tuple[object, ...] = (
        "crawl",
        dead,
        "--delay",
        0,
        "--max-retries",
        0,
        "--prometheus-port",
        0,
        "--data-dir",
        tmp_path / "data",
    )
    assert weft_here(*command).returncode == 4, "--allow-private is missing"
    command = (*command, "--allow-private", "--connect-timeout", 1, "--robots-patience-seconds", 0)
    first = CrawlFolder([tmp_path / "data"]).identity().id
    again = weft_here(*command)
    assert again.returncode == 4, again.stderr
    assert CrawlFolder([tmp_path / "data"]).identity().id != first
    site_command = ("crawl", f"{site.url}page/0", *command[2:])
    assert weft_here(*site_command).returncode == 0
    assert weft_here(*site_command).returncode == 2
    stopped = ("crawl", f"{site.url}page/0", "--allow-private", "--max-duration", 0.5, "--delay", 60)
    assert weft_here(*stopped, "--data-dir", tmp_path / "stopped").returncode == 3
    assert weft_here(*stopped, "--data-dir", tmp_path / "stopped").returncode == 2
