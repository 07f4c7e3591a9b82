"""Many large bodies at once: what the crawler takes of memory, whatever they add up to.

    python benchmarks/large_bodies.py [--transfers 200] [--mb 100]

A server of our own begins every body at once, and sends them at the same pace, so that they arrive together:
`transfers` x `mb` in all, of text that compresses well, as large pages do. The crawl's peak is that of its whole
process tree. It needs as much room on the disk as the bodies have.
"""

from __future__ import annotations

import argparse
import selectors
import shutil
import socket
import sys
import threading
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection

from harness import results
from harness.crawlers import SCRATCH
from harness.measure import cores, one_at_a_time, run

LINE = b"<p>" + b"large bodies hold the same words again and again, " * 20 + b"</p>\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
GATHER_S = 10.0
BLOCK = LINE * (1 + (1 << 16) // len(LINE))


@one_at_a_time()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transfers", type=int, default=200)
    parser.add_argument("--mb", type=int, default=100)
    args = parser.parse_args()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    free_gb = shutil.disk_usage(SCRATCH).free / 1e9
    if free_gb < 1.5 * args.transfers * args.mb / 1e3:
        print(f"only {free_gb:.0f} GB are free here: fewer transfers fit")
        return 1
    ours, its = Pipe()
    server = Process(target=serve, args=(its, args.transfers, args.mb << 20), daemon=True)
    server.start()
    port = ours.recv()
    flags = [
        "--scope",
        "any",
        "--delay",
        "0",
        "--allow-private",
        "--data-dir",
        str(SCRATCH / "weft"),
        "--json",
        "--quiet",
    ]
    flags += ["--max-body-bytes", str(2 * args.mb << 20), "--total-timeout", "600", "--lease-seconds", "900"]
    flags += ["--read-timeout", "300"]
    command = [sys.executable, "-m", "weft", "crawl", f"http://127.0.0.1:{port}/", *flags]
    cost = run(command, cores()[0], cwd=SCRATCH, limit_s=900)
    server.terminate()
    status = cost.said["status"]
    moved = status["body_bytes"] >> 20
    assert not status["errors"], status["errors"]
    assert moved >= args.transfers * args.mb, f"only {moved} MB"
    record = {
        "peak_rss_mb": cost.peak_rss_mb, "transfers": args.transfers, "mb": args.mb, "wall_s": cost.wall_s,
        "cpu_s": cost.cpu_s, "body_mb": status["body_bytes"] / (1 << 20),
    }  # fmt: skip
    results.keep("large bodies", record)
    print(f"{args.transfers} bodies of {args.mb} MB: peak of {cost.peak_rss_mb:.0f} MB, {cost.cpu_s:.0f} s of CPU")
    return 0


def serve(pipe: Connection, count: int, size: int) -> None:
    """Answers `/` with links to the bodies, each on a host of its own, and every body in step with the others."""
    listener = socket.create_server(("", 0), backlog=1024)
    port = listener.getsockname()[1]
    hosts = [f"127.{1 + at // 250}.{at % 250}.1" for at in range(count)]
    index = "".join(f'<a href="http://{host}:{port}/large">x</a>' for host in hosts).encode()
    pipe.send(port)
    waiting: list[socket.socket] = []
    begun = threading.Event()
    threading.Thread(target=send_all, args=(waiting, size, count, begun), daemon=True).start()
    while True:
        one, _ = listener.accept()
        asked = one.recv(4096)
        if asked.startswith(b"GET /large"):
            one.sendall(HEAD % size + BLOCK)
            waiting.append(one)
            if len(waiting) == count:
                begun.set()
            continue
        body = index if asked.startswith(b"GET / ") else b""
        code = b"200 OK" if body else b"404 Not Found"
        one.sendall(
            b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (code, len(body))
            + body
        )
        one.close()


def send_all(waiting: list[socket.socket], size: int, count: int, begun: threading.Event) -> None:
    """A block to each that takes it, round after round, once all have begun; or nearly all, after a while."""
    begun.wait(GATHER_S)
    left: dict[socket.socket, int] = {}
    choose = selectors.DefaultSelector()
    while count:
        while waiting:
            one = waiting.pop()
            one.setblocking(False)
            choose.register(one, selectors.EVENT_WRITE)
            left[one] = size - len(BLOCK)
        for key, _ in choose.select(0.5):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            try:
                left[one] -= one.send(BLOCK[: left[one]])
            except ConnectionError:  # it was given up, and is asked for again
                left[one], count = 0, count + 1
            if not left[one]:
                del left[one]
                choose.unregister(one)
                one.close()
                count -= 1


if __name__ == "__main__":
    sys.exit(main())
