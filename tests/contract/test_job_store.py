"""What the scrape service may rely on from a store of tasks, on every backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from weft.errors import BadInput
from weft.jobs.errors import KeyReused, LeaseLost, QueueFull, StoreDamaged
from weft.jobs.model import FOR_RESUME, FOR_SLOT, LIVE, STARTED, JobProgress, Lane, Task, TaskSpec, new_task_id
from weft.jobs.store import listing, sqlite_slots
from weft.jobs.store.contract import Idempotency, TaskFinish, Totals
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.webhooks.webhook_model import Attempt, Hook, HookState
from weft.scraping import TERMINAL, FinishReason, HookEvent, TaskState

NOW = 1_800_000_000.0
DONE = TaskFinish(reason=FinishReason.DONE, progress=JobProgress(completed=2, gone=1), errors_by_class={"http_4xx": 1})
Open = Callable[[], SqliteJobStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    """Opens the same store again and again, as processes do."""
    opened: list[SqliteJobStore] = []

    def one() -> SqliteJobStore:
        opened.append(SqliteJobStore(tmp_path / "jobs.db"))
        return opened[-1]

    yield one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> SqliteJobStore:
    return open_store()


def order(owner: str = "", at: float = NOW, **spec: Any) -> Task:
    made = TaskSpec(timeout_s=600, **spec)
    return Task(id=new_task_id(), owner=owner, url="http://a.test/", url_count=1, spec=made, created_at=at)


def submit(store: SqliteJobStore, owner: str = "", at: float = NOW, **spec: Any) -> Task:
    return store.submit(order(owner, at, **spec), ["http://a.test/"]).task


def fence(store: SqliteJobStore) -> int:
    lease = store.lease("me", 5.0, now=NOW)
    assert lease is not None
    return lease.epoch


def run(store: SqliteJobStore) -> Task:
    task = submit(store)
    moved = store.move(task.id, TaskState.RUNNING, expect={TaskState.PENDING}, at=NOW + 1)
    assert moved is not None
    return moved


# ── submit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_there_for_everyone_who_opens_the_store(store: SqliteJobStore, open_store: Open) -> None:
    task = order(include=("/a/*",), extract={"title": "h1"}, max_pages=3)
    assert store.submit(task, ["http://a.test/", "http://a.test/2"]).is_new
    other = open_store()
    assert other.get(task.id) == task
    assert other.urls(task.id) == ["http://a.test/", "http://a.test/2"]


def test_another_owner_does_not_see_it(store: SqliteJobStore) -> None:
    task = submit(store, "alice")
    assert store.get(task.id, "alice") == task
    assert store.get(task.id, "bob") is store.get(task.id, "") is store.get("no such task") is None


def test_an_idempotency_key_stands_for_one_task_of_one_owner(store: SqliteJobStore) -> None:
    word = Idempotency("k", "digest")
    first = store.submit(order("alice"), ["http://a.test/"], idempotency=word)
    again = store.submit(order("alice"), ["http://a.test/"], idempotency=word)
    assert first.is_new and not again.is_new and again.task == first.task
    assert store.submit(order("bob"), ["http://a.test/"], idempotency=word).is_new
    with pytest.raises(KeyReused):
        store.submit(order("alice"), ["http://b.test/"], idempotency=Idempotency("k", "other"))


def test_an_idempotency_key_that_ends_is_free_again(store: SqliteJobStore) -> None:
    word = Idempotency("k", "digest", until=NOW + 5)
    first = store.submit(order(), ["http://a.test/"], idempotency=word)
    assert not store.submit(order(at=NOW + 4), [], idempotency=word).is_new
    later = store.submit(order(at=NOW + 5), ["http://a.test/"], idempotency=Idempotency("k", "other", NOW + 10))
    assert later.is_new and later.task.id != first.task.id


def test_beyond_the_limit_nothing_is_kept(store: SqliteJobStore) -> None:
    for _ in range(2):
        store.submit(order(), ["http://a.test/"], max_pending=2)
    with pytest.raises(QueueFull) as full:
        store.submit(order(), ["http://a.test/"], max_pending=2)
    assert full.value.retry_after_s > 0
    assert store.counts() == {(Lane.TASK, TaskState.PENDING): 2}
    assert store.submit(order(lane=Lane.SCRAPE), ["http://a.test/"], max_pending=2).is_new


def test_totals_keep_what_is_deleted(store: SqliteJobStore) -> None:
    lease = store.lease("runner", 60.0, now=NOW)
    assert lease is not None and store.totals() == Totals()
    ends = [
        (TaskState.PARTIAL, JobProgress(completed=5, failed=2, gone=1, queued=9), {"timeout": 2, "http_4xx": 1}),
        (TaskState.COMPLETED, JobProgress(completed=3), {}),
        (TaskState.PARTIAL, JobProgress(failed=1), {"timeout": 1}),
    ]
    for state, progress, errors in ends:
        task = submit(store)
        store.claim(Lane.TASK, 1, at=NOW, fence=lease.epoch)
        finish = TaskFinish(reason=FinishReason.DONE, progress=progress, errors_by_class=errors)
        for _ in range(2):  # a task ends once
            store.move(task.id, state, expect=STARTED, at=NOW, finish=finish)
        assert store.delete(task.id, fence=lease.epoch)
    assert store.totals() == Totals(
        tasks={"PARTIAL": 2, "COMPLETED": 1}, urls={"completed": 8, "failed": 3, "gone": 1},
        errors={"timeout": 3, "http_4xx": 1},
    )  # fmt: skip


def test_one_of_many_submits_with_one_key_makes_the_task(store: SqliteJobStore, open_store: Open) -> None:
    stores = [store, open_store()]
    word, found = Idempotency("k", "digest"), list[tuple[str, bool]]()

    def work(one: SqliteJobStore) -> None:
        for _ in range(10):
            done = one.submit(order(), ["http://a.test/"], idempotency=word)
            found.append((done.task.id, done.is_new))

    threads = [threading.Thread(target=work, args=(stores[n % 2],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({task for task, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


# ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_start_sets_the_deadline_and_a_resume_keeps_it(store: SqliteJobStore) -> None:
    task = run(store)
    assert (task.started_at, task.deadline_at, task.version) == (NOW + 1, NOW + 601, 2)
    assert store.move(task.id, TaskState.PAUSED, expect={TaskState.RUNNING}, at=NOW + 2) is not None
    back = store.move(task.id, TaskState.RUNNING, expect={TaskState.PAUSED}, at=NOW + 50)
    assert back is not None and (back.started_at, back.deadline_at) == (NOW + 1, NOW + 601)


def test_an_end_is_written_with_its_state(store: SqliteJobStore) -> None:
    task = run(store)
    ended = store.move(task.id, TaskState.COMPLETED, expect=STARTED, at=NOW + 9, finish=DONE)
    assert ended is not None and ended == store.get(task.id)
    assert (ended.finished_at, ended.finish_reason, ended.progress) == (NOW + 9, "done", DONE.progress)
    assert ended.errors_by_class == {"http_4xx": 1}


def test_an_end_without_a_reason_is_refused_and_changes_nothing(store: SqliteJobStore) -> None:
    task = run(store)
    with pytest.raises(BadInput):
        store.move(task.id, TaskState.COMPLETED, expect=STARTED, at=NOW)
    assert store.get(task.id) == task
    assert store.counts() == {(Lane.TASK, TaskState.RUNNING): 1}


@pytest.mark.parametrize("end", sorted(TERMINAL))
def test_nothing_leads_out_of_a_terminal_state(store: SqliteJobStore, end: TaskState) -> None:
    task = run(store)
    ended = store.move(task.id, end, expect=STARTED, at=NOW, finish=DONE)
    for state in TaskState:
        assert store.move(task.id, state, expect=frozenset(TaskState), at=NOW + 9, finish=DONE) is None
    assert store.get(task.id) == ended


def test_a_step_from_another_state_than_expected_changes_nothing(store: SqliteJobStore) -> None:
    task = run(store)
    assert store.move(task.id, TaskState.CANCELLED, expect={TaskState.PENDING}, at=NOW, finish=DONE) is None
    assert store.move(task.id, TaskState.PENDING, expect=LIVE, at=NOW) is None
    assert store.move("no such task", TaskState.RUNNING, expect=LIVE, at=NOW) is None
    assert store.get(task.id) == task


def test_of_many_who_end_a_task_one_does(store: SqliteJobStore, open_store: Open) -> None:
    task, stores = run(store), [store, open_store()]
    won: list[str] = []

    def work(one: SqliteJobStore, reason: FinishReason) -> None:
        if one.move(task.id, TaskState.FAILED, expect=STARTED, at=NOW, finish=TaskFinish(reason=reason)) is not None:
            won.append(reason)

    reasons = list(FinishReason)
    threads = [threading.Thread(target=work, args=(stores[n % 2], reason)) for n, reason in enumerate(reasons)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    ended = store.get(task.id)
    assert ended is not None and ended.finish_reason == won[0]


def test_urls_are_appended_while_it_waits_alone(store: SqliteJobStore) -> None:
    task = submit(store)
    more = store.append(task.id, ["http://a.test/2", "http://a.test/3"])
    assert more is not None and more.url_count == 3
    assert store.urls(task.id) == ["http://a.test/", "http://a.test/2", "http://a.test/3"]
    store.move(task.id, TaskState.RUNNING, expect=LIVE, at=NOW)
    assert store.append(task.id, ["http://a.test/4"]) is None
    assert len(store.urls(task.id)) == 3


def test_a_key_can_stand_for_a_task_that_there_is_already(store: SqliteJobStore) -> None:
    task, word = submit(store), Idempotency("k", "digest", NOW + 5)
    assert store.remembered(task.owner, word, NOW) is None
    store.remember(task, word)
    found = store.remembered(task.owner, word, NOW + 4)
    assert found is not None and found.id == task.id
    assert store.remembered("another", word, NOW) is store.remembered(task.owner, word, NOW + 5) is None
    with pytest.raises(KeyReused):
        store.remembered(task.owner, Idempotency("k", "other"), NOW)


# ── slots ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lane_has_its_slots_and_no_more(store: SqliteJobStore) -> None:
    tasks, mine = [submit(store) for _ in range(4)], fence(store)
    assert [task.id for task in store.claim(Lane.TASK, 3, at=NOW, fence=mine)] == [task.id for task in tasks[:3]]
    assert store.claim(Lane.TASK, 3, at=NOW, fence=mine) == []
    store.move(tasks[0].id, TaskState.PAUSED, expect=LIVE, at=NOW)
    assert store.claim(Lane.TASK, 3, at=NOW, fence=mine) == []
    store.move(tasks[0].id, TaskState.CANCELLED, expect=LIVE, at=NOW, finish=DONE)
    (last,) = store.claim(Lane.TASK, 3, at=NOW + 7, fence=mine)
    assert (last.id, last.started_at, last.state) == (tasks[3].id, NOW + 7, TaskState.RUNNING)
    scrape = submit(store, lane=Lane.SCRAPE)
    assert [task.id for task in store.claim(Lane.SCRAPE, 1, at=NOW, fence=mine)] == [scrape.id]
    assert {task.id for task in store.started()} == {scrape.id, *(task.id for task in tasks[1:])}


def test_slots_go_round_the_owners(store: SqliteJobStore) -> None:
    for owner in "aaaaaabbc":
        submit(store, owner)
    mine = fence(store)
    assert [task.owner for task in store.claim(Lane.TASK, 5, at=NOW, fence=mine)] == ["a", "b", "c", "a", "b"]
    got = list[str]()
    for _ in range(4):  # one slot becomes free at a time: whoever has least of them is next
        freed = store.started()[0]
        store.move(freed.id, TaskState.COMPLETED, expect=STARTED, at=NOW, finish=DONE)
        got += [task.owner for task in store.claim(Lane.TASK, 5, at=NOW, fence=mine)]
    assert got == ["a", "a", "a", "a"]


def test_of_owners_with_as_many_the_one_not_served_for_longest_is_next(store: SqliteJobStore) -> None:
    for owner in "aabb":
        submit(store, owner)
    mine, got = fence(store), list[str]()
    for _ in range(4):
        (task,) = store.claim(Lane.TASK, 1, at=NOW, fence=mine)
        got.append(task.owner)
        store.move(task.id, TaskState.COMPLETED, expect=STARTED, at=NOW, finish=DONE)
    assert got == ["a", "b", "a", "b"]


def test_a_task_that_waits_frees_its_slot_and_has_the_next_before_any_that_is_pending(
    store: SqliteJobStore, open_store: Open
) -> None:
    tasks, mine = [submit(store) for _ in range(4)], fence(store)
    first, second = store.claim(Lane.TASK, 2, at=NOW, fence=mine)
    waits = store.release_slot(first.id, "breaker", NOW + 300, version=first.version, fence=mine)
    assert waits is not None and not waits.holds_slot and waits.state is TaskState.RUNNING
    assert store.release_slot(first.id, "slot", None, version=first.version, fence=mine) is None, "it has changed since"
    other = open_store()  # what another process sees
    assert other.get(first.id) == waits and other.waiting() == {(Lane.TASK, TaskState.RUNNING): 1}
    assert [task.id for task in other.started(with_slot=True)] == [second.id]
    assert other.is_claimable(Lane.TASK, 2)
    (third,) = store.claim(Lane.TASK, 2, at=NOW + 1, fence=mine)
    assert third.id == tasks[2].id and not other.is_claimable(Lane.TASK, 2)
    ready = store.release_slot(first.id, FOR_SLOT, None, version=waits.version, fence=mine)
    assert ready is not None and store.claim(Lane.TASK, 2, at=NOW + 2, fence=mine) == []
    store.move(third.id, TaskState.COMPLETED, expect=STARTED, at=NOW, finish=DONE)
    (again,) = store.claim(Lane.TASK, 2, at=NOW + 3, fence=mine)
    assert (again.id, again.started_at, again.waiting_for, again.waiting_until) == (first.id, NOW, "", None)
    assert again.holds_slot and store.waiting() == {}


def test_a_paused_task_without_a_slot_stays_without_one_when_it_is_resumed(store: SqliteJobStore) -> None:
    submit(store), submit(store)
    mine = fence(store)
    (task,) = store.claim(Lane.TASK, 1, at=NOW, fence=mine)
    paused = store.move(task.id, TaskState.PAUSED, expect=LIVE, at=NOW)
    assert paused is not None and paused.holds_slot, "until the engine asks for nothing more"
    assert store.release_slot(task.id, FOR_RESUME, None, version=paused.version, fence=mine) is not None
    assert len(store.claim(Lane.TASK, 1, at=NOW, fence=mine)) == 1
    resumed = store.move(task.id, TaskState.RUNNING, expect={TaskState.PAUSED}, at=NOW)
    assert resumed is not None and (resumed.waiting_for, resumed.holds_slot) == (FOR_SLOT, False)
    again = store.move(task.id, TaskState.PAUSED, expect=LIVE, at=NOW)
    assert again is not None and again.waiting_for == FOR_RESUME
    ended = store.move(task.id, TaskState.PARTIAL, expect=STARTED, at=NOW, finish=DONE)
    assert ended is not None and ended.waiting_for == "" and store.waiting() == {}
    assert store.release_slot(task.id, FOR_SLOT, None, version=ended.version, fence=mine) is None


def test_slots_that_are_given_again_go_round_the_owners_in_their_order(store: SqliteJobStore) -> None:
    for owner in "aaab":
        submit(store, owner)
    mine = fence(store)
    tasks = store.claim(Lane.TASK, 4, at=NOW, fence=mine)
    for task in sorted(tasks, key=lambda one: one.owner):
        store.release_slot(task.id, FOR_SLOT, None, version=task.version, fence=mine)
    own = [task.id for task in tasks if task.owner == "a"]
    got = [task for slots in range(1, 5) for task in store.claim(Lane.TASK, slots, at=NOW, fence=mine)]
    assert "".join(task.owner for task in got) == "baaa", "b was not served for longest"
    assert [task.id for task in got if task.owner == "a"] == own, "the one that has waited for longest first"


def test_an_owner_has_no_more_slots_than_its_limit_and_what_waits_has_a_bound(
    store: SqliteJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_slots, "MOST_WAITING", 2)
    for owner in "aaaab":
        submit(store, owner)
    mine = fence(store)
    first, other = store.claim(Lane.TASK, 5, at=NOW, fence=mine, per_owner=1)
    assert (first.owner, other.owner) == ("a", "b") and not store.is_claimable(Lane.TASK, 5, 1)
    for _ in range(2):
        released = store.release_slot(first.id, FOR_RESUME, None, version=first.version, fence=mine)
        assert released is not None
        found = store.claim(Lane.TASK, 5, at=NOW, fence=mine, per_owner=1)
        first = found[0] if found else first
    assert found == [] and not store.is_claimable(Lane.TASK, 5, 1), "two of its tasks wait without a slot"


def test_how_many_of_an_owner_wait_in_front(store: SqliteJobStore) -> None:
    submit(store, "another")
    tasks = [submit(store) for _ in range(3)]
    submit(store, lane=Lane.SCRAPE)
    assert [store.waiting_before(task) for task in tasks] == [0, 1, 2]
    store.claim(Lane.TASK, 2, at=NOW, fence=fence(store))
    assert store.waiting_before(tasks[2]) == 1


# ── lists, ages, deletion ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_listing_is_newest_first_and_not_shifted_by_what_comes(store: SqliteJobStore) -> None:
    tasks = [submit(store, "alice") for _ in range(5)]
    submit(store, "bob")
    first = store.listing(owner="alice", limit=2)
    submit(store, "alice")
    rest = store.listing(owner="alice", cursor=first.next_cursor, limit=3)
    assert [task.id for task in (*first.tasks, *rest.tasks)] == [task.id for task in reversed(tasks)]
    assert rest.next_cursor is None
    assert len(store.listing().tasks) == 7


def test_a_listing_by_state(store: SqliteJobStore) -> None:
    waiting, running = submit(store), run(store)
    assert [task.id for task in store.listing(states={TaskState.RUNNING}).tasks] == [running.id]
    both = store.listing(states=LIVE, limit=1)
    assert [task.id for task in store.listing(states=LIVE, cursor=both.next_cursor).tasks] == [waiting.id]


def test_a_listing_goes_back_as_it_went_on(store: SqliteJobStore) -> None:
    tasks = [submit(store).id for _ in range(7)][::-1]

    def ids(cursor: str | None) -> list[str]:
        return [task.id for task in store.listing(cursor=cursor, limit=2).tasks]

    second = store.listing(cursor=store.listing(limit=2).next_cursor, limit=2)
    third = store.listing(cursor=second.next_cursor, limit=2)
    assert [task.id for task in third.tasks] == tasks[4:6]
    assert ids(third.previous_cursor) == tasks[2:4]
    assert ids(store.listing(cursor=third.previous_cursor, limit=2).previous_cursor) == tasks[:2]
    assert ids(store.listing(cursor=third.previous_cursor, limit=2).next_cursor) == tasks[4:6]
    assert store.listing(limit=2).previous_cursor is None


def test_a_listing_by_host_and_text(store: SqliteJobStore) -> None:
    urls = ("http://a.test/One", "http://b.a.test/two", "http://ba.test/a.test")
    one, two, three = (store.submit(structs.replace(order(), url=url), [url]).task.id for url in urls)

    def ids(**wanted: str) -> list[str]:
        return [task.id for task in store.listing(**wanted).tasks]  # type: ignore[arg-type]

    assert ids(host="A.test") == [two, one]
    assert ids(host="b.a.test") == [two]
    assert ids(text="a.test") == [three, two, one]
    assert ids(text="ONE") == [one] and ids(text=two[:8]) == [two]
    assert ids(text="two", host="ba.test") == []


def test_a_search_that_is_long_is_gone_on_with(store: SqliteJobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SCANNED", 3)
    first = submit(store)
    for _ in range(5):
        submit(store)
    found = store.listing(text=first.id)
    assert found.tasks == () and found.next_cursor is not None
    assert [task.id for task in store.listing(text=first.id, cursor=found.next_cursor).tasks] == [first.id]


def test_the_counts_of_an_owner(store: SqliteJobStore) -> None:
    run(store)
    submit(store, "alice")
    submit(store, "alice")
    assert store.counts("alice") == {(Lane.TASK, TaskState.PENDING): 2}
    assert store.counts("bob") == {}


@pytest.mark.parametrize("cursor", ["", "n", "x", "-1", "1.5", "9" * 30, "١"])
def test_a_bad_cursor_is_refused(store: SqliteJobStore, cursor: str) -> None:
    with pytest.raises(BadInput, match="cursor"):
        store.listing(cursor=cursor)


def test_only_what_has_ended_is_deleted_and_all_of_it(store: SqliteJobStore) -> None:
    word, mine = Idempotency("k", "digest"), fence(store)
    task = store.submit(order(), ["http://a.test/"], idempotency=word).task
    assert not store.delete(task.id, fence=mine)
    store.move(task.id, TaskState.CANCELLED, expect=LIVE, at=NOW + 3, finish=DONE)
    assert store.finished_since(NOW + 3) == []
    assert [one.id for one in store.finished_since(NOW + 4)] == [task.id]
    assert store.delete(task.id, fence=mine) and not store.delete(task.id, fence=mine)
    assert store.get(task.id) is None and store.urls(task.id) == [] and store.counts() == {}
    assert store.submit(order(), ["http://a.test/"], idempotency=word).is_new


def test_what_waits_for_too_long_is_found(store: SqliteJobStore) -> None:
    old, _new, started = submit(store, at=NOW - 10), submit(store, at=NOW), submit(store, at=NOW - 20)
    store.move(started.id, TaskState.RUNNING, expect=LIVE, at=NOW)
    assert [task.id for task in store.pending_since(NOW)] == [old.id]


# ── the lease ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_holder_at_a_time_and_a_new_epoch_for_each(store: SqliteJobStore, open_store: Open) -> None:
    other, first = open_store(), store.lease("me", 4.0, now=NOW)
    assert first is not None and first.until == NOW + 4
    assert other.lease("you", 4.0, now=NOW + 3.9) is None
    renewed = store.lease("me", 4.0, now=NOW + 2)
    assert renewed is not None and renewed.epoch == first.epoch
    assert other.lease("you", 4.0, now=NOW + 5.9) is None
    taken = other.lease("you", 4.0, now=NOW + 6)
    assert taken is not None and taken.epoch == first.epoch + 1
    assert store.lease("me", 4.0, now=NOW + 7) is None


def test_who_has_the_lease_is_told(store: SqliteJobStore, open_store: Open) -> None:
    other = open_store()
    assert other.holder() is None
    assert store.lease("me", 4.0, now=NOW) == other.holder()
    store.release("me")
    assert other.holder() is None


def test_a_lease_that_was_given_back_is_free_at_once(store: SqliteJobStore) -> None:
    first = store.lease("me", 4.0, now=NOW)
    store.release("you")
    assert store.lease("you", 4.0, now=NOW) is None
    store.release("me")
    second = store.lease("you", 4.0, now=NOW)
    assert first is not None and second is not None and second.epoch > first.epoch


def test_a_clock_that_was_set_back_does_not_keep_the_lease_for_ever(store: SqliteJobStore) -> None:
    store.lease("me", 4.0, now=NOW + 3600)
    assert store.lease("you", 4.0, now=NOW) is not None


def test_a_runner_that_was_replaced_changes_nothing(store: SqliteJobStore) -> None:
    task, old = run(store), fence(store)
    waiting = submit(store)
    store.release("me")
    for attempt in ("given back", "taken over"):
        with pytest.raises(LeaseLost):
            store.claim(Lane.TASK, 5, at=NOW, fence=old)
        with pytest.raises(LeaseLost):
            store.move(task.id, TaskState.COMPLETED, expect=STARTED, at=NOW, finish=DONE, fence=old)
        with pytest.raises(LeaseLost):
            store.delete(task.id, fence=old)
        if attempt == "given back":
            store.lease("you", 4.0, now=NOW)
    assert store.get(task.id) == task and store.get(waiting.id) == waiting


def test_a_change_by_anybody_moves_the_marker(store: SqliteJobStore, open_store: Open) -> None:
    other, before = open_store(), store.marker()
    assert store.marker() == before
    submit(other)
    after = store.marker()
    assert after != before
    submit(store)
    assert store.marker() != after


# ── webhooks ───────────────────────────────────────────────────────────────────────────────────────────────────────

HOOK = {"url": "http://hooks.test/"}


def attempt(number: int, status: int = 200) -> Attempt:
    return Attempt(number=number, event=HookEvent.PAGE, at=NOW, status=status)


def test_a_hook_is_due_from_the_moment_its_task_has_left_the_queue(store: SqliteJobStore, open_store: Open) -> None:
    plain, task = submit(store), submit(store, webhook=HOOK)
    assert store.hooks.get(plain.id) is None and store.hooks.due(NOW + 1e6, 10) == []
    fenced = fence(store)
    store.claim(Lane.TASK, 5, at=NOW, fence=fenced)
    other = open_store()
    assert [hook.task for hook in other.hooks.due(NOW, 10)] == [task.id] and other.hooks.due(NOW - 1, 10) == []
    waits = Hook(task=task.id, cursor=3, attempts=1, next_at=NOW + 60)
    assert store.hooks.record(waits, [attempt(4, 500)], fence=fenced) == waits
    assert other.hooks.due(NOW + 59, 10) == [] and other.hooks.due(NOW + 60, 10) == [waits]
    other.hooks.record(Hook(task=task.id, cursor=9, state=HookState.DONE), [], fence=fenced)
    assert store.hooks.due(NOW + 1e6, 10) == []


def test_a_task_is_not_old_while_its_hook_is_open(store: SqliteJobStore) -> None:
    task, fenced = submit(store, webhook=HOOK), fence(store)
    store.move(task.id, TaskState.FAILED, expect={TaskState.PENDING}, at=NOW, finish=DONE)
    assert store.finished_since(NOW + 1) == []
    store.hooks.record(Hook(task=task.id, state=HookState.GONE), [attempt(1, 410)], fence=fenced)
    assert [one.id for one in store.finished_since(NOW + 1)] == [task.id]
    assert store.delete(task.id, fence=fenced)
    assert store.hooks.get(task.id) is None and store.hooks.deliveries(task.id, -1, 10) == []
    store.hooks.record(Hook(task=task.id), [attempt(1)], fence=fenced)  # one that was under way
    assert store.hooks.get(task.id) is None and store.hooks.deliveries(task.id, -1, 10) == []


def test_a_replay_holds_against_what_a_dispatcher_knew_before(store: SqliteJobStore) -> None:
    task, fenced = submit(store, webhook=HOOK), fence(store)
    store.hooks.record(Hook(task=task.id, cursor=7, state=HookState.GIVEN_UP), [attempt(7)], fence=fenced)
    back = store.hooks.replay(task.id, 2, (), NOW)
    assert back is not None and (back.cursor, back.state) == (2, HookState.OPEN)
    stale = Hook(task=task.id, cursor=9, state=HookState.DONE)
    assert store.hooks.record(stale, [attempt(9)], fence=fenced) == back == store.hooks.get(task.id)
    assert [line.number for line in store.hooks.deliveries(task.id, -1, 10)] == [7, 9], "it was sent all the same"
    assert [line.number for line in store.hooks.deliveries(task.id, 7, 10)] == [9]
    some = store.hooks.replay(task.id, None, (5, 3), NOW)
    assert some is not None and (some.cursor, some.resend) == (2, (3, 5))
    assert store.hooks.replay("no such task", None, (), NOW) is None


def test_a_hook_is_not_moved_by_a_runner_that_was_replaced(store: SqliteJobStore) -> None:
    task, old = submit(store, webhook=HOOK), fence(store)
    store.release("me")
    with pytest.raises(LeaseLost):
        store.hooks.record(Hook(task=task.id, cursor=5), [attempt(5)], fence=old)
    assert store.hooks.get(task.id) == Hook(task=task.id) and store.hooks.deliveries(task.id, -1, 10) == []


def test_the_secret_is_made_once(store: SqliteJobStore, open_store: Open) -> None:
    secret = store.hooks.secret()
    assert len(secret) == 32 and open_store().hooks.secret() == secret == store.hooks.secret()


def test_progress_keys_are_a_jobs_own_and_end_with_their_time(store: SqliteJobStore, open_store: Open) -> None:
    progress = store.progress
    progress.put("proxy_refresh", "a", {"status": "PROCESSING", "total_chunks": 3}, now=NOW, ttl_s=10)
    progress.put("proxy_refresh", "ab", {"status": "FAILED", "completed_at": None}, now=NOW, ttl_s=10)
    progress.put("proxy_refresh", "a", {"status": "COMPLETE"}, now=NOW + 5, ttl_s=10)
    again = open_store().progress
    assert again.get("proxy_refresh", "a", now=NOW + 9) == {
        "proxy_refresh:a:status": "COMPLETE", "proxy_refresh:a:total_chunks": 3,
    }  # fmt: skip
    assert again.get("proxy_refresh", "a", now=NOW + 10) == {"proxy_refresh:a:status": "COMPLETE"}
    assert again.get("proxy_refresh", "ab", now=NOW)["proxy_refresh:ab:completed_at"] is None
    assert again.get("proxy_refresh", "b", now=NOW) == again.get("proxy", "a", now=NOW) == {}
    again.put("proxy_refresh", "c", {"status": "x"}, now=NOW + 20, ttl_s=10)
    assert progress.get("proxy_refresh", "ab", now=NOW) == {}, "what is over is deleted"


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_SUBMITTER = """
import sys
from pathlib import Path
from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.jobs.store.sqlite import SqliteJobStore
store = SqliteJobStore(Path(sys.argv[1]))
while True:
    task = Task(id=new_task_id(), owner="", url="http://a.test/", url_count=1, spec=TaskSpec(), created_at=1.0)
    store.submit(task, ["http://a.test/"])
    print(task.id, flush=True)
"""


def test_a_kill_loses_no_task_that_was_acknowledged(tmp_path: Path, open_store: Open) -> None:
    acknowledged: list[str] = []
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _SUBMITTER, str(tmp_path / "jobs.db")], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        acknowledged += [child.stdout.readline().strip() for _ in range(20)]
        os.kill(child.pid, signal.SIGKILL)
        acknowledged += child.stdout.read().split("\n")[:-1]
        child.wait()
        child.stdout.close()
    store = open_store()
    kept = Counter(task.id for task in store.pending_since(2.0, limit=100_000))
    assert set(acknowledged) <= set(kept) and set(kept.values()) == {1}
    assert store.counts()[Lane.TASK, TaskState.PENDING] == len(kept)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"this is no database" * 400)
    with pytest.raises(StoreDamaged, match=r"jobs\.db: is damaged"):
        SqliteJobStore(tmp_path / "jobs.db")


@pytest.mark.parametrize("text", [b"TABLE tasks", b"TABLE words", b"INDEX hooks_by_due", b"(lane TEXT"])
def test_a_table_of_another_name_is_damage_and_not_made_again_empty(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "jobs.db"
    SqliteJobStore(path).close()
    whole = path.read_bytes()
    at = whole.index(text) + len(text) - 1
    damaged = whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged, match=r"jobs\.db: is damaged.*weft rebuild"):
        SqliteJobStore(path)
    assert path.read_bytes() == damaged
