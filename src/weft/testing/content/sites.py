"""The hosts of the synthetic web: their number of pages, language, role, and the links between them.

Pure and deterministic. Every ordinary host is reachable from host 0 over hosts whose pages can all be fetched
(the trunk); hosts that a polite crawl cannot enter, or that misbehave, are leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from urllib.parse import quote

from weft.errors import BadInput
from weft.testing.content import robots_txt
from weft.testing.content.languages import BY_CODE, LANGUAGES, SECTIONS, SLUGS, Language
from weft.testing.content.resources import Reference, mix
from weft.testing.content.robots_txt import ServedRobots
from weft.testing.tls import CERTIFIED_ADDRESSES, FAULT_ADDRESSES

Profile = Literal["calm", "messy", "hostile"]
PROFILES: tuple[Profile, ...] = ("calm", "messy", "hostile")
MAX_HOSTS = 1_000_000
MAX_PAGES = 10_000_000  # their paths are kept in memory, a hundred bytes each
MAX_EDITION = 1000  # the content of a page is computed through all editions, up to the last one that changed it
NAME_SUFFIX = "weft-web.test"
TRAPS = ("calendar", "session", "deeper", "listing")
# The faults of an ordinary host in a messy web. At most four failing answers each, so that a breaker of five
# consecutive failures never opens on a host that a crawl must finish.
FLAVOURS = ("transient", "broken", "rate-limit", "reset", "slow", "charset", "soft-404", "well")
SMALL_HOST = 12


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What determines a synthetic web. Two equal specs give byte-identical webs; `port` only shows in URLs."""

    hosts: int = 20
    pages: int = 1000
    seed: int = 0
    profile: Profile = "calm"
    port: int = 8400
    names: bool = False
    tls: bool = False
    edition: int = 0
    changed: float = 0.05
    addresses: int = 0  # with names: each host is a domain of its own, and all hosts share this number of addresses
    stocked: int = 3  # the first hosts that have special URLs of every kind; the others have some kinds

    def __post_init__(self) -> None:
        if self.hosts < 1:
            raise BadInput(f"hosts must be 1 or more, not {self.hosts}")
        if self.pages < self.hosts:
            raise BadInput(f"pages must be at least the number of hosts ({self.hosts}), not {self.pages}")
        if self.pages > MAX_PAGES:
            raise BadInput(f"pages must be at most {MAX_PAGES:,}, not {self.pages:,}")
        if self.profile not in PROFILES:
            raise BadInput(f"profile must be one of {', '.join(PROFILES)}, not {self.profile!r}")
        if not 0 <= self.port <= 65535:
            raise BadInput(f"port must be from 0 to 65535, not {self.port}")
        if not 0 <= self.edition <= MAX_EDITION:
            raise BadInput(f"edition must be from 0 to {MAX_EDITION}, not {self.edition}")
        if not 0 <= self.changed <= 1:
            raise BadInput(f"changed must be a share from 0 to 1, not {self.changed}")
        if self.tls and not self.names and (self.hosts > CERTIFIED_ADDRESSES or self.profile == "hostile"):
            raise BadInput(
                f"the test certificate covers {CERTIFIED_ADDRESSES} host addresses: with tls, more hosts and the "
                "hostile profile need names"
            )
        if self.addresses and (self.tls or not self.names):
            raise BadInput("addresses that hosts share need names, and the test certificate does not cover those")
        if self.stocked < 0:
            raise BadInput(f"stocked must be 0 or more, not {self.stocked}")
        if self.hosts > MAX_HOSTS:
            raise BadInput(f"hosts must be at most {MAX_HOSTS}, not {self.hosts}")

    @property
    def messy(self) -> bool:
        return self.profile != "calm"


@dataclass(eq=False)
class SyntheticSite:
    """One host of the synthetic web."""

    index: int
    host: str
    origin: str
    key: int
    role: str
    language: Language
    charset: str
    robots: ServedRobots
    sitemap: str | None
    flavour: str = "well"
    traps: tuple[str, ...] = ()
    hostile: str | None = None
    address: str = "127.0.0.1"
    count: int = 1
    children: list[SyntheticSite] = field(default_factory=list)

    @cached_property
    def paths(self) -> list[str]:
        """The path of every ordinary page; page 0 is the home page."""
        return ["/", *(page_path(self, number) for number in range(1, self.count))]

    @cached_property
    def plain_links(self) -> list[Reference]:
        """A link from the root to every ordinary page, ready-made: most links are written like this."""
        return [Reference(path.replace("&", "&amp;"), self.origin + path) for path in self.paths]

    def absolute_link(self, draw: int) -> Reference:
        """A link with scheme and host to the page that a 16-bit number draws."""
        link = self.plain_links[draw * self.count >> 16]
        return Reference(self.origin + link.href, link.target)

    @property
    def soft_404(self) -> bool:
        return self.flavour == "soft-404"

    @property
    def home(self) -> str:
        return self.origin + "/"


def page_path(site: SyntheticSite, number: int) -> str:
    """The path of one ordinary page, which ends with its number, so that the page can be found by its path."""
    key = mix(site.key, number, 17)
    section = SECTIONS[(key >> 8) % 4 + site.index % 7]
    slug = f"{SLUGS[(key >> 16) % len(SLUGS)]}-{SLUGS[(key >> 24) % len(SLUGS)]}"
    style = key % 10
    if style < 4:
        return f"/{section}/{slug}-{number}.html"
    if style < 6:
        return f"/{section}/{slug}/{number}/"
    if style < 7:
        return f"/{section}/{2001 + (key >> 32) % 26}/{slug}-{number}"
    if style < 9:
        return f"/{section}/show?ref={slug}&id={number}"
    word = site.language.words[(key >> 32) % len(site.language.words)]
    return f"/{section}/{quote(word)}-{number}"


def address(index: int) -> str:
    """The loopback address of host `index`: 127.1.0.1 onward, never ending in 0 or 255."""
    rest, last = divmod(index, 254)
    return f"127.{1 + (rest >> 8)}.{rest & 255}.{last + 1}"


def name(index: int) -> str:
    """The name of host `index`; one host in fifty has a name outside ASCII, here in its ASCII form."""
    label = f"bücher{index}".encode("idna").decode() if index % 50 == 7 else f"site{index}"
    return f"{label}.{NAME_SUFFIX}"


def make_sites(spec: WorldSpec, hostile: tuple[str, ...] = ()) -> list[SyntheticSite]:
    """All hosts of a world: the `spec.hosts` ordinary ones, then one more for each hostile behaviour."""
    sites = [_make_site(spec, index) for index in range(spec.hosts)]
    _share_pages(spec, sites)
    _connect_hosts(sites)
    if spec.messy:
        _assign_flavours(spec, sites)
    first = spec.hosts
    sites += [_make_site(spec, first + position, behaviour) for position, behaviour in enumerate(hostile)]
    return sites


def _make_site(spec: WorldSpec, index: int, hostile: str | None = None) -> SyntheticSite:
    host = name(index) if spec.names else address(index)
    if spec.addresses:
        host = f"www{index}.test"
    scheme, default = ("https", 443) if spec.tls else ("http", 80)
    origin = f"{scheme}://{host}" + ("" if spec.port == default else f":{spec.port}")
    key = mix(spec.seed & (1 << 64) - 1, index, 3)
    role = "hostile" if hostile else _role_of_host(spec, index)
    language = BY_CODE["en"] if key % 3 == 0 or hostile else LANGUAGES[(key >> 8) % len(LANGUAGES)]
    legacy = language.charsets[1:] or language.charsets
    charset = "utf-8" if (key >> 16) % 10 < 6 else legacy[(key >> 24) % len(legacy)]
    sitemap = None if hostile else _sitemap_style(spec, index)
    named = {"plain": "/sitemap.xml", "index": "/sitemap_index.xml"}.get(sitemap or "")
    style = _robots_style(spec, index, role)
    robots = robots_txt.make(
        style,
        sitemap=origin + named if named else None,
        crawl_delay_s=0.5 if index % 16 < 8 else 1.0,
        failures=1 + index // 16 % 2 if style == "late" else 0,
    )
    site = SyntheticSite(index, host, origin, key, role, language, charset, robots, sitemap, hostile=hostile)
    if spec.addresses:
        site.address = address(index % spec.addresses)
    else:
        site.address = FAULT_ADDRESSES.get(hostile or "", "127.0.0.1") if spec.names else host
    if role == "trap":
        site.traps = TRAPS if spec.hosts < 100 else (TRAPS[index // 25 % 4],)
    return site


def _role_of_host(spec: WorldSpec, index: int) -> str:
    if index % 50 == 13:
        return "walled"
    if spec.messy and index % 50 == 9:
        return "dead"
    if spec.messy and index % 25 == 4:
        return "trap"
    return "ordinary"


def _robots_style(spec: WorldSpec, index: int, role: str) -> str:
    if role in ("walled", "dead"):
        return role
    if role in ("trap", "hostile"):
        return "plain"
    styles = robots_txt.MESSY_STYLES if spec.messy else robots_txt.CALM_STYLES
    return styles[index % len(styles)]


def _sitemap_style(spec: WorldSpec, index: int) -> str | None:
    """probe: at /sitemap.xml, not listed anywhere (one host, which is a seed); plain and index: listed in
    robots.txt."""
    if index == min(1, spec.hosts - 1):
        return "probe"
    style = {2: "plain", 3: "index"}.get(index % 5)
    return None if _robots_style(spec, index, _role_of_host(spec, index)) in ("missing", "dead", "walled") else style


def _share_pages(spec: WorldSpec, sites: list[SyntheticSite]) -> None:
    """Assigns a heavy-tailed number of pages to each host; hosts that must be crawled slowly, or not at all, stay
    small."""
    weights = [min(20.0, (1 - mix(site.key, 5) / 2**64) ** -0.9) for site in sites]
    small = [site.role != "ordinary" or site.robots.crawl_delay_s > 0 for site in sites]
    if all(small):
        small = [False] * len(sites)
    spare = spec.pages - len(sites)
    total = sum(weights)
    for site, weight, is_small in zip(sites, weights, small, strict=True):
        share = int(spare * weight / total)
        site.count = 1 + (min(share, SMALL_HOST - 1) if is_small else share)
    left = spec.pages - sum(site.count for site in sites)
    large = [site for site, is_small in zip(sites, small, strict=True) if not is_small]
    for index, site in enumerate(large):
        site.count += left // len(large) + (index < left % len(large))


def _assign_flavours(spec: WorldSpec, sites: list[SyntheticSite]) -> None:
    """Assigns the flavours in turn to the hosts whose robots.txt causes no difficulties."""
    able = [site for site in sites if site.role == "ordinary" and site.robots.style not in ("late", "delayed")]
    for index, site in enumerate(able):
        site.flavour = FLAVOURS[(index + spec.seed) % len(FLAVOURS)]


def _connect_hosts(sites: list[SyntheticSite]) -> None:
    trunk = [site for site in sites if site.role == "ordinary"]
    for index, site in enumerate(trunk[1:]):
        trunk[index // 3].children.append(site)
    for site in sites:
        if site.role != "ordinary":
            trunk[site.index % len(trunk)].children.append(site)
