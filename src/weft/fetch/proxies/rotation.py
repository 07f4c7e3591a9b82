"""Chooses the proxy of a request: by the results of each proxy, and by its blocks at a site.

The rules:
- A tier is used before the next, dearer one. A site that blocks several proxies of its tier moves up for a while.
- Within a tier chance decides, weighted by score: the share of good answers over the time they take. A proxy that is
  bad is asked seldom, not never, so that it can become good again.
- A failure of the proxy itself makes it rest, everywhere, twice as long each time. A block by a site bans it there.
- A site that a proxy cannot reach is left to others for a while: which of the two is at fault shows when the proxy
  reaches no other site either. So a site that is down does not cost all proxies.
- A sticky site keeps its proxy until that rests or is banned. Sites that are apart keep theirs, too, and share none.
Times come from the caller; nothing here waits or sends.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import Enum

from weft.fetch.proxies.entry import Proxy

FIRST_REST_S, LONGEST_REST_S = 30.0, 3600.0
FIRST_BAN_S, LONGEST_BAN_S = 300.0, 6 * 3600.0
BLOCKS_PER_TIER = 3  # blocks by a site in a row, after which the next tier is tried
RAISED_S = 1800.0
SAMPLE = 64  # of more proxies than this, a sample is checked first: all of thousands would cost more than the request
UNREACHED_TO_FAIL = 3  # unreached sites in a row, after which the proxy is at fault
FAILS_TO_DIE = 5  # in a row: not usable until it is tested again
_WEIGHT = 0.2  # of the newest answer in a mean
_SLOW_S = 1.0  # a proxy with this answer time has half the score of an instant one


class ProxyOutcome(Enum):
    """How a request through a proxy ended."""

    OK = "ok"
    FAILED = "failed"  # the proxy did not answer, or refused
    BLOCKED = "blocked"  # the site answered with a block
    UNREACHED = "unreached"  # the proxy works, and could not reach the site


class ProxyStanding:
    """The results of one proxy."""

    __slots__ = ("bans", "failures", "good", "latency_s", "proxy", "rests_until", "unreached", "used")

    def __init__(self, proxy: Proxy, latency_s: float = _SLOW_S) -> None:
        self.proxy = proxy
        self.good = 0.75  # the mean of its answers: a new one is trusted, but less than a proven one
        self.latency_s = latency_s
        self.failures = 0  # in a row
        self.rests_until = 0.0
        self.used = 0
        self.unreached: set[str] = set()  # domains, since it last reached one
        self.bans: dict[str, tuple[float, float]] = {}  # domain -> until, length

    @property
    def score(self) -> float:
        """0 to 1."""
        return self.good * _SLOW_S / (_SLOW_S + self.latency_s)

    @property
    def is_dead(self) -> bool:
        """Whether it has failed too often in a row."""
        return self.failures >= FAILS_TO_DIE

    def is_free(self, now: float) -> bool:
        """Whether it may be used at all."""
        return not self.is_dead and now >= self.rests_until

    def may_ask(self, domain: str, now: float) -> bool:
        """Whether it may be used for a domain."""
        return self.is_free(now) and now >= self.bans.get(domain, (0.0, 0.0))[0]


class _Site:
    """The state of a domain: its blocks and its proxy."""

    __slots__ = ("blocks", "proxy", "raised_until", "tier")

    def __init__(self) -> None:
        self.blocks = 0  # in a row
        self.tier = 0
        self.raised_until = 0.0
        self.proxy: str | None = None  # the sticky one


class Rotation:
    """The proxies of one crawl or service; used from one thread."""

    def __init__(
        self,
        proxies: Iterable[Proxy] = (),
        chance: random.Random | None = None,
        *,
        rest_s: float = FIRST_REST_S,
        ban_s: float = FIRST_BAN_S,
    ) -> None:
        """`rest_s`, `ban_s`: the length of a proxy's first rest, and of its first ban at a site."""
        self._rest_s, self._ban_s = rest_s, ban_s
        self._standings: dict[str, ProxyStanding] = {}  # by the proxy's URL, as `_apart` and `_Site.proxy`
        self._tiers: dict[int, list[ProxyStanding]] = {}
        self._sites: dict[str, _Site] = {}
        self._apart: dict[str, str] = {}  # proxy -> the domain that shares it with no other of its kind
        self._chance = chance or random.Random()  # noqa: S311: spreads load, keeps no secret
        self.rests = self.bans = 0  # how often a proxy had to rest, or was blocked
        self._hold({proxy.url: ProxyStanding(proxy) for proxy in proxies})

    def __len__(self) -> int:
        return len(self._standings)

    @property
    def standings(self) -> list[ProxyStanding]:
        """Every proxy, in the order in which they came."""
        return list(self._standings.values())

    def usable(self, now: float) -> int:
        """How many may be used now."""
        return sum(standing.is_free(now) for standing in self._standings.values())

    def replace(self, proxies: Iterable[tuple[Proxy, float]]) -> None:
        """Replaces the list of proxies, with their latencies; the state of those that remain is kept.

        A tested proxy that is listed again has passed, so its failures are reset. Bans belong to the sites, and remain.
        """
        standings: dict[str, ProxyStanding] = {}
        for proxy, latency_s in proxies:
            standing = self._standings.get(proxy.url)
            if standing is None:
                standing = ProxyStanding(proxy, latency_s)
            standing.proxy, standing.failures, standing.rests_until = proxy, 0, 0.0
            standing.unreached.clear()
            standings[proxy.url] = standing
        self._hold(standings)
        self._apart = {url: domain for url, domain in self._apart.items() if url in standings}

    def _hold(self, standings: dict[str, ProxyStanding]) -> None:
        self._standings, self._tiers = standings, {}
        for standing in standings.values():
            self._tiers.setdefault(standing.proxy.tier, []).append(standing)

    def choose(self, domain: str, now: float, *, sticky: bool = False, apart: bool = False) -> Proxy | None:
        """The proxy for the next request to a domain; None if none may be used now."""
        site = self._sites.setdefault(domain, _Site())
        sticky = sticky or apart  # otherwise one site would use all of them, one after the other
        if site.tier and now >= site.raised_until:
            site.tier = 0
        if sticky and site.proxy is not None:
            kept = self._standings.get(site.proxy)
            if kept is not None and kept.may_ask(domain, now):
                kept.used += 1
                return kept.proxy
        chosen = self._chosen(domain, site.tier, now, apart=apart)
        if chosen is None:
            return None
        chosen.used += 1
        if sticky:
            site.proxy = chosen.proxy.url
        if apart:
            self._apart[chosen.proxy.url] = domain
        return chosen.proxy

    def ended(self, url: str, domain: str, outcome: ProxyOutcome, took_s: float, now: float) -> None:
        """Records how a request ended; `url` is the proxy's."""
        standing, site = self._standings.get(url), self._sites.setdefault(domain, _Site())
        if outcome is ProxyOutcome.BLOCKED:
            self._blocked(site, now)
        elif outcome is ProxyOutcome.OK:
            site.blocks = 0
        if standing is None:  # it was replaced meanwhile
            return
        standing.good += _WEIGHT * ((outcome is ProxyOutcome.OK) - standing.good)
        if outcome is ProxyOutcome.UNREACHED:
            standing.unreached.add(domain)
            if len(standing.unreached) < UNREACHED_TO_FAIL:
                until, length_s = standing.bans.get(domain, (0.0, 0.0))
                standing.bans[domain] = (max(until, now + self._rest_s), length_s)
                return
            outcome = ProxyOutcome.FAILED
        if outcome is ProxyOutcome.FAILED:
            standing.failures += 1
            rest_s = min(LONGEST_REST_S, self._rest_s * 2 ** (standing.failures - 1))
            standing.rests_until = max(standing.rests_until, now + rest_s)
            self.rests += 1
            return
        standing.failures = 0
        standing.unreached.clear()
        standing.latency_s += _WEIGHT * (took_s - standing.latency_s)
        if outcome is ProxyOutcome.BLOCKED:
            length_s = min(LONGEST_BAN_S, max(self._ban_s, 2 * standing.bans.get(domain, (0.0, 0.0))[1]))
            standing.bans[domain] = (now + length_s, length_s)
            self.bans += 1
        else:
            standing.bans.pop(domain, None)

    def _chosen(self, domain: str, tier: int, now: float, *, apart: bool) -> ProxyStanding | None:
        """Chooses from the lowest permitted tier that has a free proxy; from the highest below, if none has."""

        def free(some: Iterable[ProxyStanding]) -> list[ProxyStanding]:
            return [
                standing
                for standing in some
                if standing.may_ask(domain, now) and not (apart and self._is_anothers(standing, domain))
            ]

        tiers = sorted(self._tiers)
        for one in (*(one for one in tiers if one >= tier), *(one for one in reversed(tiers) if one < tier)):
            every = self._tiers[one]
            few = self._chance.sample(every, SAMPLE) if len(every) > SAMPLE else every
            found = free(few) or (free(every) if few is not every else [])
            if found:
                return self._weighted(found)
        return None

    def _is_anothers(self, standing: ProxyStanding, domain: str) -> bool:
        return self._apart.get(standing.proxy.url, domain) != domain

    def _blocked(self, site: _Site, now: float) -> None:
        site.proxy = None
        site.blocks += 1
        if site.blocks >= BLOCKS_PER_TIER:
            site.blocks = 0
            site.tier += 1
            site.raised_until = now + RAISED_S

    def _weighted(self, standings: list[ProxyStanding]) -> ProxyStanding:
        return self._chance.choices(standings, [max(0.02, standing.score) for standing in standings])[0]
