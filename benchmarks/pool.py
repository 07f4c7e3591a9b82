"""The pool table: overhead per item, speed-up, and what is left after a SIGKILL, beside the pools people use.

    python benchmarks/pool.py [--rounds 3] [--quick] [--json FILE]

Peers (loky, pebble) live in an environment of this benchmark's own, .bench/pool, made on the first run; every contender
is measured by that interpreter, one process per measurement, the contenders taking turns in every round. Starting and
ending the workers does not count: overhead is wall time from the first result to the last, and the speed-up is that of
the items in the middle of a run, against as many one after the other, half before, half after, in short turns whose
median counts. The table shows the median of the rounds, and in brackets the run that was disturbed least; the median
is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".bench" / "pool"
PEERS = ["loky==3.7.0", "pebble==5.2.3", "msgspec==0.22.0", "click"]
CONTENDERS = ["weft", "weft+journal", "mp.Pool", "concurrent.futures", "loky", "pebble"]
SLOW = {"pebble": 4}
TURNS = 6
"""Contenders that get fewer items, by this factor, so that a round ends today."""


# ---------------------------------------------------------------- the work


def trivial(n: int) -> int:
    """Costs nothing: what is measured is the pool."""
    return n * 2


def trivial_item(item: dict[str, Any], context: Any) -> int:
    """The same for Weft."""
    return trivial(item["n"])


def burn(n: int) -> int:
    """A few milliseconds of one processor."""
    total = n
    for number in range(60_000):
        total = (total * 31 + number) % 1_000_003
    return total


def burn_item(item: dict[str, Any], context: Any) -> int:
    """The same for Weft."""
    return burn(item["n"])


def nap(n: int) -> int:
    """Long enough to be killed in."""
    time.sleep(0.01)
    return n


def nap_item(item: dict[str, Any], context: Any) -> int:
    """The same for Weft."""
    return nap(item["n"])


# ---------------------------------------------------------------- the contenders

Run = Callable[[Callable[[int], int], Iterable[int], int, int], Iterator[Any]]


def run_weft(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """Time limits, heartbeats and crash safety on, as they always are."""
    from weft.pipelines import WorkerPool

    pool = WorkerPool(f"pool:{function.__name__}_item", workers=workers, batch_size=batch, item_timeout=60)
    return (result.value for result in pool.stream({"id": n, "n": n} for n in items))


def run_weft_journal(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """And with the journal on disk that a resume goes on from."""
    from weft.pipelines import WorkerPool

    with tempfile.TemporaryDirectory() as place:
        name = f"pool:{function.__name__}_item"
        pool = WorkerPool(name, workers=workers, batch_size=batch, run_dir=Path(place) / "run", logs=False)
        yield from (result.value for result in pool.stream({"id": n, "n": n} for n in items))


def run_weft_celery(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """On a hand of a cluster: over a broker on this machine, with journal."""
    from weft.pipelines import WorkerPool

    with tempfile.TemporaryDirectory() as place, _hand(Path(place), workers) as options:
        pool = WorkerPool(
            f"pool:{function.__name__}_item", engine="celery", engine_options=options, batch_size=batch,
            run_dir=Path(place) / "run", logs=False,
        )  # fmt: skip
        yield from (result.value for result in pool.stream({"id": n, "n": n} for n in items))


@contextmanager
def _hand(folder: Path, workers: int) -> Iterator[dict[str, str]]:
    """A broker and a hand; what the engine must know of them."""
    from weft.cluster.key import make_key
    from weft.supervise.redis_server import RedisServer

    server, key_file = RedisServer(folder / "broker"), folder / "cluster.key"
    server.start()
    make_key(key_file)
    command = [
        sys.executable, "-m", "weft", "worker", "--broker", server.url, "--key-file", str(key_file),
        "--queues", "batches", "--concurrency", str(workers),
    ]  # fmt: skip
    hand = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert hand.stderr is not None
        while " serves " not in (line := hand.stderr.readline()):
            assert line, "the hand has ended"
        yield {"broker": server.url, "cluster_key_file": str(key_file)}
    finally:
        hand.kill()
        hand.wait()
        server.stop()


def run_mp(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """The standard library's older pool."""
    import multiprocessing

    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap_unordered(function, items, chunksize=batch)


def run_futures(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """The standard library's newer pool."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(function, items, chunksize=batch)


def run_loky(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """joblib's pool."""
    from loky import get_reusable_executor  # type: ignore[import-not-found]

    with get_reusable_executor(max_workers=workers) as pool:
        yield from pool.map(function, items, chunksize=batch)


def run_pebble(function: Callable[[int], int], items: Iterable[int], workers: int, batch: int) -> Iterator[Any]:
    """The one with time limits."""
    from pebble import ProcessPool  # type: ignore[import-not-found]

    with ProcessPool(max_workers=workers) as pool:
        results = pool.map(function, items, chunksize=batch, timeout=60).result()
        while True:
            try:
                yield next(results)
            except StopIteration:
                return
            except Exception as error:
                yield error


RUNS: dict[str, Run] = {
    "weft": run_weft,
    "weft+journal": run_weft_journal,
    "weft+celery": run_weft_celery,
    "mp.Pool": run_mp,
    "concurrent.futures": run_futures,
    "loky": run_loky,
    "pebble": run_pebble,
}


# ---------------------------------------------------------------- one measurement, in a process of its own


def measure_overhead(name: str, batch: int, count: int) -> dict[str, float]:
    """Microseconds of wall time per item with one worker, in four runs: their median, and the least disturbed one."""
    runs = [_one_overhead(name, batch, count // 4) for _ in range(4)]
    return {"us": statistics.median(runs), "best_us": min(runs)}


def _one_overhead(name: str, batch: int, count: int) -> float:
    began_s = ended_s = 0.0
    for seen, _ in enumerate(RUNS[name](trivial, range(count), 1, batch), 1):
        if seen == 1:
            began_s = time.perf_counter()
        if seen == count:
            ended_s = time.perf_counter()
    return (ended_s - began_s) / count * 1e6


def measure_processor(name: str, batch: int, count: int) -> dict[str, float]:
    """Microseconds of processor time per item, of all processes together, between a tenth and the end of a run."""
    first, last = count // 10, count - 4 * batch
    begun = ended = 0.0
    for seen, _ in enumerate(RUNS[name](trivial, range(count), 1, batch), 1):
        if seen == first:
            begun = _processor_s()
        if seen == last:
            ended = _processor_s()
    return {"us": (ended - begun) / (last - first) * 1e6, "best_us": (ended - begun) / (last - first) * 1e6}


def _processor_s() -> float:
    """What this process and all below it have used so far."""
    ticks = 0
    for pid in [os.getpid(), *_descendants(os.getpid())]:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_speedup(name: str, batch: int, count: int) -> dict[str, float]:
    """How much faster than one after the other, with a worker for each of the processors: the median of short turns,
    each held against what the machine gave right before and after it."""
    cores = len(os.sched_getaffinity(0))
    turns = [_one_speedup(name, batch, count // TURNS, cores) for _ in range(TURNS)]
    speedup, bare = (statistics.median(turn) for turn in zip(*turns, strict=True))
    return {"speedup": speedup, "bare_speedup": bare, "cores": cores}


def _one_speedup(name: str, batch: int, count: int, cores: int) -> tuple[float, float]:
    serial_s = _serial(count // 2)
    pool_s = _steady(name, batch, count, cores)
    bare_s = _bare(count, cores)
    serial_s += _serial(count - count // 2)
    return serial_s / pool_s, serial_s / bare_s


def _steady(name: str, batch: int, count: int, cores: int) -> float:
    """The time for so many items in the middle of a run, when all workers have begun and none has run out of work."""
    edge = 2 * batch * cores
    began_s = ended_s = 0.0
    for seen, _ in enumerate(RUNS[name](burn, range(count + 2 * edge), cores, batch), 1):
        if seen == edge:
            began_s = time.perf_counter()
        if seen == edge + count:
            ended_s = time.perf_counter()
    return ended_s - began_s


def _serial(count: int) -> float:
    began_s = time.perf_counter()
    for n in range(count):
        burn(n)
    return time.perf_counter() - began_s


def _bare(count: int, cores: int) -> float:
    """The same work in processes with nothing between them: what this machine gives at this moment."""
    began_s = time.perf_counter()
    children = []
    for part in range(cores):
        if (pid := os.fork()) == 0:
            for n in range(part, count, cores):
                burn(n)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return time.perf_counter() - began_s


def measure_kill(name: str, batch: int, count: int) -> dict[str, Any]:
    """One worker gets SIGKILL in the middle: how many results come, and does it end?"""
    values: list[Any] = []
    outcome = "ended"
    assassin = threading.Thread(target=_kill_one_worker, args=(0.4,), daemon=True)
    watchdog = threading.Timer(20, _give_up, args=(name, values, count))
    watchdog.daemon = True
    watchdog.start()
    assassin.start()
    try:
        for value in RUNS[name](nap, range(count), 2, batch):
            values.append(value)
    except Exception as error:
        outcome = type(error).__name__
    good = {value for value in values if isinstance(value, int)}
    return {"outcome": outcome, "results": len(good), "of": count, "twice": len(values) - len(set(map(str, values)))}


def _kill_one_worker(after_s: float) -> None:
    time.sleep(after_s)
    for pid in _descendants(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/comm").read_text().strip()
            line = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if command != "weft-keeper" and "tracker" not in line:
            os.kill(pid, signal.SIGKILL)
            return


def _descendants(pid: int) -> list[int]:
    text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(child) for child in text.split()]
    return [*(each for child in children for each in _descendants(child)), *children]


def _give_up(name: str, values: list[Any], count: int) -> None:
    good = {value for value in values if isinstance(value, int)}
    print(json.dumps({"outcome": "hangs", "results": len(good), "of": count, "twice": 0}), flush=True)
    for pid in _descendants(os.getpid()):
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def measure_million(name: str, batch: int, count: int) -> dict[str, Any]:
    """The parent's memory along a long run."""
    page = os.sysconf("SC_PAGE_SIZE")
    sizes, began_s = [], time.perf_counter()
    for seen, _ in enumerate(RUNS[name](trivial, range(count), 1, batch), 1):
        if seen % max(1, count // 20) == 0:
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * page / 1e6)
    return {
        "rss_mb": [round(size, 1) for size in sizes],
        "varied_mb": max(sizes) - min(sizes),
        "s": time.perf_counter() - began_s,
    }


MEASURES: dict[str, Callable[[str, int, int], dict[str, Any]]] = {
    "overhead": measure_overhead,
    "speedup": measure_speedup,
    "processor": measure_processor,
    "kill": measure_kill,
    "million": measure_million,
}


# ---------------------------------------------------------------- all of them


def set_up() -> Path:
    """The peers' environment; returns its interpreter."""
    python, stamp = VENV / "bin" / "python", VENV / "ready"
    wanted = "\n".join(PEERS)
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    return python


def ask(python: Path, what: str, name: str, batch: int, count: int) -> dict[str, Any]:
    """One measurement in a new process."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
    command = [str(python), str(Path(__file__)), "--measure", what, name, str(batch), str(count)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, timeout=600
    )
    if done.returncode != 0 or not done.stdout.strip():
        return {"error": f"exit code {done.returncode}"}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def collect(rounds: int, quick: bool) -> dict[str, Any]:
    """Every measurement, contenders taking turns."""
    python, scale = set_up(), 10 if quick else 1
    rows: dict[str, dict[str, list[Any]]] = {name: {} for name in CONTENDERS}
    hands: dict[str, dict[str, list[Any]]] = {"weft+journal": {}, "weft+celery": {}}
    for number in range(rounds):
        for name in CONTENDERS:
            less = scale * SLOW.get(name, 1)
            for batch, count in ((50, 200_000), (1, 20_000)):
                rows[name].setdefault(f"overhead@{batch}", []).append(
                    ask(python, "overhead", name, batch, count // less)
                )
            rows[name].setdefault("speedup", []).append(ask(python, "speedup", name, 8, 1200 // scale))
        for name, row in hands.items():  # by this interpreter: Celery is not in the peers' environment
            for batch, count in ((50, 40_000), (1, 2_000)):
                asked = ask(Path(sys.executable), "overhead", name, batch, count // scale)
                row.setdefault(f"overhead@{batch}", []).append(asked)
            row.setdefault("processor", []).append(ask(Path(sys.executable), "processor", name, 50, 40_000 // scale))
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    for name in CONTENDERS:
        rows[name]["kill"] = [ask(python, "kill", name, 10, 200)]
    million = ask(python, "million", "weft", 50, 1_000_000 // scale)
    return {"machine": _machine(), "rounds": rounds, "rows": rows, "million": million, "hands": hands}


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
    }


def table(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{'':20}{'µs/item @50':>16}{'µs/item @1':>16}{'speed-up':>12}{'bare':>8}   after a SIGKILL"]
    for name, row in found["rows"].items():
        speedup, bare = _median(row["speedup"], "speedup"), _median(row["speedup"], "bare_speedup")
        cells = [_spread(row["overhead@50"]), _spread(row["overhead@1"])]
        lines.append(f"{name:20}{cells[0]:>16}{cells[1]:>16}{speedup:>12.2f}{bare:>8.2f}   {_fate(row['kill'][0])}")
    for name, row in found["hands"].items():
        cells = [_spread(row["overhead@50"]), _spread(row["overhead@1"])]
        where = "on a hand, over a broker" if name == "weft+celery" else "on this machine"
        lines.append(f"{name:20}{cells[0]:>16}{cells[1]:>16}{'':20}   the same number of items, {where}")
        lines.append(f"{'':20}{_spread(row['processor']):>16}   processor time of all processes, batch 50")
    million = found["million"]
    if "varied_mb" in million:
        varied = f"{million['varied_mb']:.1f} MB"
        lines.append(f"weft, a million items: the parent's memory varied by {varied} in {million['s']:.0f} s")
    return "\n".join(
        [
            *lines,
            "µs/item: median of the rounds (best run), one worker",
            "speed-up: median, a worker per core; bare: the same work in forked processes with nothing between them",
        ]
    )


def goals(found: dict[str, Any]) -> dict[str, bool]:
    """What the pool must reach. On a machine that is shared, bare processes do not get all of its cores either: the
    speed-up is then held against theirs."""
    weft, cores = found["rows"]["weft"], found["machine"]["cores"]
    speedup, bare = _median(weft["speedup"], "speedup"), _median(weft["speedup"], "bare_speedup")
    kill = weft["kill"][0]
    return {
        "at most 5 µs an item at batch 50": _median(weft["overhead@50"], "us", 1e9) <= 5,
        "at most 60 µs an item at batch 1": _median(weft["overhead@1"], "us", 1e9) <= 60,
        "a speed-up of 0.9 x cores": speedup >= 0.9 * min(cores, bare),
        "every result after a SIGKILL": kill.get("results") == kill.get("of") and kill.get("outcome") == "ended",
        "memory within 20 MB over a million items": found["million"].get("varied_mb", 1e9) <= 20,
    }


def _least(row: list[Any]) -> float:
    return min((each["best_us"] for each in row if "us" in each), default=1e9)


def _spread(row: list[Any]) -> str:
    values = [each["us"] for each in row if "us" in each]
    return f"{statistics.median(values):.1f} ({_least(row):.1f})" if values else "failed"


def _median(row: list[Any], key: str, otherwise: float = 0.0) -> float:
    return float(statistics.median(each.get(key, otherwise) for each in row))


def _fate(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    return f"{row['results']} of {row['of']} results, {row['outcome']}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items")
    parser.add_argument("--json", type=Path, default=ROOT / ".bench" / "pool.json")
    parser.add_argument("--measure", nargs=4, metavar=("WHAT", "NAME", "BATCH", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, name, batch, count = options.measure
        print(json.dumps(MEASURES[what](name, int(batch), int(count))))
        return
    found = collect(options.rounds, options.quick)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=2))
    print(table(found))
    missed = [goal for goal, met in goals(found).items() if not met]
    print("goals: " + ("all met" if not missed else "missed " + "; ".join(missed)))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
