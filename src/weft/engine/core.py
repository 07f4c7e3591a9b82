"""Many crawls on one loop: the verbs of an engine, carried out between two turns on the loop's own thread.

The index is the truth about which crawls there are and in which state each is; the frontier follows it. A crawl is made
known to the frontier first and to the index second, in one commit of the loop; one that is only in the frontier was
never opened, and is forgotten at the next start. A crawl that ends is closed in the frontier's memory, all of its queue
in one step; the end is written to the frontier's journal after it is committed to the index, and after a kill between
the two the next start writes it. `forget` marks the crawl in the index first and then deletes in pieces, so that the
next start can continue after a kill in the middle.

The work of a turn is in proportion to the crawls that have changed, not to all of them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from weft import __version__
from weft.config import Config
from weft.credentials import seed_origins
from weft.engine.admission.rules import AdmissionRules
from weft.engine.arguments import (
    canonical_seeds,
    check_in_flight,
    check_keep_open,
    opened_with,
    past_visits,
    seeds_hash,
)
from weft.engine.assembly import Fetching
from weft.engine.crawls import settings as crawl_settings
from weft.engine.crawls.deadlines import Deadlines
from weft.engine.crawls.limits import check_email, frontier_limits_of, robots_ignored_at
from weft.engine.crawls.memory import check_memory, most_in_flight_within
from weft.engine.crawls.recorded import RecordedSettings
from weft.engine.crawls.seeding import Seeding
from weft.engine.crawls.settings_record import SettingsChange
from weft.engine.crawls.tenant import Tenant, TenantRecord
from weft.engine.folder import EngineFolder
from weft.engine.login.checking import checked_login
from weft.engine.loop.fetcher.revisits import GivenVisits, Revisits
from weft.engine.loop.fetcher.robots import RobotsBook
from weft.engine.loop.long_work import LongWork
from weft.engine.loop.parser.suspects import Heartbeat
from weft.engine.loop.progress import CrawlProgress
from weft.engine.machine import open_clock
from weft.engine.model import Blocked, BrowserStatus, CrawlSnapshot, CrawlState, EndReason, Seeded, check_name
from weft.engine.parsing.extraction import extraction_of
from weft.engine.process.channel import ChannelServer, Peer
from weft.engine.process.notices import NoticeSender
from weft.engine.recovery import CrawlRecovery, readmit_links_of_stored_pages
from weft.errors import BadInput
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.store.contract import Stats
from weft.store.index.index_writer import CrawlChange
from weft.supervise.process import return_free_memory
from weft.telemetry import Log, Slot

POLL_EVERY_S = 0.5
RECORD_EVERY_S = 2.0  # The interval between two writes of running times and counts, for which no commit waits.
FORGET_ROWS = 500  # The rows that are deleted in one turn of the loop.
FORGET_EVERY_S = 0.02
FORGET_TOGETHER = 100  # crawls deleted together: those of a service are small, and end as fast as they begin
_BY_COMMAND = (EndReason.CANCELLED, EndReason.DEADLINE, EndReason.MAX_DURATION)
SLOT = Slot(0, "engine")
log = Log("weft.engine.core")


class Core:
    """An engine in its own process; `run` returns after `stop`."""

    def __init__(self, data_dir: Path, shared: Mapping[str, Any], engine_id: str, run: str = "") -> None:
        self._shared = dict(shared)
        self._config = config = crawl_settings.config_of(self._shared)
        folder = EngineFolder([data_dir])
        self._progress = CrawlProgress(folder.status, 0, run)
        self._work = work = LongWork(Heartbeat(folder.frontier / SLOT.name), self._progress)
        work.begin("opening the frontier")
        self._frontier = EmbeddedFrontier(
            folder.frontier, config.politeness, machine=open_clock(config.politeness), alive=work
        )
        self._parts = parts = Fetching(
            self._frontier, config, SLOT, self._progress, corpus_id=engine_id, data_dirs=[data_dir],
            work=work, metrics=folder.metrics, is_alone=False,
        )  # fmt: skip
        self._step, self._store, self._transports, self._results = (
            parts.step,
            parts.store,
            parts.transports,
            parts.results,
        )
        self._books: dict[tuple[str, str], RobotsBook] = {}  # by user agent and trust (see `settings.trust_of`)
        self._crawls: dict[int, Tenant] = parts.crawls
        self._names: dict[str, int] = {}  # of every crawl that is not being forgotten
        self._ended_crawls: dict[int, TenantRecord] = {}
        self._forgetting: list[int] = []
        self._transports_to_close: list[
            int
        ] = []  # closed in the frontier's memory; their end is not committed to the index yet
        # How those crawls were before their end: a kill undoes an end that is not committed, so readers do not see it
        # while a full disk delays the commit. An end by deadline or command would be applied again at the next start.
        self._before_end: dict[int, CrawlSnapshot] = {}
        self._to_forget: list[int] = []  # deleted once the index has committed that they are forgotten
        self._deadlines = Deadlines(self._crawls)
        self._seeding = Seeding(
            self._frontier, self._store, touch=lambda n: self._loop.touched.add(n), start=self._start_crawl
        )
        self._notices = NoticeSender(
            self._names.get, self._store.last_number, lambda n: msgspec.to_builtins(self._snapshot_of(n))
        )
        self._crawls_to_record: set[int] = (
            set()
        )  # crawls whose record has changed since it was last written to the index
        self._uncommitted: set[int] = set()  # crawls that may have rows that are not committed
        self._changed_crawls: set[int] = (
            set()
        )  # crawls whose snapshot has changed since their subscribers were notified
        self._has_commands = self._must_commit = False
        self._sync_ticket = 0  # of the sync that replies wait for
        self._is_ahead_of_disk = False  # some state changes are not committed yet: no reply may reveal them
        self._changed_states: Counter[int] = Counter()  # by crawl: changes of state that are not committed yet
        # Replies, each with its crawl and the number of that crawl's changes that belong to the reply or came before:
        # the commit numbers them. Verbs that change nothing are here too, if their reply reveals a change that is not
        # committed yet.
        self._unnumbered: list[tuple[dict[str, Any], int, int]] = []
        self._next_poll = self._next_record = self._next_forget = 0.0
        self._recorded = RecordedSettings(data_dir, self._shared)
        self._recover_crawls()
        self._loop = parts.start(SLOT.name, [self._run_turn], after_commit=self._follow_commit)
        self._committer = parts.committer
        crawls = self._crawls
        self._frontier.queue.forbids = lambda number, record, origin, urls: (
            crawls[number].robots_book.forbidden_urls(record, origin, urls) if number in crawls else {}
        )
        self._loop.touched.update(self._crawls)
        self._server: ChannelServer | None = None

    # ── its life ───────────────────────────────────────────────────────────────────────────────────────────────────

    def serve(self, path: Path, parent: int | None = None) -> None:
        """Listens for commands; ends when the descriptor `parent` is closed at its other end."""
        self._server = ChannelServer(path, self._execute_verb, at_once=_READ_ONLY)
        synced = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._committer.after_sync = lambda: os.eventfd_write(synced, 1)
        self._transports.watch(synced, lambda: _clear_eventfd(synced))
        self._transports.watch(self._server.fileno(), self._note_commands)
        if parent is not None:
            self._transports.watch(parent, self.stop)

    def run(self) -> None:
        """Works until `stop`."""
        try:
            self._loop.run()
        finally:
            if self._server is not None:
                self._server.close()
        self._write_crawl_records(self._crawls_to_record)
        self._parts.close()
        self._progress.write("finished")

    @property
    def steps(self) -> int:
        """A counter that changes while long work makes progress."""
        return self._work.heartbeat.steps

    def stop(self) -> None:
        """Claims nothing more, and ends when the transfers in flight have finished."""
        self._loop.drain()

    def _note_commands(self) -> None:
        self._has_commands = True

    def _recover_crawls(self) -> None:
        """Restores every crawl from index and journal."""
        frontier, store, work = self._frontier, self._store, self._work
        recovery = CrawlRecovery(self._parts, frontier)
        records = {
            number: (name, msgspec.msgpack.decode(data, type=TenantRecord)) for number, name, data in store.crawls()
        }
        there = frontier.crawls.kept_crawls()
        for number in there:
            record = records[number][1] if number in records else TenantRecord(settings={})
            config = self._recorded.config_of(record)
            limits = frontier_limits_of(config, most_in_flight_within(record.memory_bytes, record.in_flight))
            frontier.crawls.reopen_crawl(number, limits, config.politeness, record.weight)
        counted = {
            number: recovery.count_stored(number, frontier_limits_of(self._recorded.config_of(records[number][1])))
            for number in store.crawls_with_rows()
            if number in records
            and records[number][1].state in (CrawlState.OPEN, CrawlState.RUNNING, CrawlState.PAUSED)
        }
        recovery.restore_queue()
        work.begin("restoring the crawls", len(records))
        self._recorded.prune(record for _, record in records.values())
        for number, (name, record) in work.count_each(records.items()):
            self._resume_crawl(number, name, record, counted.get(number), is_there=number in there)
        for number in set(there) - set(self._crawls):
            frontier.crawls.close_crawl(number)
            if number in records:
                frontier.crawls.forget_closed_crawl(number)
            else:
                self._forgetting.append(number)
        recovery.queue_lost(self._crawls, self._ended_crawls)
        frontier.durability.commit()
        if frontier.recovery.may_lack_links:
            readmit_links_of_stored_pages(frontier, store, lambda row: self._crawls.get(row.crawl), 0, work)

    def _resume_crawl(
        self, number: int, name: str, record: TenantRecord, held: Stats | None, *, is_there: bool
    ) -> None:
        if record.state is CrawlState.FORGOTTEN:
            self._forgetting.append(number)
            return
        self._names[name] = number
        if record.state is CrawlState.ENDED:
            self._ended_crawls[number] = record
            return
        if not is_there:
            log.error("the frontier does not know a crawl that was open", crawl=name)
            record.state, record.reason, record.ended_at = CrawlState.ENDED, EndReason.FAILED, time.time()
            self._ended_crawls[number] = record
            self._write_state(number, name, record, CrawlState.ENDED)
            return
        if self._recorded.adopt(record):
            self._store.change(_make_change(number, name, record))
        tenant = self._make_tenant(number, name, record)
        if held is not None:
            tenant.progress.restore(held)
            tenant.note_commit()
        if record.state is CrawlState.PAUSED or record.is_held:
            tenant.pause(reason=record.pause_reason)
        elif record.state is CrawlState.RUNNING:
            tenant.clock_starts()
        self._deadlines.watch(tenant)

    def _make_tenant(self, number: int, name: str, record: TenantRecord) -> Tenant:
        config = self._recorded.config_of(record)
        agent = config.fetch.user_agent()
        trust = crawl_settings.trust_key_of(config.fetch, ignores_robots=config.politeness.ignore_robots)
        record.trust = trust
        self._frontier.crawls.follow(number, record.revision, trust)
        book = self._books.get((agent, trust))
        if book is None:
            book = self._books[agent, trust] = RobotsBook(
                self._frontier.sites, agent, trust, ignored_at=robots_ignored_at(config)
            )
        transport = self._transports.open(config.fetch)
        tenant = Tenant(name, number, record, config, self._frontier, book, transport, this_year=datetime.now(UTC).year)
        self._log_in(tenant, config)
        if record.revisits:
            tenant.revisits = Revisits(GivenVisits(self._store))
        self._crawls[number] = tenant
        self._names[name] = number
        return tenant

    def _log_in(self, tenant: Tenant, config: Config) -> None:
        """Gives a crawl its login; a login that is no longer configured pauses the crawl, as a failed one does."""
        try:
            login = checked_login(config, self._config.logins)
        except BadInput as error:
            tenant.give_up(str(error))
            return
        if login is not None:
            tenant.log_in(login, self._frontier.logins)

    # ── between two turns ──────────────────────────────────────────────────────────────────────────────────────────

    def _run_turn(self, now: float) -> None:
        if self._has_commands and self._server is not None:
            self._has_commands = False
            self._must_commit = self._server.turn() or self._must_commit
        if self._server is not None and (self._loop.blocked is not None or not self._is_ahead_of_disk):
            self._server.reply_to_reads()
        # Also while a full disk blocks the loop: the end is written when there is room.
        self._end_crawls_past_deadline()
        if self._loop.blocked is not None:
            return
        self._end_finished_crawls()
        if now >= self._next_poll:
            self._next_poll = now + POLL_EVERY_S
            self._sample_crawls(now)
        if self._server is not None:
            self._send_durable_replies(self._server)
        if self._forgetting and now >= self._next_forget:
            self._next_forget = now + FORGET_EVERY_S
            self._delete_forgotten_rows()

    def _send_durable_replies(self, server: ChannelServer) -> None:
        """Sends the replies whose changes are on the disk; the loop does not wait for the disk."""
        if self._sync_ticket and self._committer.is_synced(self._sync_ticket):
            self._sync_ticket = 0
            server.send_sealed_replies()
        if self._must_commit and not self._sync_ticket and self._loop.flush():
            self._must_commit = False
            server.seal_replies()
            self._sync_ticket = self._committer.sync_soon()

    def _end_crawls_past_deadline(self) -> None:
        for tenant, reason in self._deadlines.passed():
            self._end_crawl(tenant, reason)

    def _end_finished_crawls(self) -> None:
        touched = self._loop.touched
        if not touched:
            return
        self._loop.record_rejections()  # rows of crawls that may end in this turn
        self._crawls_to_record |= touched
        self._uncommitted |= touched
        for number in touched:
            tenant = self._crawls.get(number)
            if tenant is not None and tenant.record.state is CrawlState.RUNNING:
                if tenant.pause_reason and not tenant.record.pause_reason:
                    self._note_given_up(tenant)
                over = tenant.why_over()
                if over is not None:
                    self._end_crawl(tenant, EndReason(over))
        touched.clear()

    def _note_given_up(self, tenant: Tenant) -> None:
        """Records that a crawl has paused itself: it stays paused until it is resumed."""
        tenant.clock_stops()
        tenant.record.pause_reason, tenant.record.self_paused_at = tenant.pause_reason, tenant.self_paused_at
        self._change_state(tenant, CrawlState.PAUSED)

    def _end_crawl(self, tenant: Tenant, reason: EndReason) -> None:
        """Ends a crawl in one step: transfers in flight are aborted, queued URLs are dropped."""
        number = tenant.number
        for lease in self._loop.leases_of(number):
            tenant.transport.abort(lease)
        tenant.clock_stops()
        tenant.encoded_record()
        if reason not in _BY_COMMAND:
            self._before_end[number] = tenant.standing(0)
        tenant.note_commit()
        record = tenant.record
        record.state, record.reason, record.ended_at = CrawlState.ENDED, reason, time.time()
        last = tenant.standing(0)
        record.last = msgspec.structs.replace(last, queued=0, in_flight=0, left=last.queued + last.in_flight)
        tenant.add_to(self._progress)
        self._results.drop_crawl(number)
        self._frontier.crawls.close_crawl(number)
        self._transports_to_close.append(number)
        self._step("crawl-closed")
        del self._crawls[number]
        self._crawls_to_record.discard(number)
        self._ended_crawls[number] = record
        self._transports.close(tenant.fetch)
        self._write_state(number, tenant.name, record, CrawlState.ENDED)
        self._changed_crawls.add(number)
        self._is_ahead_of_disk = True
        log.info("crawl ended", crawl=tenant.name, reason=reason, pages=tenant.progress.status.pages)

    def _delete_forgotten_rows(self) -> None:
        """Deletes a piece of what is to be forgotten: the frontier's lines first, the index, which records the
        deletion, last.
        """
        some = self._forgetting[:FORGET_TOGETHER]
        if not self._frontier.crawls.forget_crawls(some):
            return
        self._step("lines-forgotten")
        if self._store.forget_crawls(some, FORGET_ROWS):
            self._step("crawl-forgotten")
            del self._forgetting[: len(some)]
            log.info("crawls forgotten", crawls=len(some), left=len(self._forgetting))
            if not self._forgetting:
                return_free_memory()

    def _sample_crawls(self, now: float) -> None:
        for number in list(self._crawls_to_record):
            if (tenant := self._crawls.get(number)) is not None:
                tenant.sample_rate(now)
                tenant.add_to(self._progress)
                if not tenant.keep_within_memory() and tenant.record.state is CrawlState.RUNNING:
                    self._end_crawl(tenant, EndReason.MAX_MEMORY)
        self._changed_crawls |= self._crawls_to_record
        if now >= self._next_record:
            self._next_record = now + RECORD_EVERY_S
            self._write_crawl_records(self._crawls_to_record)
            self._crawls_to_record.clear()
        changed, self._changed_crawls = self._changed_crawls, set()
        if self._server is not None:
            self._notices.send_changes(self._server, changed)

    def _write_crawl_records(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if (tenant := self._crawls.get(number)) is not None:
                self._store.change(CrawlChange(number, tenant.name, tenant.encoded_record()))

    # ── readers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow_commit(self) -> None:
        """Called after a commit to the index: the frontier's journal may follow, and subscribers are notified."""
        self._is_ahead_of_disk = False
        for number in self._uncommitted | self._loop.touched:
            if (tenant := self._crawls.get(number)) is not None:
                tenant.note_commit()
        self._uncommitted.clear()
        self._number_replies()
        for number in self._transports_to_close:
            self._step("end-committed")
            self._frontier.crawls.forget_closed_crawl(number)
        self._transports_to_close.clear()
        self._before_end.clear()
        self._forgetting += self._to_forget
        self._to_forget.clear()
        if self._server is not None:
            self._notices.send_commit(self._server, self._store.batch)

    def _number_replies(self) -> None:
        """Numbers each reply with its own change: readers continue from there, whatever other callers have changed
        since.
        """
        for reply, number, changes in self._unnumbered:
            reply["number"] = self._store.last_number(number) - (self._changed_states[number] - changes)
        self._unnumbered.clear()
        self._changed_states.clear()

    # ── verbs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _execute_verb(self, peer: Peer, verb: str, arguments: dict[str, Any]) -> Any:
        do: Callable[..., Any] | None = _VERBS.get(verb)
        if do is None:
            raise BadInput(f"an engine has no verb {verb!r}")
        try:
            result = do(self, **arguments) if verb != "subscribe" else self._subscribe_peer(peer, **arguments)
        except TypeError as error:
            if verb not in str(error) and "argument" not in str(error):
                raise
            raise BadInput(f"{verb}: {error}") from None
        self._step(f"did-{verb}")
        reply = msgspec.to_builtins(result)
        if verb not in _READ_ONLY or self._is_ahead_of_disk:
            for standing in reply if isinstance(reply, list | tuple) else (reply,):
                if isinstance(standing, dict) and "number" in standing:
                    self._unnumbered.append((standing, standing["id"], self._changed_states[standing["id"]]))
        return reply

    def _subscribe_peer(self, peer: Peer, name: str | None = None) -> CrawlSnapshot | int:
        number = None if name is None else self._number_of(name)
        peer.subscribed, peer.topic = True, name
        return self._store.batch if number is None else self._snapshot_of(number)

    def open(
        self,
        name: str,
        seeds: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        deadline: object = None,
        weight: object = 1.0,
        in_flight: int | None = None,
        more: bool = False,
        visits: object = (),
        memory_bytes: object = None,
        keep_open: object = False,
    ) -> tuple[CrawlSnapshot, Seeded]:
        """Opens a crawl of this name, or returns the one that exists; `more` and `visits`: as for `seed`.
        `memory_bytes`: how much memory it may use, as far as use can be attributed to one crawl (crawls/memory.py).
        `keep_open`: it does not end as done before `close_seeds`.
        """
        check_name(name)
        more = bool(more)
        own = crawl_settings.crawl_settings_of(settings or {})
        weight = crawl_settings.check_weight(weight)
        check_in_flight(in_flight)
        memory = check_memory(memory_bytes)
        given_with = opened_with(own, weight, in_flight, memory, check_keep_open(keep_open))
        if (number := self._names.get(name)) is not None:
            record = self._record_of(number)
            if not crawl_settings.are_equal_settings(record.opened_with, given_with):
                raise BadInput(
                    f"a crawl {name!r} is there already, with other settings: edit it, or choose another name"
                )
            canonical, refused = canonical_seeds(seeds)
            if record.state is CrawlState.ENDED:
                self._check_seeds_of_ended_crawl(number, name, record, canonical)
                return self._snapshot_of(number), Seeded(0, 0, {})
            seeded = self._admit_seeds(self._crawls[number], canonical, refused, more, visits)
            if record.seeds_hash != (given := seeds_hash(canonical)):
                record.seeds_hash = given
                self._store.change(CrawlChange(number, name, self._crawls[number].encoded_record()))
            return self._snapshot_of(number), seeded
        config = crawl_settings.config_of(self._shared, own)
        extraction_of(config.extract)
        checked_login(config, self._config.logins)
        at = crawl_settings.check_deadline(deadline, time.time())
        canonical, refused = canonical_seeds(seeds)
        known = past_visits(visits)
        check_email(canonical, config.fetch)
        record = TenantRecord(
            settings=crawl_settings.storable_settings(own), weight=weight, deadline=at, in_flight=in_flight,
            opened_at=time.time(),
            opened_with=given_with, memory_bytes=memory,
            seeds_hash=seeds_hash(canonical), keep_open=bool(keep_open),
        )  # fmt: skip
        self._recorded.add(record, config)
        seed_origins(canonical, config.fetch.headers, config.fetch.auth)
        limits = frontier_limits_of(config, most_in_flight_within(memory, in_flight))
        number = self._frontier.crawls.open_crawl(name, limits, config.politeness, weight)
        self._step("crawl-opened")
        tenant = self._make_tenant(number, name, record)
        self._write_state(number, name, record, CrawlState.OPEN)
        self._changed_crawls.add(number)
        self._is_ahead_of_disk = True
        self._seeding.keep_earlier_visits(tenant, known)
        seeded = self._seeding.admit_seeds(tenant, canonical, refused, more)
        self._deadlines.watch(tenant)
        return self._snapshot_of(number), seeded

    def _check_seeds_of_ended_crawl(self, number: int, name: str, record: TenantRecord, seeds: Sequence[str]) -> None:
        """Refuses seeds that an ended crawl has not crawled: it accepts no more. The last `open` may be repeated, even
        if a limit kept some of its seeds from being crawled.
        """
        if record.seeds_hash == seeds_hash(seeds):
            return
        if self._is_ahead_of_disk:
            self._loop.flush()  # its last rows may not be committed yet
        rules = AdmissionRules(self._recorded.config_of(record).scope, record.roots, this_year=datetime.now(UTC).year)
        left = [
            seed
            for seed in seeds
            if seed not in record.refused_seeds and not self._store.rows_of_url(rules.rewritten(seed), number)
        ]
        if left:
            others = f" and {len(left) - 1:,} others" if len(left) > 1 else ""
            raise BadInput(
                f"the crawl {name!r} has ended ({record.reason}) and accepts no more URLs: {left[0]}{others} would not "
                "be crawled. Open a crawl of another name for them, or forget this one first"
            )

    def seed(self, name: str, seeds: Sequence[str], more: bool = False, visits: object = ()) -> Seeded:
        """Adds URLs to a crawl that has not ended. `more`: the rest of the list follows, and until then it does not end
        as done.
        `visits`: what was found at some of them before (PastVisit); those are asked for conditionally."""
        return self._admit_seeds(self._live_tenant(name), *canonical_seeds(seeds), bool(more), visits)

    def _admit_seeds(
        self, tenant: Tenant, canonical: Sequence[str], refused: dict[str, str], more: bool, visits: object
    ) -> Seeded:
        check_email(canonical, tenant.fetch)
        self._seeding.origins_with(tenant, canonical)  # refused before anything is written
        self._seeding.keep_earlier_visits(tenant, past_visits(visits))
        return self._seeding.admit_seeds(tenant, canonical, refused, more)

    def close_seeds(self, name: str) -> CrawlSnapshot:
        """Announces that no more seeds come: the crawl ends when nothing is left. One that has ended is unchanged."""
        number = self._number_of(name)
        if (tenant := self._crawls.get(number)) is not None:
            tenant.record.seeds_closed, tenant.record.expects_more = True, False
            if tenant.record.state is CrawlState.OPEN:
                self._start_crawl(tenant)
            else:
                self._write_record(tenant)
            self._loop.touched.add(number)
        return self._snapshot_of(number)

    def edit(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        weight: object = None,
        deadline: object = False,
    ) -> CrawlSnapshot:
        """Applies other patterns, delay, limits or weight from now on; a deadline of None removes it."""
        tenant = self._live_tenant(name)
        own = crawl_settings.crawl_settings_of(settings or {})
        if fixed := [key for key in own if key not in crawl_settings.EDITABLE]:
            raise BadInput(f"{', '.join(fixed)}: cannot be changed while a crawl runs; open another")
        record, before = tenant.record, tenant.config
        crawl_settings.config_of(own)  # raises for invalid values
        changed = {**record.settings, **crawl_settings.storable_settings(own)}
        config = self._recorded.config_of(msgspec.structs.replace(record, settings=changed))
        new_weight = record.weight if weight is None else crawl_settings.check_weight(weight)
        at = record.deadline if deadline is False else crawl_settings.check_deadline(deadline, time.time())
        limits = frontier_limits_of(config, most_in_flight_within(record.memory_bytes, record.in_flight))
        back = tenant.edit(config, limits, new_weight)
        record.settings, record.deadline = changed, at
        was = {key: [crawl_settings.value_of(one, key) for one in (before, config)] for key in own}
        if new := crawl_settings.storable_settings({key: both for key, both in was.items() if both[0] != both[1]}):
            record.changes = [*record.changes, SettingsChange(time.time(), __version__, new)]
        self._deadlines.watch(tenant)
        self._store.change(CrawlChange(tenant.number, name, tenant.encoded_record()))
        self._loop.touched.add(tenant.number)
        if new:
            # The change is committed before the request log names its revision: if a kill undid it, a later edit would
            # reuse the number.
            self._step("settings-changed")
            self._loop.flush()
            self._frontier.crawls.follow(tenant.number, record.revision, record.trust)
        for key, (old, now) in new.items():
            log.always("setting changed", crawl=name, key=key, old=old, new=now)
        log.info("crawl edited", crawl=name, came_back=back)
        return self._snapshot_of(tenant.number)

    def pause(self, name: str, held: bool = False) -> CrawlSnapshot:
        """Claims no URL of the crawl, and keeps everything. `held`: its state is unchanged, so that its readers see no
        change; only `resume` and `CrawlSnapshot.is_held` know.
        """
        tenant = self._live_tenant(name)
        if tenant.record.state is CrawlState.PAUSED or (held and tenant.record.is_held):
            return self._snapshot_of(tenant.number)
        tenant.pause()
        tenant.clock_stops()
        if held:
            tenant.record.is_held = True
            self._write_record(tenant)
        else:
            self._change_state(tenant, CrawlState.PAUSED)
        return self._snapshot_of(tenant.number)

    def resume(self, name: str) -> CrawlSnapshot:
        """Continues a crawl that is paused or held."""
        tenant = self._live_tenant(name)
        was_paused = tenant.record.state is CrawlState.PAUSED
        if was_paused or tenant.record.is_held:
            if tenant.session is None and (login := checked_login(tenant.config, self._config.logins)) is not None:
                tenant.log_in(login, self._frontier.logins)
            tenant.pause(False)
            record = tenant.record
            has_begun = bool(record.roots) or record.keep_open or record.seeds_closed
            record.is_held, record.pause_reason = False, ""
            if was_paused:
                self._change_state(tenant, CrawlState.RUNNING if has_begun else CrawlState.OPEN)
            else:
                self._write_record(tenant)
            if has_begun:
                tenant.clock_starts()
                self._deadlines.watch(tenant)
            self._loop.touched.add(tenant.number)
        return self._snapshot_of(tenant.number)

    def cancel(self, name: str) -> CrawlSnapshot:
        """Ends a crawl now; one that has ended is unchanged."""
        number = self._number_of(name)
        if number in self._crawls:
            self._end_crawl(self._crawls[number], EndReason.CANCELLED)
        return self._snapshot_of(number)

    def forget(self, crawls: Sequence[tuple[str, int]]) -> None:
        """Deletes everything of some crawls, in pieces; their names are free from now on.

        Each is given with its number: the command may arrive a second time, when the name belongs to another crawl.
        """
        for name, number in crawls:
            if self._names.get(check_name(name)) == number:
                self._forget_crawl(name, number)

    def _forget_crawl(self, name: str, number: int) -> None:
        if number in self._crawls:
            self._end_crawl(self._crawls[number], EndReason.CANCELLED)
        record = self._ended_crawls.pop(number)
        del self._names[name]
        record.state, record.last = CrawlState.FORGOTTEN, None
        # Names are unique in the index, and this one may be used for another crawl at once.
        self._store.change(_make_change(number, f"{number}/{name}", record))
        self._to_forget.append(number)
        self._is_ahead_of_disk = True

    def standing(self, name: str) -> CrawlSnapshot:
        """A snapshot of one crawl."""
        return self._snapshot_of(self._number_of(name))

    def standings(self, names: Sequence[str] | None = None, live: bool = False) -> list[CrawlSnapshot]:
        """Snapshots of crawls, in the order in which they were opened: of all, of the named ones, or of those that have
        not ended.
        """
        if names is not None:
            numbers = [self._names[name] for name in names if name in self._names]
        else:
            numbers = sorted(self._crawls if live else self._names.values())
        return [self._snapshot_of(number) for number in numbers]

    def blocked(self) -> list[Blocked]:
        """The sites whose breakers are open."""
        return [Blocked(site, until) for site, until in self._frontier.sites.open_breakers()]

    def browsers(self) -> BrowserStatus:
        """The state of the browsers that render pages."""
        return self._parts.browsers.status

    def settings(self) -> dict[str, Any]:
        """The settings that the engine was started with: its own, and its crawls' defaults."""
        return self._shared

    def _snapshot_of(self, number: int) -> CrawlSnapshot:
        tenant, last = self._crawls.get(number), self._store.last_number(number)
        if tenant is not None:
            blocked = self._loop.blocked
            return tenant.standing(last, "" if blocked is None else getattr(blocked, "why", str(blocked)))
        if self._loop.blocked is not None and number in self._before_end:
            return msgspec.structs.replace(self._before_end[number], number=last, note=str(self._loop.blocked))
        record = self._ended_crawls[number]
        ended = record.last or CrawlSnapshot(name=self._name_of(number), id=number, state=CrawlState.ENDED)
        return msgspec.structs.replace(
            ended, state=record.state, reason=record.reason, ended_at=record.ended_at, number=last
        )

    def _name_of(self, number: int) -> str:
        return next((name for name, other in self._names.items() if other == number), "")

    def _change_state(self, tenant: Tenant, state: CrawlState) -> None:
        tenant.record.state = state
        tenant.encoded_record()
        self._write_state(tenant.number, tenant.name, tenant.record, state)
        self._changed_crawls.add(tenant.number)
        self._is_ahead_of_disk = True

    def _write_record(self, tenant: Tenant) -> None:
        """Writes the crawl's record with the next commit, without a new state."""
        self._store.change(CrawlChange(tenant.number, tenant.name, tenant.encoded_record()))
        self._changed_crawls.add(tenant.number)
        self._is_ahead_of_disk = True

    def _start_crawl(self, tenant: Tenant) -> None:
        """Starts a crawl: its first seeds have come."""
        self._change_state(tenant, CrawlState.RUNNING)
        tenant.clock_starts()
        self._deadlines.watch(tenant)

    def _write_state(self, number: int, name: str, record: TenantRecord, state: CrawlState) -> None:
        """Writes a new state with the next commit, under the crawl's next number."""
        self._changed_states[number] += 1
        self._store.change(_make_change(number, name, record, state))

    def _record_of(self, number: int) -> TenantRecord:
        return self._crawls[number].record if number in self._crawls else self._ended_crawls[number]

    def _number_of(self, name: str) -> int:
        number = self._names.get(check_name(name))
        if number is None:
            raise BadInput(f"there is no crawl {name!r}")
        return number

    def _live_tenant(self, name: str) -> Tenant:
        number = self._number_of(name)
        if number not in self._crawls:
            raise BadInput(f"the crawl {name!r} has ended ({self._ended_crawls[number].reason})")
        return self._crawls[number]


def _clear_eventfd(eventfd: int) -> None:
    os.eventfd_read(eventfd)


def _make_change(number: int, name: str, record: TenantRecord, state: CrawlState | None = None) -> CrawlChange:
    data = msgspec.msgpack.encode(record)
    return CrawlChange(number, name, data, time.time(), str(state or ""), str(record.reason or "") if state else "")


_VERBS: dict[str, Callable[..., Any]] = {
    "open": Core.open,
    "seed": Core.seed,
    "close_seeds": Core.close_seeds,
    "edit": Core.edit,
    "pause": Core.pause,
    "resume": Core.resume,
    "cancel": Core.cancel,
    "forget": Core.forget,
    "standing": Core.standing,
    "standings": Core.standings,
    "blocked": Core.blocked,
    "browsers": Core.browsers,
    "settings": Core.settings,
    "subscribe": Core._subscribe_peer,
}
_READ_ONLY = frozenset(
    {"blocked", "browsers", "settings", "standing", "standings", "subscribe"}
)  # verbs whose replies wait for no commit
