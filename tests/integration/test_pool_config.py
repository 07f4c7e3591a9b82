"""The mapping that all items of a run share: each worker has it, a resume and a replay have the same."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "pipelines"))
import misbehaving
from test_pool_cli import Shell, lines, shell  # noqa: F401  a fixture

from weft.errors import BadInput
from weft.pipelines import Status, WorkerPool


def test_every_worker_has_it_also_one_that_took_anothers_place() -> None:
    config = {"key": {"deep": [1, "two", None]}, "other": b"bytes"}
    pool = WorkerPool(misbehaving.read_config, workers=2, batch_size=1, config=config)
    items: list[dict[str, Any]] = [{"id": number} for number in range(6)]
    items += [{"id": "kill", "kill": True}, {"id": "other", "key": "other"}, {"id": "none", "key": "none"}]
    found = {result.item_id: result.value for result in pool.run(items)}
    assert all(found[number] == config["key"] for number in range(6))
    assert (found["kill"], found["other"], found["none"]) == (config["key"], b"bytes", None)


def test_an_item_cannot_change_it_for_others() -> None:
    (spoiler,) = WorkerPool(misbehaving.read_config, workers=1, config={}).run([{"id": 1, "spoil": True}])
    assert spoiler.status is Status.FAILED and "does not support item assignment" in str(spoiler.error)


@pytest.mark.parametrize(
    ("config", "why"), [([1], "mapping"), ({1: 2}, "texts as keys"), ({"a": object()}, "cannot be sent")]
)
def test_what_cannot_be_sent_is_refused_before_any_work(config: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        WorkerPool(misbehaving.read_config, config=config)


def test_a_resume_goes_on_with_what_the_run_began_with(tmp_path: Path) -> None:
    def values(items: range, **how: Any) -> list[Any]:
        pool = WorkerPool(misbehaving.read_config, workers=1, run_dir=tmp_path / "run", **how)
        return [result.value for result in pool.run([{"id": number} for number in items])]

    assert values(range(2), config={"key": "first"}) == ["first"] * 2
    assert values(range(4), resume=True) == ["first"] * 4
    assert values(range(5), resume=True, config={"key": "first"}) == ["first"] * 5
    with pytest.raises(BadInput, match="began with another config"):
        values(range(6), resume=True, config={"key": "second"})
    assert stat.S_IMODE((tmp_path / "run" / "config").stat().st_mode) == 0o600


def test_on_the_command_line(shell: Shell) -> None:  # noqa: F811
    shell.items({"id": "a"}, {"id": "b", "kill": True})
    (shell.place / "config.yaml").write_text("key: [1, 2]\n")
    command = ("pool", "run", "misbehaving:read_config", "--items", "items.jsonl", "--out", "out.jsonl")
    done = shell(*command, "--config", "config.yaml", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert [line["value"] for line in lines(shell.place / "out.jsonl")] == [[1, 2], [1, 2]]
    (shell.place / "config.yaml").unlink()
    again = shell("pool", "replay", shell.run_directory.name, "a", "--json")
    assert json.loads(again.stdout)["value"] == [1, 2]
    listed = shell("pool", "runs", "--json")
    (run,) = json.loads(listed.stdout)["runs"]
    assert (run["run_id"], run["state"], run["counts"]["ok"]) == (shell.run_directory.name, "finished", 2)
    assert "finished" in shell("pool", "runs").stdout
    (shell.run_directory / "run.json").write_text("{")
    assert "damaged" in shell("pool", "runs").stdout


@pytest.mark.parametrize(
    ("text", "why"), [("[1, 2]", "must be a mapping"), ("a: [", "--config bad.yaml"), (None, "No such file")]
)
def test_a_bad_file_is_one_message(shell: Shell, text: str | None, why: str) -> None:  # noqa: F811
    shell.items({"id": "a"})
    if text is not None:
        (shell.place / "bad.yaml").write_text(text)
    done = shell("pool", "run", "misbehaving:read_config", "--items", "items.jsonl", "--config", "bad.yaml")
    assert done.returncode == 2 and why in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list((shell.place / "logs").glob("*/journal"))
