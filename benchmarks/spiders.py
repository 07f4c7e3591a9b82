"""What a callback costs: CPU a page of a spider with three selectors, beside a crawl of the same pages without code.

    python benchmarks/spiders.py [PAGES]

Both crawl the same synthetic web on loopback, delay 0, one process that fetches; the spider has one parser process. CPU
is that of all processes of the crawl, from the kernel; the median of three runs each, as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from weft.testing.web import synthetic_web

RUNS = 3
SPIDER = """
import os
import weft


class Three(weft.Spider):
    follow = True

    def start(self):
        for url in os.environ["SEEDS"].split():
            yield weft.Request(url)

    def parse(self, page):
        links = page.css("a[href]").attrs("href")
        yield {"title": page.css("title").text, "heading": page.css("h1").text, "links": links}
"""


def cpu_ms(command: list[str], seeds: list[str]) -> tuple[float, int]:
    """CPU milliseconds a page, and the pages."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "weft", *command, "--data-dir", str(data), "--delay", "0", "--allow-private",
             "--scope", "any", "--prometheus-port", "0", "-q"],
            env=os.environ | {"SEEDS": " ".join(seeds)}, check=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        pages = json.loads((data / "status.json").read_bytes())["pages"]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * spent / pages, pages


def main(pages: int) -> None:
    with synthetic_web(hosts=8, pages=pages // 8) as web, tempfile.TemporaryDirectory() as folder:
        spider = Path(folder) / "three.py"
        spider.write_text(SPIDER)
        commands = {
            "plain": ["crawl", *web.seeds],
            "plain_in_a_child": ["crawl", *web.seeds, "--parser-children", "1"],
            "spider": ["run", str(spider), "--spider-workers", "1"],
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                spent, count = cpu_ms(command, web.seeds)
                found[name].append(spent)
                print(f"{name}: {spent:.2f} ms a page of {count}", file=sys.stderr)
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    medians["spider_to_plain"] = round(medians["spider"] / medians["plain"], 2)
    print(json.dumps({"cpu_ms_a_page": medians, "pages": pages}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
