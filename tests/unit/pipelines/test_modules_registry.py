"""Asking registries over HTTP: their protocols, what they answer, the cache, and registries that do not answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from weft.pipelines.builtin.modules import registry
from weft.pipelines.builtin.modules.http import Getter
from weft.pipelines.builtin.modules.registry import NPM, PYPI, Registry, RegistryAway, Released

ANSWERS: dict[str, object] = {
    "/npm/left": {"dist-tags": {"latest": "1.3.0"}, "versions": {"1.0.0": {}, "1.3.0": {}, "2.0.0-rc.1": {}}},
    "/npm/@scope%2Fpart": {"versions": {"0.1.0": {}, "0.2.0-beta": {}}},
    "/npm/odd": {"dist-tags": [], "versions": 7},
    "/npm/list": ["no", "object"],
    "/pypi/flask/": {"versions": ["2.0", "3.0rc1", "2.1"]},
    "/pypi/old/": {
        "files": [{"filename": "old-1.0.tar.gz"}, {"filename": "old-1.2-py3-none-any.whl"}, {"filename": "x.exe"}, 7]
    },
}


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Accept"]))
        body = b"no json" if "rubbish" in self.path else json.dumps(ANSWERS.get(self.path)).encode()
        self.send_response(500 if "broken" in self.path else 200 if body != b"null" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def forgotten() -> None:
    registry._failures.clear()
    Handler.asked.clear()


@pytest.fixture
def getter() -> Iterator[Getter]:
    with Getter(allow_private=True) as getter:
        yield getter


def test_both_protocols_are_spoken(base: str, getter: Getter, tmp_path: Path) -> None:
    npm = Registry(NPM, f"{base}/npm/", tmp_path, getter)
    assert npm.released("left") == Released("1.3.0", ("1.0.0", "1.3.0", "2.0.0-rc.1"))
    assert npm.released("@scope/part").latest == "0.1.0"
    assert npm.released("unheard-of") == Released(None)
    assert npm.released("odd") == Released(None)
    pypi = Registry(PYPI, f"{base}/pypi", tmp_path, getter)
    assert pypi.released("flask").latest == "2.1"
    assert pypi.released("old").latest == "1.2"
    assert {accept for path, accept in Handler.asked if "pypi" in path} == {"application/vnd.pypi.simple.v1+json"}


def test_an_answer_is_asked_for_once_for_all_workers(base: str, getter: Getter, tmp_path: Path) -> None:
    for _ in range(3):
        assert Registry(NPM, f"{base}/npm", tmp_path, getter).released("left").latest == "1.3.0"
    Registry(NPM, f"{base}/npm", tmp_path, getter).released("unheard-of")
    Registry(NPM, f"{base}/npm", tmp_path, getter).released("unheard-of")
    assert [path for path, _ in Handler.asked] == ["/npm/left", "/npm/unheard-of"]
    next((tmp_path / NPM).glob("left*")).write_text("torn {")
    assert Registry(NPM, f"{base}/npm", tmp_path, getter).released("left").latest == "1.3.0"


@pytest.mark.parametrize("package", ["broken", "rubbish", "list"])
def test_what_a_registry_would_not_answer_is_an_error_and_not_kept(
    base: str, getter: Getter, tmp_path: Path, package: str
) -> None:
    for _ in range(2):
        with pytest.raises(RegistryAway, match=f"asked for '{package}'"):
            Registry(NPM, f"{base}/npm", tmp_path, getter).released(package)
    assert len(Handler.asked) == 2


def test_a_registry_that_keeps_failing_is_not_asked_again(base: str, getter: Getter, tmp_path: Path) -> None:
    npm = Registry(NPM, f"{base}/npm", tmp_path, getter)
    for _ in range(5):
        with pytest.raises(RegistryAway):
            npm.released("broken")
    assert len(Handler.asked) == 3
    with pytest.raises(RegistryAway, match="3 times in a row"):
        npm.released("left")


def test_a_registry_on_a_private_address_is_refused_unless_that_is_allowed(base: str, tmp_path: Path) -> None:
    with Getter(allow_private=False) as public_only, pytest.raises(RegistryAway, match="loopback"):
        Registry(NPM, f"{base}/npm", tmp_path, public_only).released("left")
    assert Handler.asked == []
