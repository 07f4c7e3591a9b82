"""Files that stages and collectors write: whole or not at all, and never outside the output directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import BadInput
from weft.pipelines.files import PARTS, RunFiles


def test_a_file_is_there_as_a_whole_and_is_known_by_size_and_digest(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    assert files.write("thumbnails/a.png", b"1234") == "thumbnails/a.png"
    assert (tmp_path / "thumbnails/a.png").read_bytes() == b"1234"
    written = files.written["thumbnails/a.png"]
    assert written.bytes == 4
    assert len(written.digest) == 32
    assert files.holds(written)
    (tmp_path / "thumbnails/a.png").write_bytes(b"")
    assert not files.holds(written)


def test_a_block_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.write("card.md", "before")

    def write() -> None:
        with files.create("card.md") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert (tmp_path / "card.md").read_text() == "before"
    assert list((tmp_path / PARTS).iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a//b",
        ".hidden",
        "a\0b",
        "manifest.json",
        "shard-00001.jsonl",
        "parquet/shard-00001.parquet",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be a file of the output"):
        RunFiles(tmp_path / "out").write(name, b"")
    assert not (tmp_path / "out").exists()


def test_names_for_items_are_safe_and_different(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    names = [files.name_for(one, ".png") for one in ("a", "a/b", "a_b", "..", 7)]
    assert len(set(names)) == len(names)
    for name in names:
        assert files.path(name).parent == tmp_path
