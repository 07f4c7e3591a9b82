"""A crawl with several data dirs: every command takes them in the same way, and finds those that are not given."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from crawling import weft, weft_here
from exporting import make_crawl, url_of
from proxying import EchoSite

from weft.config import PolitenessSection
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_crawl(tmp_path_factory.mktemp("crawl"), 30, data_dirs=3)


@pytest.mark.parametrize("how", ["a,b", "a --data-dir b"])
@pytest.mark.parametrize("command", ["get", "export"])
def test_further_data_dirs_are_a_list(crawl: list[Path], command: str, how: str) -> None:
    home, *others = crawl
    flags = ["--data-dir", ",".join(map(str, others))] if how == "a,b" else [f"--data-dir={one}" for one in others]
    if command == "export":
        done = weft_here("export", home, "--format", "jsonl", "--out", "-", *flags)
        assert done.returncode == 0, done
        assert done.stdout.count("\n") == 30
        return
    for number in range(1, 5):
        done = weft_here(command, home, url_of(number), *flags)
        assert done.returncode == 0, done
        assert url_of(number) in done.stdout


REPORTS = ("stats", "get", "explain", "audit", "export", "watch", "rebuild")


def asked(command: str, *dirs: object) -> tuple[int, str]:
    """The exit code of a report, and what it said."""
    more = {
        "get": [url_of(1)],
        "explain": [url_of(1)],
        "export": ["--format", "jsonl", "--out", "-"],
        "watch": ["--json"],
    }
    done = weft_here(command, dirs[0], *more.get(command, []), *dirs[1:])
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", REPORTS)
def test_a_report_that_is_given_one_data_dir_finds_the_others(crawl: list[Path], command: str) -> None:
    """The first, or any other; and all of them in any order, as arguments or with --data-dir."""
    if not (crawl[0] / "frontier").exists():  # `audit` and `explain` want one
        EmbeddedFrontier(crawl[0] / "frontier", PolitenessSection(delay_s=1.0, places=1)).close()
    code, said = asked(command, crawl[0])
    assert code == 0, said
    for one in crawl[1:]:
        assert asked(command, one) == (code, said)
    assert asked(command, crawl[2], "--data-dir", f"{crawl[1]},{crawl[0]}") == (code, said)
    if command not in ("get", "explain"):  # their second argument is a URL
        assert asked(command, *reversed(crawl)) == (code, said)


def test_data_dirs_that_were_moved_together_are_found_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    home, other = make_crawl(tmp_path / "before", 3)
    (tmp_path / "before").rename(tmp_path / "after with space")
    home, other = (tmp_path / "after with space" / path.name for path in (home, other))
    assert asked("stats", other)[0] == 0
    other.rename(tmp_path / "elsewhere")
    code, said = asked("stats", home)
    assert code == 2 and f"data dir 2 of 2 of its crawl was {tmp_path / 'before' / other.name}" in said
    assert asked("stats", home, "--data-dir", tmp_path / "elsewhere")[0] == 0
    (tmp_path / "elsewhere" / "dirs.json").write_text("{")
    assert asked("stats", home, "--data-dir", tmp_path / "elsewhere")[0] == 0, "what is damaged is named by the user"


def test_a_copy_does_not_take_the_data_dirs_of_its_original(tmp_path: Path) -> None:
    home, other = make_crawl(tmp_path, 3)
    for path in (home, other):
        shutil.copytree(path, path.with_name(f"{path.name}-copy"))
    copy, copied = (path.with_name(f"{path.name}-copy") for path in (home, other))
    code, said = asked("stats", copy)
    assert code == 2 and f"{copy}: is a copy of {home}, and {other} belongs to that" in said
    assert asked("stats", copy, "--data-dir", copied)[0] == 0 and asked("stats", home)[0] == 0


def test_the_next_command_that_a_crawl_of_several_data_dirs_prints_works(tmp_path: Path) -> None:
    dirs = [tmp_path / "a b", tmp_path / "c"]
    with EchoSite(pages=2) as site:
        ended = weft("crawl", f"{site.url}page/0", "--allow-private", "--delay", 0, "--max-pages", 1,
                     "--prometheus-port", 0, *(f"--data-dir={one}" for one in dirs))  # fmt: skip
        assert ended.returncode == 3, ended.stderr
        done = weft("crawl", "--resume", "--data-dir", dirs[1], "--max-pages", 9)
        assert len(site.asked) == 2
    hint = done.stderr.rpartition("See: ")[2]
    assert done.returncode == 0 and shlex.split(hint) == ["weft", "stats", str(dirs[0])], done.stderr
    told = weft_here(*shlex.split(hint)[1:])
    assert told.returncode == 0 and "pages      2 " in told.stdout
