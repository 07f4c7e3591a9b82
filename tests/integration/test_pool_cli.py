"""`weft pool` as a user meets it: results, messages, exit codes, logs, replay."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pace import patience

FUNCTIONS = Path(__file__).parents[1] / "unit" / "pipelines"
PYTHONPATH = os.pathsep.join([str(FUNCTIONS), *filter(None, [os.environ.get("PYTHONPATH")])])
LINE = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[[A-Z]+\] \[\w+\] .*")


class Shell:
    """A directory to run `weft` in."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def items(self, *lines: dict[str, Any] | str) -> None:
        text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (self.place / "items.jsonl").write_text("\n".join(text) + "\n")

    def __call__(self, *args: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weft", *args],
            cwd=self.place,
            env=os.environ | {"PYTHONPATH": PYTHONPATH} | environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patience(60),
        )

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self("pool", "run", "misbehaving:act", "--items", "items.jsonl", "--workers", "2", *more)

    @property
    def run_directory(self) -> Path:
        (found,) = (self.place / "logs").iterdir()
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_results_summary_and_exit_code(shell: Shell) -> None:
    shell.items({"id": "a"}, {"id": "b", "do": "skips"})
    done = shell.run("--out", "out.jsonl", "--ordered")
    assert (done.returncode, done.stdout) == (0, "")
    first, second = lines(shell.place / "out.jsonl")
    assert (first["item_id"], first["status"], first["value"]) == ("a", "ok", "fine")
    assert (second["status"], second["error"]) == ("skipped", "seen before")
    assert "2/2 100 % done, 1 ok, 1 skipped" in done.stderr


def test_json_gives_one_document_and_quiet_says_nothing(shell: Shell) -> None:
    shell.items({"id": "a"}, {"id": "b", "do": "raise"}, "{broken", "")
    done = shell.run("--json", "--quiet")
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert told["finished"] is True
    assert (told["counts"]["total"], told["counts"]["ok"], told["counts"]["failed"]) == (3, 1, 2)
    assert {line["item_id"] for line in lines(Path(told["out"]))} == {"a", "b", "line 3"}


def test_items_from_stdin_and_results_to_stdout(shell: Shell) -> None:
    text = "".join(json.dumps({"id": n, "n": n}) + "\n" for n in range(200))
    done = shell("pool", "run", "misbehaving:double", "--items", "-", "--out", "-", "-q", "--ordered", stdin=text)
    assert done.returncode == 0
    assert [json.loads(line)["value"] for line in done.stdout.splitlines()] == [2 * n for n in range(200)]


def test_without_item_logs_what_items_print_is_on_the_terminal_and_not_among_the_results(shell: Shell) -> None:
    (shell.place / "talks.py").write_text("def f(item, context):\n    print('hello')\n    return 1\n")
    shell.items({"id": 1})
    done = shell("pool", "run", "talks:f", "--items", "items.jsonl", "--no-item-logs", "--out", "-", "-q")
    assert (json.loads(done.stdout)["value"], done.stderr) == (1, "hello\n")
    assert not list((shell.run_directory / "items").iterdir())


def test_values_json_has_no_words_for_are_shown(shell: Shell) -> None:
    (shell.place / "odd.py").write_text("def f(item, context):\n    return {(1, 2): b'x'}\n")
    shell.items({"id": 1})
    done = shell("pool", "run", "odd:f", "--items", "items.jsonl", "--out", "-", "-q")
    assert json.loads(done.stdout)["value"] == "{(1, 2): b'x'}"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["misbehaving:act", "--items", "none.jsonl"], "none.jsonl cannot be read: there is no such file"),
        (["misbehaving:act", "--items", "."], "it is a directory"),
        (["misbehaving", "--items", "items.jsonl"], "write module:function"),
        (["misbehaving:nope", "--items", "items.jsonl"], "misbehaving:nope is not there"),
        (["nowhere:f", "--items", "items.jsonl"], "No module named 'nowhere'"),
        (["broken:f", "--items", "items.jsonl"], "ZeroDivisionError"),
        (["misbehaving:act", "--items", "items.jsonl", "--workers", "-1"], "workers must be greater than 0"),
        (["misbehaving:act", "--items", "items.jsonl", "--batch-size", "0"], "batch_size must be greater than 0"),
        (["misbehaving:act", "--items", "items.jsonl", "--item-timeout", "-5"], "item_timeout must be greater than 0"),
        (["misbehaving:act", "--items", "items.jsonl", "--out", "no/such/dir/x"], "cannot be written"),
        (["misbehaving:act", "--items", "items.jsonl", "--out", "./items.jsonl"], "overwrite the items"),
        (["nowhere.py:act", "--items", "items.jsonl"], "there is no file nowhere.py"),
        (["misbehaving:act", "--items", "items.jsonl", "--logs", "items.jsonl"], "cannot hold runs"),
        (["misbehaving:act", "--items", "items.jsonl", "--resume", "nope"], "no run 'nope'"),
        (["misbehaving:act"], "missing option '--items'"),
        (
            ["misbehaving:act", "--items", "items.jsonl", "--engine", "celery", "--item-timeout", "0"],
            "with the engine 'celery' an item may take at most 2980 s",
        ),
        (["misbehaving:act", "--items", "items.jsonl", "--engine", "celery"], "there is no broker: give its address"),
        (["misbehaving:act", "--items", "items.jsonl", "--key-file", "k"], "is for an engine on other machines"),
    ],
)
def test_bad_usage_is_one_message_and_exit_2_and_leaves_nothing(shell: Shell, args: list[str], message: str) -> None:
    (shell.place / "broken.py").write_text("1 / 0\n")
    shell.items({"id": "a"})
    done = shell("pool", "run", *args)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((shell.place / "logs").glob("*"))
    assert lines(shell.place / "items.jsonl") == [{"id": "a"}]


def test_a_scripts_function_is_named_by_its_file(shell: Shell) -> None:
    (shell.place / "more").mkdir()
    (shell.place / "more" / "beside.py").write_text("FACTOR = 3\n")
    (shell.place / "more" / "work.py").write_text(
        "from beside import FACTOR\ndef f(item, context):\n    return item['id'] * FACTOR\n"
    )
    shell.items({"id": 7})
    done = shell("pool", "run", "more/work.py:f", "--items", "items.jsonl", "--out", "-", "-q")
    assert json.loads(done.stdout)["value"] == 21
    again = shell("pool", "replay", shell.run_directory.name, "7")
    assert (again.returncode, again.stdout) == (0, "7 ok\n")


def test_worker_count_from_the_environment(shell: Shell) -> None:
    shell.items({"id": "a"})
    done = shell("pool", "run", "misbehaving:act", "--items", "items.jsonl", PIPELINE_WORKER_COUNT="x")
    assert done.returncode == 2
    assert "PIPELINE_WORKER_COUNT" in done.stderr


def test_logs_are_as_promised(shell: Shell) -> None:
    strange = ["../up", ".", "nul\0", "x" * 300, "sp ace"]
    shell.items(
        {"id": "talks", "do": "logs"}, {"id": "dies", "do": "logs_and_dies"}, *({"id": name} for name in strange)
    )
    assert shell.run().returncode == 1
    logs = sorted((shell.run_directory / "items").iterdir())
    assert {Path(line["log"]) for line in lines(shell.run_directory / "results.jsonl")} <= set(logs)
    assert len(logs) == 3 + len(strange)  # the one that dies has one for each try
    for log in logs:
        text = log.read_text().splitlines()
        assert all(LINE.fullmatch(line) for line in text)
        assert "] [end] " in text[-1]
        assert json.loads(text[-1].partition("{")[1] + text[-1].partition("{")[2])["processingTimeMs"] >= 0
    (talks,) = (log for log in logs if log.name.startswith("talks.worker-"))
    told = [line.split("] ", 2)[2] for line in talks.read_text().splitlines()]
    assert told == [
        '[process] Starting clone stage {"url":"https://example.org/a.git","branch":"master"}',
        "[clone] cloning",
        "[clone] from a subprocess",
        "[clone] printed line",
        "[clone] to stderr",
        '[clone] library says hello {"logger":"some.library"}',
        '[process] bad thing {"code":7}',
        told[-1],
    ]


def test_log_of_a_killed_item_is_complete_to_its_last_word(shell: Shell) -> None:
    shell.items({"id": "dies", "do": "logs_and_dies", "lines": 250})
    shell.run()
    for log in (shell.run_directory / "items").iterdir():
        text = [line.split("] ", 2)[2] for line in log.read_text().splitlines()]
        assert text[0] == "[process] first error"
        assert text[1:251] == [f'[process] line {{"number":{n}}}' for n in range(250)]
        assert text[251:253] == ["[process] last words, unflushed", "[process] raw last words"]
        assert "killed by SIGKILL" in text[253]
        assert text[254].startswith("[end] ")


def test_quarantined_item_is_replayed_with_one_command(shell: Shell) -> None:
    shell.items({"id": "bad/item", "do": "segfault"}, {"id": "plain", "do": "raise"})
    done = shell.run()
    run_id = shell.run_directory.name
    assert f"weft pool replay {run_id} ITEM" in done.stderr
    (kept,) = (shell.run_directory / "quarantine").iterdir()
    told = json.loads(kept.read_text())
    assert (told["item_id"], told["death"]["signal"], told["attempts"]) == ("bad/item", "SIGSEGV", 2)
    assert told["death"]["peak_memory_mb"] > 1
    assert "[end] crashed" in Path(told["log"]).read_text()
    again = shell("pool", "replay", run_id, "bad/item", "--json")
    result = json.loads(again.stdout)
    assert (again.returncode, result["status"], result["attempts"]) == (1, "crashed", 1)
    assert "_segfault" in again.stderr  # the native traceback, on the terminal
    failed = shell("pool", "replay", run_id, "plain")
    assert failed.returncode == 1
    assert failed.stdout == "plain failed in clone: ValueError: no such branch\n"
    assert "_raise" in failed.stderr
    missing = shell("pool", "replay", run_id, "nobody")
    assert (missing.returncode, missing.stdout) == (2, "")


def test_replay_of_a_mended_function_says_ok(shell: Shell) -> None:
    (shell.place / "mended.py").write_text("import os\ndef f(item, context):\n    os._exit(1)\n")
    shell.items({"id": "x"})
    shell("pool", "run", "mended:f", "--items", "items.jsonl", "-q")
    (shell.place / "mended.py").write_text("def f(item, context):\n    print('noise')\n    return 1\n")
    again = shell("pool", "replay", shell.run_directory.name, "x")
    assert (again.returncode, again.stdout) == (0, "x ok\n")
    assert "noise" in again.stderr


def test_help_names_the_command(shell: Shell) -> None:
    assert "pool" in shell("--help").stdout
    assert "--resume" in shell("pool", "run", "--help").stdout
