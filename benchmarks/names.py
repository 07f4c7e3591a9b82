"""Name lookups: how many answers a second with dead names among them, by c-ares and by the C library's threads.

    python benchmarks/names.py [--names 20000] [--dead 0.05] [--flying 2000]

A name server of our own on loopback (its own process) answers each name after 20 ms, as one across a city does, and the
dead ones never. The resolver is driven as the client drives it. The C library cannot be told to ask that server, so its
threads are given a function that waits as long as the server would, and five seconds for a dead name, which is what
`getaddrinfo` waits before its second try.
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import sys
import time
from multiprocessing.connection import Connection

from harness import results

from weft.fetch.dns.resolver import Resolver
from weft.testing.name_server import NameServer, Says

LATENCY_S = 0.02
SYSTEM_DEAD_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=int, default=20_000)
    parser.add_argument("--dead", type=float, default=0.05)
    parser.add_argument("--flying", type=int, default=2_000)
    args = parser.parse_args()
    every = round(1 / args.dead)
    names = [f"h{at}.{'dead' if at % every == 0 else 'good'}.example" for at in range(args.names)]
    ours, its = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(its,), daemon=True)
    server.start()
    cares = measure(Resolver(servers=[ours.recv()]), names, args.flying)
    ours.send(None)
    server.join()
    system = measure(Resolver(lookup=as_the_system), names[: max(200, args.names // 100)], args.flying)
    record = {"per_s": cares[0], "cpu_us": cares[1], "system_per_s": system[0], "names": args.names, "dead": args.dead}
    results.keep("names", record)
    print(f"{cares[0]:,.0f} answers/s at {cares[1]:.0f} µs of CPU each; by the C library {system[0]:,.0f}/s")
    return 0


def serve(pipe: Connection) -> None:
    """Serves until told to end."""
    zone = {"*.good.example": Says("192.0.2.1", how="late", late_s=LATENCY_S), "*.dead.example": Says(how="never")}
    with NameServer(zone) as names:
        pipe.send(names.address)
        pipe.recv()


def as_the_system(host: str) -> tuple[str, ...]:
    """What a thread in `getaddrinfo` does: wait."""
    dead = ".dead." in host
    time.sleep(SYSTEM_DEAD_S if dead else LATENCY_S)
    return () if dead else ("192.0.2.1",)


def measure(resolver: Resolver, names: list[str], flying: int) -> tuple[float, float]:
    """Answers a second, dead names included, and CPU microseconds for each."""
    began, cpu, asked, ended, found = time.monotonic(), time.process_time(), 0, 0, 0
    while ended < len(names):
        while asked < len(names) and asked - ended < flying:
            resolver.ask(names[asked])
            asked += 1
        select.select([resolver.fileno()], [], [], max(0.0, min(1.0, resolver.due - time.monotonic())))
        for _, answer in resolver.completed():
            ended += 1
            found += bool(answer.addresses)
    spent_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    resolver.close()
    assert found == sum(".good." in name for name in names), f"{found} found"
    return ended / spent_s, 1e6 * cpu_s / ended


if __name__ == "__main__":
    sys.exit(main())
