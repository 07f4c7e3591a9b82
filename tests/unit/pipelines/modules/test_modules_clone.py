"""The stage `clone` on real repositories: what is refused, what is kept, what is updated, what is made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from git_repositories import Link, Submodule, Workshop, git
from git_server import GitServer, git_server
from pace import patience

from weft.pipelines.builtin.modules.analysis.analyse import analyse
from weft.pipelines.builtin.modules.errors import GitFailed, RefusedRepository
from weft.pipelines.builtin.modules.registries.enrich import enrich
from weft.pipelines.builtin.modules.repositories import clone as stage
from weft.pipelines.builtin.modules.repositories.heads import LastAnswer
from weft.pipelines.files import RunFiles
from weft.pipelines.stage import StageContext


class Bench:
    """Runs stages by hand, in one output directory."""

    def __init__(self, folder: Path) -> None:
        self.shop = Workshop(folder)
        self.out = folder / "out"
        self.said: list[str] = []
        self.settings: dict[str, Any] = {
            "allow_private": True,
            "transports": ["https", "ssh", "file", "http"],
            "max_bytes": 2_000_000,
            "max_files": 50,
            "timeout_s": patience(20),
        }

    def context(self, settings: Mapping[str, Any], **results: Any) -> StageContext:
        def say(message: str, **data: Any) -> None:
            self.said.append(f"{message} {data}")

        log = SimpleNamespace(info=say, warning=say)
        item = SimpleNamespace(log=log, deadline=None, remaining_s=lambda: None)
        return StageContext(cast(Any, item), "clone", results, settings, {}, RunFiles(self.out))

    def clone(self, name: str, url: str = "", **fields: Any) -> dict[str, Any]:
        item = {"id": name, "url": url or self.shop.url(name), **fields}
        stage._last_answer = LastAnswer()  # as if it were another run
        return stage.clone(item, self.context(self.settings))

    def tree(self, name: str) -> Path:
        return self.out / "clones" / name / "tree"

    def files(self, name: str) -> list[str]:
        return sorted(path.name for path in self.tree(name).iterdir() if path.name != ".git")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_repository_is_cloned_shallow_and_told_about(bench: Bench) -> None:
    bench.shop.make("clock", {"a.txt": "12345", "deep/b.txt": "6"})
    for number in range(3):
        bench.shop.commit("clock", {f"c{number}": "x"}, when=1_700_000_000 + number)
    bench.settings["depth"] = 2
    facts = bench.clone("clock")
    assert (facts["branch"], facts["files"], facts["bytes"], facts["submodules"]) == ("main", 5, 9, [])
    assert facts["committed_at"] == "2023-11-14T22:13:22+00:00"
    assert (facts["history"]["commits"], facts["history"]["is_cut"]) == (2, True)
    assert bench.files("clock") == ["a.txt", "c0", "c1", "c2", "deep"]


def test_a_copy_that_is_as_new_as_the_remote_is_not_fetched_again(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1"})
    first = bench.clone("clock")
    marker = bench.tree("clock") / ".git" / "marker"
    marker.write_text("")
    assert bench.clone("clock") == first
    assert marker.exists() and "as new as the remote" in bench.said[-1]


def test_a_copy_is_updated_in_place_and_files_that_are_gone_go(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1", "b": "2"})
    bench.clone("clock")
    marker = bench.tree("clock") / ".git" / "marker"
    marker.write_text("")
    (bench.tree("clock") / "left over").write_text("x")
    git(bench.shop.folder / "clock.git", "update-ref", "-d", "refs/heads/main")  # history is written again
    newest = bench.shop.commit("clock", {"a": "3", "c": "4"})
    assert bench.clone("clock")["commit"] == newest
    assert bench.files("clock") == ["a", "c"] and marker.exists()


def test_a_copy_that_cannot_be_updated_is_made_anew(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1"})
    bench.clone("clock")
    (bench.tree("clock") / ".git" / "HEAD").unlink()
    newest = bench.shop.commit("clock", {"a": "2"})
    assert bench.clone("clock")["commit"] == newest
    assert (bench.tree("clock") / "a").read_text() == "2"
    assert any("made again" in line for line in bench.said)


@pytest.mark.parametrize("torn", ["note", "tree", "leftovers"])
def test_what_a_kill_leaves_is_cleared_and_made_again(bench: Bench, torn: str) -> None:
    bench.shop.make("clock", {"a": "1"})
    first = bench.clone("clock")
    folder = bench.out / "clones" / "clock"
    (folder / "clone.json").unlink()
    if torn == "tree":
        shutil.rmtree(bench.tree("clock"))
    if torn == "leftovers":
        shutil.copytree(bench.tree("clock"), folder / "new-1")
        bench.tree("clock").rename(folder / "old-1")
    assert bench.clone("clock") == first
    assert sorted(path.name for path in folder.iterdir()) == ["clone.json", "tree"]


def test_another_repository_under_the_same_id_replaces_the_first(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1"})
    bench.shop.make("sun", {"s": "1"})
    bench.clone("clock")
    bench.clone("clock", bench.shop.url("sun"))
    assert bench.files("clock") == ["s"]


@pytest.mark.parametrize(
    ("files", "link"),
    [
        ({"a": Link("/etc/passwd")}, "'a'"),
        ({"d/a": Link("../../../../etc")}, "'d/a'"),
        ({"p/q/d": Link("../.."), "l": Link("p/q/d/../../x")}, "'l'"),
        ({"g": Link(".git/config")}, "'g'"),
    ],
    ids=["absolute", "upwards", "through another link", "into the repository"],
)
def test_a_link_that_leads_out_is_refused_and_nothing_of_it_stays(
    bench: Bench, files: Mapping[str, Link], link: str
) -> None:
    bench.shop.make("evil", files)
    with pytest.raises(RefusedRepository, match=f"symbolic link {link} leads out"):
        bench.clone("evil")
    assert not bench.tree("evil").exists()


def test_an_update_that_brings_a_link_out_leaves_no_copy_that_is_taken_for_whole(bench: Bench) -> None:
    bench.shop.make("turned", {"a": "1"})
    first = bench.clone("turned")
    bench.shop.commit("turned", {"a": Link("/etc/passwd")})
    with pytest.raises(RefusedRepository):
        bench.clone("turned")
    with pytest.raises(RefusedRepository, match="no longer what was cloned"):
        enrich({"id": "turned"}, bench.context({}, clone=first))


def test_links_within_the_tree_and_to_nothing_are_kept(bench: Bench) -> None:
    bench.shop.make(
        "linked", {"README.md": Link("docs/x.md"), "docs/x.md": "# Hi", "loop": Link("loop"), "no": Link("no/x")}
    )
    clone = bench.clone("linked")
    found = analyse({"id": "linked"}, bench.context({"eslint": "off"}, clone=clone))
    assert found["readme"]["headings"] == 1


def test_submodules_are_named_and_not_fetched(bench: Bench) -> None:
    bench.shop.make(
        "sub", {"s": Submodule(), ".gitmodules": '[submodule "s"]\n\tpath = s\n\turl = https://host.invalid/x\n'}
    )
    assert bench.clone("sub")["submodules"] == ["s"]
    assert list((bench.tree("sub") / "s").iterdir()) == []


def test_hooks_are_neither_taken_from_a_tree_nor_run(bench: Bench, tmp_path: Path) -> None:
    bench.shop.with_hooks_in_its_tree("tree")
    with pytest.raises(RefusedRepository, match=r"git refuses what is in it.*hasDotgit"):
        bench.clone("tree")
    path = bench.shop.make("remote", {"a": "1"})
    (path / "hooks").mkdir()
    for name in ("post-checkout", "post-upload-pack", "pre-upload-pack"):
        hook = path / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
        hook.chmod(0o755)
    bench.clone("remote")
    assert not (tmp_path / "owned").exists() and not (bench.tree("remote") / ".git" / "hooks").exists()


def test_a_filter_that_a_tree_names_is_not_run(bench: Bench, tmp_path: Path) -> None:
    bench.shop.make(
        "filtered",
        {".gitattributes": "* filter=evil\n", ".gitconfig": f'[filter "evil"]\nsmudge = touch {tmp_path}/owned\n'},
    )
    bench.clone("filtered")
    assert not (tmp_path / "owned").exists()


def test_what_is_too_large_is_refused_before_it_is_unpacked(bench: Bench) -> None:
    bench.shop.make("zeros", {"z": b"\0" * 5_000_000})
    with pytest.raises(RefusedRepository, match=r"its files have 5,000,000 bytes"):
        bench.clone("zeros")
    bench.shop.make("noise", {"n": os.urandom(4_000_000)})
    with pytest.raises(RefusedRepository, match="larger than the limit"):
        bench.clone("noise")
    bench.shop.make("many", {f"f{number}": "" for number in range(60)})
    with pytest.raises(RefusedRepository, match="it has 60 files"):
        bench.clone("many")
    assert [path for path in bench.out.rglob("*") if path.is_file() and path.stat().st_size > 2_000_000] == []


@pytest.mark.parametrize("when", [0, 10**12, 10**17])
def test_a_commit_of_any_date_is_taken(bench: Bench, when: int) -> None:
    bench.shop.make("odd", {"a": "1"}, when=when)
    assert bench.clone("odd")["files"] == 1


def test_a_file_whose_name_is_no_text_does_no_harm(bench: Bench) -> None:
    bench.shop.raw_tree("odd", [("100644", "a", b"x"), ("100644", "caf\udce9", b"y")])
    clone = bench.clone("odd")
    assert clone["files"] == 2
    assert analyse({"id": "odd"}, bench.context({"eslint": "off"}, clone=clone))["signs"]["bytes_by_kind"] == {
        "(none)": 1
    }


@pytest.fixture
def server(bench: Bench) -> Any:
    path = bench.shop.make("clock", {"a": "1"})
    git(path, "update-server-info")
    with git_server(bench.shop.folder) as server:
        yield server


@pytest.mark.parametrize("way", ["smart", "dumb", "moved"])
def test_http_remotes_are_cloned_wherever_they_have_moved_to(bench: Bench, server: GitServer, way: str) -> None:
    assert bench.clone(way, f"{server.url}/{way}/clock.git")["files"] == 1


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("away", "169.254.169.254 is cloud metadata"),
        ("loop", "more than 5 redirects"),
        ("login", "needs a login"),
        ("broken", "cannot be reached.*500"),
        ("none", "there is no repository"),
    ],
)
def test_http_remotes_that_misbehave_are_told_apart(bench: Bench, server: GitServer, way: str, why: str) -> None:
    with pytest.raises((RefusedRepository, GitFailed), match=why):
        bench.clone(way, f"{server.url}/{way}/clock.git")


def test_the_fingerprint_is_the_remotes_commit_or_its_problem(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1"})
    item = {"id": "clock", "url": bench.shop.url("clock"), "last_commit": "2024-01-01"}
    newest = bench.shop.commit("clock", {"a": "2"})
    stage._last_answer = LastAnswer()
    assert stage.newest_commit(item, bench.settings) == {"commit": newest, "branch": "main"}
    assert stage.newest_commit(item, {**bench.settings, "remote_check": "catalogue"}) == {"last_commit": "2024-01-01"}
    assert "no `url`" in stage.newest_commit({"id": "x"}, bench.settings)["problem"]


def test_what_was_refused_is_not_fetched_again_until_there_is_another_commit_or_limit(bench: Bench) -> None:
    bench.shop.make("zeros", {"z": b"\0" * 5_000_000})
    with pytest.raises(RefusedRepository):
        bench.clone("zeros")
    bench.said.clear()
    with pytest.raises(RefusedRepository, match="more than the limit"):
        bench.clone("zeros")
    assert bench.said == []
    bench.settings["max_bytes"] = 6_000_000
    assert bench.clone("zeros")["bytes"] == 5_000_000
    bench.settings["max_bytes"] = 2_000_000
    with pytest.raises(RefusedRepository, match="more than the limit"):
        bench.clone("zeros")


def test_another_depth_is_fetched(bench: Bench) -> None:
    bench.shop.make("clock", {"a": "1"})
    bench.shop.commit("clock", {"a": "2"})
    bench.settings["depth"] = 1
    assert bench.clone("clock")["history"]["commits"] == 1
    bench.settings["depth"] = 5
    assert bench.clone("clock")["history"]["commits"] == 2


def test_a_stage_does_not_ask_again_what_its_fingerprint_has_just_asked(bench: Bench, server: GitServer) -> None:
    item = {"id": "clock", "url": f"{server.url}/smart/clock.git"}
    stage._last_answer = LastAnswer()
    stage.newest_commit(item, bench.settings)
    asked = len(server.requests)
    stage.newest_commit(item, bench.settings)
    assert len(server.requests) == asked
    stage.newest_commit({**item, "branch": "main"}, bench.settings)
    assert len(server.requests) > asked


def test_by_the_catalogue_a_copy_that_is_as_new_as_its_date_is_not_asked_about(bench: Bench) -> None:
    bench.settings["remote_check"] = "catalogue"
    bench.shop.make("clock", {"a": "1"})
    bench.shop.commit("clock", {"a": "2"}, when=1_700_000_000)  # 2023-11-14T22:13:20Z
    first = bench.clone("clock", last_commit="2023-11-01")
    away = bench.shop.url("clock").removeprefix("file://")
    Path(away).rename(f"{away}-away")
    for listed in (
        "2023-11-14",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:00:00",
        "2023-11-14T23:13:20+01:00",
        1_700_000_000,
    ):
        assert bench.clone("clock", last_commit=listed) == first
    assert bench.clone("clock", lastCommit="2023-11-14") == first
    assert "as new as the catalogue says" in bench.said[-1]
    for later in ("2023-11-15", "2023-11-14T22:13:21Z", "soon", None):
        with pytest.raises(GitFailed):
            bench.clone("clock", last_commit=later)
    Path(f"{away}-away").rename(away)
    newest = bench.shop.commit("clock", {"a": "3"}, when=1_700_100_000)
    assert bench.clone("clock", last_commit="2023-11-16")["commit"] == newest
    bench.settings["remote_check"] = "always"
    assert bench.clone("clock", last_commit="2023-11-01")["commit"] == newest
