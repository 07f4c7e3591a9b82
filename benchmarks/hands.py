"""Pages over workers on other machines: one brain with 1, 2 and 4 hands, beside the same crawl without hands.

    python benchmarks/hands.py [--hands 1,2,4] [--rounds 3] [--pages 5000] [--concurrency 2]

The web of compare.py (keep-alive), a delay of 0, and all processes on this machine: the brain with its parsers on the
first core, nginx on the last, hands and the broker wherever there is room. So pages/s on a machine of two cores are
what its cores allow; what a brain can do beside hands on machines of their own follows from the CPU that a page costs
in it. Starts and ends are taken out as in compare.py.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import results
from harness.crawlers import CRAWLERS, ROOT, SCRATCH
from harness.measure import Failed, cores, cpu_s, run, tree
from harness.web import Server, Web, make, served

from weft.cluster.key import make_key
from weft.supervise.redis_server import RedisServer

START_S = 60.0
LIMIT_S = 600.0


class Hands:
    """The hands of one run, as processes."""

    def __init__(self, broker: RedisServer, key_file: Path) -> None:
        self._broker, self._key_file = broker, key_file
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def flags(self) -> list[str]:
        """Of the crawl that uses them."""
        if not self.processes:
            return []
        return ["--workers", "cluster", "--broker", self._broker.url, "--cluster-key-file", str(self._key_file)]

    def cpu_s(self) -> float:
        """What they have used so far."""
        return sum(cpu_s(pid) for one in self.processes for pid in tree(one.pid))

    @contextmanager
    def running(self, number: int, concurrency: int, folder: Path) -> Iterator[None]:
        """Starts that number of hands."""
        logs = [folder / f"hand-{at}.log" for at in range(number)]
        command = [
            *(sys.executable, "-m", "weft", "worker", "--broker", self._broker.url, "--queues", "fetch"),
            *("--key-file", str(self._key_file), "--concurrency", str(concurrency)),
        ]
        try:
            for log in logs:
                with log.open("wb") as out:
                    self.processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
            self._wait(logs)
            yield
        finally:
            for one in self.processes:
                one.terminate()
            for one in self.processes:
                one.wait()
            self.processes = []

    def _wait(self, logs: list[Path]) -> None:
        until = time.monotonic() + START_S
        while not all(" serves " in log.read_text(errors="replace") for log in logs):
            if time.monotonic() > until or any(one.poll() is not None for one in self.processes):
                raise Failed("a hand did not start: " + "".join(log.read_text(errors="replace")[-500:] for log in logs))
            time.sleep(0.05)


def measure(web: Web, server: Server, hands: Hands) -> dict[str, Any]:
    """One crawl that has fetched every page."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    before_s = hands.cpu_s()
    command = [*CRAWLERS["weft"].command(web, server), *hands.flags, "--prometheus-port", "0"]
    cost = run(command, cores()[0], cwd=SCRATCH, limit_s=LIMIT_S)
    if (pages := int(cost.said["status"]["pages"])) != web.pages:
        raise Failed(f"{len(hands.processes)} hands: {pages} of {web.pages} pages")
    return {**cost.as_dict(), "said": {}, "hands_cpu_s": hands.cpu_s() - before_s}


def one_round(section: dict[str, Any], number: int, webs: dict[str, Web], server: Server, hands: Hands) -> None:
    """Adds one round with a number of hands."""
    record = section["hands"].setdefault(str(number), {"rounds": [], "starts": [], "pages": webs["large"].pages})
    record["starts"].append(measure(webs["start"], server, hands))
    record["rounds"].append(measure(webs["large"], server, hands))
    print(f"{number} hands: {results.line(record)}", flush=True)


def summary(section: dict[str, Any]) -> None:
    """The figures, and a table."""
    print("| hands | pages/s | CPU a page in the brain | CPU a page in the hands | pages/s of a brain on its core |")
    print("|---|---|---|---|---|")
    for number, record in section["hands"].items():
        found = results.figures(record)
        assert found is not None
        start_s = results.median(one["hands_cpu_s"] for one in record["starts"])
        hands_ms = results.median(1000 * (one["hands_cpu_s"] - start_s) / record["pages"] for one in record["rounds"])
        record["figures"] = {**found, "hands_cpu_ms": hands_ms, "brain_limit": 1000 / found["cpu_ms"]}
        print(
            f"| {number} | {found['pages_per_s']:,.0f} | {found['cpu_ms']:.3f} ms | {hands_ms:.3f} ms "
            f"| {1000 / found['cpu_ms']:,.0f} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hands", default="1,2,4", help="how many, in turns; 0, without hands, is always measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=5000)
    parser.add_argument("--concurrency", type=int, default=2, help="tasks of a hand at a time")
    parser.add_argument("--port", type=int, default=8484)
    args = parser.parse_args()
    folder = ROOT / ".bench" / f"web-{args.port}"
    webs = make(folder, args.pages, args.port)
    section: dict[str, Any] = {"concurrency": args.concurrency, "hands": {}}
    with tempfile.TemporaryDirectory(prefix="weft-hands-") as name:
        broker = RedisServer(Path(name) / "broker")
        broker.start()
        make_key(key_file := Path(name) / "cluster.key")
        hands = Hands(broker, key_file)
        try:
            with served(folder, "keep-alive", args.port, cores()[1]) as server:
                for _ in range(args.rounds):
                    for number in (0, *map(int, args.hands.split(","))):
                        with hands.running(number, args.concurrency, Path(name)):
                            one_round(section, number, webs, server, hands)
        finally:
            broker.kill()
            broker.stop()
    summary(section)
    results.keep("hands", section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
