"""The workflows and templates of .github: what they run exists, and what they use is one version that cannot change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def workflow(path: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job.get("steps", ())]


def test_the_workflows_of_a_project_are_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"test", "wheels", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit_and_named_by_a_version(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [action for action in used if not PINNED.fullmatch(action)] == []
    lines = [line for line in path.read_text().splitlines() if "uses:" in line and "./" not in line]
    assert [line for line in lines if not re.search(r"# v\d+\.\d+\.\d+$", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_says_otherwise(path: Path) -> None:
    assert workflow(path)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_job_needs_and_calls_exists(path: Path) -> None:
    jobs = workflow(path)["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert ({needs} if isinstance(needs, str) else set(needs)) <= set(jobs)
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
        else:
            assert job["timeout-minutes"] > 0
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {match[1] for step in steps(path) for match in re.finditer(r"\bmake ([\w-]+)", step.get("run", ""))}
    assert asked <= targets


def test_one_version_of_each_action_is_used() -> None:
    used: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for step in steps(path):
            name, _, commit = step.get("uses", "").partition("@")
            used.setdefault(name, set()).add(commit)
    assert {name: commits for name, commits in used.items() if len(commits) > 1} == {}


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_the_issue_forms_ask_for_something(name: str) -> None:
    form = yaml.safe_load((FOLDER / f"ISSUE_TEMPLATE/{name}.yml").read_text())
    assert form["name"] and form["description"]
    assert all(field["attributes"]["label"] for field in form["body"])
