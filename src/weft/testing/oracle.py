"""The oracle: the URLs that a correct crawl of a synthetic web with given settings must, may and must not request.

It follows the World's own links, whose targets are known, and shares no code with the crawler: no URL parser, no robots
parser, no HTML parser. The walk is done twice. The strict walk finds only what every order of fetching finds; the
generous one also what depends on the order (the depth of sitemap entries, links into a scope that a seed's redirect
opens later). The first gives `must`; what only the second reaches is `may`.

Decided here, where the specification leaves room: `include` does not apply to seeds, `exclude` applies to everything;
excluded domains count as out of scope; the redirect of a seed under `seeded_urls_only` may be followed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.testing.content import hostile, sitemaps, traps
from weft.testing.content.resources import FOLLOWED, Resource
from weft.testing.content.robots_txt import MOVED_TO
from weft.testing.content.sites import SyntheticSite
from weft.testing.world import World

SCOPES = ("any", "domain", "host", "prefix")
SKIPPED_EXTENSIONS = frozenset(
    "jpg jpeg png gif bmp svg webp ico tiff tif mp4 avi mov wmv flv webm mkv mpg mpeg m4v mp3 wav flac aac ogg wma m4a "
    "opus pdf doc docx xls xlsx ppt pptx odt zip rar 7z tar gz bz2 xz tgz exe msi dmg pkg deb rpm apk app iso bin dat "
    "db sqlite dll so dylib psd ai eps indd sketch fig xd csv json xml sql".split()
)
# The oracle's reasons for rejecting something that looks like a link.
_NOT_FOLLOWED = {"nofollow": "nofollow", "nofollow-many": "nofollow", "nofollow-loud": "nofollow"}


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """The settings of a crawl that decide what it requests."""

    seeds: tuple[str, ...]
    scope: str = "any"
    max_depth: int | None = None
    exclude_domains: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    seeded_urls_only: bool = False
    max_pages_per_domain: int | None = None
    max_redirects: int = 5
    max_retries: int = 3
    robots_tries: int = 3
    max_url_length: int = 2000

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise BadInput(f"scope must be one of {', '.join(SCOPES)}, not {self.scope!r}")
        for name in ("max_depth", "max_pages_per_domain"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 0):
                raise BadInput(f"{name} must be a number of 0 or more, not {value!r}")

    @property
    def depends_on_order(self) -> bool:
        """Whether two correct crawls may request different URLs."""
        return self.max_depth is not None or self.scope != "any" or self.seeded_urls_only


class Expectation(msgspec.Struct, kw_only=True):
    """The requests that a correct crawl makes. URLs are canonical.

    `requests`: how often a URL may be requested at most; URLs not in it may be requested once. `never`: for each known
    URL the acceptable reasons for rejecting it.
    """

    seeds: list[str]
    must: list[str]
    may: list[str]
    may_patterns: list[str]
    never: dict[str, list[str]]
    requests: dict[str, int]
    robots: dict[str, RobotsView]
    excluded_hosts: list[str]
    max_pages_per_host: int | None = None


class RobotsView(msgspec.Struct, omit_defaults=True):
    """The rules of one origin's robots.txt for the judge; `final` is the URL that its text comes from after
    redirects."""

    rules: list[tuple[bool, str]] = []
    crawl_delay_s: float = 0.0
    final: str = "/robots.txt"
    unreachable: bool = False


def expect(world: World, plan: CrawlPlan) -> Expectation:
    """The expected requests of one crawl."""
    strict = _WebWalk(world, plan, generous=False)
    strict.run()
    generous = strict
    if plan.depends_on_order or world.spec.profile == "hostile":
        generous = _WebWalk(world, plan, generous=True)
        generous.run()
    must, may = set(strict.fetched), set(generous.fetched) - set(strict.fetched)
    if plan.max_pages_per_domain is not None:
        kept = _certain_seeds(plan, must)
        may |= must - kept
        must = kept
    never = {url: sorted(why) for url, why in generous.refused.items() if url not in must and url not in may}
    requests = _request_limits(world, plan, must | may)
    _add_robots_and_sitemaps(plan, strict, generous, must, may, requests)
    return Expectation(
        seeds=list(plan.seeds),
        must=sorted(must),
        may=sorted(may - must),
        may_patterns=[pattern for site in generous.entered.values() for pattern in _trap_patterns(site)],
        never=dict(sorted(never.items())),
        requests=dict(sorted(requests.items())),
        robots={site.host: _robots_view(site) for site in world.sites},
        excluded_hosts=[site.host for site in world.sites if _excluded_host(site.host, plan)],
        max_pages_per_host=plan.max_pages_per_domain,
    )


@dataclass
class _WebWalk:
    """A breadth-first walk by depth; a redirect's target has the depth of the redirect."""

    world: World
    plan: CrawlPlan
    generous: bool
    fetched: dict[str, int] = field(default_factory=dict)
    refused: dict[str, set[str]] = field(default_factory=dict)
    entered: dict[str, SyntheticSite] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        plan = self.plan
        self.includes = [_compile_pattern(pattern) for pattern in plan.include]
        self.excludes = [_compile_pattern(pattern) for pattern in plan.exclude]
        self.scopes = {_scope_key(seed, plan.scope) for seed in plan.seeds}
        self.opened = self._opened_by_redirects()
        self.seed_hosts = {_host_of(seed) for seed in plan.seeds}
        self.queue: deque[tuple[int, int, str]] = deque()
        for seed in plan.seeds:
            self._consider_url(seed, 0, 0, how="seed")
        while self.queue:
            depth, hops, url = self.queue.popleft()
            self._visit_url(url, depth, hops)

    def _opened_by_redirects(self) -> set[str]:
        """The scopes that redirects of seeds open."""
        opened = set()
        for seed in self.plan.seeds:
            url = seed
            for _ in range(self.plan.max_redirects):
                locateded = self.world.locate(url)
                resource = self.world.find(*locateded) if locateded else None
                if resource is None or resource.leads_to is None:
                    break
                url = resource.leads_to
                opened.add(_scope_key(url, self.plan.scope))
        return opened - self.scopes

    # -- admission --------------------------------------------------------------------------------------------------

    def _consider_url(self, url: str, depth: int, hops: int, how: str, source: str = "") -> None:
        """Queues a URL, or records the reason for rejecting it. `how` is seed, link, redirect, seed-redirect or
        sitemap."""
        known = self.depths.get(url)
        if known is not None and known <= depth:
            return
        reasons = self._reasons_against(url, depth, how, source)
        if reasons:
            self.refused.setdefault(url, set()).update(reasons)
            return
        self.depths[url] = depth
        if how in ("redirect", "seed-redirect"):
            self.queue.appendleft((depth, hops, url))
        else:
            self.queue.append((depth, hops, url))

    def _reasons_against(self, url: str, depth: int, how: str, source: str) -> list[str]:
        plan = self.plan
        reasons = []
        if len(url) > plan.max_url_length:
            reasons.append("length")
        located = self.world.locate(url)
        if located is None:
            reasons += ["address", "scope"] if url.startswith(("http://", "https://")) else ["scheme"]
            return reasons
        site, path = located
        if how == "link" and _extension_of(path) in SKIPPED_EXTENSIONS:
            reasons.append("extension")
        if _excluded_host(site.host, plan) or not self._in_scope(url, how, source):
            reasons.append("scope")
        if self._against_patterns(url, how):
            reasons.append("pattern")
        if plan.max_depth is not None and depth > plan.max_depth:
            reasons.append("depth")
        if plan.seeded_urls_only and how not in ("seed", "seed-redirect"):
            reasons.append("scope")
        if plan.seeded_urls_only and how == "seed-redirect" and not self.generous:
            reasons.append("scope")
        return reasons

    def _against_patterns(self, url: str, how: str) -> bool:
        if any(match(url) for match in self.excludes):
            return True
        return how != "seed" and bool(self.includes) and not any(match(url) for match in self.includes)

    def _in_scope(self, url: str, how: str, source: str) -> bool:
        if how in ("seed", "seed-redirect") or _is_in_scopes(self.scopes, url, self.plan.scope):
            return True
        if not _is_in_scopes(self.opened, url, self.plan.scope):
            return False
        # Before the seed's redirect is fetched this scope is still closed to links from elsewhere.
        return self.generous or _is_in_scopes(self.opened, source, self.plan.scope)

    # -- results of a fetch -----------------------------------------------------------------------------------------

    def _visit_url(self, url: str, depth: int, hops: int) -> None:
        if self.depths[url] < depth:
            return
        located = self.world.locate(url)
        assert located is not None
        site, path = located
        first = site.host not in self.entered
        self.entered[site.host] = site
        if first:
            self._read_sitemap(site, depth)
        refusal = robots_refusal(site, path)
        if refusal:
            self.refused.setdefault(url, set()).add(refusal)
            return
        resource = self.world.find(site, path)
        if resource.trap:
            return
        self.fetched[url] = depth
        if resource.leads_to is not None:
            self._follow_redirect(url, resource, depth, hops)
        elif resource.parsed and (self.generous or not resource.kind.startswith("hostile-")):
            self._follow(resource, url, depth)

    def _follow_redirect(self, url: str, resource: Resource, depth: int, hops: int) -> None:
        assert resource.leads_to is not None
        if hops >= self.plan.max_redirects:
            self.refused.setdefault(resource.leads_to, set()).add("redirects")
            return
        how = "seed-redirect" if depth == 0 else "redirect"
        self._consider_url(resource.leads_to, depth, hops + 1, how, url)

    def _follow(self, resource: Resource, url: str, depth: int) -> None:
        for reference in resource.references:
            if reference.target is None:
                continue
            if reference.tag in FOLLOWED:
                self._consider_url(reference.target, depth + 1, 0, "link", url)
            else:
                why = _NOT_FOLLOWED.get(reference.tag, "no-link")
                self.refused.setdefault(reference.target, set()).add(why)

    def _read_sitemap(self, site: SyntheticSite, depth: int) -> None:
        if site.sitemap is None or site.robots.answer == "dead":
            return
        if site.sitemap == "probe" and site.host not in self.seed_hosts:
            return
        certain = self.plan.max_depth is None or site.host in self.seed_hosts
        if not certain and not self.generous:
            return
        for path in sitemaps.entries(site):
            self._consider_url(site.origin + path, depth + 1, 0, "sitemap", site.origin + path)


def robots_refusal(site: SyntheticSite, path: str) -> str | None:
    """Why robots.txt forbids a path of a site to `weft`; None if it does not."""
    if _is_robots_unreachable(site):
        return "robots-unreachable"
    return None if site.robots.allows(path) else "robots"


def _is_robots_unreachable(site: SyntheticSite) -> bool:
    hostile_one = site.hostile or ""
    return site.robots.answer == "dead" or hostile_one == "robots-silent" or hostile_one.startswith("tls-")


# -- scope and patterns ---------------------------------------------------------------------------------------------


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition(":")[0] or url.partition("://")[2].partition("/")[0]


def _scope_key(url: str, scope: str) -> str:
    """The scope that a seed opens. Each host of this web is a domain of its own, so domain and host are equal."""
    if scope == "any":
        return ""
    if scope == "prefix":
        return url.partition("?")[0].rpartition("/")[0] + "/"
    return "/".join(url.split("/", 3)[:3]) + "/"


def _is_in_scopes(keys: set[str], url: str, scope: str) -> bool:
    if scope == "any":
        return True
    if scope == "prefix":
        return any(url.startswith(key) for key in keys)
    return _scope_key(url, scope) in keys


def _excluded_host(host: str, plan: CrawlPlan) -> bool:
    return any(host == domain or host.endswith("." + domain) for domain in plan.exclude_domains)


def _extension_of(path: str) -> str:
    last = path.partition("?")[0].rpartition("/")[2]
    return last.rpartition(".")[2].lower() if "." in last else ""


def _compile_pattern(pattern: str) -> Callable[[str], object]:
    if pattern.startswith("re:"):
        try:
            return re.compile(pattern[3:]).search
        except re.error as error:
            raise BadInput(f"pattern {pattern!r}: {error}") from error
    return lambda url: fnmatchcase(url, pattern)


# -- the rest of the expectation ------------------------------------------------------------------------------------


def _certain_seeds(plan: CrawlPlan, must: set[str]) -> set[str]:
    """The seeds that must be requested: with a budget per domain only seeds are certain, and only if all of them
    fit."""
    per_host: dict[str, list[str]] = {}
    for seed in plan.seeds:
        if seed in must:
            per_host.setdefault(_host_of(seed), []).append(seed)
    budget = plan.max_pages_per_domain or 0
    return {seed for seeds in per_host.values() if len(seeds) <= budget for seed in seeds}


def _request_limits(world: World, plan: CrawlPlan, urls: set[str]) -> dict[str, int]:
    """How often each URL may be requested: once, plus once for every failure that the server itself causes."""
    limits = {}
    for url in urls:
        located = world.locate(url)
        assert located is not None
        resource = world.find(*located)
        limit = 1
        if resource.flaw:
            limit = 1 + min(resource.flaw.failures, plan.max_retries)
        elif resource.kind.startswith("hostile-"):
            outcome = hostile.TABLE[resource.kind.removeprefix("hostile-")].outcome
            limit = 1 if outcome in ("page", "redirect") else (1 + plan.max_retries) * (1 + (outcome == "stale"))
        if resource.kind == "cookie-wall" or _is_in_redirect_loop(world, url):
            limit = 1 + plan.max_redirects
        if limit > 1:
            limits[url] = limit
    return limits


def _is_in_redirect_loop(world: World, url: str) -> bool:
    at: str | None = url
    for _ in range(4):
        located = world.locate(at) if at else None
        at = world.find(*located).leads_to if located else None
        if at == url:
            return True
    return False


def _add_robots_and_sitemaps(
    plan: CrawlPlan, strict: _WebWalk, generous: _WebWalk, must: set[str], may: set[str], requests: dict[str, int]
) -> None:
    certain = strict.seed_hosts if plan.max_pages_per_domain is not None else set(strict.entered)
    for host, site in generous.entered.items():
        robots = site.origin + "/robots.txt"
        no_request = (site.hostile or "").startswith("tls-")
        (must if host in certain and not no_request else may).add(robots)
        requests[robots] = plan.robots_tries
        if site.robots.answer == "moved":
            may.add(site.origin + MOVED_TO)
            requests[site.origin + MOVED_TO] = plan.robots_tries
        if site.robots.answer != "dead":
            may.update(site.origin + path for path in sitemaps.file_paths(site) if site.sitemap != "probe")
        if host in generous.seed_hosts:
            may.add(site.origin + "/sitemap.xml")


def _trap_patterns(site: SyntheticSite) -> list[str]:
    return [re.escape(site.origin) + pattern for kind in site.traps for pattern in traps.PATTERNS[kind]]


def _robots_view(site: SyntheticSite) -> RobotsView:
    robots = site.robots
    return RobotsView(
        rules=list(robots.rules),
        crawl_delay_s=robots.crawl_delay_s,
        final=MOVED_TO if robots.answer == "moved" else "/robots.txt",
        unreachable=_is_robots_unreachable(site),
    )


# -- files ----------------------------------------------------------------------------------------------------------

_PLAN_KEYS = {"scope", "max_depth", "include", "exclude", "exclude_file", "seeded_urls_only", "max_pages_per_domain"}


def plan_from_yaml(path: Path, seeds: list[str]) -> CrawlPlan:
    """A crawl's settings from its YAML file; keys that do not affect which URLs are requested are ignored."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text()) or {}
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not YAML: {error}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path}: a crawl config is a mapping of keys to values")
    known: dict[str, Any] = {key: value for key, value in values.items() if key in _PLAN_KEYS and value is not None}
    for key in ("include", "exclude"):
        if key in known:
            known[key] = tuple([known[key]] if isinstance(known[key], str) else known[key])
    if "exclude_file" in known:
        known["exclude_domains"] = tuple(read_domains(Path(known.pop("exclude_file"))))
    return CrawlPlan(tuple(seeds), **known)


def read_domains(path: Path) -> list[str]:
    """The domains of an exclude file: one a line; `#` begins a comment."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    return [domain for line in lines if (domain := line.partition("#")[0].strip())]
