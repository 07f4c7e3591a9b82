"""The crawls that run on this machine, by the locks that their processes hold."""

from __future__ import annotations

import os
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.machine import MachineCrawls, running_crawls
from weft.engine.loop.progress import CrawlStatus, write_status


def test_a_crawl_is_listed_for_as_long_as_its_process_holds_it(tmp_path: Path) -> None:
    home = tmp_path / "data"
    folder = CrawlFolder([home])
    folder.lock_folder()
    folder.start(["http://a.test/"])
    assert home not in running_crawls()  # it has not said yet how it stands
    write_status(folder.status, CrawlStatus(state="running", pages=1234, queued=5, rate=2.5))
    status, pid = running_crawls()[home]
    assert (status.pages, pid) == (1234, os.getpid())
    rows = [row for row in MachineCrawls().table().rows if row[0] == str(home)]
    assert rows == [(str(home), "running", "1,234", "5", "2.5", str(os.getpid()))]
    folder.release()
    assert home not in running_crawls()


def test_another_file_of_that_name_is_no_crawl(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w"):
        assert tmp_path not in running_crawls()
