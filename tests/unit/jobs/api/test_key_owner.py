"""API keys that root makes in another user's folder: that user can read them; no other file is given away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.jobs.api.access.keys import Keyring

OTHER = 10001

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    os.chown(tmp_path, OTHER, OTHER)
    return Keyring(tmp_path / "api-keys.json")


def owners(folder: Path) -> dict[str, int]:
    return {path.name: path.lstat().st_uid for path in folder.iterdir()}


def test_keys_made_by_root_belong_to_the_folders_owner(ring: Keyring, tmp_path: Path) -> None:
    text, _ = ring.create("team")
    assert owners(tmp_path) == {"api-keys.json": OTHER, "api-keys.lock": OTHER}
    assert ring.path.stat().st_mode & 0o777 == 0o600
    ring.revoke("team")
    assert ring.check(text) is None and owners(tmp_path)["api-keys.json"] == OTHER


def test_a_file_behind_a_link_keeps_its_owner(ring: Keyring, tmp_path: Path) -> None:
    """The folder's owner could have put it there to be given the file."""
    secret = tmp_path / "of-root"
    secret.write_text("x")
    for name in ("api-keys.lock", "api-keys.tmp"):
        (tmp_path / name).symlink_to(secret)
    ring.create("team")
    assert secret.stat().st_uid == 0 and secret.read_text() == "x"
    assert not ring.path.is_symlink() and ring.path.stat().st_uid == OTHER


def test_in_a_folder_of_root_they_are_roots(tmp_path: Path) -> None:
    os.chown(tmp_path, 0, 0)
    Keyring(tmp_path / "api-keys.json").create("team")
    assert set(owners(tmp_path).values()) == {0}
