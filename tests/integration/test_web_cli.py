"""`weft web` as a user meets it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from pace import patience

from weft.cli.main import run
from weft.testing.oracle import Expectation

WEFT = [sys.executable, "-m", "weft"]


def weft(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEFT, *map(str, arguments)], capture_output=True, text=True, timeout=patience(30))


@contextmanager
def running(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `weft web` and the first line it said."""
    process = subprocess.Popen(
        [*WEFT, "web", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def get(host: str, port: int, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=patience(5))
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def test_it_serves_says_where_and_ends_cleanly(tmp_path: Path) -> None:
    arrivals, expected, seeds = tmp_path / "a.jsonl", tmp_path / "e.json", tmp_path / "s.txt"
    options = ("--hosts", "5", "--pages", "50", "--port", "0", "--json", "--profile", "messy", "--seed", "7")
    with running(*options, "--arrivals", arrivals, "--expected", expected, "--seeds", seeds) as (process, line):
        facts = json.loads(line)
        assert (facts["hosts"], facts["pages"], facts["profile"]) == (5, 50, "messy")
        assert facts["seeds"] == seeds.read_text().split()
        assert get("127.1.0.1", facts["port"], "/robots.txt") == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(patience(10)) == 0
    (arrival,) = [json.loads(line) for line in arrivals.read_text().splitlines()]
    assert arrival["path"] == "/robots.txt"
    expectation = msgspec.json.decode(expected.read_bytes(), type=Expectation)
    assert len(expectation.must) > 50 and facts["seeds"][0] in expectation.must


def test_it_tells_people_how_to_crawl_it(tmp_path: Path) -> None:
    seeds = tmp_path / "s.txt"
    with running("--hosts", "2", "--pages", "4", "--port", "0", "--seeds", seeds) as (process, line):
        assert line.startswith("4 pages on 2 hosts, http://127.1.0.1:")
        process.terminate()
        _, errors = process.communicate(timeout=patience(10))
        assert process.returncode == 0
    assert f"weft crawl --seed-file {seeds} --scope any --delay 0.2 --allow-private" in errors


def test_it_ends_after_its_duration() -> None:
    done = weft("web", "--hosts", "1", "--pages", "1", "--port", "0", "--duration", "0.2", "-q")
    assert (done.returncode, done.stderr) == (0, "")


def test_names_and_tls_say_what_a_client_needs() -> None:
    with running("--hosts", "3", "--pages", "3", "--port", "0", "--tls", "--json") as (_, line):
        facts = json.loads(line)
        assert facts["seeds"][0] == f"https://site0.weft-web.test:{facts['port']}/"
        assert facts["resolve"]["site2.weft-web.test"] == "127.0.0.1"
        assert Path(facts["ca_file"]).is_file()


def test_the_oracle_of_a_crawl_config(tmp_path: Path) -> None:
    config, expected = tmp_path / "crawl.yaml", tmp_path / "e.json"
    config.write_text("scope: host\nmax_depth: 1\n")
    options = ("--hosts", "3", "--pages", "60", "--port", "0", "--json")
    with running(*options, "--expected", expected, "--crawl-config", config) as (_, line):
        expectation = msgspec.json.decode(expected.read_bytes(), type=Expectation)
        assert expectation.seeds == json.loads(line)["seeds"]
        assert ["depth"] in expectation.never.values()


def test_nginx_files(tmp_path: Path) -> None:
    done = weft("web", "--hosts", "2", "--pages", "6", "--nginx", tmp_path / "n", "--seeds", tmp_path / "s.txt")
    assert done.returncode == 0
    assert f"nginx -c {tmp_path}/n/nginx.conf" in done.stdout
    config = (tmp_path / "n/nginx.conf").read_text()
    assert "listen 127.1.0.2:8400" in config and "daemon off" in config
    assert (tmp_path / "s.txt").read_text().startswith("http://127.1.0.1:8400/\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hosts", "0"], "hosts must be 1 or more, not 0"),
        (["--hosts", "-5"], "hosts must be 1 or more"),
        (["--hosts", "10", "--pages", "5"], "pages must be at least the number of hosts (10)"),
        (["--hosts", "many"], "--hosts: 'many' is not accepted; use a whole number"),
        (["--profile", "wild"], "--profile: 'wild' is not accepted; use one of calm"),
        (["--port", "99999"], "port must be from 0 to 65535"),
        (["--hosts", "500000", "--pages", "500000"], "use --names"),
        (["--latency", "-1"], "must be numbers from 0 up"),
        (["--changed", "2"], "changed must be a share"),
        (["--pages", "1" + "0" * 23], "pages must be at most 10,000,000"),
        (["--pages", "1e23"], "--pages: '1e23' is not accepted; use a whole number"),
        (["--hosts", "1" + "0" * 23, "--pages", "1" + "0" * 24], "must be at most"),
        (["--edition", "1" + "0" * 23], "edition must be from 0 to 1000"),
        (["--changed", "nan"], "changed must be a share"),
        (["--duration", "1e23"], "must be numbers from 0 up"),
        (["--latency", "nan"], "must be numbers from 0 up"),
        (["--arrivals", "/no/such/dir/file"], "No such file"),
        (["--port", "0", "--seeds", "/no/such/dir/file"], "No such file"),
        (["--port", "0", "--expected", "/no/such/dir/file"], "No such file"),
        (["--crawl-config", "x.yaml"], "give --expected"),
        (["--port", "0", "--expected", "/dev/null", "--crawl-config", "/no/such.yaml"], "No such file"),
        (["--tls", "--no-names", "--hosts", "300"], "need names"),
        (["--nginx", "/tmp/x", "--profile", "messy"], "only serve --profile calm"),
        (["--nginx", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["web", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err and said.out == ""


@pytest.mark.parametrize("flag", ["--pages", "--hosts"])
@pytest.mark.parametrize("number", ["0", "-1", "1" + "0" * 23, "1e23", "nan"])
def test_a_demo_has_its_bounds(flag: str, number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", flag, number, "--data-dir", str(tmp_path / "demo")]) == 2
    said = capsys.readouterr().err
    assert flag in said and "Serving" not in said
    assert not (tmp_path / "demo").exists()


def test_a_port_in_use_is_one_message_and_exit_2() -> None:
    with socket.socket() as one:
        one.bind(("127.1.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        done = weft("web", "--port", str(port))
    assert done.returncode == 2
    assert f"weft: port {port} is in use" in done.stderr and "Traceback" not in done.stderr


def test_help_starts_quickly_and_names_the_options() -> None:
    done = weft("web", "--help")
    assert done.returncode == 0
    for option in ("--hosts", "--profile", "--arrivals", "--expected", "--nginx", "--tls", "--names", "--edition"):
        assert option in done.stdout
