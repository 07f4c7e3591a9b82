"""The wide web: a mix of hosts as the real one has it, a server for it that is not Weft's, and a judge of its log.

Of all hosts 9 % refuse connections, 4 % take a request and never answer, 3 % swallow SYNs, 5 % answer in 5 to 20 s and
5 % have bursts of 503, of 15 s in each minute; the others answer in 20 to 200 ms. 60 % speak TLS. Every page links to
30 that are new. The server (native/wide_server.c) writes down each arrival; politeness and lateness are judged by that.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from harness.measure import Failed
from weft.testing.tls import CERTS

DOMAIN = "weft-web.test"
SOURCE = Path(__file__).resolve().parents[1] / "native" / "wide_server.c"
# Kinds, and how many of a hundred hosts are of each; the rest are fine.
SHARES = {"refuses": 9, "quiet": 4, "swallows": 3, "slow": 5, "bursts": 5}
DEAD = ("refuses", "quiet", "swallows")
TLS_SHARE = 0.6
FINE_MS, SLOW_MS = (20, 200), (5000, 20_000)
BURST_SHARE = 15 / 60
_LETTERS = {"quiet": "q", "slow": "s", "bursts": "b"}


class WideHost(NamedTuple):
    """One host."""

    number: int
    kind: str
    tls: bool
    least_ms: int
    most_ms: int

    def seed(self, port: int) -> str:
        """Its home page; where it listens depends on what it is."""
        offset = {"refuses": 2, "swallows": 3}.get(self.kind, int(self.tls))
        return f"{'https' if self.tls else 'http'}://h{self.number}.{DOMAIN}:{port + offset}/"

    @property
    def is_dead(self) -> bool:
        return self.kind in DEAD

    @property
    def seconds(self) -> float:
        """Of an answer, on average."""
        return (self.least_ms + self.most_ms) / 2000


def hosts(count: int, seed: int = 1) -> list[WideHost]:
    """So many hosts, the same ones every time."""
    random = Random(seed)
    kinds = [kind for kind, share in SHARES.items() for _ in range(round(count * share / 100))]
    kinds += ["fine"] * (count - len(kinds))
    random.shuffle(kinds)
    found = []
    for number, kind in enumerate(kinds):
        middle = random.randint(*FINE_MS)
        times = SLOW_MS if kind == "slow" else (middle, middle)
        found.append(WideHost(number, kind, random.random() < TLS_SHARE, *times))
    return found


def allowed_per_s(mix: list[WideHost], delay_s: float) -> float:
    """How many requests a second politeness allows: one for each host that answers, every delay and answer."""
    return sum(1 / (delay_s + host.seconds) for host in mix if not host.is_dead)


@contextmanager
def served(mix: list[WideHost], port: int, core: int, folder: Path) -> Iterator[Path]:
    """Serves the mix; gives the log, which is whole when this ends."""
    program = built(folder)
    random = Random(2)
    lines = [f"{_LETTERS.get(h.kind, 'f')} {h.least_ms} {h.most_ms} {random.randrange(60_000)}" for h in mix]
    (folder / "hosts.txt").write_text("\n".join(lines) + "\n")
    log = folder / "arrivals.log"
    command = [str(program), str(port), str(CERTS / "leaf.pem"), str(folder / "hosts.txt"), str(log)]
    server = subprocess.Popen(
        ["taskset", "-c", str(core), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    if not server.stdout.readline():
        raise Failed(f"the server did not start on port {port}; is something else there?")
    try:
        yield log
    finally:
        server.stdin.close()
        server.wait()


def built(folder: Path) -> Path:
    """The server, compiled; raises Failed where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Failed("no C compiler (cc): the wide web cannot be served")
    program = folder / "wide_server"
    made = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(SOURCE), "-lssl", "-lcrypto"], capture_output=True, text=True
    )
    if made.returncode:
        raise Failed(f"the server of the wide web does not compile (OpenSSL's headers?): {made.stderr[:300]}")
    return program


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the server's log says of a crawl."""

    rate: float  # answers a second in the window, robots.txt and 503 included
    pages_rate: float
    violations: int
    first_page_s: float  # since the crawl was started
    reached: int  # hosts that gave a page, of those that can
    late_p50_s: float
    late_p99_s: float
    early: list[str]  # what is known of each early request


def judge(log: Path, mix: list[WideHost], began: float, window: tuple[float, float], delay_s: float) -> Verdict:
    """`began` and `window` by the monotonic clock, in seconds. Lateness: how long after the end of the delay requests
    came, of those to hosts that are never in a burst."""
    by_host: dict[int, list[tuple[float, float, int, bool]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        host, start, end, status, is_robots = line.split()
        by_host[int(host)].append((int(start) / 1e6, int(end) / 1e6, int(status), is_robots == "1"))
    answers = pages = 0
    early, first_page, late, reached = list[str](), float("inf"), list[float](), set[int]()
    for number, events in by_host.items():
        last_end, told = float("-inf"), ""
        for start, end, status, is_robots in sorted(events):
            if start < last_end + delay_s:
                early.append(f"{mix[number].kind}: {start - last_end:.4f} s after {told}")
            is_page = status == 200 and not is_robots
            if is_page:
                first_page = min(first_page, end)
                reached.add(number)
            if window[0] <= start < window[1]:
                answers += status != 0
                pages += is_page
                if last_end > 0 and mix[number].kind in ("fine", "slow"):
                    late.append(start - last_end - delay_s)
            if end > last_end:
                last_end, told = end, f"HTTP {status} that took {end - start:.4f} s"
    late.sort()
    span = window[1] - window[0]
    p50, p99 = (late[int(share * (len(late) - 1))] if late else float("inf") for share in (0.5, 0.99))
    return Verdict(answers / span, pages / span, len(early), first_page - began, len(reached), p50, p99, early)
