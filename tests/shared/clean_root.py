"""A clean root: Debian with Python and nothing else, made by debootstrap, and commands confined to it.

What is installed in it has no compiler, no headers and none of this machine's packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

BASE = "python3,python3-venv,ca-certificates,passwd"
# What pip needs to reach its index from inside, where it is not the usual one.
HANDED_IN = re.compile(r"PIP_\w+|https?_proxy|no_proxy", re.IGNORECASE)

# Read-only but for /data, in a process namespace of its own, as another user: what the compose files ask for.
CONFINED = """
set -e
root=$1 data=$2 user=$3 folder=$4; shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$data" "$root/data"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec /usr/sbin/chroot --userspec="$user:$user" --groups= "$root" setpriv --no-new-privs env --chdir="$folder" "$@"
"""


def make_root(root: Path) -> Path:
    """Makes a clean root in a folder; the test is skipped where debootstrap is missing."""
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    if debootstrap is None:
        pytest.skip("debootstrap is not here")
    words: list[str | Path] = [debootstrap, "--variant=minbase", f"--include={BASE}", "bookworm", root]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(file).exists():
            (root / file.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, root / file.lstrip("/"))
    for folder in (found for found in os.environ.get("PIP_FIND_LINKS", "").split() if found.startswith("/")):
        if Path(folder).is_dir():
            (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return root


def run_in_root(root: Path, *argv: str | Path, folder: str = "/", environment: Mapping[str, str]) -> str:
    """Runs a command in a root, as its root user; returns what it printed. Fails with what it printed."""
    handed = {name: value for name, value in os.environ.items() if HANDED_IN.fullmatch(name)}
    done = subprocess.run(
        ["chroot", root, "sh", "-c", 'cd "$0" && exec "$@"', folder, *argv],
        env={**environment, **handed}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
    return done.stdout


def start_confined(
    root: Path, data: Path, *argv: str, user: int, folder: str, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a command in a root that it can only read, as a user that owns `data`, which is mounted on /data."""
    os.chown(data, user, user)
    (root / "data").mkdir(exist_ok=True)
    return subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONFINED, "sh",
         root, data, str(user), folder, *argv],
        env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
