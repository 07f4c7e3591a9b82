"""Folders of 2,000 and of 20,000 pages, as the benchmark at size builds them: what must not grow with a crawl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from ports import free_port

ROOT = Path(__file__).parents[2]
SIZES = [2_000, 20_000]
COMMANDS = ["explain-unknown", "explain-queued", "explain-stored", "get", "stats", "export-host", "export-one"]
Points = list[dict[str, Any]]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Points:
    folder = tmp_path_factory.mktemp("scale")
    out = folder / "points.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--busy", "0", "--out", str(out)]
    command += ["--sizes", ",".join(map(str, SIZES))]
    command += ["--folder", str(folder), "--port", str(free_port()), "--only", *COMMANDS, "resume"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(180), check=False)
    assert ended.returncode == 0, ended.stderr
    measured: Points = json.loads(out.read_text())["points"]
    return measured


def test_commands_answer_right_at_each_size(points: Points) -> None:
    assert [point["pages"] for point in points] == SIZES
    for point in points:
        wrong = {name: point["costs"][name] for name in COMMANDS if "wall_s" not in point["costs"][name]}
        wrong |= {name: cost for name, cost in point["costs"].items() if "failed" in cost}
        assert wrong == {}


def test_a_folder_of_ten_times_the_pages_and_hosts_has_no_more_files(points: Points) -> None:
    small, large = (point["costs"]["build"] for point in points)
    assert large["files"] + large["folders"] <= small["files"] + small["folders"] + 10


@pytest.mark.parametrize("part", ["index_bytes", "log_bytes"])
def test_a_page_takes_no_more_bytes_in_a_larger_crawl(points: Points, part: str) -> None:
    small, large = (point["costs"]["build"][part] / point["pages"] for point in points)
    assert large < 1.2 * small


def test_a_resume_of_each_size_requests_something_and_ends_when_interrupted(points: Points) -> None:
    for resume in (point["costs"]["resume"] for point in points):
        assert resume["first_request_s"] is not None
        assert (resume["exit_code"], resume["killed"]) == (130, 0)
