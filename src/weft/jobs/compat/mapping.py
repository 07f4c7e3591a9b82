"""`POST /map`: lists the URLs of a site from its front page and sitemaps, without fetching them.

It runs as a batch in the lane of single pages: the front page, and the sitemaps that robots.txt names or that are at
their usual addresses; sitemaps that an index names are appended. So politeness, robots.txt and the address guard apply
as to every task.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from weft import urls as url_rules
from weft.errors import BadUrl
from weft.fetch import sitemaps
from weft.jobs.api import answers
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.callers import needs
from weft.jobs.api.settings import ApiSettings
from weft.jobs.compat.compat_requests import MapRequest, map_request, map_spec
from weft.jobs.compat.envelope import body_of
from weft.jobs.compat.fields import Denied
from weft.jobs.errors import TaskFinished
from weft.jobs.model import Task
from weft.jobs.service import JobService, ScrapedResult, Submission

MOST_SITEMAPS = 50
POLL_S = 0.05
_WORD = re.compile(r"\w+")
_SITEMAP_LINE = re.compile(r"^[ \t]*sitemap[ \t]*:[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)


class MapRoute:
    """Handler of the map route."""

    def __init__(self, service: JobService, settings: ApiSettings) -> None:
        self._service = service
        self._settings = settings

    async def map(self, request: Request, version: int) -> Response:
        """All links of a site; with a search text, the most relevant first."""
        owner = needs(request, KeyScope.SUBMIT).owner
        wanted = map_request(body_of(await request.body()), version, self._settings.allow_private)
        site = _MappedSite(wanted)
        spec = map_spec(wanted.timeout_s)
        task = (await self._service.submit(Submission(urls=site.first(), spec=spec, owner=owner))).task
        try:
            in_time = await self._read_until_done(task, site)
        except asyncio.CancelledError:
            await asyncio.shield(self._service.cancel(task.id))
            raise
        if not site.was_answered:
            status, code = (500, "MAP_FAILED") if in_time else (408, "MAP_TIMEOUT")
            raise Denied(status, f"{wanted.url} could not be mapped: it did not answer", code)
        links = await asyncio.to_thread(site.links)
        answer: dict[str, Any] = {"success": True}
        if version == 1:
            return answers.json_answer(answer | {"links": [one["url"] for one in links], "scrape_id": task.id})
        return answers.json_answer(answer | {"id": task.id, "links": links})

    async def _read_until_done(self, task: Task, site: _MappedSite) -> bool:
        """Reads results and appends the sitemaps that they name until nothing is left; False if time ran out."""
        cursor, until = 0, time.monotonic() + site.timeout_s
        while True:
            is_over = (await self._service.status(task.id)).task.is_terminal
            results = await self._service.results(task.id, cursor=cursor, limit=20)
            cursor = results.cursor
            for result in results.results:
                await asyncio.to_thread(site.add_result, result)  # a sitemap may name 50,000 URLs
            if results.next_cursor is not None:
                continue
            more = site.wanted()
            if is_over and not more:
                return True
            if time.monotonic() > until:
                await self._service.cancel(task.id)
                return False
            if is_over:
                task, cursor = await self._continue_in_another(task, more), 0
            elif more:
                try:
                    await self._service.append(task.id, more)
                except TaskFinished:
                    site.put_back(more)  # the next iteration sees that the task has ended
            await asyncio.sleep(POLL_S)

    async def _continue_in_another(self, task: Task, more: Sequence[str]) -> Task:
        """Continues in another batch: the first one ended before all sitemaps could be appended."""
        return (await self._service.submit(Submission(urls=tuple(more), spec=task.spec, owner=task.owner))).task


class _MappedSite:
    """The links and sitemaps of a site that are known so far."""

    def __init__(self, request: MapRequest) -> None:
        self._request = request
        self.timeout_s = request.timeout_s
        self.was_answered = False
        self._links: dict[str, dict[str, Any]] = {}
        self._sitemaps: set[str] = set()
        self._wanted: list[str] = []
        parts = urlsplit(request.url)
        self._path = parts.path.rstrip("/") + "/" if request.by_path else "/"
        self._origin = f"{parts.scheme}://{parts.netloc}"

    def first(self) -> tuple[str, ...]:
        """The URLs to fetch first."""
        urls = [self._request.url] if self._request.reads_pages else []
        if self._request.reads_sitemaps:
            self._sitemaps.add(f"{self._origin}/sitemap.xml")
            urls += [f"{self._origin}/robots.txt", f"{self._origin}/sitemap.xml"]
        return tuple(dict.fromkeys(urls))

    def add_result(self, result: ScrapedResult) -> None:
        """Adds the links of a fetched page, sitemap or robots.txt."""
        source = result.document.get("rawHtml") or ""
        kind = str(result.document.get("content_type") or "").lower()
        if result.url in self._sitemaps or ("xml" in kind and "html" not in kind):
            listed = sitemaps.parse(source.encode("utf-8", "replace"))
            self.was_answered = self.was_answered or bool(listed.urls or listed.sitemaps)
            self._add_links(url for url, _ in listed.urls)
            self._add_sitemaps(listed.sitemaps)
        elif result.url == f"{self._origin}/robots.txt":
            self._add_sitemaps(_SITEMAP_LINE.findall(source))
        else:
            self.was_answered = True
            metadata = result.document.get("metadata") or {}
            self._add_links([result.url], title=metadata.get("title"), description=metadata.get("description"))
            self._add_links(result.document.get("links") or [])

    def wanted(self) -> list[str]:
        """Sitemaps that were named since the last call, each once."""
        sitemap_urls, self._wanted = self._wanted, []
        return sitemap_urls

    def put_back(self, urls: Sequence[str]) -> None:
        """Returns sitemaps that could not be appended: `wanted` lists them again."""
        self._wanted += urls

    def links(self) -> list[dict[str, Any]]:
        """The links for the answer, by relevance if a text was searched for."""
        links = list(self._links.values())
        if self._request.search:
            words = {word.lower() for word in _WORD.findall(self._request.search)}
            # the sort is stable: equally relevant links stay in the order in which they were read
            links.sort(key=lambda one: -_relevance(one, words))
        return links[: self._request.limit]

    def _add_sitemaps(self, named: Iterable[str]) -> None:
        for url in _canonical_urls(named):
            if (
                url not in self._sitemaps
                and len(self._sitemaps) < MOST_SITEMAPS
                and self._is_inside(url, any_path=True)
            ):
                self._sitemaps.add(url)
                self._wanted.append(url)

    def _add_links(self, urls: Iterable[str], **facts: str | None) -> None:
        for url in _canonical_urls(urls):
            url = url.partition("?")[0] if self._request.strips_query else url
            if url not in self._links and self._is_inside(url):
                self._links[url] = {"url": url} | {name: fact for name, fact in facts.items() if fact}

    def _is_inside(self, url: str, *, any_path: bool = False) -> bool:
        if self._request.subdomains:
            is_same = url_rules.domain_of(url) == url_rules.domain_of(self._request.url)
        else:
            is_same = url_rules.host_of(url) == url_rules.host_of(self._request.url)
        return is_same and (any_path or (urlsplit(url).path.rstrip("/") + "/").startswith(self._path))


def _canonical_urls(given: Iterable[str]) -> Iterator[str]:
    for text in given:
        try:
            yield url_rules.seed(text)
        except BadUrl:
            continue


def _relevance(one: dict[str, Any], words: set[str]) -> int:
    text = f"{one['url']} {one.get('title', '')} {one.get('description', '')}".lower()
    return sum(word in text for word in words)
