"""Weft beside its peers and the bound: pages/s, CPU per page and peak memory on the same web, one core each.

    python benchmarks/compare.py keep-alive|half-new|gzip|tls [--rounds N] [--pages N] [--only NAME/NAME...] [--add]

Every round runs every crawler once, one after the other, on the first core; nginx has the last one. A run on a page
that links to nothing tells the start and the end of a crawler from its crawl: figures are what is left without them.
The server's own count says whether a crawler has fetched every page, and none of those that robots.txt forbids. The web
of `half-new` never ends: there a crawler is told to stop after so many pages, and is measured by those that it has.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from harness import results
from harness.crawlers import CRAWLERS, ROOT, SCRATCH, Crawler
from harness.measure import Cost, Failed, cores, run
from harness.web import Server, Web, make, make_half_new, served

SECTIONS = {
    "keep-alive": (list(CRAWLERS), None),
    "half-new": (["weft", "bound", "bound, Weft's parts", "spider-rs", "scrapy"], None),
    "gzip": (["weft", "bound", "bound, Weft's parts", "aiohttp loop"], None),
    "tls": (["weft", "bound", "bound, Weft's parts", "aiohttp loop"], "medium"),
}
FETCHED = 1.01
"""Requests a page, at most: robots.txt files and probes are few, pages fetched twice would be more."""
LIMIT_REACHED = 3
"""The exit code of a crawl that `--max-pages` has ended."""
UNDER_WAY = 250
"""Pages that may come in addition where a crawler is told to stop: those that it had asked for."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pages", type=int, default=20_000, help="of the large web; the others are in proportion")
    parser.add_argument("--only", help="names of crawlers, with slashes between them")
    parser.add_argument("--port", type=int, default=8480)
    parser.add_argument("--add", action="store_true", help="these rounds join those measured before")
    args = parser.parse_args()
    names, size = SECTIONS[args.section]
    names = args.only.split("/") if args.only else names
    crawlers = [CRAWLERS[name] for name in names]
    is_endless = args.section == "half-new"
    folder = ROOT / ".bench" / (f"half-new-{args.port}" if is_endless else f"web-{args.port}")
    webs = (make_half_new if is_endless else make)(folder, args.pages, args.port)
    section = results.section(args.section) if args.add else {}
    with served(folder, args.section, args.port, cores()[1]) as server:
        for number in range(args.rounds):
            for crawler in crawlers:
                web = webs[size or crawler.web]
                one_round(section, crawler, web, webs["start"], server, number == 0)
    results.keep(args.section, section)
    print(results.table(section))
    return 0


def one_round(section: dict, crawler: Crawler, web: Web, start: Web, server: Server, first: bool) -> None:
    """Adds one round of one crawler to the section."""
    record = section.setdefault(crawler.name, {"note": crawler.note, "rounds": [], "starts": []})
    if why := crawler.missing():
        record["missing"] = why
        return
    try:
        record["starts"].append(measure(crawler, start, server).as_dict())
        cost = measure(crawler, web, server)
    except Failed as error:
        print(f"{crawler.name}: {error}", file=sys.stderr)
        record["missing"] = str(error).partition("\n")[0][:200]
        return
    record["pages"] = web.pages
    pages = crawler.pages(cost.said)
    record["rounds"].append({**cost.as_dict(), "pages": pages})
    line = results.line(record)
    print(
        f"{crawler.name:22} {pages / cost.wall_s:8.0f} pages/s  {1000 * cost.cpu_s / pages:6.3f} ms | {line}",
        flush=True,
    )


def measure(crawler: Crawler, web: Web, server: Server) -> Cost:
    """One run, and whether it did the whole work."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    before, forbidden = server.requests(), server.forbidden()
    env = {**crawler.env, **({"SSL_CERT_FILE": server.ca_file} if server.ca_file else {})}
    codes = (0, LIMIT_REACHED) if web.is_endless else (0,)
    cost = run(crawler.command(web, server), cores()[0], env=env, cwd=SCRATCH, good_codes=codes)
    asked = server.requests() - before
    pages = crawler.pages(cost.said)
    more = UNDER_WAY if web.is_endless else 0
    if not web.pages <= pages <= web.pages + more or not pages <= asked <= pages * FETCHED + 3 * web.hosts + more:
        raise Failed(f"{pages} of {web.pages} pages said, {asked} requests at the server")
    if server.forbidden() > forbidden:
        raise Failed("it asked for what robots.txt forbids")
    return cost


if __name__ == "__main__":
    sys.exit(main())
