"""`weft pipeline run pages` as a user has it: any WARC files become a data set that DuckDB and pyarrow read."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from html import escape
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from crawling import environment, weft_here
from exporting import make_crawl, url_of
from exporting import page as stored_page
from msgspec.structs import replace
from pace import patience
from planted_duplicates import NEIGHBOUR, ORIGINAL, judge, plant
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from weft.crawl.folder import CrawlFolder
from weft.records import Rendered
from weft.store.pages import PageStore

HEADERS = [("Content-Type", "text/html; charset=utf-8")]
# The planted texts are made of invented words: what the rules say of such texts is not what is tested here.
WITHOUT_RULES = ("max_duplicate_5gram", "max_top_2gram", "min_stop_words", "min_c4_sentences", "max_mean_word_length")


def weft(folder: Path, *arguments: object, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "weft", "pipeline", *map(str, arguments)],
        cwd=folder, env=environment(PIPELINE_WORKER_COUNT="2", **variables),
        capture_output=True, text=True, timeout=patience(90),
    )  # fmt: skip
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def warc(pages: list[tuple[str, bytes, list[tuple[str, str]]]], compressed: bool = True) -> bytes:
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=compressed)
    writer.write_record(writer.create_warcinfo_record("x.warc.gz", {"software": "warcio"}))
    for url, body, headers in pages:
        head = StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head))
    missing = StatusAndHeaders("404 Not Found", HEADERS, protocol="HTTP/1.1")
    record = writer.create_warc_record(
        "https://a.test/gone", "response", payload=io.BytesIO(b"gone"), http_headers=missing
    )
    writer.write_record(record)
    return out.getvalue()


def page(text: str, head: str = "") -> bytes:
    paragraphs = "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n"))
    return (
        f"<html lang=en><head><title>A title</title>{head}</head><body><main>{paragraphs}</main></body></html>".encode()
    )


def planted_run(folder: Path, out: str, *, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    off = [word for name in WITHOUT_RULES for word in ("--set", f"collect.{name}=null")]
    return weft(folder, "run", "pages", "--set", "items.from=in", "--out", out, *off, code=code, **variables)


def removed(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "removed.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a file that warcio wrote, with planted duplicates, run once."""
    folder = tmp_path_factory.mktemp("pages")
    planted = plant(40, seed=5, words=(60, 300))
    pages = [(f"https://a.test/{place}", page(one.text), HEADERS) for place, one in enumerate(planted)]
    (folder / "in").mkdir()
    (folder / "in" / "planted.warc.gz").write_bytes(warc(pages))
    planted_run(folder, "out")
    return folder


def test_planted_duplicates_are_removed_with_their_reason(done: Path) -> None:
    planted = plant(40, seed=5, words=(60, 300))
    rows = pq.read_table(done / "out" / "parquet/shard-00000.parquet", columns=["id", "url"]).to_pylist()
    urls = {row["id"]: row["url"] for row in rows}
    found: list[int | None] = [None] * len(planted)
    for row in removed(done / "out"):
        assert row["reason"] in ("exact_duplicate", "near_duplicate"), row
        found[int(str(row["url"]).rpartition("/")[2])] = int(urls[row["duplicate_of"]].rpartition("/")[2])
    judged = judge(planted, found)
    assert judged.recall >= 0.95 and judged.precision >= 0.98
    assert len(rows) + len(removed(done / "out")) == len(planted)
    assert sum(one.role in (ORIGINAL, NEIGHBOUR) for one in planted) <= len(rows)


def test_the_shards_load_in_duckdb_and_pyarrow_and_say_the_same(done: Path) -> None:
    out = done / "out"
    asked = "select count(*), min(words), max(language) from"
    counted, of_lines = (
        duckdb.execute(f"{asked} '{out}/**/shard-*.{form}'").fetchall()[0] for form in ("parquet", "jsonl")
    )
    assert counted == of_lines
    table = pq.read_table(out / "parquet/shard-00000.parquet")
    assert table.num_rows == counted[0] > 0
    lines = [json.loads(line) for line in (out / "shard-00000.jsonl").read_text().splitlines()]
    assert [row["text"] for row in table.to_pylist()] == [line["text"] for line in lines]
    assert set(lines[0]) == set(table.schema.names)


def test_the_data_card_counts_what_is_there(done: Path) -> None:
    card = (done / "out" / "README.md").read_text()
    kept = pq.read_metadata(done / "out" / "parquet/shard-00000.parquet").num_rows
    assert f"| **kept** | {kept:,} |" in card
    assert f"| `near_duplicate` | {sum(row['reason'] == 'near_duplicate' for row in removed(done / 'out')):,} |" in card
    assert "## Sample" in card and "| `en` |" in card
    manifest = json.loads((done / "out" / "manifest.json").read_text())
    assert {"README.md", "removed.jsonl"} <= {str(file[0]) for file in manifest["files"]}


def test_other_rules_need_no_page_to_be_read_again(done: Path) -> None:
    said = weft(
        done, "run", "pages", "--set", "items.from=in", "--out", "other", "--set", "collect.min_words=200"
    ).stderr
    assert "0 ok" not in said and "unchanged" in said
    assert any(row["reason"] == "min_words" for row in removed(done / "other"))


def test_killed_twice_and_run_again_it_gives_the_same_bytes(done: Path, tmp_path: Path) -> None:
    (tmp_path / "in").symlink_to(done / "in")
    for step in ("result-read:20", "collected"):
        planted_run(tmp_path, "again", code=-9, WEFT_TEST_CRASH_AT=step)
    planted_run(tmp_path, "again")
    wanted, found = (
        {
            str(path.relative_to(folder / out)): path.read_bytes()
            for path in (folder / out).rglob("*")
            if path.is_file() and not path.relative_to(folder / out).parts[0].startswith(".")
        }
        for folder, out in ((done, "out"), (tmp_path, "again"))
    )
    assert "parquet/shard-00000.parquet" in wanted and found == wanted


def test_pandas_reads_the_folder_of_parquet_as_one_table(done: Path) -> None:
    pandas = pytest.importorskip("pandas")
    lines = sum(len(path.read_text().splitlines()) for path in (done / "out").glob("shard-*.jsonl"))
    assert len(pandas.read_parquet(done / "out" / "parquet")) == lines > 0


def test_a_crawl_is_read_from_all_of_its_data_dirs(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 12, data_dirs=2)
    run = ("run", "pages", "--out", "out", "--set")
    assert "2 data dirs" in weft(tmp_path, *run, f"items.from={dirs[0]}", code=2).stderr
    weft(tmp_path, *run, f"items.from=[{dirs[0]}, {dirs[1]}]")
    shard = (tmp_path / "out" / "shard-00000.jsonl").read_text()
    rows = [json.loads(line) for line in shard.splitlines()] + removed(tmp_path / "out")
    refused, moved = 9, 11
    assert {row["url"] for row in rows} == {url_of(number) for number in range(1, 13) if number not in (refused, moved)}
    assert len(rows) == 10


def rendered_crawl(folder: Path, pages: list[tuple[bytes, bytes]]) -> None:
    """A crawl of responses, each with what a browser has made of it, or nothing."""
    dirs = make_crawl(folder, 0, data_dirs=1)
    store = PageStore.open(dirs, crawl_id=CrawlFolder(dirs).open_existing().id)
    for number, (body, drawn) in enumerate(pages, 1):
        row, result = stored_page(number)
        assert result is not None
        store.add(row, replace(result, body=body, rendered=Rendered(html=drawn) if drawn else None))
    store.close()


@pytest.mark.parametrize("source", ["data0", "data0/warc"])
def test_of_a_page_that_a_browser_has_drawn_the_drawn_form_is_read(tmp_path: Path, source: str) -> None:
    shell, texts = b"<script src=app.js></script>", [one.text for one in plant(6, seed=7, words=(80, 120))[:2]]
    rendered_crawl(tmp_path, [(shell, page(texts[0])), (page(texts[1]), b""), (shell, b"")])
    off = [word for name in WITHOUT_RULES for word in ("--set", f"collect.{name}=null")]
    weft(tmp_path, "run", "pages", "--set", f"items.from={source}", "--out", "out", *off)
    rows = [json.loads(line) for line in (tmp_path / "out" / "shard-00000.jsonl").read_text().splitlines()]
    assert [(row["url"], row["truncated"]) for row in rows] == [(url_of(1), False), (url_of(2), False)]
    for row, text in zip(rows, texts, strict=True):
        assert text[:60] in row["text"]
        got = weft_here("get", tmp_path / "data0", row["url"], "--main-text").stdout
        assert got.rstrip("\n") == row["text"].rstrip("\n")
    assert [row["url"] for row in removed(tmp_path / "out")] == [url_of(3)]


def test_files_that_are_cut_plain_or_of_one_gzip_member_give_what_is_in_them(tmp_path: Path) -> None:
    texts = [plant(4, seed=seed, words=(80, 120))[0].text for seed in range(5)]
    stated = [*HEADERS, ("Content-Usage", "train-ai=n")]
    pages = [(f"https://a.test/{number}", page(text), stated) for number, text in enumerate(texts)]
    whole = warc(pages, compressed=False)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a-plain.warc").write_bytes(whole)
    (folder / "b-one-member.warc.gz").write_bytes(gzip.compress(whole))
    cut = warc(pages)
    (folder / "c-cut.warc.gz").write_bytes(cut[: int(len(cut) * 0.6)])
    (folder / "a-empty.warc.gz").write_bytes(b"")
    (folder / "b-page.warc").write_bytes(b"<html>")
    off = [word for name in WITHOUT_RULES for word in ("--set", f"collect.{name}=null")]
    done = weft(tmp_path, "run", "pages", "--set", "items.from=in", "--out", "out", *off, code=1)
    assert "ends in the middle of a record" in done.stderr
    assert "a-empty.warc.gz: is empty" in done.stderr and "b-page.warc: is no WARC file" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "shard-00000.jsonl").read_text().splitlines()]
    assert [row["url"] for row in rows] == [url for url, _, _ in pages]
    assert {(row["ai_training"], row["content_usage"]) for row in rows} == {(False, "train-ai=n")}
    again = removed(tmp_path / "out")
    assert {row["reason"] for row in again} == {"exact_duplicate"}
    assert 5 + 2 <= len(again) < 10  # all of the second file, and of the third what comes before the cut
    assert "| could not be read | 3 |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--set items.from=PATH"),
        (["--set", "items.from=nowhere"], "nowhere is not there"),
        (["--set", "items.from=empty"], "empty holds no pages"),
        (["--set", "items.from=page.html"], "is no WARC file"),
        (["--set", "items.from=empty", "--set", "collect.min_wrods=3"], "did you mean 'min_words'?"),
    ],
)
def test_bad_input_is_one_message(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "page.html").write_text("<html>")
    assert said in weft(tmp_path, "run", "pages", *arguments, code=2).stderr
