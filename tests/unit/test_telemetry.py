"""Log files and metrics of one process, and the endpoint that shows them all."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from pace import patience

from weft import telemetry
from weft.errors import BadInput, Busy
from weft.telemetry import Log, Metrics, MetricsEndpoint, Slot, log_to_file, open_files

FETCHER = Slot(0, "fetcher", 1)


def test_slots_name_log_files_labels_and_series() -> None:
    assert FETCHER.name == "pod0-fetcher1"
    assert FETCHER.label == "Pod-0-Fetcher-1"
    assert FETCHER.log_path(Path("logs")) == Path("logs/pod_0/fetcher_1.log")
    assert Slot(2, "parser", 0).label == "Pod-2-Parser-0"
    orchestrator = Slot(0, "orchestrator")
    assert (orchestrator.label, orchestrator.name) == ("Orchestrator", "pod0-orchestrator")
    assert orchestrator.log_path(Path("logs")) == Path("logs/pod_0/orchestrator.log")


def test_a_log_line_has_time_level_label_message_and_fields(tmp_path: Path) -> None:
    log_to_file(tmp_path, FETCHER)
    Log("weft.test").info("breaker opened", domain="example.com", failures=5, why="two words", text="a\nb")
    Log("weft.test").debug("not at this level")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        Log("weft.test").error("failed", exc_info=True)
    lines = (tmp_path / "pod_0/fetcher_1.log").read_text().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO \[Pod-0-Fetcher-1\] breaker opened "
        r'domain=example\.com failures=5 why="two words" text=a\\nb',
        lines[0],
    )
    assert lines[1].endswith("ERROR [Pod-0-Fetcher-1] failed")
    assert lines[-1] == "  RuntimeError: boom"


def test_logs_are_rotated_and_five_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "LOG_BYTES", 2000)
    log_to_file(tmp_path, FETCHER)
    for number in range(400):
        Log("weft.test").info("line", number=number)
    logging.shutdown()
    names = sorted(path.name for path in (tmp_path / "pod_0").iterdir())
    assert names == ["fetcher_1.log", *(f"fetcher_1.log.{n}" for n in range(1, 6))]


def test_a_log_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="`log_dir`"):
        log_to_file(tmp_path / "file", FETCHER)


def test_a_log_is_for_its_owner_alone_also_after_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "LOG_BYTES", 500)
    (tmp_path / "logs/pod_0").mkdir(parents=True)
    (tmp_path / "logs").chmod(0o750)
    (tmp_path / "logs/pod_0").chmod(0o755)
    before = os.umask(0)
    try:
        for log_dir in ("logs", "new"):
            handler = log_to_file(tmp_path / log_dir, FETCHER)
            for number in range(20):
                Log("weft.test").info("line", number=number)
            handler.close()
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*.log*") if path.is_file()]
    assert len(files) > 4
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()
    }
    assert modes == {"logs": 0o750, "logs/pod_0": 0o755, "new": 0o700, "new/pod_0": 0o700}, "what was there stays"


def test_that_a_process_started_is_written_at_any_level(tmp_path: Path) -> None:
    log_to_file(tmp_path, FETCHER, "ERROR")
    Log("weft.test").info("not at this level")
    Log("weft.test").always("process started", pid=7)
    (line,) = (tmp_path / "pod_0/fetcher_1.log").read_text().splitlines()
    assert line.endswith("INFO [Pod-0-Fetcher-1] process started pid=7")
    assert not Log("weft.test").debugs


def test_a_log_folder_has_one_crawl(tmp_path: Path) -> None:
    orchestrator = Slot(0, "orchestrator")
    first = log_to_file(tmp_path, orchestrator, alone=True)
    logging.getLogger("weft").removeHandler(first)  # as if another process had it
    with pytest.raises(Busy, match="another crawl logs there; choose another `log_dir`"):
        log_to_file(tmp_path, orchestrator, alone=True)
    log_to_file(tmp_path, Slot(1, "orchestrator"), alone=True).close()
    first.close()
    log_to_file(tmp_path, orchestrator, alone=True).close()


def test_a_log_that_is_closed_says_nothing_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handler = log_to_file(tmp_path, FETCHER)
    handler.close()
    Log("weft.test").error("too late")
    assert (tmp_path / "pod_0/fetcher_1.log").read_text() == ""
    assert capfd.readouterr() == ("", "")


def test_connections_to_redis_are_distinguished_from_those_of_http(tmp_path: Path) -> None:
    with ExitStack() as stack:
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(tmp_path / "redis.sock"))
        unix.listen()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = tcp.getsockname()
        before = open_files()
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.connect(str(tmp_path / "redis.sock"))
        stack.enter_context(socket.create_connection(address))
        stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))  # a question to a name server
        stack.enter_context((tmp_path / "file").open("w"))
        for end in os.pipe():
            stack.callback(os.close, end)
        plain, told = open_files(), open_files({str(tmp_path / "redis.sock"), address})
        assert local.send(b"x") == 1, "it was looked at, and is still there"
    grown = {kind: plain[kind] - before[kind] for kind in plain}
    assert grown == {"redis": 0, "http": 1, "file": 1, "pipe": 2, "other": 2}
    assert {kind: told[kind] - before[kind] for kind in told} == grown | {"redis": 2, "http": 0, "other": 1}


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience(5)) as answer:
        return str(answer.read().decode())


PROCESS = """
import os, sys
from pathlib import Path
from weft.telemetry import Metrics, Slot
metrics = Metrics(Path(sys.argv[1]), Slot(int(sys.argv[2]), "fetcher", int(sys.argv[3])))
metrics.counter("weft_pages_total", "Pages fetched.").inc(5)
metrics.counter("weft_errors_total", "Errors by kind.", kind="timeout").inc(2)
metrics.gauge("weft_queue_urls", "URLs queued.").set(7)
for value in (0.004, 0.2, 99):
    metrics.histogram("weft_fetch_seconds", "Time of a fetch.").observe(value)
metrics.save()
print("saved", flush=True)
sys.stdin.read()
"""


def start(directory: Path, pod: int, index: int) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(directory), str(pod), str(index)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    assert child.stdout.readline() == "saved\n"
    return child


def test_child_processes_report_into_one_endpoint_and_counters_survive_a_kill(tmp_path: Path) -> None:
    endpoint = MetricsEndpoint(tmp_path, 0)
    children = [start(tmp_path, 0, 0), start(tmp_path, 1, 0)]
    try:
        text = scrape(endpoint.port)
        for pod in ("0", "1"):
            assert f'weft_pages_total{{pod="{pod}",process="fetcher0"}} 5.0' in text
            assert f'weft_queue_urls{{pod="{pod}",process="fetcher0"}} 7.0' in text
        assert 'weft_fetch_seconds_bucket{le="0.005",pod="0",process="fetcher0"} 1.0' in text
        assert 'weft_fetch_seconds_bucket{le="+Inf",pod="0",process="fetcher0"} 3.0' in text
        assert "weft_process_resident_memory_bytes" in text

        os.kill(children[0].pid, signal.SIGKILL)
        children[0].wait()
        text = scrape(endpoint.port)
        assert 'weft_pages_total{pod="0",process="fetcher0"} 5.0' in text
        assert 'weft_queue_urls{pod="0"' not in text, "a dead process has no queue"

        children[0] = start(tmp_path, 0, 0)
        text = scrape(endpoint.port)
        assert 'weft_pages_total{pod="0",process="fetcher0"} 10.0' in text
        assert 'weft_errors_total{kind="timeout",pod="0",process="fetcher0"} 4.0' in text
        assert 'weft_fetch_seconds_count{pod="0",process="fetcher0"} 6.0' in text
        assert sorted(path.name for path in tmp_path.glob("*")) == ["pod0-fetcher0.metrics", "pod1-fetcher0.metrics"]
    finally:
        for child in children:
            child.kill()
            child.communicate()
        endpoint.close()


def test_the_serving_process_is_measured_for_each_scrape(tmp_path: Path) -> None:
    endpoint = MetricsEndpoint(tmp_path, 0, own=Slot(0, "orchestrator"))
    try:
        texts = [scrape(endpoint.port), scrape(endpoint.port)]
    finally:
        endpoint.close()
    cpu = [float(re.findall(r'cpu_seconds_total\{pod="0",process="orchestrator"\} (\S+)', text)[0]) for text in texts]
    assert 0 < cpu[0] < cpu[1]
    kinds = dict(re.findall(r'open_fds\{kind="(\w+)",pod="0",process="orchestrator"\} (\S+)', texts[0]))
    assert set(kinds) == {"redis", "http", "file", "pipe", "other"}
    assert float(kinds["http"]) >= 2, "the endpoint's own, listening and answering"
    assert sum(map(float, kinds.values())) == pytest.approx(len(list(Path("/proc/self/fd").iterdir())), abs=4)


@pytest.mark.parametrize(
    ("pods", "ratio"),
    [
        ([(30, 10)], (1, 1)),
        ([(30, 10), (10, 10)], (1.5, 1)),
        ([(0, 0), (0, 0)], (1, 1)),
        ([(9, 0), (0, 1), (0, 1)], (3, 1.5)),
    ],
)
def test_the_hot_pod_ratio_is_the_largest_pod_over_the_mean(
    tmp_path: Path, pods: list[tuple[int, int]], ratio: tuple[float, float]
) -> None:
    for pod, (pages, queued) in enumerate(pods):
        for index in range(2):  # pages add up over a pod's processes, its queue is one
            metrics = Metrics(tmp_path, Slot(pod, "fetcher", index))
            metrics.counter("weft_pages_total", "Pages.").inc(pages)
            metrics.gauge("weft_queue_urls", "Queue.").set(queued)
            metrics.save()
    endpoint = MetricsEndpoint(tmp_path, 0)
    try:
        text = scrape(endpoint.port)
    finally:
        endpoint.close()
    assert f'weft_hot_pod_ratio{{by="pages"}} {float(ratio[0])}' in text
    assert f'weft_hot_pod_ratio{{by="queued"}} {float(ratio[1])}' in text


def test_a_port_in_use_is_reported() -> None:
    endpoint = MetricsEndpoint(Path("/nonexistent"), 0)
    try:
        with pytest.raises(Busy, match=f"prometheus_port {endpoint.port}"):
            MetricsEndpoint(Path("/nonexistent"), endpoint.port)
    finally:
        endpoint.close()


def test_a_torn_metrics_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "pod0-fetcher1.metrics").write_bytes(b"\x85torn")
    metrics = Metrics(tmp_path, FETCHER)
    assert metrics.counter("weft_pages_total", "Pages.").value == 0


def test_promtool_accepts_the_metrics(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("WEFT_REQUIRE_TOOLS"):
            pytest.fail("promtool is missing and this run requires it (scripts/tools fetches it)")
        pytest.skip("promtool is not here: `make test` fetches it")
    child = start(tmp_path, 0, 0)
    endpoint = MetricsEndpoint(tmp_path, 0)
    try:
        text = scrape(endpoint.port)
    finally:
        endpoint.close()
        child.kill()
        child.communicate()
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_lines_go_to_standard_output_too_as_json_and_without_waiting(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from weft.telemetry import Log, Slot, log_to_file\n"
        "log_to_file(Path(sys.argv[1]), Slot(0, 'fetcher', 1), shown_as='json')\n"
        "Log('weft.test').info('breaker opened', domain='example.com', failures=5)\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    Log('weft.test').error('failed', exc_info=True)\n"
        "for number in range(100): Log('weft.test').info('x' * 5000, number=number)\n"
        "sys.stdin.read(1)\n"
        "Log('weft.test').info('after')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as logging_process:
        assert logging_process.stdin is not None and logging_process.stdout is not None
        file = tmp_path / "pod_0/fetcher_1.log"
        limit = time.monotonic() + patience(30)
        while not (file.exists() and len(file.read_text().splitlines()) >= 102):  # nobody has read: it did not wait
            assert time.monotonic() < limit
            time.sleep(0.01)
        first = [logging_process.stdout.readline() for _ in range(2)]
        os.set_blocking(logging_process.stdout.fileno(), False)
        while logging_process.stdout.read(65536):
            pass
        os.set_blocking(logging_process.stdout.fileno(), True)
        logging_process.stdin.close()
        last = json.loads(logging_process.stdout.readlines()[-1])
    line, failure = map(json.loads, first)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info", "process": "Pod-0-Fetcher-1", "logger": "weft.test", "message": "breaker opened",
        "fields": {"domain": "example.com", "failures": 5},
    }  # fmt: skip
    assert failure["exception"].endswith("ZeroDivisionError: division by zero")
    assert last["message"] == "after" and last["fields"]["lines_left_out"] > 0
