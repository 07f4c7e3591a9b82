"""The robots.txt rules that the engine applies: parsed once and cached, from the records that the frontier holds.

An origin's robots.txt is a request like any other; the frontier hands it out before the origin's pages. Here its result
becomes a record: 2xx is read, 4xx allows all, 5xx and network failures allow nothing for a while (RFC 9309 §2.3). Until
then it is tried again: a few times where nothing answers, for minutes where a server does; the pages wait meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from weft import urls
from weft.bodies import first_of
from weft.config import PolitenessSection
from weft.engine.loop.fetcher.verdict import LONGEST_BACKOFF_S
from weft.fetch.decode import decode
from weft.fetch.guard import is_private_host
from weft.fetch.headers import Head
from weft.fetch.robots import MAX_BODY_BYTES, Robots, product_token
from weft.frontier.contract import RobotsRecord, SitesPart
from weft.records import FetchResult, Reason

ROBOTS_BYTES = MAX_BODY_BYTES + 1  # one more than `Robots.parse` reads: so it sees that the file was cut
ROBOTS_ATTEMPTS = 3  # at least; no more than these if nothing answers
MOST_ATTEMPTS = 50  # the most, however short the waits are
MAX_ROBOTS_REDIRECTS = 5
REPEAT_AFTER_S = 600.0  # an unreachable robots.txt is requested again after this
REPEAT_FOR_SEED_S = 5.0  # ... or after this if a user gives a seed there: the site may have recovered
_MOST_PARSED = 10_000


class RobotsBook:
    """Parsed robots.txt by origin."""

    def __init__(
        self,
        sites: SitesPart,
        user_agent: str,
        trust: str = "",
        *,
        least_public_delay_s: float = 0.0,
        ignored_at: Callable[[str], bool] = lambda _host: False,
    ) -> None:
        """`trust`: crawls of another one do not share robots.txt files with these. `least_public_delay_s`: every site
        whose host is not private by its name is treated as if its Crawl-delay were at least that. `ignored_at`: at
        which hosts the rules are not applied."""
        self._sites = sites
        self._least_public_delay_s = least_public_delay_s
        self._ignored_at = ignored_at
        self._trust = f"{trust} " if trust else ""
        self.agent = product_token(user_agent)
        self._parsed: OrderedDict[str, tuple[RobotsRecord, Robots]] = OrderedDict()

    def rules_of_origin(self, origin: str) -> tuple[RobotsRecord, Robots]:
        """The origin's record and its rules; the frontier has the record, or would not have leased a page."""
        entry = self._parsed.get(origin)
        record = self._sites.robots(self._trust + origin)
        if record is None:
            return UNREACHABLE, Robots.DISALLOW_ALL
        if entry is None or entry[0] is not record:
            entry = self._parsed[origin] = (record, rules_of(record))
            if len(self._parsed) > _MOST_PARSED:
                self._parsed.popitem(last=False)
        return entry

    def is_known(self, origin: str, wall: float) -> bool:
        """Whether there is a valid record for an origin: `of` can answer without a request."""
        record = self._sites.robots(self.trusted_name(origin))
        return record is not None and record.expires > wall

    def trusted_name(self, origin: str) -> str:
        """An origin as `learn` and leases name it: prefixed with the trust of the crawls that share its robots.txt."""
        return self._trust + origin

    def was_known(self, about: str) -> bool:
        """Whether an origin's robots.txt was read before; `about` with its trust prefix, as in the lease."""
        record = self._sites.robots(about)
        return record is not None and record.status in ("ok", "allow")

    def may_be_reachable_again(self, origin: str, wall: float) -> bool:
        """Whether an origin's robots.txt was unreachable, and long enough ago to request it once more for a seed."""
        record = self._sites.robots(self._trust + origin)
        return (
            record is not None
            and record.status in REASON_BY_ROBOTS_STATE
            and wall >= record.expires - REPEAT_AFTER_S + REPEAT_FOR_SEED_S
        )

    def rule_against(self, url: str, robots: Robots) -> str:
        """The rule that forbids a URL, with its line; empty if it is allowed."""
        if robots.allows(self.agent, url):
            return ""
        verdict = robots.verdict(self.agent, url)
        return f"{verdict.rule} (line {verdict.line})"

    def forbidden_urls(self, record: RobotsRecord, origin: str, found: Sequence[str]) -> dict[str, str]:
        """The rules that forbid newly found URLs, if the origin's rules are cached; others are checked at the claim."""
        entry = self._parsed.get(origin)
        if entry is None or entry[0] is not record or record.status != "ok":
            return {}
        forbidden = entry[1].for_agent(self.agent).forbidden(origin, found)
        return {url: self.rule_against(url, entry[1]) for url in forbidden}

    def store_record(self, origin: str, record: RobotsRecord) -> Robots:
        """Reports the record and its Crawl-delay to the frontier; `origin` with its trust prefix, as in the lease."""
        if self._ignored_at(urls.host_of(f"{origin.removeprefix(self._trust)}/")):
            record = without_rules(record)
        rules = rules_of(record)
        self._sites.robots_known(origin, record, self.crawl_delay_s(origin.removeprefix(self._trust), rules))
        return rules

    def crawl_delay_s(self, origin: str, rules: Robots) -> float | None:
        """The delay that a site asks for, or that it is due all the same."""
        wanted = rules.crawl_delay(self.agent)
        if not self._least_public_delay_s or is_private_host(urls.host_of(f"{origin}/")):
            return wanted
        return max(self._least_public_delay_s, wanted or 0.0)


def record_of(result: FetchResult, wall: float, ttl_s: float) -> RobotsRecord | None:
    """The record that a result makes, or None if the request should be tried again."""
    if result.error == "address":
        return RobotsRecord("address", b"", wall + REPEAT_AFTER_S, result.detail)
    endless = result.error == "too_large" and result.body
    if (result.error and not endless) or result.status >= 500 or result.status == 429:
        return None
    if 200 <= result.status < 300:
        encoding = Head(result.head).content_encoding
        body = first_of(result.body, ROBOTS_BYTES)
        body = decode(body, encoding, ROBOTS_BYTES).body if encoding else body
        return RobotsRecord("ok", body[:ROBOTS_BYTES], wall + ttl_s)
    return RobotsRecord("allow", b"", wall + ttl_s, f"HTTP {result.status}")


def is_worth_another_attempt(result: FetchResult, attempt: int, section: PolitenessSection, *, known: bool) -> bool:
    """Whether a robots.txt request that failed is tried again.

    A server that answers with an error is likely to recover, and so is one whose file was read before: these are tried
    for as long as the retry settings allow. A site that has never answered is more likely dead.
    """
    if attempt + 1 < ROBOTS_ATTEMPTS:
        return True
    waited_s = sum(min(LONGEST_BACKOFF_S, section.retry_backoff_s * 2**one) for one in range(min(attempt, 64)))
    return (bool(result.status) or known) and waited_s < section.robots_patience_s and attempt < MOST_ATTEMPTS


def unreachable_record(result: FetchResult, wall: float) -> RobotsRecord:
    """The record of an origin whose robots.txt is unreachable."""
    detail = f"{result.error}: {result.detail}" if result.error else f"HTTP {result.status}"
    if result.error and result.body:
        # The part received reveals nothing of the rest, which may forbid everything (RFC 9309 §2.3.1.4).
        detail += f", after {len(result.body)} bytes"
    return RobotsRecord("unreachable", b"", wall + REPEAT_AFTER_S, detail)


def rules_of(record: RobotsRecord) -> Robots:
    if record.status == "ok":
        return Robots.parse(record.body)
    return Robots.ALLOW_ALL if record.status == "allow" else Robots.DISALLOW_ALL


def without_rules(record: RobotsRecord) -> RobotsRecord:
    """The record of a robots.txt that a user does not want applied: its sitemaps alone, so that all who read records,
    and `weft audit`, see what was in force."""
    if record.status == "address":  # it forbids nothing: the address may not be reached
        return record
    lines = ["# ignore_robots is set", *(f"Sitemap: {one}" for one in rules_of(record).sitemaps)]
    return RobotsRecord("ok", "\n".join(lines).encode(), record.expires, record.detail)


UNREACHABLE = RobotsRecord("unreachable", b"", 0.0, "not asked")
# Reasons for refusing pages of an origin whose robots.txt was never read.
REASON_BY_ROBOTS_STATE = {"unreachable": Reason.ROBOTS_UNREACHABLE, "address": Reason.ADDRESS}
