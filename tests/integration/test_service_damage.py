"""Files of a scrape service that are cut, emptied or overwritten: said to callers and operator, and made again."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from served_jobs import WEFT, Served, served

from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=1, pages=30, profile="calm", seed=5) as web:
        yield web


def weft(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*WEFT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60))


def refused(service: Served, path: str, body: Any = None) -> urllib.error.HTTPError:
    with pytest.raises(urllib.error.HTTPError) as caught:
        service.call(path, body)
    return caught.value


def pages(service: Served, task: str) -> dict[str, dict[str, Any]]:
    found = service.call(f"/scraping/tasks/{task}/results?limit=500")
    assert found["next_cursor"] is None
    return {page["url"]: page for page in found["results"]}


def test_damage_is_said_and_what_can_be_is_made_again(web: SyntheticWeb, tmp_path: Path) -> None:
    order = {"url": f"http://127.1.0.1:{web.port}/", "max_depth": 9, "scope": "host"}
    with served(tmp_path, "--job-delay-seconds", "0") as service:
        task = service.call("/scraping/async-scrape", order)["task_id"]
        done = service.until(task, "COMPLETED", "PARTIAL")
        whole, state = pages(service, task), done["status"]
        assert len(whole) == done["progress"]["completed"] > 10
    (tmp_path / "jobs.db").rename(tmp_path / "away.db")
    assert not (tmp_path / "jobs.db-wal").exists()
    (tmp_path / "jobs.db").write_bytes(b"")

    # ── the file of tasks is empty ──
    started = weft("serve", "--port", "0", "--data-dir", tmp_path, "--allow-private")
    assert started.returncode == 2
    assert "holds no tasks, though the engine has 1 crawls of tasks" in started.stderr
    assert f"weft rebuild {tmp_path}" in started.stderr and "Traceback" not in started.stderr
    made = weft("rebuild", tmp_path)
    assert made.returncode == 0, made.stderr
    assert "0 kept, 1 rebuilt from their pages" in made.stdout and "index is intact" in made.stdout
    with served(tmp_path) as service:
        status = service.call(f"/scraping/tasks/{task}/status")
        assert (status["status"], status["progress"]) == (state, done["progress"])
        assert pages(service, task).keys() == whole.keys()
    (tmp_path / "away.db").rename(tmp_path / "jobs.db")

    # ── the engine's index is damaged ──
    index = tmp_path / "engine" / "index-pod0-engine0.db"
    data = bytearray(index.read_bytes())
    data[4096 * 3 : 4096 * 6] = bytes(4096 * 3)
    index.write_bytes(data)
    started = weft("serve", "--port", "0", "--data-dir", tmp_path, "--allow-private")
    assert started.returncode != 0 and f"weft rebuild {tmp_path / 'engine'}" in started.stderr, started.stderr
    made = weft("rebuild", "--json", tmp_path / "engine")
    assert made.returncode == 0, made.stderr
    report = json.loads(made.stdout)
    assert report["index"]["pages"] >= len(whole) and report["tasks_kept"] is None
    index.write_bytes(b"no index" * 1000)  # with the names of its crawls
    made = weft("rebuild", tmp_path)
    assert made.returncode == 0 and f"{report['index']['pages']:,} of them pages" in made.stdout, (
        made.stdout + made.stderr
    )

    # ── a WARC file is cut while the service runs, and it is started again ──
    (warc,) = (tmp_path / "engine" / "warc").rglob("*.warc.gz")
    with served(tmp_path) as service:
        found = pages(service, task)
        assert {url: page["markdown"] for url, page in found.items()} == {
            url: page["markdown"] for url, page in whole.items()
        }
    with served(tmp_path) as service:
        with warc.open("r+b") as file:
            file.truncate(warc.stat().st_size // 2)
        found = pages(service, task)
        lost = [page for page in found.values() if "unparsed" in page]
        assert found.keys() == whole.keys() and 0 < len(lost) < len(whole)
        assert all(page["markdown"] is None and "damaged or gone" in page["unparsed"] for page in lost)
    with served(tmp_path) as service:
        found = pages(service, task)
        lost = [page for page in found.values() if "unparsed" in page]
        assert found.keys() == whole.keys() and 0 < len(lost) < len(whole)
        status = service.call(f"/scraping/tasks/{task}/status")
        said = f"{len(lost)} of its {len(whole)} pages cannot be read any more: their files are damaged"
        assert said in status["message"] and status["progress"] == done["progress"]
        # ── the file of tasks is overwritten under the service ──
        size = (tmp_path / "jobs.db").stat().st_size
        (tmp_path / "jobs.db").write_bytes(b"no database " * (size // 12))
        for suffix in ("-wal", "-shm"):
            (tmp_path / f"jobs.db{suffix}").unlink(missing_ok=True)
        problem = refused(service, "/scraping/async-scrape", order)
        said = problem.read().decode()
        assert (problem.code, str(tmp_path) in said) == (500, False), said
