"""`weft compose`: the file is a Compose file, its servers run as written, and a crawl runs by what it printed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from crawling import environment, until, weft, weft_here
from pace import patience
from ports import free_port

from weft.supervise.redis_server import find_program
from weft.testing.web import synthetic_web


def compose(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return weft_here("compose", "--output", folder / "docker-compose.yml", "--no-monitoring", *arguments)


def written(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((folder / "docker-compose.yml").read_text())
    return document


def variables(folder: Path) -> dict[str, str]:
    """What a shell that has read `.env` has in its environment."""
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def filled_in(text: str, values: dict[str, str]) -> str:
    """`${NAME:?message}` as Compose fills it in."""
    if text.startswith("${"):
        return values[text[2:].partition(":")[0]]
    return text


@contextmanager
def containers(folder: Path) -> Iterator[None]:
    """A server for each service, on its published port, with its own command: what the container would run."""
    values = variables(folder)
    with ExitStack() as stack:
        for name, service in written(folder)["services"].items():
            host, port, _ = service["ports"][0].rsplit(":", 2)
            command = [filled_in(word, values) for word in service["command"]]
            data = folder / name
            (data / "logs").mkdir(parents=True)
            command[0] = str(find_program())
            command = [word.replace("/data/", f"{data}/") for word in command]
            server = subprocess.Popen([*command, "--dir", data, "--bind", host, "--port", port])
            stack.callback(server.wait)
            stack.callback(server.kill)
            until(partial(accepts, int(port)), what="a server")
        yield


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=patience(1)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("pods", [2, *([4, 8, 16] if os.environ.get("WEFT_TEST_CHAOS") else [])])
def test_a_crawl_runs_by_what_was_printed(pods: int, tmp_path: Path) -> None:
    made = compose(tmp_path, "--pods", pods, "--total-memory-gb", 2 * pods, "--base-port", free_ports(pods))
    assert made.returncode == 0, made.stderr
    (tmp_path / "crawl.yaml").write_text(made.stdout)
    start = shlex.split(made.stderr.strip().splitlines()[-1])
    assert start[:2] == ["weft", "crawl"] and "--config" in start
    with containers(tmp_path), synthetic_web(hosts=8, pages=24, seed=3, profile="calm", stocked=1) as web:
        (tmp_path / "seeds.txt").write_text("".join(f"{seed}\n" for seed in web.seeds))
        flags = ("--allow-private", "--delay", 0, "--prometheus-port", 0, "--data-dir", tmp_path / "data", "--quiet")
        processes = ("--fetchers-per-pod", 1, "--parsers-per-pod", 1)
        ended = subprocess.run(
            [shutil.which("weft") or "weft", *start[1:], *map(str, (*flags, *processes))], cwd=tmp_path,
            env=environment(**variables(tmp_path)), capture_output=True, text=True, timeout=patience(120),
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        verdict = web.judge(delay_s=0)
        assert not verdict.missing, verdict
    assert json.loads(weft_here("stats", tmp_path / "data", "--json").stdout)["pages"] > 0


def free_ports(many: int) -> int:
    """The first of some ports in a row that are free."""
    while True:
        first = free_port()
        if all(not accepts(port) for port in range(first, first + many)) and first + many < 65536:
            return first


def test_each_pod_has_its_server(tmp_path: Path) -> None:
    first = free_ports(16)
    made = compose(tmp_path, "--pods", 16, "--total-memory-gb", 1440, "--base-port", first)
    assert made.returncode == 0, made.stderr
    services = written(tmp_path)["services"]
    assert list(services) == [f"redis-{pod}" for pod in range(16)]
    for pod, service in enumerate(services.values()):
        assert service["container_name"] == f"crawler-redis-{pod}"
        assert service["ports"] == [f"127.0.0.1:{first + pod}:6379"]
        assert service["volumes"] == [f"redis-data-{pod}:/data", f"./logs/redis/pod-{pod}:/data/logs"]
        assert service["mem_limit"] == f"{90 * 1024}m"
        options = service["command"]
        assert int(options[options.index("--maxmemory") + 1].removesuffix("mb")) < 90 * 1024
        assert options[options.index("--maxmemory-policy") + 1] == "noeviction"
        check = service["healthcheck"]
        assert (check["interval"], check["timeout"], check["retries"]) == ("5s", "3s", 5)
    printed = yaml.safe_load(made.stdout)
    assert [pod["redis_url"] for pod in printed["pods"]] == [f"redis://127.0.0.1:{first + pod}" for pod in range(16)]
    (tmp_path / "crawl.yaml").write_text(made.stdout)
    values: dict[str, Any] = {**variables(tmp_path)}
    assert weft("config", "show", "--config", tmp_path / "crawl.yaml", **values).returncode == 0


def test_passwords_are_private_and_kept(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OTHER=1\n")
    assert compose(tmp_path, "--pods", 1, "--base-port", free_ports(2)).returncode == 0
    before = variables(tmp_path)
    assert before["OTHER"] == "1" and len(before["REDIS_PASSWORD"]) >= 24
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert before["REDIS_PASSWORD"] not in (tmp_path / "docker-compose.yml").read_text()
    again = compose(tmp_path, "--pods", 2, "--base-port", free_ports(2), "--backup")
    assert again.returncode == 0 and variables(tmp_path) == before, "the volumes' servers may have it"
    assert before["REDIS_PASSWORD"] not in again.stdout + again.stderr


def test_what_exists_is_refused_or_kept(tmp_path: Path) -> None:
    port = free_ports(2)
    assert compose(tmp_path, "--pods", 1, "--base-port", port).returncode == 0
    old = (tmp_path / "docker-compose.yml").read_bytes()
    refused = compose(tmp_path, "--pods", 2, "--base-port", port)
    assert refused.returncode == 2 and "--backup" in refused.stderr
    assert (tmp_path / "docker-compose.yml").read_bytes() == old
    assert compose(tmp_path, "--pods", 2, "--base-port", port, "--backup").returncode == 0
    assert (tmp_path / "docker-compose.yml.bak").read_bytes() == old


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pods", 0), "1 to 256 pods"),
        (("--pods", 1000), "1 to 256 pods"),
        (("--pods", -1), "1 to 256 pods"),
        (("--pods", 8, "--total-memory-gb", 1), "need at least 2 GB"),
        (("--base-port", 65530), "up to 65535"),
        (("--base-port", 9085, "--monitoring"), "--no-monitoring"),
        (("--bind", "example.com"), "no address"),
        (("--bind", "192.0.2.1", "--pods", 1), "an address of this machine"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(
    arguments: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    refused = compose(tmp_path, *arguments)
    assert refused.returncode == 2 and message in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_ports(3))) as taken:
        port = taken.getsockname()[1]
        refused = compose(tmp_path, "--pods", 3, "--base-port", port - 1)
    assert refused.returncode == 2 and f"port {port} is taken" in refused.stderr
    assert list(tmp_path.iterdir()) == []
