"""Large seed files: what is read of one, its copy in the crawl's folder, and what is damaged there."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import urls
from weft.crawl.folder import CrawlFolder
from weft.crawl.seeds import seed_file as seeds_module
from weft.crawl.seeds import seed_origins
from weft.crawl.seeds.feeding import learn_scope
from weft.crawl.seeds.seed_file import SeedFile
from weft.crawl.seeds.seed_streams import Piece, SeedStream, read_pieces, write_stream
from weft.crawl.start import prepare
from weft.engine.admission.rules import AdmissionRules
from weft.engine.loop.progress import CrawlProgress
from weft.errors import BadInput, Damaged

LINES = [f"http://host{number}.test/a/path/of/some/length" for number in range(30_000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def read(path: Path) -> bytes:
    file = SeedFile(str(path))
    try:
        assert not file.is_small
        return b"".join(file.pieces(lambda _: None))
    finally:
        file.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "given.txt"
    path.write_bytes(TEXT)
    assert len(TEXT) > seeds_module.SMALL
    return path


@pytest.mark.parametrize("end", [b"", b"http://last.test/", b"\n\n# a comment\n"])
def test_a_large_file_is_read_to_its_end_in_whole_lines(large: Path, end: bytes) -> None:
    large.write_bytes(TEXT + end)
    assert read(large) == TEXT + end + (b"" if not end or end.endswith(b"\n") else b"\n")
    packed = large.with_suffix(".gz")
    packed.write_bytes(gzip.compress(TEXT + end, 1))
    assert read(packed) == read(large)


@pytest.mark.parametrize("cut", [len(TEXT), len(TEXT) - 20])
def test_of_a_file_that_grows_what_was_there_is_read_to_the_end_of_its_line(large: Path, cut: int) -> None:
    large.write_bytes(TEXT[:cut])
    file = SeedFile(str(large))
    with large.open("ab") as writer:
        writer.write(TEXT[cut:] + b"http://later.test/\n" * 50_000)
    assert b"".join(file.pieces(lambda _: None)) == TEXT
    file.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(TEXT)[:-20_000], "gzip data cannot be read to the end"),
        (b"http://a.test/\n" + b"x" * 3_000_000, "a line of over a million bytes"),
        (b"# only comments\n" * 100_000, "has no URL in its first 65,536 bytes"),
        (b"http://a.test/\n\0" + TEXT, "is not text"),
    ],
    ids=["a cut gzip file", "one line", "comments", "binary"],
)
def test_a_large_file_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)

    def take() -> None:
        file = SeedFile(str(path))
        file.seeds(lambda _: None)
        list(file.pieces(lambda _: None))

    with pytest.raises(BadInput, match=says):
        take()


def test_how_far_a_long_copy_is_is_told(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "_REPORT_EVERY_S", 0.0)
    told: list[str] = []
    file = SeedFile(str(large))
    list(file.pieces(told.append))
    file.close()
    assert told and all("GB read" in text and str(large) in text for text in told)


def test_a_stream_is_read_from_any_piece_on(tmp_path: Path) -> None:
    blocks = [TEXT[at : TEXT.index(b"\n", at) + 1] for at in (0, TEXT.index(b"\n") + 1)] + [b"\xef\xff\n"]
    stream = write_stream(tmp_path / "seeds-1.pack", blocks)
    pieces = list(read_pieces(tmp_path, stream, ""))
    assert [piece.lines for piece in pieces] == [[LINES[0]], [LINES[1]], ["��"]]
    assert [(piece.text_before, piece.lines_before) for piece in pieces][2] == (len(blocks[0] + blocks[1]), 2)
    assert list(read_pieces(tmp_path, stream, "", pieces[0].end)) == pieces[1:]
    assert pieces[-1].end == stream.bytes == (tmp_path / "seeds-1.pack").stat().st_size


def test_a_crawl_has_its_large_file_when_it_is_there_and_not_twice(large: Path, tmp_path: Path) -> None:
    folder = CrawlFolder([tmp_path / "data"])
    folder.home.mkdir()
    file = SeedFile(str(large))
    folder.start(["http://typed.test/"], large=file)
    folder.check_streams()
    assert (folder.seeds(), len(folder.seed_streams())) == (["http://typed.test/"], 1)
    assert list(folder.scope_seeds()) == LINES
    folder.add_seeds(["http://more.test/"], SeedFile(str(large)))
    assert (folder.seeds(), len(folder.seed_streams())) == (["http://typed.test/", "http://more.test/"], 1)
    large.write_bytes(TEXT + b"http://new.test/\n")
    folder.add_seeds([], SeedFile(str(large)))
    assert [stream.name for stream in folder.seed_streams()] == ["seeds-1.pack", "seeds-2.pack"]
    folder.clear()
    assert list(folder.home.iterdir()) == []


def test_a_large_file_that_is_damaged_is_an_error(large: Path, tmp_path: Path) -> None:
    folder = CrawlFolder([tmp_path / "data"])
    folder.home.mkdir()
    folder.start([], large=SeedFile(str(large)))
    path = folder.own_folder / "seeds-1.pack"
    whole = path.read_bytes()
    for at in range(0, len(whole), len(whole) // 7):
        for changed in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            path.write_bytes(changed)
            with pytest.raises(Damaged, match=r"seeds-1\.pack"):
                folder.check_streams()
    path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        folder.check_streams()
    path.write_bytes(whole)
    folder.check_streams()


class Counting(CrawlFolder):
    """Counts what is read of large seed files."""

    read = 0

    def read_stream(self, stream: SeedStream, at: int = 0) -> Iterator[Piece]:
        for piece in super().read_stream(stream, at):
            self.read += 1
            yield piece


@pytest.mark.parametrize("scope", ["host", "any"])
def test_the_scope_of_a_large_file_is_read_once_and_before_the_crawl_runs(
    large: Path, tmp_path: Path, scope: str
) -> None:
    """So that it counts in no `max_duration`, and a resume gets to its pages."""
    flags = {"data_dirs": [str(tmp_path / "data")], "prometheus_port": 0, "email": "a@b.test"}
    prepare([], flags | {"seed_file": str(large), "scope": scope}, environment={}).close()
    prepare([], flags | {"resume": True, "max_duration": 1}, environment={}).close()
    folder = Counting([tmp_path / "data"])
    rules = AdmissionRules(folder.config().scope, [], this_year=2026)
    progress = CrawlProgress(None, 1)
    if scope != "any":
        learn_scope(rules, folder, progress, lambda: None)
    assert folder.read == 0
    assert rules.in_scope(LINES[-1]) and rules.in_scope("http://other.test/") is (scope == "any")


def test_reading_the_scope_continues_where_it_was_cut_off(large: Path, tmp_path: Path) -> None:
    folder = Counting([tmp_path / "data"])
    folder.home.mkdir()
    folder.start([], large=SeedFile(str(large)))
    path, pieces = folder.own_folder / "seeds-1.origins", len(list(folder.read_stream(folder.seed_streams()[0])))
    told = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seed_origins, "_WRITE_EVERY_S", 0.0)
        patch.setattr(seed_origins, "_REPORT_EVERY_S", 0.0)
        folder.record_scope_origins(told.append)
    assert told[-1].startswith("reading the scope of the seeds, once: ")
    whole, folder.read = path.read_bytes(), 0
    assert whole.count(b"\n") == pieces > 2
    path.write_bytes(whole[: -whole[::-1].index(b"\n", 1) - 10])  # into the last line but one
    folder.record_scope_origins(told.append)
    assert folder.read == 2 and path.stat().st_mode & 0o777 == 0o600
    assert list(folder.scope_seeds()) == [line.replace("a/path/of/some/length", "") for line in LINES]
    path.write_bytes(whole[:100] + b"X" + whole[101:])
    assert sorted({urls.origin_of(seed) for seed in folder.scope_seeds()}) == sorted(
        {urls.origin_of(one) for one in LINES}
    )
