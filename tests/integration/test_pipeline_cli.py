"""`weft pipeline` as a user has it: a process, what it prints, its exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import staged
from crawling import environment, until
from pace import patience
from staged import words_file

from weft.cli.main import run
from weft.cli.pipelines.pipeline_runs import digits

SHARED = Path(staged.__file__).parent


def pipeline(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "weft", "pipeline", *map(str, arguments)],
        cwd=folder, env=_environment(folder), capture_output=True, text=True, timeout=patience(60),
    )  # fmt: skip
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def _environment(folder: Path) -> dict[str, str]:
    return environment(PYTHONPATH=str(SHARED), PIPELINE_WORKER_COUNT="2", **{staged.TRACE: str(folder / "trace")})


def document(folder: Path, *arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pipeline(folder, *arguments, "--json", code=code).stdout)
    assert found["schema"] == 1
    return found


def test_a_pipeline_is_listed_shown_checked_run_and_reported(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    words_file(tmp_path / "pipelines")
    (tmp_path / "stage-graph.json").write_text(
        json.dumps(
            {"pipelines": {"other": {"items": {"source": "staged:items"}, "stages": {"a": {"run": "staged:plain"}}}}}
        )
    )
    listed = pipeline(tmp_path, "list").stdout.splitlines()
    assert [line.split()[0] for line in listed][:2] == ["other", "words"]
    assert "Counts words." in listed[1]
    shown = pipeline(tmp_path, "show", "words").stdout
    assert "read\n├─ count\n└─ label\n   └─ join  (and count)\n" in shown
    for name in ("pipelines/words.yaml", "words"):
        assert pipeline(tmp_path, "check", name).stderr == "pipelines/words.yaml: valid\n"
    done = pipeline(tmp_path, "run", "words")
    assert done.stdout == ""
    assert "weft pipeline: 20 items, 20 ok in" in done.stderr
    again = document(tmp_path, "run", "words")
    assert (again["unchanged"], again["rows"], again["by_status"]) == (20, 20, {"skipped": 20})
    runs = document(tmp_path, "runs")["runs"]
    assert [(one["state"], one["pipeline"]) for one in runs] == [("finished", "words")] * 2
    report = pipeline(tmp_path, "report", "latest").stdout
    assert "s: 20 unchanged\n" in report
    assert "stage  ran  unchanged" in report and "count    0         20" in report
    assert pipeline(tmp_path, "runs").stdout.splitlines()[0].endswith("  finished     words  20 unchanged")
    why = document(tmp_path, "why", "latest", "i00003")
    assert {one["did"] for one in why["stages"]} == {"unchanged"}
    assert "that it imports by name" in why["note"]
    replayed = pipeline(tmp_path, "replay", runs[0]["run_id"], "i00003").stdout
    assert replayed.endswith("i00003 ok\n")
    assert "count: ok in" in replayed
    schema = json.loads(pipeline(tmp_path, "schema").stdout)
    assert schema["title"] == "A Weft pipeline"


def test_failed_items_are_exit_code_1_and_told_by_phase(tmp_path: Path) -> None:
    (tmp_path / "items.json").write_text(json.dumps([{"id": "a", "do": "raise"}, {"id": "b"}]))
    (tmp_path / "p.yaml").write_text('items: {file: items.json}\nstages: {clone: {run: "staged:act"}}\n')
    done = pipeline(tmp_path, "run", "p.yaml", code=1)
    assert "a failed in clone: ValueError: no such branch" in done.stderr
    assert "Failures by phase: clone 1" in done.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0000531, "0.0000531"),
        (0.05, "0.05"),
        (9.999, "10"),
        (12.34, "12.3"),
        (300, "300"),
        (12345, "12,345"),
    ],
)
def test_a_number_of_a_report_is_no_power_of_ten(value: float, shown: str) -> None:
    assert digits(value) == shown


BAD = """\
items: {file: items.jsonl}
stages:
  a: {run: "staged:plain", needs: [b]}
  b: {run: "staged:plain", needs: [a]}
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "wrods"], "there is no pipeline 'wrods' in pipelines/, stage-graph.json, or among those that ship"),
        (["run", "nothing.yaml"], "nothing.yaml: cannot be read: No such file"),
        (["run", "words.yaml:other"], "words.yaml has no pipeline 'other'; it has: words"),
        (["run", "bad.yaml"], "bad.yaml:3: stages.a: the stages form a cycle: a → b → a"),
        (["check", "bad.yaml"], "bad.yaml:3: stages.a: the stages form a cycle: a → b → a"),
        (["run", "lost.yaml"], "stage 'a': nowhere:f cannot be imported: there is no module 'nowhere'"),
        (["check", "wrods"], "there is no pipeline 'wrods' in pipelines/"),
        (["check", "lost.yaml"], "weft: lost.yaml:2: stages.a.run: nowhere:f cannot be imported: ModuleNotFoundError"),
        (["run", "words.yaml", "--workers", "-1"], "workers must be greater than 0"),
        (["run", "words.yaml", "--workers", "0"], "workers must be greater than 0"),
        (["run", "words.yaml", "--batch-size", "0"], "batch_size must be greater than 0"),
        (["run", "words.yaml", "--engine", "ray"], "there is no engine 'ray': choose 'local'"),
        (["run", "words.yaml", "--engine", "celery"], "there is no broker: give its address"),
        (["run", "words.yaml", "--broker", "redis://h/0"], "broker: is for an engine on other machines, and this is"),
        (["run", "words.yaml", "--items", "none.jsonl"], "the items file none.jsonl cannot be read"),
        (["run", "words.yaml", "--items", "words.yaml"], "must be .jsonl, .json or .csv"),
        (["run", "words.yaml", "--set", "nobody.a=1"], "there is no stage 'nobody'"),
        (["run", "words.yaml", "--resume"], "there is no run of 'words' in logs to resume"),
        (["run", "words.yaml", "--cache", "cache"], "cache/data is not a cache of Weft: delete the folder cache"),
        (["run", "words.yaml", "--cache", "words.yaml"], "the cache words.yaml cannot be used"),
        (["report", "2026-01-01T00-00-00"], "no run '2026-01-01T00-00-00' of a pipeline in logs"),
        (["why", "latest", "x"], "there are no runs of pipelines in logs"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words_file(tmp_path)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "lost.yaml").write_text("items: {source: 'staged:items'}\nstages: {a: {run: 'nowhere:f'}}\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "data").write_text("something else entirely")
    assert run(["pipeline", *arguments]) == 2
    told = capfd.readouterr()
    assert said in told.err
    assert told.out == ""
    assert not list((tmp_path / "logs").glob("*")), "nothing was begun"


def test_an_interrupted_run_is_told_resumed_and_refused_when_it_is_another(tmp_path: Path) -> None:
    words_file(tmp_path, count=300, sleep=0.01)
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "pipeline", "run", "words.yaml", "--json", "--cache", "kept"],
        cwd=tmp_path, env=_environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: (tmp_path / "trace").exists(), 20, "the first item")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=patience(20))
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["finished"] is False
    assert "Interrupted; weft pipeline run words.yaml --resume" in stderr
    assert document(tmp_path, "runs")["runs"][0]["state"] == "interrupted"
    assert "interrupted" in pipeline(tmp_path, "report", "latest").stdout
    for flag in (["--fresh"], ["--set", "count.times=2"]):
        done = pipeline(tmp_path, "run", "words.yaml", "--resume", *flag, code=2)
        assert "cannot be changed for a resumed run" in done.stderr
    original = (tmp_path / "words.yaml").read_text()
    (tmp_path / "words.yaml").write_text(original.replace("prefix: p", "prefix: q"))
    done = pipeline(tmp_path, "run", "words.yaml", "--resume", code=2)
    assert "stage 'label' has changed since it began" in done.stderr or "the pipeline has changed" in done.stderr
    (tmp_path / "words.yaml").write_text(original)
    done = pipeline(tmp_path, "run", "words.yaml", "--resume", "--cache", "another", code=2)
    assert f"continues with its own cache, {tmp_path / 'kept'}" in done.stderr
    found = document(tmp_path, "run", "words.yaml", "--resume")
    assert (found["items"], found["rows"], found["by_status"]) == (300, 300, {"ok": 300})
    assert max(count for name, count in staged.traced(tmp_path / "trace").items() if " " in name) == 1
    done = pipeline(tmp_path, "run", "words.yaml", "--resume", code=2)
    assert "has finished" in done.stderr
