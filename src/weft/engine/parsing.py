"""What is done with each answer that must be read: the parser's half.

Pages, redirects and sitemaps become rows and links. Every page that was admitted ends here or in the fetcher's half, in
exactly one row; a sitemap, which is no page, in none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from weft import urls
from weft.engine.answer import Answer
from weft.engine.leads import Leads
from weft.engine.metrics import EngineMetrics
from weft.engine.round import Round
from weft.engine.rows import Rows
from weft.engine.suspects import Suspects
from weft.engine.verdict import Kind
from weft.errors import BadUrl
from weft.extract.page import Page, extract
from weft.extract.robots_meta import robots_tag
from weft.fetch import sitemaps
from weft.fetch.decode import decode
from weft.frontier.contract import End
from weft.records import Lease, Purpose, Reason

SITEMAP_NESTING = 3  # sitemaps.org has one index above the files; one more, and a redirect, are put up with
AT_ONCE = 8  # answers that are well taken together: see `take`


class _Read(NamedTuple):
    """A page that was read, and what is still to be done with it."""

    answer: Answer
    page: Page
    error: str
    noindex: bool
    nofollow: bool


class Parsing:
    """Reads answers."""

    def __init__(
        self,
        round_: Round,
        rows: Rows,
        leads: Leads,
        suspects: Suspects,
        metrics: EngineMetrics,
        *,
        keeps_text: bool = False,
    ) -> None:
        self._round = round_
        self._rows = rows
        self._leads = leads
        self._suspects = suspects
        self._metrics = metrics
        self._keeps_text = keeps_text
        # A test may name a mark in a page at which parsing kills the process.
        self._deadly = os.environ.get("WEFT_TEST_DEADLY_MARK", "").encode()

    def take(self, answers: Iterable[Answer]) -> None:
        """Pages, redirects, and any answers for sitemaps.

        All pages are parsed, then the links of all are followed, then all are stored: one step for several pages finds
        its code and data in the processor's caches, which all steps for each page in turn do not (6 % of a page).
        """
        pages = list[_Read]()
        for answer in answers:
            if answer.lease.purpose is Purpose.SITEMAP:
                self._take_sitemap(answer)
            elif answer.kind is not Kind.PAGE:
                self._take_redirect(answer)
            elif (read := self._read_page(answer)) is not None:
                pages.append(read)
        for read in pages:
            if read.page.hrefs and not read.nofollow:
                self._follow(read.answer, read.page)
        for read in pages:
            self._record(read)

    # ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_page(self, answer: Answer) -> _Read | None:
        """The page, its tree let go; None where it has ended here."""
        crawl, lease, head = answer.crawl, answer.lease, answer.head
        encoding = head.content_encoding
        body, error = answer.result.body, "wrong_length" if answer.result.surplus else ""
        if encoding:
            decoded = decode(body, encoding, crawl.fetch.max_body_bytes)
            if decoded.truncated and decoded.error is None:
                self._rows.record(answer, error="too_large", stored=False)
                return None
            body, error = decoded.body, "decode" if decoded.error else error
        page = self._parse(lease, body, head.get("content-type"))
        if page is None:
            crawl.progress.status.poisoned.append(lease.url)
            self._rows.record(answer, error="parse_crash")
            return None
        noindex, nofollow = page.noindex, page.nofollow
        if tags := head.get_all("x-robots-tag"):
            by_header = robots_tag(tags, crawl.agent)
            noindex, nofollow = noindex or by_header[0], nofollow or by_header[1]
        if page.title is not None and lease.depth:
            crawl.rules.sameness.observe(lease.url, page.title, len(page.hrefs), lambda: _words(page))
        page.let_go()
        return _Read(answer, page, error, noindex, nofollow)

    def _record(self, read: _Read) -> None:
        if read.noindex:
            self._leads.unkept(read.answer.lease.item)
            self._rows.record(read.answer, error="noindex", stored=False)
        else:
            self._rows.record(read.answer, error=read.error, page=read.page)

    def _parse(self, lease: Lease, body: bytes, content_type: str | None) -> Page | None:
        """The page, or None if parsing it has killed a process before."""
        if self._suspects.is_poison(lease.item):
            return None
        self._suspects.parsing(lease.item)
        if self._deadly and self._deadly in body:
            os.abort()
        began = time.perf_counter()
        page = extract(body, lease.url, content_type)
        if self._keeps_text:
            _ = page.text  # computed here, where a crash is known to be this page's
        self._metrics.parse_s.observe(time.perf_counter() - began)
        self._suspects.parsed()
        return page

    def _follow(self, answer: Answer, page: Page) -> None:
        crawl, lease = answer.crawl, answer.lease
        refused = crawl.progress.refused

        def count(_href: str, reason: str) -> None:
            refused[reason] += 1

        if not crawl.rules.in_scope(lease.url):
            crawl.learn_scope()
        hrefs = page.hrefs
        if crawl.familiar is not None and page.charset == "utf-8":  # of others the query's bytes depend on the page
            hrefs = crawl.familiar.fresh(page.base, hrefs)
        links = urls.join_all(page.base, hrefs, page.charset or "utf-8", count)
        near = self._leads.near(lease, links) if crawl.finds_depth else lease
        self._round.links(crawl, near, links)

    def _take_redirect(self, answer: Answer) -> None:
        crawl, lease = answer.crawl, answer.lease
        crawl.progress.status.redirects += 1
        try:
            target = urls.join(lease.url, answer.head.location or "")
        except BadUrl as bad:
            crawl.progress.refused[bad.reason] += 1
            self._rows.record(answer, error=f"redirect to {bad.reason}")
            return
        if lease.hops >= crawl.fetch.max_redirects:
            self._rows.record(answer, error="too_many_redirects", final_url=target)
            return
        near = self._leads.near(lease, [], target) if crawl.finds_depth else lease
        found = crawl.redirect(near, target)
        if isinstance(found, Reason):
            self._rows.record(answer, error=f"redirect to {found}", final_url=target)
            return
        self._round.found(crawl, [found])
        self._rows.record(answer, error="", final_url=target)

    # ── sitemaps ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_sitemap(self, answer: Answer) -> None:
        crawl, lease, head = answer.crawl, answer.lease, answer.head
        nested: list[str] = []
        if answer.kind is Kind.REDIRECT and head.location:
            nested = [head.location]
        elif answer.kind is Kind.PAGE:
            listed = self._parse_sitemap(answer)
            self._round.found(crawl, crawl.listed(lease, urls.join_all(lease.url, [url for url, _ in listed.urls])))
            nested = listed.sitemaps
        deeper = crawl.nested(lease, urls.join_all(lease.url, nested), lease.about, lease.hops + 1)
        if lease.hops < SITEMAP_NESTING:
            self._round.aside(crawl, deeper)
        else:
            crawl.too_many(deeper)
        self._round.end(lease, End.OTHER)

    def _parse_sitemap(self, answer: Answer) -> sitemaps.Sitemap:
        """What it lists; nothing, if reading it has killed a process before."""
        item, encoding, body = answer.lease.item, answer.head.content_encoding, answer.result.body
        if self._suspects.is_poison(item):
            return sitemaps.parse(b"")
        self._suspects.parsing(item)
        listed = sitemaps.parse(decode(body, encoding, sitemaps.MAX_BYTES).body if encoding else body)
        self._suspects.parsed()
        return listed


def _words(page: Page) -> frozenset[str]:
    """The words of a page, numbers left out: what tells it from its neighbours."""
    return frozenset(word for word in page.text.split()[:2000] if not any(char.isdigit() for char in word))
