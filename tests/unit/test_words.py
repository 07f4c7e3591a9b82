"""`scripts/words`: what it reports of a change, and what it lets through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "words"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose one commit is full of the dialect."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "old.py").write_text('class Answer:\n    """Told anew."""\n\n\nfound = 1\n')
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "begin"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    return tmp_path


def words(tree: Path, *more: str) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, SCRIPT, *more], cwd=tree, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_what_was_there_before_is_not_reported(tree: Path) -> None:
    assert words(tree) == (0, [])


def test_added_lines_are_reported_with_what_to_write(tree: Path) -> None:
    with (tree / "src" / "old.py").open("a") as file:
        file.write("place = 2  # it goes on\n")
    (tree / "guide.md").write_text("A word.\nNobody was told.\n")
    code, lines = words(tree)
    assert code == 1
    assert lines == [
        "src/old.py:6: 'goes on': write continue, resume",
        "src/old.py:6: 'place': write slot, index, offset, position, location",
        "guide.md:2: 'told': write report, log, notify, say which",
        "guide.md:2: 'Nobody': write no process, no user",
    ]


def test_a_word_that_is_right_in_english_or_marked_is_let_through(tree: Path) -> None:
    (tree / "src" / "new.py").write_text(
        "# It takes place in the usual way, as shown.\nfound = 1  # words: ok\nstandard = storytelling = found == 2\n"
    )
    assert words(tree) == (0, [])


def test_a_class_name_that_the_tree_has_is_reported_where_it_is_added(tree: Path) -> None:
    (tree / "src" / "new.py").write_text("class Answer:\n    pass\n\n\nclass Reply:\n    pass\n")
    assert words(tree) == (1, ["src/new.py:1: class Answer is also in src/old.py: choose another name"])


def test_against_an_earlier_revision_committed_lines_count(tree: Path) -> None:
    with (tree / "src" / "old.py").open("a") as file:
        file.write("# whoever\n")
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, "commit", "-q", "-a", "-m", "more"], cwd=tree, check=True)
    assert words(tree)[0] == 0
    assert words(tree, "--base", "HEAD~") == (1, ["src/old.py:6: 'whoever': write the caller, the process that"])
