"""The folder of a crawl whose request logs a test writes."""

from __future__ import annotations

from pathlib import Path

from request_lines import with_sums

from weft.config import PolitenessSection
from weft.crawl.folder import CrawlFolder
from weft.crawl.reports.audit import AuditReport, audit
from weft.crawl.reports.crawls import ReportFolder
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier

WALL = 1_700_000_000.0  # the time of the day at which the clock stood at nought
DELAY_S = 10.0
SETTINGS = {"politeness_delay_seconds": DELAY_S, "per_domain_concurrency": 1, "user_agent_template": "Weft/{version}"}


class Crawled:
    """A crawl's folder whose request logs the test writes; times are seconds of one clock."""

    def __init__(self, home: Path, pods: int = 1) -> None:
        self.folder = CrawlFolder([home])
        home.mkdir()
        self.folder.start([], pods, settings=SETTINGS, defaults=["politeness_delay_seconds"])
        self._item = 0

    def robots(self, origin: str, *bodies: tuple[float, bytes], pod: int = 0) -> None:
        """An origin's robots.txt, known from these times on; the frontier writes its history."""
        wall = [WALL]
        section = PolitenessSection(delay_s=DELAY_S, places=1)
        frontier = EmbeddedFrontier(self.folder.pod_folder(pod), section, wall=lambda: wall[0])
        frontier.crawls.open_crawl("test", CrawlLimits())
        frontier.recovery.recover()
        for at, body in bodies:
            wall[0] = WALL + at
            frontier.sites.robots_known(origin, RobotsRecord("ok", body, WALL + 1e6), None)
        frontier.close()

    def log(self, *lines: str, pod: int = 0, slot: str = "") -> None:
        """Replaces a log by these lines."""
        folder = self.folder.pod_folder(pod) / "requests" / slot
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "requests-00000.log").write_bytes(with_sums("".join(lines)))

    def audit(self) -> AuditReport:
        return audit(ReportFolder([self.folder.home]))


def begin(at: float = 0.0, boot: str = "boot-1", wall: float | None = None, revision: int = 0) -> str:
    settings = f"\t{revision}" if revision else ""
    return f"B\t{boot}\t{at:.6f}\t{WALL + at if wall is None else wall:.3f}{settings}\n"


def start(item: int, at: float, path: str = "/1", *, places: int = 1, delay_s: float = DELAY_S, host: str = "a") -> str:
    return f"S\t{item}\t{at:.6f}\t{WALL + at:.6f}\t{host}\t{delay_s:g}\t{places}\thttps://{host}{path}\n"


def end(item: int, at: float, status: str = "200") -> str:
    return f"E\t{item}\t{at:.6f}\t{status}\n"
