"""Which addresses git gets to see, what it is tied to, and the limits under which it runs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from git_repositories import Workshop
from pace import patience

from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.pipelines.builtin.modules.repositories import process
from weft.pipelines.builtin.modules.repositories.git import Git, environment
from weft.pipelines.builtin.modules.repositories.heads import _chosen, ask
from weft.pipelines.builtin.modules.repositories.remotes import Remote, branch_of, judged, remote_of
from weft.supervise.process import has_ended

PUBLIC = "93.184.216.34"
ALL: dict[str, Any] = {"transports": ["https", "ssh", "file", "http"]}


@pytest.mark.parametrize(
    ("text", "transport", "url", "host", "port"),
    [
        ("https://host.example/a/b", "https", "https://host.example/a/b", "host.example", 443),
        ("HTTPS://Host.Example:8443/a.git", "https", "https://host.example:8443/a.git", "host.example", 8443),
        ("http://host.example/a", "http", "http://host.example/a", "host.example", 80),
        ("https://0x7f.1/a", "https", "https://127.0.0.1/a", "127.0.0.1", 443),
        ("https://①②⑦.0.0.1/a", "https", "https://127.0.0.1/a", "127.0.0.1", 443),
        ("https://[::1]/a", "https", "https://[::1]/a", "[::1]", 443),
        ("ssh://git@host.example:2222/a/b.git", "ssh", "ssh://git@host.example:2222/a/b.git", "host.example", 2222),
        ("git@host.example:a/b.git", "ssh", "git@host.example:a/b.git", "host.example", 22),
        ("file:///srv/a.git", "file", "file:///srv/a.git", "", 0),
        ("file://localhost/srv/a.git", "file", "file:///srv/a.git", "", 0),
    ],
)
def test_an_address_is_read(text: str, transport: str, url: str, host: str, port: int) -> None:
    assert judged(text, ALL) == Remote(url, transport, host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no `url`"),
        ("", "no `url`"),
        (7, "no `url`"),
        ("-c core.sshCommand=x", "option of git"),
        ("--upload-pack=touch /tmp/x", "option of git"),
        ("ext::sh -c 'touch /tmp/x'", "transport helpers"),
        ("fd::17", "transport helpers"),
        ("::x", "transport helpers"),
        ("git://host/a", "'git' is not allowed"),
        ("ftp://host/a", "'ftp' is not allowed"),
        ("/srv/a.git", "written file:///path"),
        ("../a", "written file:///path"),
        ("https://user:secret@host/a", "login"),
        ("https:///a b", "no blanks"),
        ("https://host/\n", "no blanks"),
        ("https://", "not a URL"),
        ("https://host/" + "a" * 3_000, "2000 characters"),
        ("ssh://-oProxyCommand=x/a", "ssh address"),
        ("ssh://user:word@host/a", "ssh address"),
        ("ssh://host", "ssh address"),
        ("-oProxyCommand=x:a", "option of git"),
        ("host:-a", "written file:///path"),
        ("file://host/a", "written file:///path"),
        ("file:///a?x", "written file:///path"),
    ],
)
def test_an_address_that_git_must_not_see_is_refused(text: Any, why: str) -> None:
    with pytest.raises(RefusedRepository, match="(?s)" + why.replace("(", r"\(")) as caught:
        judged(text, ALL)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_http_is_refused_unless_it_is_allowed_and_any_transport_may_be_taken_away() -> None:
    with pytest.raises(RefusedRepository, match="'http' is not allowed"):
        judged("http://host/a", {})
    with pytest.raises(RefusedRepository, match="'file' is not allowed"):
        judged("file:///a", {"transports": ["https"]})


def test_git_is_tied_to_the_addresses_that_passed_the_guard() -> None:
    remote = remote_of("https://host.example/a", {}, lambda _: ("10.0.0.1", PUBLIC, "2606:4700::1111"))
    assert remote.config() == [f"http.curloptResolve=host.example:443:{PUBLIC},2606:4700::1111"]
    over_ssh = remote_of("git@host.example:a", {}, lambda _: (PUBLIC,))
    command = over_ssh.environment()["GIT_SSH_COMMAND"]
    assert f"-o HostName={PUBLIC}" in command and "-o BatchMode=yes" in command and "-o ProxyCommand=none" in command


@pytest.mark.parametrize(
    ("address", "hint"), [("127.0.0.1", True), ("10.1.2.3", True), ("::1", True), ("169.254.169.254", False)]
)
def test_a_host_that_is_not_public_is_refused(address: str, hint: bool) -> None:
    with pytest.raises(RefusedRepository, match="is not public") as caught:
        remote_of("https://host.example/a", {}, lambda _: (address,))
    assert ("allow_private" in str(caught.value)) == hint


def test_allow_private_permits_loopback_and_never_a_metadata_service() -> None:
    settings = {"allow_private": True}
    assert remote_of("https://host.example/a", settings, lambda _: ("127.0.0.1",)).addresses == ("127.0.0.1",)
    with pytest.raises(RefusedRepository, match="cloud metadata"):
        remote_of("https://host.example/a", settings, lambda _: ("169.254.169.254",))


def test_a_host_without_an_address_may_have_one_later() -> None:
    def nothing(_: str) -> tuple[str, ...]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(GitFailed, match="cannot be resolved") as caught:
        remote_of("https://host.example/a", {}, nothing)
    assert caught.value.kind == "dns"


@pytest.mark.parametrize("name", ["main", "feature/x-1", "v1.0", "größer", "a@b"])
def test_a_branch_keeps_its_name(name: str) -> None:
    assert branch_of(name) == name


@pytest.mark.parametrize(
    "name", ["-x", "a b", "a..b", "a:b", "/a", "a/", "a.lock", "a~1", "a^", "x" * 300, "a@{1}", 7, "a//b"]
)
def test_what_cannot_be_a_branch_is_refused(name: Any) -> None:
    with pytest.raises(RefusedRepository, match="name of a branch"):
        branch_of(name)


def test_no_branch_is_the_default_one() -> None:
    assert branch_of(None) == branch_of("") == ""


def test_the_default_branch_is_what_the_remote_says() -> None:
    listed = (
        f"ref: refs/heads/trunk\tHEAD\n{'a' * 40}\tHEAD\n{'b' * 40}\trefs/heads/dev\n{'a' * 40}\trefs/heads/trunk\n"
    )
    assert (_chosen(listed, "").branch, _chosen(listed, "dev").commit) == ("trunk", "b" * 40)
    assert _chosen(f"{'a' * 40}\tHEAD\n{'b' * 40}\trefs/heads/dev\n", "").ref == "HEAD"


@pytest.mark.parametrize(
    ("listed", "branch", "why"),
    [
        ("", "", "empty"),
        (f"{'b' * 40}\trefs/heads/dev\n", "", "no default branch.*there are: dev"),
        (f"{'b' * 40}\tHEAD\n", "x", "no branch 'x'; it has no branches"),
        ("".join(f"{'b' * 40}\trefs/heads/{n}\n" for n in range(9)), "x", "0, 1, 2, 3, 4 and 4 more"),
    ],
)
def test_a_remote_without_the_branch_is_refused(listed: str, branch: str, why: str) -> None:
    with pytest.raises(RefusedRepository, match=why):
        _chosen(listed, branch)


def test_git_reads_no_configuration_and_runs_no_hook_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[alias]\nx = !touch owned\n[core]\nhooksPath = /hooks\n")
    (tmp_path / ".netrc").write_text("default login a password b\n")
    for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG", "GIT_DIR", "GIT_SSH", "https_proxy"):
        monkeypatch.setenv(name, str(tmp_path))
    made = environment(Remote("https://host/a", "https"))
    assert str(tmp_path) not in made.values()
    assert made["GIT_ALLOW_PROTOCOL"] == "https"
    tree = tmp_path / "tree"
    git = Git(timeout_s=patience(10), max_bytes=10_000_000)
    git.init(tree)
    listed = git.in_repository(tree, "config", "--list", "--show-origin").decode()
    assert "alias" not in listed and "core.hookspath=/dev/null" in listed.lower()
    assert not (tree / ".git" / "hooks").exists()


def test_a_broken_repository_is_not_looked_for_in_the_folders_above(tmp_path: Path) -> None:
    git = Git(timeout_s=patience(10), max_bytes=10_000_000)
    git.init(tmp_path)
    (tmp_path / "inner").mkdir()
    with pytest.raises(GitFailed, match="not a git repository"):
        git.in_repository(tmp_path / "inner", "status")


def test_ssh_is_given_the_address_that_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop(tmp_path)
    shop.make("a", {"x": "y"})
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + f"{tmp_path}/arguments\n" + f'exec git-upload-pack "{tmp_path}/a.git"\n'
    )
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    core = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}:{core}")
    remote = remote_of("ssh://git@host.example:2222/a.git", {}, lambda _: (PUBLIC,))
    listed = Git(timeout_s=patience(10), max_bytes=10_000_000).remote(remote, "ls-remote", "--", remote.url)
    assert b"refs/heads/main" in listed
    given = (tmp_path / "arguments").read_text().split("\n")
    assert f"HostName={PUBLIC}" in given and "HostKeyAlias=host.example" in given and "2222" in given


def test_a_program_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    done = process.run(["/bin/sh", "-c", script], environment={}, timeout_s=patience(0.1))
    assert done.is_late
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + patience(5.0)
    while not has_ended(pid):  # a process that is killed ends a little later
        assert time.monotonic() < until
        time.sleep(0.01)


def test_what_a_program_prints_and_writes_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(process.TooMuchOutput):
        process.run(
            [sys.executable, "-c", "print('x' * 5000)"], environment={}, timeout_s=patience(10), max_output_bytes=4096
        )
    script = f"open({str(tmp_path / 'f')!r}, 'wb').write(b'x' * 100_000)"
    done = process.run([sys.executable, "-c", script], environment={}, timeout_s=patience(10), max_file_bytes=50_000)
    assert done.code and "File too large" in done.error
    assert (tmp_path / "f").stat().st_size <= 50_000


def test_a_remote_that_does_not_answer_in_time_is_said_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a"
        with pytest.raises(GitFailed, match="took longer than") as caught:
            ask(Git(timeout_s=0.3, max_bytes=10_000), {"url": url}, {**ALL, "allow_private": True})
    assert caught.value.kind == "timeout"
