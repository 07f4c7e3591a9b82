"""The image without an engine for images: the Dockerfile's steps one by one in a clean root, and what it starts.

Debian's debootstrap makes the root; its Python takes the place of the base image's. Needs root, the network, and a few
minutes: `WEFT_TEST_CHAOS=1 scripts/test tests/chaos/test_image_steps.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clean_root import make_root, run_in_root, start_confined
from crawling import until
from pace import patience
from ports import free_port

ROOT = Path(__file__).parents[2]
STOP_S = 60.0

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="a campaign: `make chaos`"),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a root of its own: needs root"),
    pytest.mark.timeout(3600),
]


def instructions(text: str) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


class Stage:
    """A root folder in which a stage's instructions are carried out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "DEBIAN_FRONTEND": "noninteractive"}
        self.user, self.folder = "root", "/"
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self.health: list[str] = []

    def carry_out(self, name: str, rest: str, stages: dict[str, Stage]) -> None:
        if name == "RUN":
            assert self.user == "root"
            self.run("sh", "-ec", rest)
        elif name == "COPY":
            self._copy(shlex.split(rest), stages)
        elif name == "ENV":
            for one in shlex.split(rest):
                key, _, value = one.partition("=")
                self.environment[key] = re.sub(r"\$(\w+)", lambda found: self.environment.get(found[1], ""), value)
        elif name == "WORKDIR":
            self.folder = rest
            (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            self.user = rest
        elif name == "ENTRYPOINT":
            self.entrypoint = json.loads(rest)
        elif name == "CMD":
            self.command = json.loads(rest)
        elif name == "HEALTHCHECK":
            self.health = json.loads(rest.partition("CMD ")[2])
        else:
            assert name in ("LABEL", "EXPOSE", "VOLUME", "STOPSIGNAL", "ARG"), name

    def run(self, *argv: str) -> None:
        run_in_root(self.root, *argv, folder=self.folder, environment=self.environment)

    def _copy(self, words: list[str], stages: dict[str, Stage]) -> None:
        origin = ROOT
        if words[0].startswith("--from="):
            origin = stages[words.pop(0).removeprefix("--from=")].root
        *sources, target = words
        place = self.root / (target.lstrip("/") if target.startswith("/") else f"{self.folder}/{target}".lstrip("/"))
        for source in sources:
            path = origin / source.lstrip("/")
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so") if origin is ROOT else None
                shutil.copytree(path, place, dirs_exist_ok=True, symlinks=True, ignore=ignored)
            else:
                into = place / path.name if target.endswith("/") or len(sources) > 1 or place.is_dir() else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, into)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian with Python, as the base image has it."""
    root = make_root(tmp_path_factory.mktemp("image") / "base")
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    (root / "usr/local/bin/pip").symlink_to("/usr/bin/pip3")
    return root


@pytest.fixture(scope="module")
def image(base: Path) -> Iterator[Stage]:
    """The stage `slim`."""
    stages: dict[str, Stage] = {}
    stage = None
    for name, rest in instructions((ROOT / "deploy/Dockerfile").read_text()):
        if name == "FROM":
            origin, _, called = rest.split()
            if called == "browser":
                break
            root = base.with_name(called)
            assert origin == "${PYTHON}", origin
            subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
            stage = stages[called] = Stage(root)
        elif stage is not None:
            stage.carry_out(name, rest, stages)
    yield stages["slim"]
    shutil.rmtree(base.parent, ignore_errors=True)


def start(image: Stage, data: Path, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    return start_confined(
        image.root, data, *image.entrypoint, *words,
        user=int(image.user.partition(":")[0]), folder=image.folder, environment=image.environment | variables,
    )  # fmt: skip


def test_the_service_runs_as_its_user_with_a_root_that_cannot_be_written(image: Stage, tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    data.mkdir()
    (data / "keys").write_text("a-key-for-this-test-0123456789\n")
    (data / "keys").chmod(0o400)
    os.chown(data / "keys", 10001, 10001)
    with start(
        image, data, *image.command, "--port", str(port), WEFT_API_KEYS_FILE="/data/keys", WEFT_EMAIL="a@example.org"
    ) as service:
        try:
            url = f"http://127.0.0.1:{port}"

            def healthy() -> Any:
                assert service.poll() is None, service.stdout and service.stdout.read().decode()
                try:
                    return urllib.request.urlopen(f"{url}/healthz").status == 200
                except OSError:
                    return False

            until(healthy, 120, "the service")
            key = {"X-API-Key": "a-key-for-this-test-0123456789"}
            asked = urllib.request.Request(f"{url}/scraping/status", headers=key)
            assert urllib.request.urlopen(asked).status == 200
            assert {path.stat().st_uid for path in data.rglob("*")} == {10001}
        finally:
            (child,) = map(int, Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split())
            os.kill(child, signal.SIGTERM)
            said, _ = service.communicate(timeout=patience(STOP_S))
    assert service.returncode == 0
    lines = [json.loads(line) for line in said.decode().splitlines() if line.startswith("{")]
    assert {"Pod-0-Supervisor-0", "Pod-0-Engine-0", "Pod-0-Api-0"} <= {line["process"] for line in lines}


def test_without_keys_it_does_not_listen_for_everybody(image: Stage, tmp_path: Path) -> None:
    with start(image, tmp_path, *image.command, WEFT_EMAIL="a@example.org") as service:
        said, _ = service.communicate(timeout=patience(STOP_S))
    assert service.returncode == 2 and b"no API keys" in said and b"Traceback" not in said


def test_it_crawls(image: Stage, tmp_path: Path) -> None:
    with start(image, tmp_path, "demo", "--pages", "150", "--no-progress") as demo:
        said, _ = demo.communicate(timeout=patience(180))
    assert demo.returncode == 0, said.decode()
