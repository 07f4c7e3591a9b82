"""What every engine of a pool keeps, whoever runs the items: one suite, all engines (`ENGINES`)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
import pool_functions
import pool_hands

from weft.errors import BadInput
from weft.pipelines import Event, Result, Status, WorkerPool
from weft.supervise.redis_server import RedisServer

ENGINES = ["local", "celery"]
CODE = [Path(module.__file__ or "").parent for module in (misbehaving, pool_functions)]
# item's action -> (status, failure phase, a piece of the error, attempts)
EXPECTED: dict[str, tuple[str, str | None, str, int]] = {
    "raise": ("failed", "clone", "ValueError: no such branch", 1),
    "unencodable": ("failed", "result", "cannot be encoded: TypeError", 1),
    "exit_7": ("crashed", "process", "exited with code 7", 2),
    "segfault": ("crashed", "process", "SIGSEGV", 2),
    "sleeps": ("timeout", "process", "limit of 2 s", 1),
    "skips": ("skipped", "process", "seen before", 1),
}


@pytest.fixture(params=ENGINES, scope="module")
def engine(
    request: pytest.FixtureRequest,
    shared_server: Callable[[str], RedisServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    name = str(request.param)
    with ExitStack() as stack:
        if name == "celery":
            broker = shared_server("redis").url
            cluster = stack.enter_context(pool_hands.cluster(broker, tmp_path_factory.mktemp("cluster")))
            cluster.start("--concurrency", "2", path=CODE)
        yield name


class Mixed:
    """One run over innocent items and others of every kind, with all its events."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.events: list[Event] = []
        pool = WorkerPool(
            misbehaving.act, engine=engine, workers=2, batch_size=5, item_timeout=2, run_dir=folder, config={"a": 1}
        )
        pool.on_progress(self.events.append)
        items: list[Any] = [{"id": number} for number in range(40)]
        for place, name in enumerate(EXPECTED):
            items.insert(place * 6 + 2, {"id": name, "do": name})
        items += [{"no": "id"}, {"id": 3}, {"id": "odd", "value": {1, (2,)}}, "text"]
        self.items = items
        self.results = pool.run(items)
        self.by_id: dict[Any, Result] = {result.item_id: result for result in self.results}


@pytest.fixture(scope="module")
def mixed(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    return Mixed(engine, tmp_path_factory.mktemp("pool") / "run")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_misbehaving_item_has_its_status_and_phase(mixed: Mixed, name: str) -> None:
    status, phase, error, attempts = EXPECTED[name]
    result = mixed.by_id[name]
    assert (result.status, result.failure_phase, result.attempts) == (status, phase, attempts)
    assert error in (result.error or "")


def test_every_item_of_the_source_has_one_result_in_its_place(mixed: Mixed) -> None:
    assert len(mixed.results) == len(mixed.items)
    good = [result for result in mixed.results if isinstance(result.item_id, int) and result.status is Status.OK]
    assert [result.item_id for result in good] == list(range(40))
    assert {result.value for result in good} == {"fine"}
    refused = [result for result in mixed.results if result.failure_phase == "input"]
    assert [result.item_id for result in refused] == ["#46", 3, "#49"]


def test_events_tell_of_every_result_and_the_counts_agree(mixed: Mixed) -> None:
    kinds = Counter(event.kind for event in mixed.events)
    assert kinds["finished"] + kinds["failed"] == len(mixed.items)
    assert kinds["done"] == 1
    assert mixed.events[-1].kind == "done"
    assert mixed.events[-1].counts.done == len(mixed.items)
    assert kinds["worker-died"] >= 4
    assert kinds["retried"] >= 2


def test_the_log_of_an_item_has_its_end(mixed: Mixed) -> None:
    for name in ("raise", "segfault", 0):
        log = mixed.by_id[name].log
        assert log is not None
        assert "] [end] " in Path(log).read_text().splitlines()[-1]


def test_a_function_may_end_with_any_status_and_still_give_a_value(engine: str) -> None:
    items = [{"id": name} for name in ("plain", "skipped", "failed")]
    plain, skipped, failed = WorkerPool(pool_functions.with_outcome, engine=engine, workers=1, config={"value": 7}).run(
        items
    )
    assert (plain.status, plain.value) == (Status.OK, 7)
    assert (skipped.status, skipped.value, skipped.failure_phase, skipped.error) == (
        Status.SKIPPED, ["a"], "parse", "unchanged",
    )  # fmt: skip
    assert (failed.status, failed.value, failed.error, failed.traceback) == (
        Status.FAILED, ["b"], "no such branch", "Traceback …",
    )  # fmt: skip


def test_a_worker_is_prepared_once_before_its_first_item(engine: str) -> None:
    (result,) = WorkerPool(pool_functions.guarded, engine=engine, workers=1, config={"word": "ready"}).run([{"id": 1}])
    assert result.value == "ready"


def test_a_worker_that_cannot_be_prepared_is_one_error_before_any_work(engine: str) -> None:
    pool = WorkerPool(pool_functions.guarded, engine=engine, workers=2)
    with pytest.raises(BadInput, match="no word was given"):
        pool.run([{"id": 1}])


def test_a_resumed_run_does_nothing_twice(engine: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def items() -> Iterator[dict[str, Any]]:
        return ({"id": number, "trace": str(trace)} for number in range(60))

    def pool(*, resume: bool) -> WorkerPool:
        return WorkerPool(
            misbehaving.act, engine=engine, workers=2, batch_size=4, run_dir=tmp_path / "run", resume=resume
        )

    with pool(resume=False).stream(items()) as stream:
        first = [next(stream).item_id for _ in range(10)]
    again = list(pool(resume=True).stream(items()))
    assert sorted(int(result.item_id) for result in again) == list(range(60))
    assert {int(one) for one in first} <= {int(result.item_id) for result in again}
    assert max(Counter(trace.read_text().split()).values()) == 1


def test_results_of_items_that_a_resumed_source_leaves_out_are_in_the_total(engine: str, tmp_path: Path) -> None:
    def pool(*, resume: bool) -> WorkerPool:
        return WorkerPool(misbehaving.act, engine=engine, workers=1, run_dir=tmp_path / "run", resume=resume)

    list(pool(resume=False).stream({"id": number} for number in range(20)))
    for ordered in (False, True):
        with pool(resume=True).stream(({"id": number} for number in range(15, 30)), ordered=ordered) as stream:
            got = len(list(stream))
            counts = stream.counts()
        assert (counts.total, counts.done) == (got, got)


@pytest.mark.parametrize("name", ["lokal", "ray"])
def test_an_unknown_engine_is_refused_with_what_works(name: str) -> None:
    with pytest.raises(BadInput, match=f"no engine '{name}': choose 'local', .* processes of this machine, 'celery'$"):
        WorkerPool(misbehaving.act, engine=name)
