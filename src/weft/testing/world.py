"""A synthetic web as a pure function from host and path to a resource.

`World` owns no sockets and no time. The server asks it for answers, the oracle for the requests of a correct crawl;
both get the same Resource. It depends on its WorldSpec alone: not on hash seeds, clocks, or the order of calls.
"""

from __future__ import annotations

import re
from functools import cached_property

from weft.testing.content import fixtures, hostile, linking, sitemaps, traps
from weft.testing.content.fixtures import HostFixtures
from weft.testing.content.resources import Flaw, Reference, Resource, mix
from weft.testing.content.robots_txt import MOVED_TO
from weft.testing.content.sites import SyntheticSite, WorldSpec, make_sites
from weft.testing.content.texts import FEW_PARAGRAPHS, PARAGRAPHS, SyntheticTexts, title

_NUMBER_AT_END = re.compile(r"(\d+)(?:\.html|/)?$")
_DAY_S = 86_400
SMALL = 500  # pages
_CHARSET_DECLARATIONS = ("header", "header", "header", "meta", "meta", "both", "bom", "none")


class World:
    """All hosts and all pages of one synthetic web."""

    def __init__(self, spec: WorldSpec) -> None:
        self.spec = spec
        self.texts = SyntheticTexts(spec.seed, FEW_PARAGRAPHS if spec.pages < SMALL else PARAGRAPHS)
        behaviours = hostile.names(spec) if spec.profile == "hostile" else ()
        self.sites = make_sites(spec, behaviours)
        self.ordinary = self.sites[: spec.hosts]
        self.by_host = {site.host: site for site in self.sites}
        self._trunk_sites = [site for site in self.ordinary if site.role == "ordinary"]
        self._shelves: dict[int, HostFixtures] = {}

    # -- where things are -------------------------------------------------------------------------------------------

    def seeds(self) -> list[str]:
        """A few URLs from which everything is reachable: home pages, a deep page, a file, and a redirect."""
        urls = [site.home for site in self.ordinary[:2]]
        urls.append(self.ordinary[0].origin + "/start.json")
        if len(self.ordinary) > 2:
            site = self.ordinary[2]
            urls.append(site.origin + site.paths[min(3, site.count - 1)])
        if "/start" in self.fixtures(self.ordinary[min(3, len(self.ordinary) - 1)]).resources:
            urls.append(self.ordinary[3].origin + "/start")
        return list(dict.fromkeys(urls))

    def locate(self, url: str) -> tuple[SyntheticSite, str] | None:
        """The site and path of a URL of this web, else None."""
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        site = self.by_host.get(authority.partition(":")[0])
        if site is None or f"{scheme}://{authority}" != site.origin:
            return None
        return site, slash + path if slash else "/"

    def resolve(self) -> dict[str, str]:
        """Host names and the addresses they are served on (a crawl's `resolve` key); empty if hosts are addresses."""
        return {site.host: site.address for site in self.sites} if self.spec.names else {}

    def neighbour(self, site: SyntheticSite) -> SyntheticSite:
        """The host that a site's redirects to other hosts lead to."""
        position = self._site_positions.get(site.index, 0)
        return self._trunk_sites[(position + 1) % len(self._trunk_sites)]

    @cached_property
    def _site_positions(self) -> dict[int, int]:
        return {site.index: position for position, site in enumerate(self._trunk_sites)}

    def fixtures(self, site: SyntheticSite) -> HostFixtures:
        """A site's special URLs."""
        shelf = self._shelves.get(site.index)
        if shelf is None:
            shelf = fixtures.fill(site, self.neighbour(site), self.spec)
            for resource in sitemaps.files(site):
                shelf.resources[resource.path] = resource
            shelf.entrances += traps.entrances(site)
            if self.spec.profile == "hostile":
                hostile.stock(self, site, shelf)
            self._shelves[site.index] = shelf
        return shelf

    # -- resources -----------------------------------------------------------------------------------------------

    def find(self, site: SyntheticSite, path: str) -> Resource:
        """The resource at a path; for an unknown path the site's error page."""
        if path == "/":
            return self.page(site, 0)
        resource = self.fixtures(site).resources.get(path)
        if resource:
            return resource
        number = _NUMBER_AT_END.search(path)
        if number and (at := int(number[1])) < site.count and site.paths[at] == path:
            return self.page(site, at)
        if path == "/robots.txt" or path == MOVED_TO:
            return self._robots_resource(site, path)
        return self._redirect_target_page(site, path) or traps.find(site, path) or _error_page(site, path)

    def page(self, site: SyntheticSite, number: int) -> Resource:
        """Ordinary page `number` of a site."""
        key = mix(site.key, number, 11)
        charset, declared = self._charset_of(site, key)
        edition = self._edition_of(key)
        raw_unicode = charset == "utf-8" and declared in ("header", "meta", "both", "bom")
        return Resource(
            site.paths[number],
            references=linking.references(self, site, number, raw_unicode),
            charset=charset,
            declared=declared,
            language=site.language.code,
            title=title(site.language, key, number),
            key=mix(key, edition),
            # a page in UTF-16 is made at half its size, because its encoding doubles it
            size=linking.SIZES[(key >> 12) % 1024] // (2 if charset == "utf-16" else 1),
            flaw=self._flaw_of(site, number),
            modified=1_700_000_000 + key % 10_000_000 + edition * _DAY_S,
        )

    def _charset_of(self, site: SyntheticSite, key: int) -> tuple[str, str]:
        charset = site.charset if key % 8 else "utf-8"
        declared = _CHARSET_DECLARATIONS[(key >> 32) % 8]
        if charset == "utf-16":
            return charset, "bom"
        if declared == "bom" and charset != "utf-8":
            declared = "both"
        if site.flavour == "charset" and (key >> 40) % 3 == 0:
            return charset, "wrong"
        return charset, declared

    def _edition_of(self, key: int) -> int:
        """The last edition, up to the world's, in which a page changed."""
        limit = int(self.spec.changed * 2**64)
        for edition in range(self.spec.edition, 0, -1):
            if mix(key, edition, 13) < limit:
                return edition
        return 0

    def _flaw_of(self, site: SyntheticSite, number: int) -> Flaw | None:
        """The fault of a page: pages 1 to 4 of a host have those of its flavour."""
        return _FLAW_BY_FLAVOUR.get((site.flavour, number)) if number else None

    def _robots_resource(self, site: SyntheticSite, path: str) -> Resource:
        robots = site.robots
        if robots.answer == "missing" or (path == MOVED_TO and robots.answer != "moved"):
            return _error_page(site, path) if path == MOVED_TO else Resource(path, kind="robots", status=404)
        resource = Resource(path, kind="robots", content_type="text/plain", body=robots.body)
        if robots.answer == "moved" and path == "/robots.txt":
            return Resource(path, kind="robots", status=301, location=MOVED_TO, leads_to=site.origin + MOVED_TO)
        if robots.answer == "dead":
            resource.flaw = Flaw("robots-dead", 1 << 30, status=503)
        if robots.answer == "late":
            resource.flaw = Flaw("robots-late", robots.failures, status=503)
        return resource

    def _redirect_target_page(self, site: SyntheticSite, path: str) -> Resource | None:
        """A page that only a redirect of another host leads to."""
        number = path.removeprefix("/visitors/")
        if number == path or not number.isdigit() or int(number) >= len(self.ordinary):
            return None
        origin = self.ordinary[int(number)]
        if self.neighbour(origin) is not site or "/away/visit" not in self.fixtures(origin).resources:
            return None
        return _small_page(site, path, "page")

    # -- walking all of it ------------------------------------------------------------------------------------------

    def every_resource(self, site: SyntheticSite) -> list[Resource]:
        """All finite resources of a site: ordinary pages, fixtures, sitemaps and robots.txt."""
        pages = [self.page(site, number) for number in range(site.count)]
        before = self._trunk_sites[self._site_positions.get(site.index, 0) - 1]
        visitors = [self._redirect_target_page(site, f"/visitors/{before.index}")]
        robots = [self._robots_resource(site, "/robots.txt")]
        if site.robots.answer == "moved":
            robots.append(self._robots_resource(site, MOVED_TO))
        return [*pages, *self.fixtures(site).resources.values(), *robots, *filter(None, visitors)]


def _small_page(site: SyntheticSite, path: str, kind: str) -> Resource:
    return Resource(
        path,
        kind=kind,
        references=[Reference("/", site.home)],
        language=site.language.code,
        title=f"{kind} {path}"[:200],
        key=mix(site.key, *path.encode()),
    )


def _error_page(site: SyntheticSite, path: str) -> Resource:
    resource = _small_page(site, path, "soft-404" if site.soft_404 else "missing")
    resource.status = 200 if site.soft_404 else 404
    resource.title = "Not found"
    return resource


# (flavour, page number) -> flaw; at most four failing answers on one host (see sites.FLAVOURS)
_FLAW_BY_FLAVOUR: dict[tuple[str, int], Flaw] = {
    ("transient", 1): Flaw("transient", 1, status=503),
    ("transient", 2): Flaw("transient", 2, status=500),
    ("rate-limit", 1): Flaw("rate-limit", 1, status=429, retry_after_s=1),
    ("rate-limit", 3): Flaw("transient", 1, status=502),
    ("reset", 1): Flaw("reset", 1, status=0),
    ("reset", 2): Flaw("rate-limit", 1, status=503, retry_after_s=1),
    ("slow", 1): Flaw("slow", wait_s=0.3),
    ("slow", 2): Flaw("slow", wait_s=1.0),
    ("slow", 3): Flaw("slow", wait_s=2.0),
}
