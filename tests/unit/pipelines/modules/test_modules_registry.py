"""Asking registries over HTTP: their protocols, what they answer, the cache, and registries that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_server import RegistryServer, registry_server

from weft.pipelines.builtin.modules.registries import registry
from weft.pipelines.builtin.modules.registries.http import Getter
from weft.pipelines.builtin.modules.registries.registry import NPM, PYPI, Registry, RegistryAway, Released


@pytest.fixture(scope="module")
def served() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture
def base(served: RegistryServer) -> str:
    served.asked.clear()
    return served.url


@pytest.fixture(autouse=True)
def forgotten() -> None:
    registry._failures.clear()


@pytest.fixture
def getter() -> Iterator[Getter]:
    with Getter(allow_private=True) as getter:
        yield getter


def test_both_protocols_are_spoken(served: RegistryServer, base: str, getter: Getter, tmp_path: Path) -> None:
    npm = Registry(NPM, f"{base}/npm/", tmp_path, getter)
    assert npm.released("left") == Released("1.3.0", ("1.0.0", "1.3.0", "2.0.0-rc.1"))
    assert npm.released("@scope/part").latest == "0.1.0"
    assert npm.released("unheard-of") == Released(None)
    assert npm.released("odd") == Released(None)
    pypi = Registry(PYPI, f"{base}/pypi", tmp_path, getter)
    assert pypi.released("flask").latest == "2.1"
    assert pypi.released("old").latest == "1.2"
    assert {accept for path, accept in served.asked if "pypi" in path} == {"application/vnd.pypi.simple.v1+json"}


def test_an_answer_is_asked_for_once_for_all_workers(
    served: RegistryServer, base: str, getter: Getter, tmp_path: Path
) -> None:
    for _ in range(3):
        assert Registry(NPM, f"{base}/npm", tmp_path, getter).released("left").latest == "1.3.0"
    Registry(NPM, f"{base}/npm", tmp_path, getter).released("unheard-of")
    Registry(NPM, f"{base}/npm", tmp_path, getter).released("unheard-of")
    assert [path for path, _ in served.asked] == ["/npm/left", "/npm/unheard-of"]
    next((tmp_path / NPM).glob("left*")).write_text("torn {")
    assert Registry(NPM, f"{base}/npm", tmp_path, getter).released("left").latest == "1.3.0"


@pytest.mark.parametrize("package", ["broken", "rubbish", "list"])
def test_what_a_registry_would_not_answer_is_an_error_and_not_kept(
    served: RegistryServer, base: str, getter: Getter, tmp_path: Path, package: str
) -> None:
    for _ in range(2):
        with pytest.raises(RegistryAway, match=f"asked for '{package}'"):
            Registry(NPM, f"{base}/npm", tmp_path, getter).released(package)
    assert len(served.asked) == 2


def test_a_registry_that_keeps_failing_is_not_asked_again(
    served: RegistryServer, base: str, getter: Getter, tmp_path: Path
) -> None:
    npm = Registry(NPM, f"{base}/npm", tmp_path, getter)
    for _ in range(5):
        with pytest.raises(RegistryAway):
            npm.released("broken")
    assert len(served.asked) == 3
    with pytest.raises(RegistryAway, match="3 times in a row"):
        npm.released("left")


def test_a_registry_on_a_private_address_is_refused_unless_that_is_allowed(
    served: RegistryServer, base: str, tmp_path: Path
) -> None:
    with Getter(allow_private=False) as public_only, pytest.raises(RegistryAway, match="loopback"):
        Registry(NPM, f"{base}/npm", tmp_path, public_only).released("left")
    assert served.asked == []
