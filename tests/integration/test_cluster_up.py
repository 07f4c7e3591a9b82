"""`weft up --cluster`: Redis, a Celery worker and scheduler beside engine and API; proxies tested over the worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import until, weft
from ports import free_port
from proxying import EchoSite, Proxies
from supervised import System

from weft.cluster.broker import Broker
from weft.cluster.key import read_key
from weft.cluster.supervised.ticks import Ticks
from weft.fetch.proxies import live
from weft.supervise import process
from weft.supervise.redis_server import socket_path
from weft.system import state as kept
from weft.system.celery import KEY

SERVICES = {"redis", "celery_worker", "celery_beat", "engine", "api"}
ENTRIES = 3000


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite() as running:
        yield running


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    with Proxies(tmp_path_factory.mktemp("proxies")) as running:
        yield running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    running = System(tmp_path_factory.mktemp("service"), "--cluster", "--celery-concurrency", "2")
    document = running.up()
    assert {row["name"] for row in document["services"]} == SERVICES
    yield running
    running.down()
    running.is_gone()


def lines_of(processes: list[int]) -> str:
    return "\n".join(" ".join(process.command_line(pid)) for pid in processes)


def test_all_are_healthy_and_no_command_line_has_a_secret(system: System) -> None:
    rows = system.status()
    assert all(row["healthy"] for row in rows.values()) and set(rows) == SERVICES
    key = read_key(system.folder / KEY)
    text = lines_of(system.processes())
    assert "supervised_hand" in text and key.text not in text and key.secret.hex() not in text
    assert (system.folder / KEY).stat().st_mode & 0o077 == 0
    for log in ("celery_worker.log", "celery_beat.log"):
        assert "process started" in (system.folder / "logs" / log).read_text()
    assert "celery_worker" in weft("logs", "celery", "--data-dir", system.folder, "--json").stdout


def test_its_workers_are_shown_by_the_data_dir_and_on_the_dashboard(system: System) -> None:
    done = weft("cluster", "status", "--json", "--data-dir", system.folder)
    assert done.returncode == 0, done.stderr
    (hand,) = [one["hand"] for one in json.loads(done.stdout)["hands"]]
    state = kept.read(system.folder)
    assert state is not None

    def page() -> str:
        with urllib.request.urlopen(f"{state.urls['api']}/service") as answer:
            return answer.read().decode()  # type: ignore[no-any-return]

    until(lambda: hand in page(), what="the worker on the page of the service")
    nowhere = weft("cluster", "status", "--data-dir", system.folder / "nowhere")
    assert nowhere.returncode == 2 and "weft up --cluster" in nowhere.stderr


def test_heartbeats_of_beat_run_once_each(system: System) -> None:
    key = read_key(system.folder / KEY)
    broker = Broker(f"unix://{socket_path(system.folder / 'redis')}", key.cluster_id)
    ticks = Ticks(broker)
    until(lambda: ticks.counts("heartbeat")[0] >= 1, what="a heartbeat of the scheduler's")
    ran, _, last = ticks.counts("heartbeat")
    claims = list(broker.client.scan_iter(broker.key("tick:heartbeat:*")))
    assert len(claims) == ran and last % 10 == 0
    broker.close()


def test_a_sites_run_has_its_keys_in_redis_and_the_cluster_its_metrics(
    tmp_path: Path, system: System, site: EchoSite
) -> None:
    file = tmp_path / "echo.yaml"
    file.write_text(f"name: echo\nstart_urls: [{site.url}]\nscope: host\n")
    for command in (("add", file), ("run", "echo")):
        done = weft("sites", *command, "--data-dir", system.folder)
        assert done.returncode == 0, done.stderr
    key = read_key(system.folder / KEY)
    broker = Broker(f"unix://{socket_path(system.folder / 'redis')}", key.cluster_id)

    def values() -> dict[str, bytes]:
        names: list[bytes] = list(broker.client.scan_iter("scrape_echo:*"))
        assert all(broker.client.ttl(name) > 0 for name in names)
        return {name.decode().rpartition(":")[2]: broker.client.get(name) for name in names}  # type: ignore[misc]

    until(lambda: values().get("status") == b"COMPLETE", what="the end of the site's run in Redis")
    assert values()["result_count"] == b"1" and {"total_chunks", "completed_chunks", "started_at"} <= set(values())
    broker.close()
    state = kept.read(system.folder)
    assert state is not None

    def metrics() -> str:
        with urllib.request.urlopen(f"{state.urls['api']}/metrics") as answer:
            return answer.read().decode()  # type: ignore[no-any-return]

    until(lambda: "weft_cluster_hands{" in metrics(), what="the cluster's metrics")
    assert "weft_cluster_queue_messages{" in metrics() and "weft_cluster_tasks_total{" in metrics()


def refresh(system: System, site: EchoSite, listed: Path, engine: str, *flags: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "weft", "proxies", "refresh", "--json", "--engine", engine,
        "--data-dir", str(system.folder), "--proxies", str(listed), "--proxy-test-url", site.url,
        "--allow-private", "--min-proxies", "1",
        "--proxy-test-timeout", "5", *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(popen: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = popen.communicate()
    assert popen.returncode == 0, err
    return json.loads(out)  # type: ignore[no-any-return]


@pytest.mark.usefixtures("proxies_here")
def test_workers_come_to_the_same_verdicts_also_when_one_is_killed_midway(
    tmp_path: Path, system: System, site: EchoSite, proxies: Proxies
) -> None:
    port, good = free_port(), [proxies.tinyproxy().port for _ in range(2)]
    listed = tmp_path / "list.txt"
    dead = [f"127.{n // 62500 + 1}.{n // 250 % 250}.{n % 250 + 1}:{port}" for n in range(ENTRIES - 2)]
    listed.write_text("\n".join([*(f"127.0.0.1:{one}" for one in good), *dead]))
    reports: dict[str, dict[str, Any]] = {}
    files: dict[str, list[tuple[str, str, bool | None]]] = {}
    for engine in ("embedded", "auto"):
        running = refresh(system, site, listed, engine, "--chunk-seconds", "2")
        if engine == "auto":  # the worker is well: it does it
            until(lambda: _chunks(system) >= 3, what="the first chunks")
            os.kill(system.pids()["celery_worker"], signal.SIGKILL)
        reports[engine] = ended(running)
        written = live.read(system.folder / live.FILE)
        assert written is not None
        files[engine] = sorted((one.url, one.anonymity, one.tls) for one in written.proxies)
    keys = ("tested", "passed", "duplicates", "rejected", "failures", "problems")
    assert [reports["auto"][key] for key in keys] == [reports["embedded"][key] for key in keys]
    assert reports["auto"]["passed"] == 2 and files["embedded"] == files["auto"]
    progress = {key.rpartition(":")[2]: value for key, value in reports["auto"]["progress"].items()}
    assert (progress["status"], progress["completed_chunks"], progress["total_chunks"]) == ("COMPLETE", 30, 30)
    assert "chunks of proxies dispatched" in (system.folder / "logs" / "celery_worker.log").read_text()


def _chunks(system: System) -> int:
    path = system.folder / "proxy_refresh.json"
    job = json.loads(path.read_bytes()) if path.exists() else {}
    return int(job.get("completed_chunks", 0)) if job.get("status") == "PROCESSING" else 0
