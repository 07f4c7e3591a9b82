"""Rendered pages: CPU and memory of a crawl that renders each, beside a bare Playwright script on the same pages.

    python benchmarks/rendering.py [--pages 500]

A server of our own has one page a host, which a script fills from a request, with a style sheet and a picture. Both
sides have one browser and four pages in it at a time, and wait until nothing was requested for half a second. CPU is
that of all processes of the tree, whoever reaped them; memory is its proportional share. Weft's has the crawl itself in
it: fetching, robots.txt, the guard proxy, WARC files. Weft's Chromium has its sandbox, the script's has none, which it
cannot have where root runs it. Needs Chromium (`scripts/tools`) and Playwright for Python.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path

from harness import results
from harness.crawlers import SCRATCH
from harness.measure import one_at_a_time, tree

AT_A_TIME = 4
SAMPLE_S, MEMORY_EVERY = 0.1, 10
TICKS = os.sysconf("SC_CLK_TCK")
SHELL = b"""<!doctype html><title>app</title><link rel=stylesheet href=/s.css>
<div id=root></div><script src=/app.js></script>"""
APP = b"""fetch("/data").then(answer => answer.json()).then(rows => {
  const root = document.getElementById("root");
  for (const row of rows) {
    const line = document.createElement("p"); line.className = "row"; line.textContent = row; root.append(line) }
  const picture = new Image(); picture.src = "/picture.svg"; root.append(picture); document.title = "done";
});"""
DATA = ("[" + ",".join(f'"row {at}: words of a page that a script has drawn"' for at in range(200)) + "]").encode()
FILES = {
    "/": (b"text/html", SHELL), "/app.js": (b"text/javascript", APP), "/data": (b"application/json", DATA),
    "/s.css": (b"text/css", b".row { padding: 2px; border: 1px solid silver }"),
    "/picture.svg": (b"image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
}  # fmt: skip


class Usage:
    """What a process tree has used, sampled while it runs."""

    def __init__(self, argv: list[str]) -> None:
        self.cpu: dict[int, float] = {}
        self.control: set[int] = set()  # processes that steer the browsers: the proxy is in one of them
        self.memory_mb: list[float] = []
        began = time.monotonic()
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        turn = 0
        while process.poll() is None:
            self._sample(process.pid, turn % MEMORY_EVERY == 0)
            turn += 1
            time.sleep(SAMPLE_S)
        self.wall_s = time.monotonic() - began
        if process.returncode:
            raise SystemExit(f"{argv[2:5]}: {process.communicate()[1][-500:]}")

    @property
    def cpu_s(self) -> float:
        """Of all processes."""
        return sum(self.cpu.values())

    @property
    def control_s(self) -> float:
        """Of the browser process of Weft, with the guard proxy in it; of Playwright's driver."""
        return sum(self.cpu[pid] for pid in self.control)

    def growth(self) -> float:
        """The memory of the last third against that of the middle one."""
        third = len(self.memory_mb) // 3
        return statistics.median(self.memory_mb[2 * third :]) / statistics.median(self.memory_mb[third : 2 * third])

    def _sample(self, root: int, with_memory: bool) -> None:
        total = 0.0
        for pid in tree(root):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.cpu[pid] = (int(fields[11]) + int(fields[12])) / TICKS
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"weft.fetch.browser.host" in command or b"playwright/driver" in command:
                    self.control.add(pid)
                if with_memory:
                    total += proportional_mb(pid)
            except (OSError, IndexError, ValueError):
                continue
        if total:
            self.memory_mb.append(total)


def proportional_mb(pid: int) -> float:
    """A process's share of the memory of its tree."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument(
        "--bare", nargs="+", help=argparse.SUPPRESS
    )  # the script beside: it runs in a process of its own
    args = parser.parse_args()
    if args.bare:
        asyncio.run(bare(args.bare[0], int(args.bare[1])))
        return 0
    return measure(args.pages)


@one_at_a_time()
def measure(pages: int) -> int:
    if shutil.which("chromium") is None:
        print("Chromium is missing: `scripts/tools` fetches it")
        return 1
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    ours, its = Pipe()
    server = Process(target=serve, args=(its,), daemon=True)
    server.start()
    port = ours.recv()
    seeds = SCRATCH / "seeds.txt"
    seeds.write_text("".join(f"{url_of(at, port)}\n" for at in range(pages)))
    script = Usage([sys.executable, __file__, "--bare", str(seeds), str(AT_A_TIME)])
    os.environ |= {"WEFT_MAX_BROWSERS": "1", "WEFT_PAGES_PER_BROWSER": str(AT_A_TIME)}
    weft = Usage([
        sys.executable, "-m", "weft", "crawl", "--seed-file", str(seeds), "--data-dir", str(SCRATCH / "weft"),
        "--render", "always", "--allow-private", "--delay", "0", "--quiet",
        "--prometheus-port", "0",
    ])  # fmt: skip
    server.terminate()
    record = {
        "pages": pages, "cpu_ms_page": 1000 * weft.cpu_s / pages, "bare_cpu_ms_page": 1000 * script.cpu_s / pages,
        "control_cpu_ms_page": 1000 * weft.control_s / pages,
        "bare_control_cpu_ms_page": 1000 * script.control_s / pages,
        "cpu_ratio": weft.cpu_s / script.cpu_s, "memory_mb": statistics.median(weft.memory_mb),
        "bare_memory_mb": statistics.median(script.memory_mb), "memory_growth": weft.growth(),
        "wall_s": weft.wall_s, "bare_wall_s": script.wall_s,
    }  # fmt: skip
    results.keep("rendering", record)
    print(
        f"{pages} pages: {record['cpu_ms_page']:.0f} ms of CPU a page, {record['control_cpu_ms_page']:.0f} of them the "
        f"browser process with its proxy; bare Playwright {record['bare_cpu_ms_page']:.0f}, "
        f"{record['bare_control_cpu_ms_page']:.0f} of them its driver: {record['cpu_ratio']:.2f} times. "
        f"Memory {record['memory_mb']:.0f} MB beside "
        f"{record['bare_memory_mb']:.0f}, last third {record['memory_growth']:.2f} of the middle one"
    )
    return 0


def url_of(at: int, port: int) -> str:
    """A page on a host of its own: hosts are asked side by side."""
    return f"http://127.9.{1 + at // 250}.{1 + at % 250}:{port}/"


async def bare(seeds: str, at_a_time: int) -> None:
    """What anybody would write: a context for each page, loaded until the network is idle, and read."""
    from playwright.async_api import async_playwright

    urls = iter(Path(seeds).read_text().split())
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)

        async def work() -> None:
            for url in urls:
                context = await browser.new_context()
                page = await context.new_page()
                await page.goto(url, wait_until="networkidle")
                if "row 199" not in await page.content():
                    raise SystemExit(f"{url} was not drawn")
                await context.close()

        await asyncio.gather(*(work() for _ in range(at_a_time)))
        await browser.close()


def serve(pipe: Connection) -> None:
    """Answers on every address of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, body = FILES.get(self.path, (b"text/plain", b""))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
