"""A crawl's home on disk: settings and seeds are there before the crawl is, and what is damaged is an error."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from weft.crawl import folder
from weft.crawl.folder import CrawlFolder, RecrawlStart
from weft.errors import BadInput, Damaged
from weft.files import replace_file
from weft.sealed import open_json, open_lines, sealed_json, sealed_lines

SETTINGS: dict[str, Any] = {
    "politeness_delay_seconds": 30.0,
    "exclude": ["*/private/*"],
    "headers": {"b": "1", "a": "2"},
}
SEEDS = ["http://a.test/", "http://b.test/ü", "http://a.test/"]


def begun(path: Path) -> CrawlFolder:
    made = CrawlFolder([path])
    made.lock_folder()
    made.start(SEEDS, settings=SETTINGS)
    made.release()
    return CrawlFolder([path])


def test_what_was_kept_is_given_back(tmp_path: Path) -> None:
    made = begun(tmp_path / "data")
    assert made.settings() == SETTINGS
    assert made.seeds() == SEEDS[:2]
    made.add_seeds(["http://c.test/", "http://a.test/"])
    made.keep_settings(SETTINGS | {"politeness_delay_seconds": 60})
    assert made.seeds() == [*SEEDS[:2], "http://c.test/"]
    assert made.settings()["politeness_delay_seconds"] == 60


def test_every_change_of_a_setting_is_kept_with_what_was_in_force_before(tmp_path: Path) -> None:
    made = begun(tmp_path / "data")
    assert made.settings_record().revision == 1
    made.keep_settings(SETTINGS)
    assert made.settings_record().revision == 1, "nothing has changed"
    made.keep_settings(SETTINGS | {"politeness_delay_seconds": 60.0})
    made.keep_settings(SETTINGS | {"politeness_delay_seconds": 1.0, "exclude": []}, ["exclude"])
    record = CrawlFolder([tmp_path / "data"]).settings_record()
    assert (record.revision, record.defaults) == (3, ["exclude"])
    assert [one.changed for one in record.changes] == [
        {"politeness_delay_seconds": (30.0, 60.0)},
        {"exclude": (["*/private/*"], []), "politeness_delay_seconds": (60.0, 1.0)},
    ]
    assert [record.values_of(number)["politeness_delay_seconds"] for number in (1, 2, 3)] == [30.0, 60.0, 1.0]
    assert record.values_of(1) == SETTINGS


@pytest.mark.parametrize("writes", range(4))
def test_a_kill_between_any_two_writes_leaves_no_crawl_without_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed after so many files: there is no crawl, or one with all its settings and seeds."""
    left = writes

    def dies(path: Path, data: bytes, *, durable: bool = True) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        replace_file(path, data, durable=durable)

    monkeypatch.setattr(folder, "replace_file", dies)
    made = CrawlFolder([tmp_path])
    try:
        made.start(SEEDS, settings=SETTINGS)
    except KeyboardInterrupt:
        pass
    assert made.exists() == (writes >= 2)
    if made.exists():
        assert made.settings() == SETTINGS and made.seeds() == SEEDS[:2]


def damaged(data: bytes) -> list[bytes]:
    """Cut everywhere, emptied, and one bit flipped in every byte."""
    cuts = [data[:length] for length in range(len(data))]
    flips = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]
    return cuts + flips


@pytest.mark.parametrize(("name", "read"), [("config.json", "settings"), ("seeds.txt", "seeds")])
def test_damage_anywhere_is_an_error_that_names_the_file(tmp_path: Path, name: str, read: str) -> None:
    made = begun(tmp_path)
    path = made.own_folder / name
    whole, meant = path.read_bytes(), getattr(made, read)()
    for content in damaged(whole):
        path.write_bytes(content)
        said = ""
        try:
            assert getattr(made, read)() == meant, content  # white space between two words of JSON says nothing
        except Damaged as error:
            said = str(error)
        assert not said or (name in said and "`fresh=True`" in said)
    path.unlink()
    with pytest.raises(Damaged, match=f"{name}: is missing; .*backup"):
        getattr(made, read)()


def test_what_a_crawl_is_is_read_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    made = begun(tmp_path)
    path = tmp_path / "engine.json"
    whole, meant = path.read_bytes(), made.identity()
    for content in damaged(whole):
        path.write_bytes(content)
        said = "restore it from a backup"
        try:
            assert made.identity() == meant or b'"sha256"' not in content, content
        except Damaged as error:
            said = str(error)
        assert "restore it from a backup" in said


def test_a_folder_of_the_layout_before_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "crawl.json").write_text('{"layout": 1, "crawl_id": "x"}')
    with pytest.raises(BadInput, match="has layout 1, this Weft reads 2: use the Weft that made it") as refused:
        CrawlFolder([tmp_path]).identity()
    assert "\n" not in str(refused.value)


def test_pages_without_engine_json_are_damage_and_not_an_empty_place(tmp_path: Path) -> None:
    made = begun(tmp_path)
    (tmp_path / "warc").mkdir()
    (tmp_path / "engine.json").unlink()
    with pytest.raises(Damaged, match=r"engine\.json: is missing, and there are pages; restore it"):
        made.identity()
    with pytest.raises(BadInput, match="holds no crawl: start one"):
        CrawlFolder([tmp_path / "elsewhere"]).identity()


def test_where_a_recrawl_began_is_not_guessed(tmp_path: Path) -> None:
    made = begun(tmp_path)
    assert made.recrawl() == {}
    made.begin_recrawl(0, 1e9, 17)
    assert made.recrawl() == {0: RecrawlStart(17, 1e9)}
    (tmp_path / "crawls/crawl/recrawl-0.json").write_bytes(b"")
    with pytest.raises(Damaged, match=r"recrawl-0\.json"):
        made.recrawl()


@pytest.mark.parametrize("name", ["config", "seeds"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    home = tmp_path / "data"
    own = home / "crawls" / "crawl"
    own.mkdir(parents=True)
    (own / f"{name}.tmp").symlink_to(precious)
    begun(home)
    assert precious.read_text() == "mine"
    assert not (own / f"{name}.tmp").is_symlink()


def test_what_may_hold_secrets_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        begun(tmp_path / "new")
        (tmp_path / "there").mkdir(mode=0o755)
        begun(tmp_path / "there")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755, "what was there keeps its mode"
    for place in ("new", "there"):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / place).rglob("*")}
        files = dict.fromkeys(("engine.json", "config.json", "seeds.txt", "lock"), 0o600)
        assert modes == files | {"crawls": 0o700, "crawl": 0o700}


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that a power cut cannot turn around: content, name, folder."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def seen_fsync(fd: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def seen_replace(path: Path, target: Path) -> Path:
        done.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    replace_file(tmp_path / "one", b"1")
    assert done == ["file", "rename", "folder"]
    done.clear()
    replace_file(tmp_path / "one", b"2", durable=False)
    assert done == ["rename"] and (tmp_path / "one").read_bytes() == b"2"


def test_a_digest_is_of_the_content_and_not_of_its_order(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_bytes(sealed_json({"b": (1, 2), "a": {"y": None, "x": 1.5}}))
    assert open_json(path, "") == {"b": [1, 2], "a": {"y": None, "x": 1.5}}
    path.write_bytes(sealed_lines([]))
    assert open_lines(path, "") == []


@pytest.mark.parametrize("name", ["engine.json", "crawls/crawl/config.json", "crawls/crawl/seeds.txt"])
def test_a_file_that_the_machine_cannot_open_now_is_not_called_damaged(tmp_path: Path, name: str) -> None:
    made = begun(tmp_path / "data")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    if name != "engine.json":
        assert made.identity()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, before[1]))
        with pytest.raises(BadInput, match="ulimit -n") as refused:
            open_lines(tmp_path / "data" / name, "restore it from a backup")
        with pytest.raises(BadInput, match="ulimit -n") as seen:
            made.identity()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(held[0])
    for one in (refused, seen):
        assert not isinstance(one.value, Damaged) and "Too many open files" in str(one.value)
        assert "backup" not in str(one.value)
