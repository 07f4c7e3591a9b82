"""How soon a crawl asks for its first URL, and how soon `weft --help` answers.

    python benchmarks/startup.py [--rounds 5]

A server of one page notes when the first request comes in. Medians.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import time
from statistics import median

from harness import results
from harness.crawlers import SCRATCH
from harness.measure import one_at_a_time

ANSWER = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@one_at_a_time()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    first = median(first_fetch() for _ in range(args.rounds))
    answer = median(help_text() for _ in range(args.rounds))
    results.keep("start", {"first_fetch_s": first, "help_s": answer})
    print(f"first fetch after {first:.2f} s, --help after {answer:.2f} s")
    return 0


def first_fetch() -> float:
    """Seconds from the start of `weft crawl` to its first request."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        start = time.monotonic()
        command = [sys.executable, "-m", "weft", "crawl", url, "--allow-private", "--quiet", "--delay", "0"]
        crawl = subprocess.Popen([*command, "--data-dir", str(SCRATCH / "weft")], stderr=subprocess.DEVNULL)
        listener.settimeout(60)
        took = 0.0
        while crawl.poll() is None:
            listener.settimeout(0.2 if took else 60)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            took = took or time.monotonic() - start
            with connection:
                connection.recv(4096)
                connection.sendall(ANSWER)
    return took


def help_text() -> float:
    """Seconds that `weft --help` takes."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "weft", "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
