"""A pod on a real Redis, its fetchers and parsers each a process: what is tested is the engine, not who starts it.

As a program (`python redis_pod.py '{"role": "parser", ...}'`) this is one of those processes; `Pod` starts them, kills
them, and says when nothing is left.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    gc.disable()  # as the processes of a crawl do while they start

from weft import config as settings
from weft.config import Config
from weft.crawl.folder import CrawlFolder
from weft.crawl.pods.parser import Parser
from weft.crawl.seeds.known_urls import RECRAWL
from weft.engine.assembly import Fetching
from weft.engine.loop.fetcher.revisits import Revisits, StoredVisits
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.handoff import GATHER_S, HandoffParts
from weft.engine.loop.parser.suspects import Heartbeat, pop_suspect
from weft.engine.loop.progress import CrawlProgress, read_status
from weft.engine.loop.steps import crash_point
from weft.engine.recovery import resume_crawl
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found, Row
from weft.store.pages import PageStore
from weft.telemetry import Slot

# This is the program of the processes too, which know neither the other tests nor what those need.
if TYPE_CHECKING:
    from crawling import Kill


def config_of(data_dir: Path, flags: dict[str, Any]) -> Config:
    flags = {"scope": "any", "allow_private": True, "data_dirs": [str(data_dir)], "prometheus_port": 0} | flags
    return settings.load(environment={}, flags=flags).config


class One:
    """One process."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.config = config_of(Path(order["data_dir"]), order["flags"])
        self.folder = CrawlFolder(self.config.store.data_dirs)
        self.slot = Slot(0, "parser" if order["role"] == "parser" else "fetcher", order["index"])
        home = self.folder.home / "frontier" / "pod_0"
        self.frontier = RedisFrontier(
            connect(order["redis"]), home, self.config.politeness, slot=self.slot.name, incarnation=order["start"]
        )
        # One run, as under an orchestrator: a process that dies alone died of its page.
        self.progress = CrawlProgress(self.folder.home / f"status-{self.slot.name}.json", os.getpid(), "test")
        self.work = LongWork(Heartbeat(home / self.slot.name), self.progress)

    def run(self) -> None:
        if self.order["role"] == "parser":
            self._parse()
        else:
            self._fetch()
        used = resource.getrusage(resource.RUSAGE_SELF)
        told = {"cpu_s": used.ru_utime + used.ru_stime, "rss_mb": used.ru_maxrss / 1024}
        told["round_trips"] = self.frontier.link.scripts.round_trips
        (self.folder.home / f"used-{self.slot.name}.json").write_text(json.dumps(told))

    def _parse(self) -> None:
        rest_s = self.order.get("rest_s", 0.0)
        periodic_tasks: list[Callable[[float], None]] = [lambda _: time.sleep(rest_s)] if rest_s else []
        parser = Parser(
            self.config, self.folder, "test", self.slot, self.frontier, self.progress, self.work,
            at_a_time=self.order.get("at_a_time", 50), periodic_tasks=lambda _: periodic_tasks,
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: parser.loop.drain())
        parser.run()

    def _fetch(self) -> None:
        frontier, order, folder = self.frontier, self.order, self.folder
        outlet = None
        if order["role"] == "fetcher":
            soft, hard = order.get("soft", 20_000), order.get("hard", 80_000)
            outlet = HandoffParts(frontier, folder.spool_folder(0), self.slot, soft, hard, crash_point())
        parts = Fetching(
            frontier, self.config, self.slot, self.progress, corpus_id="test", data_dirs=folder.data_dirs,
            work=self.work, metrics=folder.metrics, outlet=outlet,
        )  # fmt: skip
        self._open_crawl(parts)
        loop = parts.start(frontier.owner, ends_alone=False, gather_s=order.get("gather_s", GATHER_S))
        signal.signal(signal.SIGTERM, lambda *_: loop.drain())
        loop.run()
        parts.close()
        if outlet is not None:
            (folder.home / f"pressure-{self.slot.name}.json").write_text(json.dumps(outlet.pressure.events))

    def _open_crawl(self, parts: Fetching) -> None:
        frontier, store, seeds = self.frontier, parts.store, self.folder.seeds()
        crawl = resume_crawl(
            parts, frontier, "crawl", seeds, lambda _: None, parts.transports, origins=self.folder.origins()
        )
        frontier.queue.admit(crawl.number, [Found(seed, 0) for seed in map(crawl.rules.rewritten, seeds)])
        if again := self.order.get("recrawl"):
            known = [
                (row.item, Found(row.url, row.depth, row.parent)) for row in store.rows() if 200 <= row.status < 300
            ]
            stored = lambda after: (one for one in known if one[0] > after)  # noqa: E731
            for _ in frontier.revisits.walk(crawl.number, RECRAWL, again, stored, lambda _: None):
                pass
        if frontier.notes.note(RECRAWL):
            crawl.revisits = Revisits(StoredVisits(store))
        frontier.durability.commit()


class Pod:
    """The processes of one pod. A process is started again with `start` of the same name."""

    def __init__(self, redis: str, data_dir: Path, seeds: Iterable[str], **flags: Any) -> None:
        self.redis = redis
        self.data_dir = data_dir
        self.flags = flags
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths: Counter[str] = Counter()  # by name
        self._starts = 0
        self.folder = CrawlFolder([data_dir])
        self.folder.own_folder.mkdir(parents=True, exist_ok=True)
        self.folder.add_seeds(seeds)
        config = config_of(data_dir, flags)
        self.folder.record_credential_origins(config.fetch)
        self.frontier = RedisFrontier(
            connect(redis), data_dir / "frontier" / "pod_0", config.politeness, slot="pod0-orchestrator"
        )
        self.frontier.crawls.open_crawl("crawl", CrawlLimits(config.limits.max_pages))

    def start(self, name: str, *, env: dict[str, str] | None = None, core: int | None = None, **more: Any) -> None:
        role, index = name[:-1], int(name[-1])
        self._starts += 1
        order = {
            "role": role, "index": index, "start": self._starts, "redis": self.redis, "data_dir": str(self.data_dir),
            "flags": self.flags, **more,
        }  # fmt: skip
        pin = [] if core is None else ["taskset", "-c", str(core)]
        command = [*pin, sys.executable, __file__, json.dumps(order)]
        self.running[name] = subprocess.Popen(command, env=os.environ | (env or {}))

    def kill(self, name: str) -> Kill:
        """As the kernel would, and as the orchestrator sees it: suspect and leases are told at once."""
        from crawling import Kill

        process, before = self.running.pop(name), time.monotonic()
        process.kill()
        process.wait()
        self.bury(name)
        return Kill(before, time.monotonic())

    def bury(self, name: str) -> None:
        self.deaths[name] += 1
        slot = f"pod0-{name.replace('fused', 'fetcher')}"
        if name.startswith("parser") and (suspect := pop_suspect(self.data_dir / "frontier" / "pod_0" / slot)):
            self.frontier.parse_queue.died_on(suspect)
        self.frontier.processes.release_owner(slot + "#")

    def stop(self) -> None:
        """Fetchers first, then parsers."""
        for role in ("f", "p"):
            some = {name: process for name, process in self.running.items() if name.startswith(role)}
            for process in some.values():
                process.send_signal(signal.SIGTERM)
            for name, process in some.items():
                assert process.wait(_patience(30)) == 0, name
                del self.running[name]

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self.frontier.close()

    def ended(self) -> bool:
        """Whether nothing is left."""
        stats = self.frontier.status.stats()
        return stats.admitted > 0 and stats.admitted == stats.finished and stats.to_parse == stats.queued == 0

    def until_ended(self, timeout_s: float = 60.0, **restart: Any) -> None:
        """Waits for the end; a process that dies is started again, as the orchestrator would."""
        until = time.monotonic() + _patience(timeout_s)
        while not self.ended():
            assert time.monotonic() < until, self.frontier.status.stats()
            for name, process in list(self.running.items()):
                if process.poll() is not None:
                    self.bury(name)
                    self.start(name, **restart)
            time.sleep(0.1)

    def rows(self) -> list[Row]:
        """All rows, of all slots."""
        store = PageStore.open([self.data_dir], read_only=True)
        try:
            return list(store.rows())
        finally:
            store.abandon()

    def used(self) -> dict[str, dict[str, float]]:
        files = self.data_dir.glob("used-*.json")
        return {path.stem.removeprefix("used-"): json.loads(path.read_text()) for path in files}

    def status(self, slot: str) -> Any:
        return read_status(self.data_dir / f"status-{slot}.json")

    def spool(self) -> list[Path]:
        return list((self.data_dir / "spool" / "pod_0").glob("*"))


def _patience(seconds: float) -> float:
    from pace import patience

    return patience(seconds)


if __name__ == "__main__":
    one = One(json.loads(sys.argv[1]))
    gc.freeze()
    gc.enable()
    one.run()
    gc.freeze()  # and while they end
