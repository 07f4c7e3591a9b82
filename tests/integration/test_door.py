"""The command line as a user runs it: a real process, its streams and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pace import patience

WEFT = [sys.executable, "-m", "weft"]


def weft(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run(
        [*WEFT, *args], capture_output=True, text=True, env=env | environment, check=False, timeout=patience(60)
    )


def complaint(*args: str, **environment: str) -> str:
    """Runs a command that must be refused: exit 2, nothing on stdout, no traceback; gives what it said."""
    done = weft(*args, **environment)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_help_lists_the_commands_and_exit_codes() -> None:
    done = weft("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for word in ("config", "url", "web", "Exit codes"):
        assert word in done.stdout


def test_every_listed_command_has_help() -> None:
    from weft.cli.main import COMMANDS

    for name in COMMANDS:
        done = weft(name, "--help")
        assert done.returncode == 0, (name, done.stderr)
        assert "Usage: weft" in done.stdout


def test_version() -> None:
    from weft import __version__

    assert weft("--version").stdout == f"weft {__version__}\n"


def test_a_misspelt_command_is_corrected() -> None:
    assert "Did you mean 'config'?" in complaint("confg")
    assert "Commands:" in complaint("qqq")


def test_completion_scripts() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_WEFT_COMPLETE" in weft("completion", shell).stdout
    completed = weft(_WEFT_COMPLETE="bash_complete", COMP_WORDS="weft con", COMP_CWORD="1")
    assert "config" in completed.stdout


@pytest.mark.parametrize(
    "url",
    ["", "http://exa mple.com/", "http://example.com:port/", "gopher://example.com/", "http://" + "a" * 10_000,
     "http://\ufdd0.com/", "http://"],
)  # fmt: skip
def test_a_bad_url_is_one_clear_line(url: str) -> None:
    said = complaint("url", url)
    assert said.startswith("weft: ")
    assert len(said.splitlines()) == 1
    assert len(said) < 400


def test_a_url_as_data() -> None:
    done = weft("url", "--json", "Example.COM/a#b", "--pods", "16")
    told = {"url": "https://example.com/a", "domain": "example.com", "pod": 0, "data_dir": 0, "skipped_as_link": None}
    assert json.loads(done.stdout) == {"schema": 1, "urls": [told]}
    assert weft("--json", "url", "Example.COM/a#b", "--pods", "16").stdout == done.stdout


def test_config_check_tells_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("delya: 1\nscope: x\nmax_pages: -1\nread_timeout: soon\nscope: y\n")
    said = complaint("config", "check", str(path))
    assert [f"{path}:{line}:" in said for line in (1, 2, 3, 4, 5)] == [True] * 5
    done = weft("config", "check", str(path), "--json")
    assert done.returncode == 2
    assert len(json.loads(done.stdout)["problems"]) == 6


def test_config_check_of_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text("max_pages: 10\n")
    done = weft("config", "check", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{path}: valid for `weft crawl`\n")


def test_config_check_of_a_services_file(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("email: a@example.org\nmax_tasks_per_key: 3\n")
    done = weft("config", "check", str(path), "--json")
    assert json.loads(done.stdout)["valid_for"] == ["weft serve"]
    path.write_text("max_tasks_per_key: 3\nmax_concurrent_tasks: 0\n")
    said = complaint("config", "check", str(path))
    assert f"{path}:2: max_concurrent_tasks:" in said and ":1:" not in said
    assert "max_tasks_per_key" in json.loads(weft("config", "schema", "--service").stdout)["properties"]


def test_config_show_tells_origins(tmp_path: Path) -> None:
    path = tmp_path / "weft.yaml"
    path.write_text("max_pages: 10\nauth: {example.com: 'me:secret'}\n")
    done = weft("config", "show", "--config", str(path), "--json", WEFT_MAX_DEPTH="3")
    shown = json.loads(done.stdout)["settings"]
    assert shown["max_pages"] == {"value": 10, "origin": f"{path}:1"}
    assert shown["max_depth"] == {"value": 3, "origin": "WEFT_MAX_DEPTH"}
    assert shown["scope"]["origin"].startswith("default")
    assert "secret" not in done.stdout
    assert "no key 'nope'" in complaint("config", "show", "nope")
    path.write_text("pods: ['redis://me:secret@h:1', managed, managed]\n")
    done = weft("config", "show", "--config", str(path), "delay", "pods", WEFT_DELAY="3", WEFT_NUM_PODS="2")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["politeness_delay_seconds", "3", "WEFT_DELAY"],
        ["pods", "redis://***@h:1,", "managed", f"{path}:1,", "the", "first", "2", "of", "3"],
    ]


def test_a_missing_config_file_is_named() -> None:
    assert "nowhere.yaml: cannot be read: No such file" in complaint("config", "show", "--config", "nowhere.yaml")


def test_the_schema_is_json() -> None:
    assert json.loads(weft("config", "schema").stdout)["properties"]["scope"]["enum"]


def test_a_closed_pipe_is_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m weft config schema | head -c 1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
