"""Admits URLs into one pod: from its own processes, and in batches from processes of other pods.

A batch from an outbox is numbered by its sender: a repeated one changes nothing, and one that comes too early is
refused (`MessageLost`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import urls
from weft.config import checks_pod_assignment
from weft.errors import ServerAway
from weft.frontier.contract import Admission
from weft.frontier.redis.connection import convert_errors
from weft.frontier.redis.item_packing import parent_code
from weft.frontier.redis.link import PURPOSE_LETTERS, CrawlFacts, PodLink, log
from weft.frontier.redis.pods.pod_outbox import ArrivalState, MessageLost
from weft.frontier.redis.scripts import ScriptArgument
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found, Purpose

# Why lua/admit.lua refuses a batch: an earlier one is missing; the pod recovers from a loss; the crawl is unknown.
_BEHIND, _EARLY, _GONE = 2, 3, 4


class CrawlGone(Exception):
    """A batch for a crawl that the pod has lost, or has under another number."""


class PodIntake:
    """Admits URLs into one pod; see the module."""

    def __init__(
        self, link: PodLink, *, is_afar: bool = False, refused: Callable[[int, Found], None] | None = None
    ) -> None:
        """`is_afar`: the pod's pages lie on another node, which expands pages that are found at a smaller depth.
        `refused` is called with a URL over the budget of its site.
        """
        self._link = link
        self._admit_mode = "afar" if is_afar else ""
        self._on_over_budget = refused
        self._checks_assignment = checks_pod_assignment() and link.pods > 1  # debug: each URL must belong to this pod

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """The URLs that this process does not know as seen; `admit` asks the server about these."""
        return self._link.crawls[crawl].known.unknown(candidates)

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues new URLs; redirect targets, robots.txt and sitemaps before the rest."""
        return self._run_admit(crawl, found_urls, mode=self._admit_mode)

    def admit_again(self, crawl: int, found_urls: Sequence[Found], then: tuple[str, str] = ("", "")) -> None:
        """Queues URLs, seen or not, as new visits; `then`: a note that is written in the same step."""
        self._run_admit(crawl, found_urls, mode="again", then=then)

    def deliver_batch(
        self, crawl: int, sender: str, number: int, found_urls: Sequence[Found], after: int = 0
    ) -> Admission:
        """Admits a batch from an outbox. A repeated one changes nothing; one with `full` URLs must be delivered again.

        `after` is the sender's batch that must have arrived before: `MessageLost` if it has not.
        """
        return self._run_admit(crawl, found_urls, mode=self._admit_mode, sender=sender, number=number, after=after)

    def last_arrival(self, sender: str) -> ArrivalState:
        """The last batch that arrived from a sender, and how much of the server's append-only file is written."""
        steps: Any = self._link.client.pipeline(transaction=False)
        with convert_errors(self._link.where), steps:
            steps.execute_command("HGET", "senders", sender)
            steps.execute_command("INFO", "server", "persistence")
            last, info = steps.execute()
        # A server without an append-only file has no such fields.
        return ArrivalState(
            int(last or 0), info["run_id"], info.get("aof_current_size", 0), info.get("aof_buffer_length", 0)
        )

    def restore_stored(self, crawl: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """Marks stored pages (URL, depth, item) seen and ended, if the server has forgotten them."""
        link, arguments = self._link, list[ScriptArgument]()
        facts = link.crawls[crawl]
        for url, depth, item in rows:
            arguments += ["p", link.key_of(url), depth, 1, facts.fingerprint(url), link.number_of_item(item)]
        if arguments:
            link.call_script("admit", [crawl, "had", "", 0, 1, 1, 1, "", "", 0, *arguments])

    def _run_admit(
        self,
        crawl: int,
        found_urls: Sequence[Found],
        *,
        mode: str = "",
        sender: str = "",
        number: int = 0,
        after: int = 0,
        then: tuple[str, str] = ("", ""),
    ) -> Admission:
        if not (found_urls or any(then) or sender):
            return Admission(0, 0)
        if self._checks_assignment:
            self._check_ownership(found_urls)
        link = self._link
        limits, owner = link.limits, link.crawls.get(crawl)
        if owner is None:
            assert not found_urls, "a crawl that is not open here"
            order, groups = list[Found](), list[ScriptArgument]()
        else:
            order, groups = self._group_by_site(owner, found_urls)
        header: list[ScriptArgument] = [
            crawl,
            mode,
            sender,
            number,
            limits.split_above,
            limits.moved_at_once,
            limits.most_in_tail,
            *then,
            after,
        ]
        letters, expand, refused, last = link.call_script("admit", [*header, *groups])
        link.note_item_in_use(last)
        if refused == _BEHIND:
            raise MessageLost
        if refused == _EARLY:
            raise ServerAway(f"{link.where}: pod {link.pod} has lost data and is recovering")
        if refused == _GONE and sender:
            raise CrawlGone
        if refused:
            return Admission(0, len(found_urls))
        text = letters.decode()
        if owner is not None:
            owner.known.add(seen_key(one) for one, letter in zip(order, text, strict=True) if letter in "nd")
        full = []
        for one, letter in zip(order, text, strict=True):
            if letter == "b" and self._on_over_budget is not None:
                self._on_over_budget(crawl, one)
            elif letter == "f":
                full.append(one)
        if "n" in text or "r" in text:
            link.next_claim.allow_after(0.0)
        again = tuple(
            (link.item_of_number(int(item)), order[at].url, order[at].depth)
            for at, item in zip(expand[::2], expand[1::2], strict=True)
        )
        return Admission(text.count("n"), text.count("d"), again, tuple(full))

    def _group_by_site(
        self, crawl: CrawlFacts, found_urls: Sequence[Found]
    ) -> tuple[list[Found], list[ScriptArgument]]:
        """The script's arguments, grouped by site and depth, and the URLs in that order."""
        groups: dict[tuple[str, int], list[tuple[Found, bytes]]] = {}
        order: list[Found] = []
        urgent: list[ScriptArgument] = []
        parents: dict[tuple[int, int], bytes] = {}
        key_of = self._link.keys.key_and_code
        for one in found_urls:
            url = one.url
            split = url.index("/", 8)
            key, code = key_of(url[:split])
            parent = parents.get((one.parent, one.offsite))
            if parent is None:
                parent = parents[one.parent, one.offsite] = parent_code(one.parent, one.offsite)
            rest = code + parent + url[split:].encode()
            if one.purpose is Purpose.PAGE and not one.hops:
                groups.setdefault((key, one.depth), []).append((one, rest))
                continue
            fingerprint = "" if one.purpose is Purpose.ROBOTS else crawl.fingerprint(seen_key(one))
            urgent += ["u", key, one.depth, PURPOSE_LETTERS[one.purpose], one.hops, one.about, fingerprint, rest]
            order.append(one)
        arguments = urgent
        for (key, depth), members in groups.items():
            arguments += ["p", key, depth, len(members)]
            for one, rest in members:
                arguments.append(crawl.fingerprint(one.url))
                arguments.append(rest)
                order.append(one)
        return order, arguments

    def _check_ownership(self, found_urls: Sequence[Found]) -> None:
        for one in found_urls:
            pod = urls.pod_of(urls.domain_of(one.url), self._link.pods)
            if pod != self._link.pod:
                log.error("a URL went to the wrong pod", url=one.url, pod=self._link.pod, belongs=pod)
