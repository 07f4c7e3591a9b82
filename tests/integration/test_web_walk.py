"""The oracle against a brute-force walk: a little crawler that shares no code with Weft, over real sockets.

It reads pages with regular expressions, joins URLs with urllib, parses robots.txt by itself, and follows everything it
may. What it requested must be exactly what the oracle says.
"""

from __future__ import annotations

import gzip
import html
import http.client
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import pytest
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web

SKIPPED = set(
    "jpg jpeg png gif bmp svg webp ico tiff tif mp4 avi mov wmv flv webm mkv mpg mpeg m4v mp3 wav flac aac ogg wma m4a "
    "opus pdf doc docx xls xlsx ppt pptx odt zip rar 7z tar gz bz2 xz tgz exe msi dmg pkg deb rpm apk app iso bin dat "
    "db sqlite dll so dylib psd ai eps indd sketch fig xd csv json xml sql".split()
)
TRAPS = re.compile(r"^http://[^/]+/(calendar/|cart/|store/|loop/|list\?)")
KEPT = "%/:@!$&'()*+,;=~-._[]|"


# -- reading pages ------------------------------------------------------------------------------------------------

_HIDDEN = re.compile(
    r"<!--.*?-->|<script\b.*?</script>|<style\b.*?</style>|<template\b.*?</template>|<noscript\b.*?</noscript>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"""<([a-zA-Z][a-zA-Z0-9]*)((?:[^>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE = re.compile(r"""([a-zA-Z-]+)\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""")
_REFERENCE = re.compile(r"&(#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*)(;?)(?=(.?))", re.DOTALL)


def unescape(value: str) -> str:
    """Character references in an attribute: without a semicolon, and before = or a letter, they are none."""

    def decode(match: re.Match[str]) -> str:
        if not match[2] and match[1][0] != "#" and (match[3] == "=" or match[3].isalnum()):
            return match[0]
        return html.unescape(match[0])

    return _REFERENCE.sub(decode, value)


def decode(body: bytes, content_type: str) -> tuple[str, str]:
    """Text and charset of a page."""
    for mark, charset in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le")):
        if body.startswith(mark):
            return body[len(mark) :].decode(charset), charset
    found = re.search(r"charset=([\w-]+)", content_type) or re.search(
        r"charset=[\"']?([\w-]+)", body[:1024].decode("latin-1")
    )
    charset = found[1] if found else "utf-8"
    return body.decode(charset, "replace"), charset


def canonical(base: str, href: str, charset: str) -> str | None:
    href = re.sub(r"[\t\n\r]", "", href.strip(" \t\n\r")).partition("#")[0]
    path, mark, query = href.partition("?")
    href = path.replace("\\", "/") + mark + query
    href = re.sub(r"^https?:(?!//)", "", href, flags=re.IGNORECASE)
    try:
        parts = urlsplit(urljoin(base, href))
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in parts.netloc or port == 0:
        return None
    netloc = parts.netloc.rpartition("@")[2].lower().encode("idna").decode()
    query_bytes = parts.query.encode("utf-8" if charset.startswith("utf") else charset)
    clean = urlunsplit(
        (parts.scheme, netloc, quote(parts.path or "/", safe=KEPT), quote(query_bytes, safe=KEPT + "?"), "")
    )
    return clean + "?" if mark and not query else clean


def links(url: str, body: bytes, headers: dict[str, str]) -> list[str]:
    """Everything a page asks to follow."""
    if "nofollow" in headers.get("x-robots-tag", ""):
        return []
    text, charset = decode(body, headers.get("content-type", ""))
    text = _HIDDEN.sub("", text)
    base, based, found = url, False, []
    for match in _TAG.finditer(text):
        name = match[1].lower()
        attributes = {
            key.lower(): unescape(value[1:-1] if value[0] in "\"'" else value)
            for key, value in _ATTRIBUTE.findall(match[2])
        }
        if name == "base" and not based:
            base, based = canonical(url, attributes["href"], charset) or url, True
        elif name == "meta" and attributes.get("name") == "robots":
            if re.search(r"nofollow|none", attributes["content"].lower()):
                return []
        elif name == "meta" and attributes.get("http-equiv", "").lower() == "refresh":
            found.append(attributes["content"].partition("url=")[2])
        elif name in ("a", "area") and "nofollow" not in attributes.get("rel", "").lower().split():
            found.append(attributes.get("href", ""))
        elif name in ("iframe", "frame"):
            found.append(attributes["src"])
        elif name == "link" and attributes.get("rel") == "canonical":
            found.append(attributes["href"])
    return [target for href in found if (target := canonical(base, href, charset))]


# -- robots.txt ---------------------------------------------------------------------------------------------------


@dataclass
class Rules:
    rules: list[tuple[int, bool, re.Pattern[str]]] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)
    unreachable: bool = False

    def allows(self, path: str) -> bool:
        if self.unreachable:
            return False
        best = max(((length, allow) for length, allow, regex in self.rules if regex.match(path)), default=(0, True))
        return best[1]


def parse_robots(body: bytes) -> Rules:
    groups: list[tuple[list[str], list[tuple[bool, str]]]] = []
    found = Rules()
    in_agents = False
    for line in body.decode("utf-8-sig").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            if not in_agents:
                groups.append(([], []))
            groups[-1][0].append(value.lower())
            in_agents = True
        elif key in ("allow", "disallow"):
            in_agents = False
            if groups and value:
                groups[-1][1].append((key == "allow", quote(value, safe="%/*$?=&.-_")))
        elif key == "sitemap":
            found.sitemaps.append(value)
    mine = [rules for agents, rules in groups if "weft" in agents]
    chosen = mine or [rules for agents, rules in groups if "*" in agents]
    for rules in chosen:
        for allow, pattern in rules:
            regex = "".join(".*" if char == "*" else re.escape(char) for char in pattern.removesuffix("$"))
            found.rules.append((len(pattern), allow, re.compile(regex + ("$" if pattern.endswith("$") else ""))))
    return found


# -- the walk -----------------------------------------------------------------------------------------------------


class Walker:
    """Visits everything, level by level, several pages at a time."""

    def __init__(
        self,
        seeds: list[str],
        max_depth: int | None = None,
        permitted: Callable[[str], bool] = lambda url: True,
        resolve: dict[str, str] | None = None,
    ) -> None:
        self.resolve = resolve or {}
        self.seeds = seeds
        self.max_depth = max_depth
        self.permitted = permitted
        self.requested: set[str] = set()
        self.other: set[str] = set()
        self.robots: dict[str, Rules] = {}

    def get(self, url: str, cookie: str = "") -> tuple[int, dict[str, str], bytes]:
        """One answer that is final: what fails is tried four times."""
        parts = urlsplit(url)
        status, headers, body = 0, {}, b""
        for _ in range(4):
            host = parts.hostname or ""
            connection = http.client.HTTPConnection(self.resolve.get(host, host), parts.port, timeout=patience(20))
            try:
                path = parts.path + (f"?{parts.query}" if parts.query or url.endswith("?") else "")
                connection.request("GET", path, headers={"Host": parts.netloc, "Cookie": cookie})
                answer = connection.getresponse()
                status, body = answer.status, answer.read()
                headers = {key.lower(): value for key, value in answer.getheaders()}
            except (ConnectionError, http.client.RemoteDisconnected):
                status = 0
            finally:
                connection.close()
            if status and status < 500 and status != 429:
                break
        return status, headers, body

    def rules(self, url: str) -> Rules:
        origin = "/".join(url.split("/", 3)[:3])
        if origin not in self.robots:
            status, headers, body = self.get(origin + "/robots.txt")
            self.other.add(origin + "/robots.txt")
            if status in (301, 302):
                target = urljoin(origin, headers["location"])
                self.other.add(target)
                status, headers, body = self.get(target)
            found = parse_robots(body) if status == 200 else Rules(unreachable=status >= 500)
            if not found.sitemaps and any(seed.startswith(origin + "/") for seed in self.seeds):
                found.sitemaps = [origin + "/sitemap.xml"]
            self.robots[origin] = found
        return self.robots[origin]

    def sitemap(self, url: str) -> list[str]:
        self.other.add(url)
        status, _, body = self.get(url)
        if status != 200:
            return []
        text = (gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode()
        entries = [html.unescape(entry) for entry in re.findall(r"<loc>(.*?)</loc>", text)]
        if "<sitemapindex" in text:
            return [page for entry in entries for page in self.sitemap(entry)]
        return entries

    def visit(self, item: tuple[str, int, int, str]) -> list[tuple[str, int, int, str]]:
        """Fetches one URL; gives what it leads to as (url, depth, hops, cookie)."""
        url, depth, hops, cookie = item
        self.requested.add(url)
        status, headers, body = self.get(url, cookie)
        if status in (301, 302, 303, 307, 308):
            target = canonical(url, headers["location"], "utf-8")
            assert target is not None
            return [(target, depth, hops + 1, headers.get("set-cookie", "").partition(";")[0])] if hops < 5 else []
        kind = headers.get("content-type", "text/html" if b"<html" in body[:200] else "")
        if status != 200 or not kind.startswith("text/html"):
            return []
        targets = dict.fromkeys(links(url, body, headers))
        return [(target, depth + 1, 0, "") for target in targets if self.wants(target)]

    def wants(self, url: str) -> bool:
        last = urlsplit(url).path.rpartition("/")[2]
        skipped = "." in last and last.rpartition(".")[2].lower() in SKIPPED
        return not skipped and len(url) <= 2000 and not TRAPS.match(url)

    def run(self) -> None:
        seen: set[str] = set()
        entered: set[str] = set()
        queue = [(seed, 0, 0, "") for seed in self.seeds]
        with ThreadPoolExecutor(32) as pool:
            while queue:
                level, listed = [], []
                depth = min(item[1] for item in queue)  # a redirect's target comes before deeper links
                for item in [item for item in queue if item[1] == depth]:
                    url, _, _, cookie = item
                    if (url in seen and not cookie) or (self.max_depth is not None and depth > self.max_depth):
                        continue
                    if url not in self.seeds and not self.permitted(url):
                        continue
                    seen.add(url)
                    rules = self.rules(url)
                    origin = "/".join(url.split("/", 3)[:3])
                    if origin not in entered:
                        entered.add(origin)
                        listed += [(page, depth + 1, 0, "") for one in rules.sitemaps for page in self.sitemap(one)]
                    if rules.allows(url[len(origin) :]):
                        level.append(item)
                queue = [item for item in queue if item[1] > depth] + listed
                queue += [new for found in pool.map(self.visit, level) for new in found]


def compare(web: SyntheticWeb, walker: Walker, **plan: Any) -> None:
    expectation = web.expect(seeds=tuple(walker.seeds), **plan)
    must = set(expectation.must)
    assert walker.requested - must - set(expectation.may) == set(), "requested, but not expected"
    assert must - walker.requested - walker.other == set(), "expected, but not found by walking"
    assert not walker.requested & set(expectation.never)
    assert walker.other <= must | set(expectation.may)


@pytest.mark.parametrize(("seed", "hosts", "names"), [(7, 20, False), (8, 3, False), (9, 9, True)])
def test_oracle_agrees_with_a_walk_of_a_calm_web(seed: int, hosts: int, names: bool) -> None:
    with synthetic_web(hosts=hosts, pages=hosts * 15, seed=seed, names=names) as web:
        walker = Walker(web.seeds, resolve=web.resolve)
        walker.run()
        assert len(walker.requested) > hosts * 15
        assert names == any("//xn--" in url for url in walker.requested)
        compare(web, walker)


def test_oracle_agrees_with_a_walk_of_a_messy_web() -> None:
    with synthetic_web(hosts=27, pages=240, seed=3, profile="messy") as web:
        walker = Walker(web.seeds)
        walker.run()
        assert len(walker.requested) > 240
        compare(web, walker)


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=16, pages=320, seed=11) as web:
        yield web


@pytest.mark.parametrize("max_depth", [0, 2])
def test_oracle_agrees_within_a_depth(web: SyntheticWeb, max_depth: int) -> None:
    walker = Walker(web.seeds, max_depth)
    walker.run()
    compare(web, walker, max_depth=max_depth)
    deeper = web.expect(max_depth=max_depth + 1)
    assert len(deeper.must) > len(walker.requested)


@pytest.mark.parametrize("scope", ["host", "domain"])
def test_oracle_agrees_within_a_host(web: SyntheticWeb, scope: str) -> None:
    home = web.world.sites[2].home
    walker = Walker([home], permitted=lambda url: url.startswith(home))
    walker.run()
    compare(web, walker, scope=scope)
    assert {url.split("/")[2] for url in walker.requested} == {home.split("/")[2]}


def test_oracle_agrees_below_a_directory(web: SyntheticWeb) -> None:
    site = max(web.world.ordinary, key=lambda site: site.count)
    section = next(path for path in site.paths[1:] if path.count("/") == 2 and "?" not in path)
    seed = site.origin + section
    prefix = seed.rpartition("/")[0] + "/"
    walker = Walker([seed], permitted=lambda url: url.startswith(prefix))
    walker.run()
    compare(web, walker, scope="prefix")
    assert len(walker.requested) > 3


def test_oracle_agrees_with_patterns_and_excluded_hosts(web: SyntheticWeb) -> None:
    excluded = web.world.sites[5].host

    def permitted(url: str) -> bool:
        wanted = re.search("/(news|wiki|blog|docs|shop)/", url) or url.endswith("/")
        return bool(wanted) and ".html" not in url and not url.startswith(f"http://{excluded}:")

    # what is excluded is excluded for seeds too, `include` does not bind them
    walker = Walker([seed for seed in web.seeds if ".html" not in seed], permitted=permitted)
    walker.run()
    compare(
        web,
        walker,
        include=("re:/(news|wiki|blog|docs|shop)/", "*/"),
        exclude=("*.html*",),
        exclude_domains=(excluded,),
    )
    assert web.expect(exclude_domains=(excluded,)).excluded_hosts == [excluded]
