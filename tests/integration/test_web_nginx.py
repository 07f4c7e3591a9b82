"""The web that nginx serves is the web that `weft web` serves: same statuses, heads that matter, and bytes."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pace import patience
from ports import free_port

from weft.testing import nginx
from weft.testing.content import pages
from weft.testing.content.sites import WorldSpec
from weft.testing.world import World

pytestmark = pytest.mark.usefixtures("nginx_here")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(WorldSpec(hosts=6, pages=60, seed=5, port=free_port()))
    written = nginx.write(world, tmp_path / "site")
    process = subprocess.Popen(["nginx", "-c", str(written.config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as one:
                if one.connect_ex(("127.1.0.1", world.spec.port)) == 0:
                    break
            time.sleep(0.02)
        yield world
    finally:
        process.terminate()
        process.wait(patience(10))


def test_nginx_answers_as_the_synthetic_server_does(world: World) -> None:
    for site in world.sites:
        connection = http.client.HTTPConnection(site.host, world.spec.port, timeout=patience(10))
        for resource in world.every_resource(site):
            connection.request("GET", resource.path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == resource.status, resource.path
            assert answer.headers.get("Location") == resource.location, resource.path
            if resource.status == 200:
                assert body == pages.render(resource, world.texts), resource.path
                assert answer.headers.get("Content-Type") == pages.content_type(resource), resource.path
                assert answer.headers.get("X-Robots-Tag") == dict(resource.headers).get("X-Robots-Tag")
        connection.request("GET", "/nowhere")
        assert connection.getresponse().status == 404
        connection.close()
