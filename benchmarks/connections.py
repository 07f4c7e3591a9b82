"""First contacts: what one costs when more connections are kept than hosts come back for, and what a kept one costs.

    python benchmarks/connections.py [--hosts 12000] [--rounds 5]

The client fetches one small page of each of many hosts (loopback addresses) from a server that closes nothing, with its
pool empty at first and full at the end; then pages of twenty hosts over and over. CPU of the client alone. In turn with
it the same by one multi handle, as libcurl is used ordinarily: `one` and `several`.
"""

from __future__ import annotations

import argparse
import select
import socket
import statistics
import sys
import time
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection

from harness import results

from weft.config import FetchSection
from weft.fetch.curl import pools
from weft.fetch.curl.client import Client

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    several = pools.POOLS
    found: dict[str, list[dict[str, float]]] = {"one": [], "several": []}
    for _ in range(args.rounds):
        for name, number in (("one", 1), ("several", several)):
            pools.POOLS = number
            found[name].append(one_round(args.hosts))
    record: dict[str, object] = {"hosts": args.hosts, "pools": several, "kept": pools.KEPT_CONNECTIONS}
    for name, rounds in found.items():
        record[name] = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        print(name, "  ".join(f"{key} {value:.3f} ms" for key, value in record[name].items()))
    ratios = (new["full"] / old["full"] for new, old in zip(found["several"], found["one"], strict=True))
    record["full_ratio"] = statistics.median(ratios)
    results.keep("connections", record)
    print(f"a first contact with a full pool: {record['full_ratio']:.2f} of that with one handle")
    return 0


def one_round(hosts: int) -> dict[str, float]:
    """CPU milliseconds a page: while the pool fills, when it is full, and over a kept connection."""
    ours, its = Pipe()
    server = Process(target=serve, args=(its,), daemon=True)
    server.start()
    port = ours.recv()
    client = Client(FetchSection(), refusal=lambda _: None, handles=100)
    urls = [f"http://127.{1 + at // 62_500}.{at // 250 % 250}.{1 + at % 250}:{port}/" for at in range(hosts)]
    kept = min(pools.KEPT_CONNECTIONS, hosts // 2)
    found = {"filling": fetch(client, urls[:kept]), "full": fetch(client, urls[kept:])}
    few = [f"http://127.250.0.{1 + at % 20}:{port}/{at}" for at in range(hosts)]
    fetch(client, few[:100])
    found["kept"] = fetch(client, few)
    client.close()
    server.terminate()
    server.join()
    return found


def fetch(client: Client, urls: list[str]) -> float:
    """CPU milliseconds for each of some pages."""
    began, asked, ended = time.process_time(), 0, 0
    while ended < len(urls):
        while asked < len(urls) and client.free:
            client.submit(urls[asked], (), asked)
            asked += 1
        for _, result in client.poll(0.5):
            assert result.error is None, result.detail
            ended += 1
    return 1e3 * (time.process_time() - began) / len(urls)


def serve(pipe: Connection) -> None:
    """Answers whoever asks, and closes what the other side has closed."""
    listener = socket.create_server(("", 0), backlog=4096)
    listener.setblocking(False)
    pipe.send(listener.getsockname()[1])
    poll, connections = select.epoll(), dict[int, socket.socket]()
    poll.register(listener, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                accept(listener, poll, connections)
            elif received(connections[fd]):
                connections[fd].send(ANSWER)
            else:
                connections.pop(fd).close()


def accept(listener: socket.socket, poll: select.epoll, connections: dict[int, socket.socket]) -> None:
    """All that wait."""
    try:
        while True:
            one, _ = listener.accept()
            connections[one.fileno()] = one
            poll.register(one, select.EPOLLIN)
    except BlockingIOError:
        pass


def received(one: socket.socket) -> bytes:
    """A request; nothing at the end."""
    try:
        return one.recv(65536)
    except ConnectionError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
