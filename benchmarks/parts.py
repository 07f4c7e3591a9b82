"""What small parts cost, in CPU time, the best of several rounds: whatever else a machine does comes on top of it.

    python benchmarks/parts.py

A page of the synthetic web (from memory and freshly made), the links of a page, one header, a gzip body of 42 KB, an
address that was checked before, the cookies of a host that has none, and a URL held against 100,000 robots.txt rules.
"""

from __future__ import annotations

import gzip
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import process_time

from harness import results

from weft import urls
from weft.fetch.cookies import CookieJar
from weft.fetch.decode import decode
from weft.fetch.guard import Guard
from weft.fetch.headers import Head
from weft.fetch.robots import Robots
from weft.testing.content import pages
from weft.testing.content.sites import SyntheticSite
from weft.testing.web import SyntheticWeb, synthetic_web

ROUNDS = 7


def main() -> int:
    head = Head(b"HTTP/1.1 200 OK\r\n" + b"X-Header: vvvvvvvvvvvvvvvvvvvvvvvv\r\n" * 13 + b"Content-Length: 5\r\n\r\n")
    body = gzip.compress("".join(f"<p>word {number}" for number in range(42_000)).encode()[:42_000])
    guard, jar, robots = Guard(allow_private=True), CookieJar(urls.domain), robots_of_many_rules()
    jar.store("www.example.com", "/", True, ["a=1"], 0.0)
    record = {
        "web_page_ms": 1e3 * max(web_page(cache_mb=256, rounds=4), web_page(cache_mb=0, rounds=1)),
        "links_per_s": 100 / best(links_of_a_page(), 100),
        "header_us": 1e6 * best(lambda: head.get("content-length"), 2000),
        "unpack_ms": 1e3 * best(lambda: decode(body, "gzip", 10 << 20), 20),
        "address_us": 1e6 * best(lambda: guard.check("127.0.0.1"), 2000),
        "cookies_us": 1e6 * best(lambda: jar.header("www.example.org", "/", True, 0.0), 2000),
        "robots_us": 1e6 * best(lambda: robots.allows("Weft", "https://a.example/some/page.html?with=query"), 50),
    }
    results.keep("parts", record)
    for name, value in record.items():
        print(f"{name:12} {value:,.3f}")
    return 0


def best(work: Callable[[], object], times: int) -> float:
    """CPU seconds for one turn."""
    spans = []
    for _ in range(ROUNDS):
        start = process_time()
        for _ in range(times):
            work()
        spans.append((process_time() - start) / times)
    return min(spans)


def links_of_a_page() -> Callable[[], object]:
    """A hundred links of the usual kinds."""
    base = "https://www.example.com/section/index.html"
    hrefs = [f"/section/article-{i}.html" for i in range(40)] + [f"page-{i}.html?x={i}" for i in range(20)]
    hrefs += [f"../other/{i}/" for i in range(10)] + [f"https://site{i % 9}.example.com/p/{i}?q=1" for i in range(30)]
    return lambda: urls.join_all(base, hrefs)


def robots_of_many_rules() -> Robots:
    """As many rules as fit."""
    rules = "".join(f"Disallow: /{number:x}*z\n" for number in range(100_000))
    return Robots.parse(b"User-agent: *\n" + rules.encode())


def web_page(cache_mb: int, rounds: int) -> float:
    """CPU seconds of the server for one page, its log on."""
    costs = []
    with synthetic_web(hosts=4, pages=400, seed=2, cache_bytes=cache_mb << 20) as web:
        for site in web.world.sites:
            load(web, site, 1)
        for _ in range(3):
            before = cpu_s(web.pid)
            threads = [threading.Thread(target=load, args=(web, site, rounds)) for site in web.world.sites]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            costs.append((cpu_s(web.pid) - before) / (400 * rounds))
    return min(costs)


def load(web: SyntheticWeb, site: SyntheticSite, rounds: int) -> None:
    """Asks for every page of a host, over and over on one connection, several requests under way."""
    asking = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in site.paths).encode()
    wanted = sum(len(pages.render(web.world.page(site, number), web.world.texts)) for number in range(site.count))
    with socket.create_connection((site.host, web.port), timeout=60) as one:
        for _ in range(rounds):
            one.sendall(asking)
            got = 0
            while got < wanted:
                got += len(one.recv(1 << 20))


def cpu_s(pid: int) -> float:
    """Time on a CPU, in nanoseconds' resolution (stat counts in hundredths of a second)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    sys.exit(main())
