"""Exports that are killed and go on, and exports that are long: the same output, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crawling import environment
from exporting import killed, make_crawl, run
from pace import patience

from weft.crawl.folder import CrawlFolder
from weft.records import FetchResult, Row
from weft.store.export import cdxj, parquet
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore
from weft.store.warc.warc_read import WarcScan

PAGES = 1500
ORDERS = {
    "jsonl": ExportRequest("jsonl", content="text", statuses=("2xx",)),
    "csv": ExportRequest("csv"),
    "cdxj": ExportRequest("cdxj"),
    "parquet": ExportRequest("parquet"),
    "warc": ExportRequest("warc", statuses=("200",)),
    "split": ExportRequest("warc", max_bytes=50_000),
    "markdown": ExportRequest("markdown"),
}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_crawl(tmp_path_factory.mktemp("crawl"), PAGES, rotate_bytes=150_000)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdxj, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(cdxj, "PIECES_PER_MERGE", 3)
    for name, size in (("BATCH_ROWS", 50), ("GROUP_ROWS", 100), ("PIECE_BYTES", 150_000)):
        monkeypatch.setattr(parquet, name, size)


def content(path: Path) -> object:
    """What an output holds, without what is another in every run (the id of a warcinfo record)."""
    if path.is_dir():
        return {str(file.relative_to(path)): content(file) for file in path.rglob("*") if file.is_file()}
    if path.name.endswith(".warc.gz"):
        return [found.record for found in WarcScan(path)][1:]
    return pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes()


def joined(path: Path) -> object:
    """The same; of split WARC files all records in order: where one ends depends on how its warcinfo is packed."""
    files = sorted(path.glob("*.warc.gz")) if path.is_dir() else []
    return [record for file in files for record in list(content(file))] if files else content(path)  # type: ignore[call-overload]


def out_of(name: str, folder: Path) -> Path:
    return folder / {"warc": "o.warc.gz", "split": "o", "markdown": "o"}.get(name, f"o.{name}")


@pytest.mark.parametrize("name", ORDERS)
def test_a_killed_export_goes_on_and_is_the_same(crawl: list[Path], tmp_path: Path, name: str) -> None:
    whole, path = out_of(name, tmp_path / "whole"), out_of(name, tmp_path)
    whole.parent.mkdir()
    run(crawl, ORDERS[name], whole)

    def export(live: Callable[[], None]) -> None:
        run(crawl, ORDERS[name], path, checkpoint_rows=100, watch=lambda *_: live())

    by_place = name in ("warc", "split")  # these go on by the thousand
    killed(export, times=2 if by_place else 8)
    assert not path.exists() and Path(f"{path}.part").exists()
    killed(export, times=1 if by_place else 4)
    done = run(crawl, ORDERS[name], path)
    assert 0 < done.resumed < done.rows, (name, done)
    assert joined(path) == joined(whole)
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted([path.name, "whole"])


def test_another_order_begins_anew(crawl: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    killed(lambda live: run(crawl, ExportRequest("jsonl"), path, checkpoint_rows=100, watch=lambda *_: live()), times=5)
    done = run(crawl, ExportRequest("jsonl", fields=("url",)), path)
    assert (done.resumed, done.rows) == (0, PAGES)
    assert all(list(json.loads(line)) == ["url"] for line in path.read_bytes().splitlines())


def test_a_part_that_lost_bytes_begins_anew(crawl: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    killed(lambda live: run(crawl, ExportRequest("jsonl"), path, checkpoint_rows=100, watch=lambda *_: live()), times=5)
    os.truncate(f"{path}.part", 10)
    assert run(crawl, ExportRequest("jsonl"), path).resumed == 0
    assert len(path.read_bytes().splitlines()) == PAGES


def test_going_on_means_the_crawl_as_it_was(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 500)
    path = tmp_path / "o.jsonl"
    killed(lambda live: run(dirs, ExportRequest("jsonl"), path, checkpoint_rows=100, watch=lambda *_: live()), times=3)
    make_crawl(tmp_path / "crawl", 100, first=501)
    done = run(dirs, ExportRequest("jsonl"), path)
    assert done.rows == 500 and 0 < done.resumed < 500
    assert run(dirs, ExportRequest("jsonl"), tmp_path / "new.jsonl").rows == 600


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MANY, WORDS = 15_000, 1600  # 120 MB of bodies
# Runs a command and prints the most memory that it had at a time, in KB (getrusage would count its parent's too).
MEASURED = """
import sys
from pathlib import Path
from weft.cli.main import run
code = run(sys.argv[1:])
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
sys.exit(code)
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "data"
    folder.mkdir()
    identity = CrawlFolder([folder]).start(["http://h0.test/"])
    store = PageStore.open([folder], crawl_id=identity.id)
    head, body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", b"<p>" + b"word " * WORDS
    for n in range(1, MANY + 1):
        url = f"http://h{n % 1000}.test/a/page/of/some/length-{n}?number={n}"
        row = Row(
            n, 1, url, url, 200, 1.8e9 + n, "text/html", "utf-8", "", f"Title {n} " * 5, 1, n - 1, "", len(body), ""
        )
        store.add(
            row, FetchResult(url, 200, head, body, None, "", 1.8e9, 1.8e9, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
        )
        if n % 500 == 0:
            store.write()
            store.commit()
    store.close()
    return folder


@pytest.mark.slow
def test_120_megabytes_of_pages_are_exported_in_less_than_200(many: Path, tmp_path: Path) -> None:
    names = ("jsonl", "cdxj", "warc", "parquet")
    running = {name: measured("export", many, "--format", name, "--out", tmp_path / name, "-q") for name in names}
    for name, command in running.items():
        told, complaint = command.communicate(timeout=patience(100))
        assert command.returncode == 0, complaint
        megabytes = int(told) / 1024
        print(f"{name}: {megabytes:.0f} MB")
        assert megabytes < 200, name
        assert (tmp_path / name).stat().st_size > 150_000


def measured(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL
    )
