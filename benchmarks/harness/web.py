"""The web that every crawler is measured on: pages of 42 KB with 50 links, served by nginx from files.

It is made of the synthetic web's texts and paths in the markup of real pages (`markup.py`), and is otherwise plain, so
that every crawler must fetch the same set of pages:
UTF-8, no redirects, no sitemaps, one robots.txt that forbids /private/. Every page is reachable from the first host's
home page; 3 links in 100 lead to /private/, and the server counts who goes there; 1 in 10 leads to another host.

There are three of them beside each other (20 hosts each, the slow crawlers get a smaller one) and a page that links to
nothing, by which a crawler's start and end are told from its crawl. Links carry the port but no scheme, so that the
same files serve plain HTTP, gzip and TLS, one nginx at a time.

`half-new` is another web: half of a page's links lead to URLs that nobody has met, so that it never ends, and a crawl
of it is one of so many pages. nginx serves one of 256 pages for every URL and puts its own number into the new ones.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import isal.igzip as igzip

from harness import markup
from harness.measure import one_at_a_time
from weft.testing.content.resources import Reference, Resource, mix
from weft.testing.content.sites import SyntheticSite, WorldSpec, address
from weft.testing.nginx import file_name
from weft.testing.tls import CA_FILE, CERTS
from weft.testing.world import World

Flavour = Literal["keep-alive", "half-new", "gzip", "tls"]
HOSTS = 20
FAN = 3
SIZES = (14_000, 70_000)
DEGREES = (20, 81)
ROBOTS = b"User-agent: *\nDisallow: /private/\n"
VERSION = 3
START = 30.0
TEMPLATES = 256
KNOWN = 200  # URLs of a host that are met again and again
FRESH = "0fresh0"  # in a link: a number of the server's own, another for each answer
SLUGS = ("archive", "report", "weaving", "catalogue", "letters", "review", "journal", "pictures")
NO_NGINX = (
    "benchmarks: half-new needs nginx, which puts new links into every page, and none is on the PATH: "
    "run scripts/tools, then `. scripts/path` in this shell, and try again"
)
ADDRESSES = [address(number) for number in range(3 * HOSTS + 1)]


@dataclass(frozen=True, slots=True)
class Web:
    """One of the webs: `pages` pages on HOSTS hosts, from address number `first` on."""

    name: str
    pages: int
    first: int
    hosts: int = HOSTS
    is_endless: bool = False  # a crawler must be told to stop after so many pages

    def seed(self, port: int, scheme: str = "http") -> str:
        """Everything is reachable from here."""
        return f"{scheme}://{address(self.first)}:{port}/"

    @property
    def addresses(self) -> list[str]:
        return [address(self.first + number) for number in range(self.hosts)]


def webs(large: int) -> dict[str, Web]:
    """All webs, by name; `large` is the size of the largest."""
    return {
        "large": Web("large", large, 0),
        "medium": Web("medium", max(HOSTS, large * 3 // 10), HOSTS),
        "small": Web("small", max(HOSTS, large * 6 // 100), 2 * HOSTS),
        "start": Web("start", 1, 3 * HOSTS, 1),
    }


def half_new_webs(large: int) -> dict[str, Web]:
    """The same, for the web that never ends; all of them are one, and differ in the number of pages to be crawled."""
    found = {name: Web(name, web.pages, 0, is_endless=True) for name, web in webs(large).items()}
    return {**found, "start": Web("start", 1, 0, is_endless=True)}


# ── making ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def make(folder: Path, large: int, port: int) -> dict[str, Web]:
    """Writes the files, unless they are there already."""
    all_webs = webs(large)
    done = folder / f"made-{VERSION}-{large}-{port}"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        for web in all_webs.values():
            _write_web(web, folder / "www", port)
        done.touch()
    return all_webs


def make_half_new(folder: Path, large: int, port: int) -> dict[str, Web]:
    """Writes the pages of the web that never ends, unless they are there already."""
    done = folder / f"made-half-new-{VERSION}-{port}"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        world = World(WorldSpec(hosts=HOSTS, pages=HOSTS, port=port))
        _write(os.fsencode(folder / "www" / "robots.txt"), ROBOTS)
        for number in range(TEMPLATES):
            page = _half_new_page(world.ordinary[:HOSTS], number)
            _write(os.fsencode(folder / "www" / f"{number:02x}.page"), markup.render(page, world.texts))
        done.touch()
    return half_new_webs(large)


def _half_new_page(sites: list[SyntheticSite], number: int) -> Resource:
    random = Random(number)
    known = [f"/read/{random.randrange(KNOWN)}.html" for _ in range(random.randrange(*DEGREES) // 2)]
    new = [f"/{place}/{random.choice(SLUGS)}-{FRESH}-{place:x}.html" for place in range(len(known))]
    hrefs = [
        href if random.random() > 0.1 else random.choice(sites).origin.partition(":")[2] + href for href in known + new
    ]
    random.shuffle(hrefs)
    return Resource(
        "/",
        references=[Reference(href, None) for href in hrefs],
        language="en",
        title=f"Page {number}",
        key=mix(number, 43, 41),
        size=random.randrange(*SIZES),
    )


def _write_web(web: Web, root: Path, port: int) -> None:
    world = World(WorldSpec(hosts=web.first + web.hosts, pages=web.first + web.hosts, port=port))
    sites = world.ordinary[web.first :]
    for place, site in enumerate(sites):
        site.count = web.pages // web.hosts + (place < web.pages % web.hosts)
    for site in sites:
        base = os.fsencode(root / site.host)
        _write(base + b"/robots.txt.page", ROBOTS)
        for number, path in enumerate(site.paths):
            resource = _page(sites, site, number)
            _write(base + file_name(path), markup.render(resource, world.texts))


def _write(name: bytes, body: bytes) -> None:
    os.makedirs(os.path.dirname(name), exist_ok=True)  # noqa: PTH103, PTH120
    for suffix, data in ((b"", body), (b".gz", igzip.compress(body, 2))):
        with open(name + suffix, "wb") as file:  # noqa: PTH123
            file.write(data)


def _page(sites: list[SyntheticSite], site: SyntheticSite, number: int) -> Resource:
    key = mix(site.key, number, 41)
    random = Random(key)
    first = number * FAN + 1
    found = site.plain_links[first : first + FAN]
    if number == 0:
        found = [*found, *(_across(other, 0) for other in sites if other is not site)]
    degree = random.randrange(*DEGREES) if len(sites) > 1 else 0
    found += [_link(sites, site, random) for _ in range(degree - len(found))]
    return Resource(
        site.paths[number],
        references=found,
        language=site.language.code,
        title=f"Page {number} of {site.host}",
        key=key,
        size=random.randrange(*SIZES),
    )


def _link(sites: list[SyntheticSite], site: SyntheticSite, random: Random) -> Reference:
    draw = random.random()
    if draw < 0.03:
        return Reference(f"/private/{random.randrange(1000)}", None)
    if draw < 0.13:
        other = random.choice(sites)
        return _across(other, random.randrange(other.count))
    return random.choice(site.plain_links)


def _across(site: SyntheticSite, number: int) -> Reference:
    link = site.plain_links[number]
    return Reference(site.origin.partition(":")[2] + link.href, link.target)


# ── serving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Server:
    """A running nginx, and what it has counted."""

    def __init__(self, flavour: Flavour, port: int, folder: Path) -> None:
        self.flavour = flavour
        self.port = port
        self.scheme = "https" if flavour == "tls" else "http"
        self.ca_file = str(CA_FILE) if flavour == "tls" else None
        self._private = folder / "private.log"

    def requests(self) -> int:
        """Requests answered since it started, this question not counted."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status") as answer:
            found = re.search(r"\n\s*\d+ \d+ (\d+)", answer.read().decode())
        assert found is not None
        self._asked = getattr(self, "_asked", 0) + 1
        return int(found[1]) - self._asked

    def forbidden(self) -> int:
        """Requests for what robots.txt forbids."""
        return len(self._private.read_bytes().splitlines()) if self._private.exists() else 0


@contextmanager
def served(folder: Path, flavour: Flavour, port: int, core: int) -> Iterator[Server]:
    """nginx with one worker, on one core; where there is none, a server in Python, said so."""
    nginx = shutil.which("nginx")
    if nginx is None and flavour == "half-new":
        print(NO_NGINX, file=sys.stderr)
        sys.exit(2)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "private.log").unlink(missing_ok=True)
    config = folder / f"{flavour}.conf"
    config.write_text(_config(folder, flavour, port))
    if nginx is not None:
        command = [nginx, "-c", str(config), "-p", str(folder)]
    else:
        print("no nginx here: a server in Python is used, which bounds what is measured", file=sys.stderr)
        command = [sys.executable, "-m", "harness.files", str(folder), flavour, str(port), *ADDRESSES]
    with one_at_a_time():
        _check_free(port)
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command], stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[1]
        )
        try:
            _wait(process, port)
            if flavour == "half-new":
                _check_fresh(port)
            yield Server(flavour, port, folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _check_free(port: int) -> None:
    with socket.socket() as one:
        if one.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"benchmarks: something listens on port {port} already; choose another with --port")


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + START
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
            return
        except OSError as error:
            if getattr(error, "code", None) == 404:
                return
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"benchmarks: nginx did not start on port {port}; is something else there?")
            time.sleep(0.05)


def _check_fresh(port: int) -> None:
    with urllib.request.urlopen(f"http://{ADDRESSES[0]}:{port}/") as answer:
        if FRESH.encode() in answer.read():
            sys.exit("benchmarks: this nginx puts nothing into the pages, so that no link would be new")


def _config(folder: Path, flavour: Flavour, port: int) -> str:
    tls = flavour == "tls"
    listen = "\n".join(f"    listen {one}:{port}{' ssl' if tls else ''} backlog=4096;" for one in ADDRESSES)
    certificate = f"    ssl_certificate {CERTS}/leaf.pem;\n    ssl_certificate_key {CERTS}/leaf.pem;\n" if tls else ""
    # A new connection for every page, as a wide polite crawl has it; resumption is the client's to use or not.
    alive = "keepalive_timeout 0;" if tls else "keepalive_timeout 600; keepalive_requests 100000000;"
    return f"""daemon off;
worker_processes 1;
{"user root;" if os.geteuid() == 0 else ""}
pid {folder}/nginx.pid;
error_log {folder}/logs/error.log crit;
worker_rlimit_nofile 20000;
events {{ worker_connections 16384; multi_accept on; }}
http {{
  access_log off;
  client_body_temp_path {folder}/logs/body;
  proxy_temp_path {folder}/logs/proxy;
  fastcgi_temp_path {folder}/logs/fastcgi;
  uwsgi_temp_path {folder}/logs/uwsgi;
  scgi_temp_path {folder}/logs/scgi;
  sendfile on;
  tcp_nopush on;
  {alive}
  gzip_static {"on" if flavour == "gzip" else "off"};
  server_tokens off;
  types {{ }}
  map $request_id $template {{ "~(?<last>..)$" $last; }}
  default_type "text/html; charset=utf-8";
  server {{
{listen}
{certificate}    root {folder}/www;
    location /private/ {{ access_log {folder}/private.log; return 403; }}
{_locations(flavour)}
  }}
  server {{
    listen 127.0.0.1:{port};
    location = /status {{ stub_status; }}
    location / {{ return 404; }}
  }}
}}
"""


def _locations(flavour: Flavour) -> str:
    if flavour == "half-new":
        return f"""    location = /robots.txt {{ default_type text/plain; }}
    location / {{
      sub_filter_types *;
      sub_filter_once off;
      sub_filter {FRESH} $request_id;
      rewrite ^ /$template.page break;
    }}"""
    return """    location = /robots.txt { default_type text/plain; try_files /$server_addr$uri.page =404; }
    location / { try_files /$server_addr$uri$is_args$args.page =404; }"""
