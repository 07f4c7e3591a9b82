"""An engine after a power cut: what its frontier had not put on the disk is read again from the stored pages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from pace import patience
from power_cut import reboot

import weft
from weft.engine.model import CrawlState
from weft.store.corpus import Corpus
from weft.testing.web import synthetic_web

HOLDER = """
import json, sys, time, weft
data_dir, settings, seeds = json.loads(sys.argv[1])
with weft.Engine(data_dir, **settings) as engine:
    for name, seed in seeds.items():
        engine.open(name, seeds=[seed])
    print("opened", flush=True)
    time.sleep(600)
"""


def test_links_of_stored_pages_that_the_frontier_has_lost_are_found_again(tmp_path: Path) -> None:
    with synthetic_web(hosts=3, pages=20, profile="calm", seed=5) as web:
        settings = {"allow_private": True, "resolve": web.resolve, "delay": 0.05, "scope": "any"}
        seeds = {"one": web.seeds[0], "two": web.seeds[1]}
        data_dir, on_disk = tmp_path / "data", tmp_path / "on_disk"
        argv = [sys.executable, "-c", HOLDER, json.dumps([str(data_dir), settings, seeds])]
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"opened\n"
        files = ["frontier.db", "frontier.db-wal"]
        on_disk.mkdir()
        for name in files:
            shutil.copy(data_dir / "frontier" / name, on_disk / name)
        with weft.Engine(data_dir, **settings) as engine:
            pid = engine.pid
            limit = time.monotonic() + patience(30)
            while min(standing.pages for standing in engine.standings()) < 5:
                assert time.monotonic() < limit, "it did not come"
                time.sleep(0.05)
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        while pid is not None and Path(f"/proc/{pid}").exists():  # it ends with its holder
            time.sleep(0.02)
        (data_dir / "frontier" / "frontier.db-shm").unlink(missing_ok=True)
        for name in files:
            shutil.copy(on_disk / name, data_dir / "frontier" / name)
        reboot(data_dir / "frontier" / "frontier.mark")
        with weft.Engine(data_dir, **settings) as engine:
            for name, seed in seeds.items():
                engine.open(f"{name} undisturbed", seeds=[seed])
            standings = {one.name: engine.wait(one.name, patience(60)) for one in engine.standings()}
        assert {standing.state for standing in standings.values()} == {CrawlState.ENDED}
        rows = list(Corpus([data_dir]).rows())
        stored = {name: {row.url for row in rows if row.crawl == one.id} for name, one in standings.items()}
        for name in seeds:
            assert len(stored[name]) > 15
            assert stored[name] == stored[f"{name} undisturbed"]
