"""Changes the code in small ways, one at a time, and reports which changes no test notices: `make mutants`.

Which modules, and which tests: plan.toml. A mutant is tried with the tests that run its line (covering.py). The sample
is drawn by a seed, so that a run can be repeated. Each worker (worker.py) has a copy of the code and the tests; the
working tree is read once, at the start, and never written to but for the report in .mutants/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from covering import Covering, Kept, Test, tests_of
from mutations import Mutant, apply, is_real, mutants_of
from telling import WANTED, Result, report, told, write

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# A mutant may loop for ever. A test gets this many times what it took without it, and something for a busy machine.
SLOWER, GRACE_S = 5.0, 20.0
T = TypeVar("T")


class Plan:
    """Which modules are changed, and which test files are asked."""

    def __init__(self, path: Path, root: Path) -> None:
        plan = tomllib.loads(path.read_text())
        source = root / "src" / "weft"
        found = [file for pattern in plan["modules"] for file in source.glob(pattern)]
        self.all_modules = sorted({str(file.relative_to(source)) for file in found})
        self.files = sorted({str(file.relative_to(root)) for pattern in plan["tests"] for file in root.glob(pattern)})
        self.without: str = plan["without"]
        self._blind: list[dict[str, Any]] = plan["blind"]

    def modules(self, wanted: list[str]) -> list[str]:
        """Those whose path contains one of the texts; all, where none is given."""
        return [module for module in self.all_modules if not wanted or any(part in module for part in wanted)]

    def blind(self, module: str) -> list[str]:
        """Files whose tests start processes that run the module."""
        return [file for one in self._blind if module.startswith(one["modules"]) for file in one["tests"]]


class Worker:
    """A process with a copy of the repository, which it changes and tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        self.folder.mkdir(parents=True)
        for entry in ROOT.iterdir():
            if entry.name in ("src", "tests"):
                shutil.copytree(entry, self.folder / entry.name)
            elif entry.name not in (".git", ".mutants", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache"):
                (self.folder / entry.name).symlink_to(entry)
        if (ROOT.parent / "shared").is_dir():  # where tests/unit/test_urls.py looks for the web platform's data
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src")}
        for name in ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"):  # worker.py must know where bytecode lies
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, HERE / "worker.py"],
            cwd=self.folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Hands a run over, and gives what came of it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("mutants: a worker has died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Whatever it runs ends with it."""
        self._process.kill()
        self._process.wait()


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    source = ROOT / "src" / "weft"
    plan = Plan(HERE / "plan.toml", ROOT)
    modules = plan.modules(options.module)
    texts = {module: (source / module).read_text() for module in modules}
    mutants = [mutant for module in modules for mutant in mutants_of(module, texts[module])]
    if options.again:
        sample = _survivors_of_last(mutants)
    else:
        sample = _sample(mutants, texts, options.count, options.seed)
    print(f"{len(mutants)} mutants in {len(modules)} modules, {len(sample)} of them tried (seed {options.seed})")
    folder = Path(tempfile.mkdtemp(prefix="weft-mutants-", dir=_in_memory()))
    try:
        results = _run(sample, texts, plan, folder, options.workers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines, share = report(results)
    print("\n".join(["", *lines]))
    write(ROOT / ".mutants", results, lines)
    return 0 if share >= WANTED else 1


def _in_memory() -> str | None:
    """A folder where a flush to disk costs nothing, if there is one with room."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * 1024**3
    return str(memory) if roomy else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many mutants are tried; 0: all (default: 300)")
    parser.add_argument("--seed", type=int, default=2028, help="of the sample (default: 2028)")
    parser.add_argument("--module", action="append", default=[], help="only modules whose path contains this text")
    parser.add_argument("--workers", type=int, default=2, help="how many run side by side (default: 2)")
    parser.add_argument("--again", action="store_true", help="only those that survived the last run")
    return parser.parse_args()


def _sample(mutants: list[Mutant], texts: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """So many real ones, in the order of the code."""
    order = list(range(len(mutants)))
    random.Random(seed).shuffle(order)
    chosen: list[int] = []
    for number in order:
        if count and len(chosen) >= count:
            break
        if is_real(texts[mutants[number].module], mutants[number]):
            chosen.append(number)
    return [mutants[number] for number in sorted(chosen)]


def _survivors_of_last(mutants: list[Mutant]) -> list[Mutant]:
    last = json.loads((ROOT / ".mutants" / "report.json").read_text())
    wanted = {(one["module"], one["before"], one["after"]) for one in last if not one["found_by"]}
    return [mutant for mutant in mutants if (mutant.module, mutant.before, mutant.after) in wanted]


# ── running ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _run(mutants: list[Mutant], texts: dict[str, str], plan: Plan, folder: Path, count: int) -> list[Result]:
    workers = [Worker(folder / str(number)) for number in range(count)]
    try:
        covering = _record(plan, workers)
        results: list[Result] = []
        shown = _Progress(len(mutants))

        def attempt(worker: Worker, mutant: Mutant) -> None:
            text = texts[mutant.module]
            result = _attempt(worker, mutant, text, covering.of(mutant, text, plan.blind(mutant.module)))
            results.append(result)
            shown.one(result)

        _share(workers, mutants, attempt)
    finally:
        for worker in workers:
            worker.close()
    return sorted(results, key=lambda result: (result.mutant.module, result.mutant.start, result.mutant.new))


def _record(plan: Plan, workers: list[Worker]) -> Covering:
    """The tests must pass on the code as it is; which lines they run and how long they take is written down."""
    kept = Kept(ROOT / ".mutants" / "covering.json", ROOT, plan.files)
    missing = [file for file in plan.files if kept.tests(file, plan.without) is None]
    done: list[str] = []
    if missing:
        print(f"recording which lines the tests of {len(missing)} files run", flush=True)

    def attempt(worker: Worker, file: str) -> None:
        answer = worker.ask({"record": file, "without": plan.without, "modules": plan.all_modules})
        if "tests" not in answer:
            raise SystemExit(f"mutants: `pytest {file}` fails on the code as it is\n{answer['output']}")
        kept.keep(file, plan.without, answer["tests"])
        done.append(file)
        if len(done) % 10 == 0:
            print(f"  {len(done)} of {len(missing)}", flush=True)

    try:
        _share(workers, missing, attempt)
    finally:
        kept.save()
    recorded = [kept.tests(file, plan.without) or {} for file in plan.files]
    return Covering(test for tests in recorded for test in tests_of(tests))


def _attempt(worker: Worker, mutant: Mutant, text: str, tests: list[Test]) -> Result:
    started = time.monotonic()
    limits_s = {test.name: SLOWER * test.seconds + GRACE_S for test in tests}
    question = {"module": mutant.module, "text": apply(text, mutant), "limits_s": limits_s}
    answer = worker.ask(question) if tests else {"by": ""}
    return Result(mutant, answer["by"], time.monotonic() - started, len(tests))


def _share(workers: list[Worker], work: list[T], do: Callable[[Worker, T], None]) -> None:
    """Lets the workers take one piece after the other; the first failure ends all."""
    left, lock = iter(work), threading.Lock()
    failures: list[BaseException] = []

    def go(worker: Worker) -> None:
        while not failures:
            with lock:
                piece = next(left, None)
            if piece is None:
                return
            try:
                do(worker, piece)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=go, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class _Progress:
    """A line for each survivor as it is found, and one now and then."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._done = self._found = 0
        self._lock = threading.Lock()

    def one(self, result: Result) -> None:
        with self._lock:
            self._done += 1
            self._found += bool(result.found_by)
            if not result.found_by:
                print(f"survived {result.tests} tests in {result.seconds:.1f} s: {told(result.mutant)}", flush=True)
            if self._done % 20 == 0 or self._done == self._of:
                print(f"{self._done} of {self._of}, {self._found} found", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
