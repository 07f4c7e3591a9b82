"""A pool's run on real hands: what is executed once, whose code is run, and what a death leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pool_hands
import pytest
import staged
from hands import wait_until
from pace import patience
from pool_hands import PoolHands
from staged import words_file

from weft.cluster.broker import Broker
from weft.errors import BadInput
from weft.pipelines import Result, Status, WorkerPool
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
LONG_S = 20 if os.environ.get("WEFT_TEST_CHAOS") else 8
WORK = """
import os, signal, time
from pathlib import Path
from parts.counting import counted

def work(item, context):
    with open(item["trace"], "a") as file:
        file.write(f"{item['id']}\\n")
    if item.get("do") == "kill the hand's process":
        server = int(Path(f"/proc/{os.getppid()}/stat").read_text().split()[3])
        time.sleep(0.4)
        os.kill(server, signal.SIGKILL)
        time.sleep(30)
    time.sleep(item.get("s", 0))
    return item.get("large") or counted(item)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    one = RedisServer(tmp_path_factory.mktemp("broker"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of the author's, which imports another."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "__init__.py").touch()
    (folder / "parts" / "counting.py").write_text("def counted(item):\n    return item['n'] + 1\n")
    (folder / "hands_work.py").write_text(WORK)
    return folder


@pytest.fixture(scope="module")
def serving(server: RedisServer, code: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolHands]:
    """A cluster with a hand of three processes that has the code."""
    with pool_hands.cluster(server.url, tmp_path_factory.mktemp("serving")) as cluster:
        path = [code, Path(staged.__file__).parent]
        cluster.start("--concurrency", "3", "--visibility-timeout", "5", path=path)
        yield cluster


@pytest.fixture
def hands(server: RedisServer, tmp_path: Path) -> Iterator[PoolHands]:
    """A cluster without hands."""
    with pool_hands.cluster(server.url, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def importable(code: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The code, as the brain has it."""
    monkeypatch.syspath_prepend(str(code))
    yield code
    for name in [name for name in sys.modules if name.split(".")[0] in ("hands_work", "parts")]:
        del sys.modules[name]


def run(items: list[dict[str, Any]], function: str = "hands_work:work", **settings: Any) -> dict[Any, Result]:
    pool = WorkerPool(function, engine="celery", **settings)
    return {result.item_id: result for result in pool.run(items)}


def test_a_task_that_outlives_the_visibility_timeout_and_one_whose_process_dies(
    serving: PoolHands, importable: Path, tmp_path: Path
) -> None:
    """The first is executed once, by the claim. The process of a hand is killed by an item: its neighbours end well, it
    is tried once more alone, then quarantined."""
    trace, other = tmp_path / "trace", tmp_path / "other"
    ended: dict[Any, Result] = {}
    long = threading.Thread(
        target=lambda: ended.update(run([{"id": "long", "n": 1, "s": LONG_S, "trace": str(trace)}]))
    )
    long.start()
    items = [{"id": number, "n": number, "trace": str(other)} for number in range(12)]
    items[5]["do"] = "kill the hand's process"
    results = run(items, batch_size=6, run_dir=tmp_path / "run", item_timeout=20)
    poison = results.pop(5)
    assert (poison.status, poison.attempts) == (Status.CRASHED, 2)
    assert "was lost while it held this item" in (poison.error or "")
    assert {key: (one.status, one.value) for key, one in results.items()} == {
        number: (Status.OK, number + 1) for number in range(12) if number != 5
    }
    assert (tmp_path / "run" / "quarantine" / "5.json").exists()
    assert Counter(other.read_text().split())["5"] == 2
    long.join(patience(LONG_S + 20))
    assert (ended["long"].status, ended["long"].attempts) == (Status.OK, 1)
    assert trace.read_text().split() == ["long"]


def test_code_that_a_hand_does_not_have_is_one_clear_error_or_is_shipped(
    hands: PoolHands, importable: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    trace = str(tmp_path / "trace")
    items = [{"id": number, "n": number, "trace": trace} for number in range(3)]
    plain = hands.start("--concurrency", "1")
    with pytest.raises(BadInput) as refused:
        run(items)
    assert f"hand {plain.name}: module 'hands_work' cannot be imported" in str(refused.value)
    assert "--accept-code" in str(refused.value)
    hands.kill(plain)
    hands.start("--concurrency", "1", "--accept-code")
    assert [one.value for one in run(items).values()] == [1, 2, 3]
    assert [one.value for one in run(items, function=str(importable / "hands_work.py") + ":work").values()] == [1, 2, 3]
    counting = importable / "parts" / "counting.py"
    before = counting.read_text()
    counting.write_text(before.replace("1", "2"))
    request.addfinalizer(lambda: counting.write_text(before))
    assert [one.value for one in run(items).values()] == [2, 3, 4]


def test_what_hands_have_sent_to_a_killed_brain_is_not_done_again(
    serving: PoolHands, importable: Path, tmp_path: Path
) -> None:
    trace, items = tmp_path / "trace", tmp_path / "items.jsonl"
    lines = [{"id": f"i{number}", "n": number, "s": 0.03, "trace": str(trace)} for number in range(150)]
    items.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [
        sys.executable, "-m", "weft", "pool", "run", "hands_work:work", "--items", str(items), "--batch-size", "10",
        "--out", str(tmp_path / "out.jsonl"), "--logs", str(tmp_path / "logs"), "-q",
    ]  # fmt: skip
    brain = subprocess.Popen([*command, "--engine", "celery"], cwd=importable)
    wait_until(lambda: trace.exists() and len(trace.read_text().split()) > 40, "no progress")
    brain.send_signal(signal.SIGKILL)
    brain.wait()
    assert subprocess.run([*command, "--resume"], cwd=importable, timeout=patience(60)).returncode == 0
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert Counter(line["item_id"] for line in out) == Counter(line["id"] for line in lines)
    assert all(line["status"] == "ok" for line in out)
    # the items that three processes held when the new brain opened the run, and what they had not sent
    assert len(trace.read_text().split()) - len(lines) <= 9


def test_a_hand_that_ends_returns_what_it_has_not_begun_and_hands_share_the_last_of_it(
    hands: PoolHands, importable: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One batch, on one hand that is asked to end; then on one with two processes, which comes while another cluster
    has a brain. Items and values are large."""
    trace = tmp_path / "trace"
    large = "x" * 700_000
    items = [{"id": number, "n": number, "s": 0.3, "trace": str(trace), "large": large} for number in range(12)]
    first = hands.start("--concurrency", "1", path=[importable])
    results: list[Result] = []
    stranger = Broker(hands.broker, "0" * 12)
    request.addfinalizer(lambda: stranger.release("stranger", "main"))
    with WorkerPool("hands_work:work", engine="celery", batch_size=12).stream(items) as stream:
        for result in stream:
            results.append(result)
            if len(results) == 2:
                first.popen.send_signal(signal.SIGTERM)
                assert first.ended() == 0
                stranger.hold("stranger", "{}", "main")
                hands.start("--concurrency", "2", path=[importable], wait=False)
    assert sorted(result.item_id for result in results if isinstance(result.item_id, int)) == list(range(12))
    assert all(result.status is Status.OK and result.attempts == 1 for result in results)
    assert all(result.value == large for result in results)
    assert len({result.worker_pid for result in results}) == 3
    assert len(trace.read_text().split()) == 12


def test_a_hand_that_shares_no_disk_sends_the_files_of_stages(
    serving: PoolHands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source deletes the mark by which a hand sees that it shares the folders."""
    from weft.pipelines.run import PipelineRun, RunOptions
    from weft.pipelines.spec.definition import load

    code = tmp_path / "apart"
    code.mkdir()
    (code / "apart_items.py").write_text(
        "from pathlib import Path\nimport staged\n"
        "def items(settings):\n"
        "    for mark in Path(settings['home']).rglob('.shared-*'):\n        mark.unlink()\n"
        "    return staged.items(settings)\n"
    )
    monkeypatch.syspath_prepend(str(code))
    outputs = []
    for engine in ("local", "celery"):
        home = tmp_path / engine
        home.mkdir()
        path = words_file(home, count=12, shard_items=5)
        text = (
            path.read_text().replace("staged:items", "apart_items:items").replace("{count:", f"{{home: {home}, count:")
        )
        path.write_text(text.replace("output: {", "  thumbnail: {run: 'staged:thumbnail'}\noutput: {"))
        monkeypatch.chdir(home)
        one = PipelineRun(load(path, {})["words"], RunOptions(engine=engine, workers=1))
        assert one.run().stats.by_status == {"ok": 12}
        output = home / "output" / "words"
        written = [path for path in output.rglob("*") if path.is_file() and path.name != ".lock"]
        outputs.append({str(path.relative_to(output)): path.read_bytes() for path in written})
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 12


def test_a_broker_that_dies_and_what_strangers_write_cost_no_item(
    start_server: StartServer, importable: Path, tmp_path: Path
) -> None:
    server = start_server()
    with pool_hands.cluster(server.url, tmp_path) as hands:
        hands.start("--concurrency", "2", path=[importable])
        trace = tmp_path / "trace"
        items = [{"id": number, "n": number, "s": 0.02, "trace": str(trace)} for number in range(150)]
        pool = WorkerPool("hands_work:work", engine="celery", batch_size=10, run_dir=tmp_path / "run")
        results = []
        with pool.stream(items) as stream:
            for result in stream:
                results.append(result)
                if len(results) == 30:
                    _write_strange(server)
                if len(results) == 60:
                    server.kill()
                    server.stop()
                    server.start()
        assert sorted(int(one.item_id) for one in results) == list(range(150))
        assert {one.status for one in results} == {Status.OK}


def _write_strange(server: RedisServer) -> None:
    import redis

    client = redis.Redis.from_url(server.url)
    (stream,) = client.scan_iter("weft:*:results")
    last: Any = client.xrevrange(stream, count=1)
    client.xadd(stream, {"m": "0" * 64 + '{"schema":1}'})
    client.xadd(stream, last[0][1] if last else {"m": ""})
    client.xadd(stream, {"c": "0" * 32})
    client.close()
