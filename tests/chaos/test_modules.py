"""`weft pipeline run modules` over repositories of every kind: what becomes of each, and what a second run does again.

A dozen repositories in the normal run; all of them, and one of a gigabyte, with WEFT_TEST_CHAOS=1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import environment
from git_repositories import Workshop
from git_server import git_server
from module_repositories import FEW, SETTINGS, gallery
from pace import patience
from registry_server import registry_server

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
GIGABYTE = 1 << 30
STAGES = ("clone", "enrich", "analyse", "outdated")


class Catalogue:
    """The repositories, their list, and runs over it."""

    def __init__(self, folder: Path, server_url: str) -> None:
        self.folder = folder
        self.out = folder / "output" / "modules"
        (folder / "repositories").mkdir()
        self.shop = Workshop(folder / "repositories")
        self.expected = gallery(self.shop, server_url, () if FULL else FEW)
        entries = [one.entry for one in self.expected]
        # without an id, with one that was there, with one that is no text
        nameless = [{"url": self.shop.url("x")}, entries[0], "no entry", {"id": "half \ud83d"}]
        (folder / "modules.json").write_text(json.dumps([*entries, *nameless]))
        self.good = [one.id for one in self.expected if not one.phase]
        self.bad = [one.id for one in self.expected if one.phase]

    def run(self, *more: str, name: str = "modules", code: int = 1) -> dict[str, Any]:
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        done = self.weft("run", name, "--json", *settings, *more)
        assert done.returncode == code, done
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def weft(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weft", "pipeline", *arguments],
            cwd=self.folder,
            env=environment(PIPELINE_WORKER_COUNT="2"),
            capture_output=True,
            text=True,
            timeout=patience(200 if FULL else 40),
            check=False,
        )

    def rows(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for row in json.loads((self.out / "catalogue.json").read_text()):
            found.setdefault(str(row["id"]), row)  # the first of two with one id is the one that counts
        return found


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    folder = tmp_path_factory.mktemp("modules")
    with git_server(folder / "repositories") as server:
        yield Catalogue(folder, server.url)


@pytest.fixture(scope="module")
def first(catalogue: Catalogue) -> dict[str, Any]:
    return catalogue.run()


def ran(done: dict[str, Any]) -> dict[str, int]:
    """How often each stage was run."""
    return {name: done["stages"][name]["ran"] for name in STAGES}


def test_each_kind_of_repository_has_the_right_status_and_phase(catalogue: Catalogue, first: dict[str, Any]) -> None:
    rows = catalogue.rows()
    assert [fault for one in catalogue.expected for fault in one.faults(rows[one.id])] == []
    assert first["by_status"] == {"ok": len(catalogue.good), "failed": len(catalogue.bad) + 4}
    assert first["by_phase"] == {"clone": len(catalogue.bad), "input": 4}
    shots = [row["about"]["thumbnail"] for row in rows.values() if row["about"] and row["about"]["thumbnail"]]
    assert shots and all((catalogue.out / shot).read_bytes()[8:12] == b"WEBP" for shot in shots)
    assert not list(catalogue.out.rglob("owned"))
    log = next((catalogue.folder / "logs" / first["run_id"] / "modules").glob("sun0.worker-*.log")).read_text()
    assert '] [clone] Cloning {"url":' in log and "[end]" in log


def test_a_second_run_does_nothing_again_and_a_commit_one_item(catalogue: Catalogue, first: dict[str, Any]) -> None:
    made = (catalogue.out / "catalogue.json").read_bytes()
    page = (catalogue.out / "report.html").read_bytes()
    again = catalogue.run(name="full-refresh-parallel")  # the same stages, the same cache
    assert (again["unchanged"], ran(again)) == (len(catalogue.good), dict.fromkeys(STAGES, 0))
    assert (catalogue.out / "catalogue.json").read_bytes() == made
    assert (catalogue.out / "report.html").read_bytes() == page

    newest = catalogue.shop.commit("sun0", {"new.py": "import scipy\n"})
    changed = catalogue.run()
    assert changed["unchanged"] == len(catalogue.good) - 1
    assert ran(changed) == {"clone": 1, "enrich": 1, "analyse": 1, "outdated": 0}
    assert catalogue.rows()["sun0"]["repository"]["commit"] == newest
    assert catalogue.rows()["sun0"]["analysis"]["python"]["missing"] == ["pyyaml", "scipy"]
    why = catalogue.weft("why", "latest", "sun0").stdout
    assert "newest_commit) is another" in why and "the value of stage 'clone' changed" in why
    assert "unchanged" in catalogue.weft("why", "latest", "bare").stdout


def test_a_setting_reruns_its_stage_and_a_deleted_copy_is_cloned_again(
    catalogue: Catalogue, first: dict[str, Any]
) -> None:
    assert first["finished"]
    smaller = catalogue.run("--set", "enrich.thumbnail_width=64")
    assert ran(smaller) == {"clone": 0, "enrich": len(catalogue.good), "analyse": 0, "outdated": 0}
    subprocess.run(["rm", "-r", str(catalogue.out / "clones" / "sun0")], check=True)
    assert ran(catalogue.run("--set", "enrich.thumbnail_width=64")) == {**dict.fromkeys(STAGES, 0), "clone": 1}
    assert (catalogue.out / "clones" / "sun0" / "tree" / "pyproject.toml").exists()


def test_registries_are_asked_once_for_what_is_outdated(catalogue: Catalogue, first: dict[str, Any]) -> None:
    assert first["finished"]
    assert "no registry is set" in catalogue.rows()["sun0"]["outdated_skipped"]
    with registry_server() as server:
        asking = [
            f"outdated.npm_registry={server.url}/npm",
            f"outdated.pypi_registry={server.url}/pypi",
            "outdated.allow_private=true",
        ]
        done = catalogue.run(*(part for setting in asking for part in ("--set", setting)))
        assert ran(done)["outdated"] == len(catalogue.good)
        paths = [path for path, _ in server.asked]
        assert {"/npm/moment", "/npm/left-pad", "/pypi/requests/", "/pypi/flask/"} <= set(paths)
        assert len(paths) <= 2 * len(set(paths))  # two workers may ask for the same at one moment
    behind = catalogue.rows()["sun0"]["outdated"]["python"]["outdated"]
    assert behind == [
        {"package": "requests", "declared": "<2.30", "wanted": "2.29.0", "latest": "2.32.3", "behind": "minor"}
    ]
    clock = catalogue.rows()["MMM-Clock0-----ada"]["outdated"]["javascript"]
    assert [entry["package"] for entry in clock["outdated"]] == ["left-pad"] and clock["unknown"] == ["eslint"]


def test_a_list_that_is_not_there_is_one_message(catalogue: Catalogue) -> None:
    done = catalogue.weft("run", "full-refresh-parallel", "--set", "items.list=nowhere.json")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "nowhere.json: No such file or directory: name a JSON list" in done.stderr


@pytest.mark.skipif(not FULL, reason="takes a while to make: only with WEFT_TEST_CHAOS=1")
def test_a_repository_of_a_gigabyte_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "repositories").mkdir()
    shop = Workshop(tmp_path / "repositories")
    shop.make("huge", {"zeros": bytes(GIGABYTE)})
    (tmp_path / "modules.json").write_text(json.dumps([{"id": "huge", "url": shop.url("huge")}]))
    done = subprocess.run(
        [sys.executable, "-m", "weft", "pipeline", "run", "modules", "--json"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=patience(120), check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["by_phase"] == {"clone": 1}
    row = json.loads((tmp_path / "output" / "modules" / "catalogue.json").read_text())[0]
    assert row["error"] == "its files have 1,073,741,824 bytes, more than the limit (`clone.max_bytes`)"
