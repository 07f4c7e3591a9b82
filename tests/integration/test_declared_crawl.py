"""A crawl in the configuration of `weft up`: kept running, gone on with after a death, done when it has finished."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from crawling import until
from proxying import EchoSite

from weft.crawl.reports.audit import audit
from weft.crawl.reports.crawls import ReportFolder
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.errors import BadInput
from weft.supervise import process
from weft.system.state import ServiceRow
from weft.system.supervisor import Supervisor

PAGES = 400  # at its delay, more than a machine needs to restart it and to stop it, however busy
DELAY_S = 0.1


def declared(folder: Path, site: EchoSite, **more: object) -> Path:
    """The configuration file of a crawl."""
    seeds, file = folder / "seeds.txt", folder / "news2.yaml"
    seeds.write_text("".join(f"{site.url}page/{number}\n" for number in range(PAGES)))
    settings = {
        "seed_file": seeds, "data_dirs": folder / "crawl", "politeness_delay_seconds": DELAY_S, "allow_private": "true",
        "prometheus_port": 0, **more,
    }  # fmt: skip
    file.write_text("".join(f"{key}: {value}\n" for key, value in settings.items() if value is not None))
    return file


def row(supervisor: Supervisor) -> ServiceRow:
    (found,) = supervisor.status().services
    return found


def status(folder: Path) -> CrawlStatus:
    found = read_status(folder / "crawl" / "status.json")
    assert found is not None
    return found


def test_a_declared_crawl_survives_a_kill_and_a_stop_and_is_done_when_it_has_finished(tmp_path: Path) -> None:
    def supervisor() -> Supervisor:
        return Supervisor(data_dir=str(tmp_path / "service"), services=(), crawls=(str(file),))

    with EchoSite(pages=PAGES) as site:
        file = declared(tmp_path, site)
        with supervisor() as running:
            running.start_all()
            first = row(running)
            assert (first.name, first.state, first.healthy) == ("crawl-news2", "running", True) and first.pid
            until(lambda: status(tmp_path).pages > 3, what="its first pages")
            os.kill(first.pid, signal.SIGKILL)
            before = status(tmp_path).pages
            until(lambda: row(running).healthy and row(running).pid != first.pid, what="another process")
            assert row(running).restarts == 1
            second = row(running).pid
            until(lambda: status(tmp_path).pages > before + 3, what="going on")
        assert second is not None and process.has_ended(second), "nothing is left"
        assert status(tmp_path).state == "interrupted" and len(site.asked) < PAGES
        assert not audit(ReportFolder([tmp_path / "crawl"])).violations
        declared(tmp_path, site, politeness_delay_seconds=0)
        with supervisor() as running:
            running.start_all()
            until(lambda: row(running).state == "done", what="the end")
            last = row(running)
            assert (last.healthy, last.pid, last.restarts) == (True, None, 0)
        assert {one.path for one in site.asked} == {f"/page/{number}" for number in range(PAGES)}
        asked = len(site.arrivals)
        with supervisor() as running:
            running.start_all()
            assert (row(running).state, row(running).healthy) == ("done", True)
        assert len(site.arrivals) == asked, "what is done is not begun again"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seed_file": None}, "set `seed_file`"),
        ({"sede_file": "x"}, "sede_file"),
        ({"max_pages": "many"}, "max_pages"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_before_anything_runs(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    file = declared(tmp_path, EchoSite(), **settings)
    with pytest.raises(BadInput, match=said):
        Supervisor(data_dir=str(tmp_path / "service"), crawls=(str(file),))


def test_two_declared_crawls_share_no_name_and_no_data_dir(tmp_path: Path) -> None:
    file = declared(tmp_path, EchoSite())
    (tmp_path / "other.yaml").write_text(file.read_text())
    for files, said in (((file, tmp_path / "other.yaml"), "data dir"), ((file, file), "another name")):
        with pytest.raises(BadInput, match=said):
            Supervisor(data_dir=str(tmp_path / "service"), crawls=tuple(map(str, files)))
    with pytest.raises(BadInput, match=r"missing\.yaml"):
        Supervisor(data_dir=str(tmp_path / "service"), crawls=(str(tmp_path / "missing.yaml"),))


def test_a_crawl_that_cannot_begin_is_given_up_with_its_reason(tmp_path: Path) -> None:
    file = declared(tmp_path, EchoSite(), seed_file=tmp_path / "none.txt")
    with (
        pytest.raises(BadInput, match=r"crawl-news2: .*none\.txt"),
        Supervisor(data_dir=str(tmp_path / "service"), services=(), crawls=(str(file),)) as running,
    ):
        running.start_all()
