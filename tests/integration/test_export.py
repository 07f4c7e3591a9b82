"""Exports as other programs read them: DuckDB, pandas, warcio, fastwarc."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import msgspec
import pytest
from crawling import WEFT, environment, weft
from exporting import AT, ODD_TITLES, make_crawl, page, run, url_of
from fastwarc.warc import ArchiveIterator as FastIterator
from pace import patience
from warcio.archiveiterator import ArchiveIterator

from weft.crawl.folder import CrawlFolder
from weft.crawl.reports.rebuild import rebuild
from weft.errors import BadInput, Busy, Missing
from weft.store.export import parquet
from weft.store.export.part import ExportPart
from weft.store.export.request import DEFAULT_COLUMNS, ExportRequest
from weft.store.export.source import ExportSource
from weft.store.export.surt import surt_key
from weft.store.pages import PageStore

PAGES = 400
ROWS = [page(n)[0] for n in range(1, PAGES + 1)]
NUMBERS = {row.url: row.item for row in ROWS}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_crawl(tmp_path_factory.mktemp("crawl"), PAGES, rotate_bytes=40_000)


def records(path: Path) -> list[dict[str, object]]:
    """What was exported; an export has one data dir after the other, the pages here are numbered."""
    return sorted((json.loads(line) for line in path.read_bytes().splitlines()), key=number_of)


def number_of(record: Mapping[str, object]) -> int:
    return NUMBERS[str(record["url"])]


# ── JSONL and CSV ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_jsonl_has_the_fields_of_the_index(crawl: list[Path], tmp_path: Path) -> None:
    assert run(crawl, ExportRequest("jsonl"), tmp_path / "o.jsonl").rows == PAGES
    told = records(tmp_path / "o.jsonl")
    assert all(tuple(record) == DEFAULT_COLUMNS for record in told)
    assert [record["url"] for record in told] == [row.url for row in ROWS]
    refused, moved = told[8], told[10]
    assert (
        refused["error"] == "robots: Disallow: /é (line 3)" and refused["status"] == 0 and refused["warc_file"] is None
    )
    assert moved["final_url"] == url_of(12) and moved["parent"] == url_of(5) and told[0]["parent"] is None
    assert told[0]["fetched_at"] == "2026-11-06T21:20:01.250Z" and told[6]["title"] == ODD_TITLES[7]
    assert str(told[0]["digest"]).startswith("sha1:")
    assert not list(tmp_path.glob("*.part*"))


def test_jsonl_opens_in_duckdb_and_pandas(crawl: list[Path], tmp_path: Path) -> None:
    import pandas as pd  # half a second, which nobody else needs

    path = tmp_path / "o.jsonl"
    run(crawl, ExportRequest("jsonl", content="text"), path)
    by_status = duckdb.execute(f"select status, count(*) from '{path}' group by status").fetchall()
    assert dict(by_status) == Counter(row.status for row in ROWS)
    frame = pd.read_json(path, lines=True)
    assert list(frame.columns) == [*DEFAULT_COLUMNS, "text"]
    first, refused = (frame[frame.url == url_of(n)].iloc[0] for n in (1, 9))
    assert first.text.startswith("Page 1\n") and first.language == "en"
    assert refused.text is None or pd.isna(refused.text)


def test_csv_is_read_back_and_holds_no_formula(crawl: list[Path], tmp_path: Path) -> None:
    import pandas as pd  # half a second, which nobody else needs

    path = tmp_path / "o.csv"
    run(crawl, ExportRequest("csv"), path)
    data = path.read_bytes()
    assert data.count(b"\r\n") == PAGES + 1
    told = sorted(csv.DictReader(io.StringIO(data.decode(), newline="")), key=number_of)
    assert [record["url"] for record in told] == [row.url for row in ROWS]
    assert told[3]["title"] == ODD_TITLES[4] and told[6]["title"] == ODD_TITLES[7]
    assert [told[n - 1]["title"] for n in (3, 6, 8)] == ["'" + ODD_TITLES[n] for n in (3, 6, 8)]
    assert not [cell for record in told for cell in record.values() if cell.startswith(("=", "+", "-", "@"))]
    assert len(pd.read_csv(path)) == PAGES
    assert duckdb.execute(f"select count(*) from read_csv('{path}')").fetchall() == [(PAGES,)]


@pytest.mark.parametrize("content", ["text", "main_text", "markdown", "html"])
def test_content_is_added_when_asked_for(crawl: list[Path], tmp_path: Path, content: str) -> None:
    run(crawl, ExportRequest("jsonl", fields=("url",), content=content), tmp_path / "o.jsonl")
    told = records(tmp_path / "o.jsonl")
    assert list(told[0]) == ["url", content] and "This is page 1, and" in str(told[0][content])
    assert told[8][content] is None
    starts = {"html": "<html", "markdown": "# Page", "main_text": "This is"}
    assert str(told[0][content]).startswith(starts.get(content, "Page 1"))


@pytest.mark.parametrize(
    ("links", "says"), [("keep", "See [another](http"), ("text", "See another."), ("drop", "See .")]
)
def test_links_in_markdown_are_kept_or_not(crawl: list[Path], tmp_path: Path, links: str, says: str) -> None:
    order = {"links": links, "hosts": ("www.h1.example.com",)}
    run(crawl, ExportRequest("parquet", content="markdown", **order), tmp_path / "o.parquet")  # type: ignore[arg-type]
    run(crawl, ExportRequest("markdown", **order), tmp_path / "md")  # type: ignore[arg-type]
    (files,) = [path.read_text() for path in (tmp_path / "md").rglob("*.md") if "See " in path.read_text()]
    (column,) = duckdb.execute(f"select markdown from '{tmp_path}/o.parquet' where markdown like '%See %'").fetchall()
    assert says in files and says in column[0]
    flags = ("--content", "markdown", "--links", links, "--host", "www.h1.example.com", "--out", tmp_path / "o.jsonl")
    told = weft("export", crawl[0], "--data-dir", crawl[1], "--format", "jsonl", *flags)
    assert told.returncode == 0, told.stderr
    assert says in (tmp_path / "o.jsonl").read_text()


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_what_pages_say_of_themselves_are_columns_when_asked_for(
    crawl: list[Path], tmp_path: Path, format_: str
) -> None:
    fields = ("url", "page_kind", "page_kind_certainty", "withheld", "page_title")
    path = tmp_path / f"o.{format_}"
    run(crawl, ExportRequest(format_, fields=fields), path)
    if format_ == "jsonl":
        told = records(path)
    else:
        import pyarrow.parquet as pq

        told = pq.read_table(path).to_pylist()
    first = next(one for one in told if one["url"] == ROWS[0].url)
    assert tuple(first) == fields and first["page_kind"] == "article" and first["withheld"] is None
    certainty = first["page_kind_certainty"]
    assert isinstance(certainty, float) and 0 < certainty <= 1 and first["page_title"]


def test_filters_hold_together(crawl: list[Path], tmp_path: Path) -> None:
    import pandas as pd  # half a second, which nobody else needs

    since = pd.Timestamp(AT + 200, unit="s").isoformat()
    order = ExportRequest(
        "jsonl", fields=("url", "status"), statuses=("2xx",), hosts=("www.h1.example.com",), since=since
    )
    done = run(crawl, order, tmp_path / "o.jsonl")
    expected = [row.url for row in ROWS if row.status == 200 and row.item % 5 == 1 and row.item >= 200]
    assert [record["url"] for record in records(tmp_path / "o.jsonl")] == expected
    assert done.rows == len(expected) > 20


# ── CDXJ ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def cdxj_by_warcio(files: Iterable[Path]) -> str:
    """The CDXJ lines of WARC files, from what warcio finds in them."""
    lines = []
    for path in files:
        with path.open("rb") as file:
            iterator = ArchiveIterator(file)
            for record in iterator:
                if record.rec_type not in ("response", "revisit"):
                    continue
                header, http = record.rec_headers.get_header, record.http_headers
                url, mime = header("WARC-Target-URI"), http.get_header("Content-Type") or ""
                facts = {
                    "url": url,
                    "mime": "warc/revisit" if record.rec_type == "revisit" else mime.split(";")[0].strip(),
                    "status": http.get_statuscode(),
                    "digest": header("WARC-Payload-Digest"),
                    "length": str(iterator.get_record_length()),
                    "offset": str(iterator.get_record_offset()),
                    "filename": f"{path.parent.name}/{path.name}",
                }
                stamp = "".join(filter(str.isdigit, header("WARC-Date")))[:14]
                shown = json.dumps({name: value for name, value in facts.items() if value})
                lines.append(f"{surt_key(url)} {stamp} {shown}\n")
    return "".join(sorted(lines))


def test_cdxj_says_where_warcio_finds_each_record(crawl: list[Path], tmp_path: Path) -> None:
    run(crawl, ExportRequest("cdxj"), tmp_path / "o.cdxj")
    files = sorted(path for folder in crawl for path in (folder / "warc").glob("*/*.gz"))
    assert len(files) > 3
    expected = cdxj_by_warcio(files)
    assert (tmp_path / "o.cdxj").read_text() == expected
    assert expected.count("\n") == len([row for row in ROWS if row.status])


def test_pages_that_have_not_changed_are_reported_too(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 20, data_dirs=1)
    store = PageStore.open(dirs, crawl_id=CrawlFolder(dirs).identity().id)
    for n in (1, 2, 3):
        row, result = page(n)
        assert result is not None
        again = msgspec.structs.replace(
            row, item=100 + n, status=304, fetched_at=AT + 100 + n, digest="sha1:" + "A" * 32
        )
        answer = msgspec.structs.replace(result, status=304, head=b"HTTP/1.1 304 Not Modified\r\n\r\n", body=b"")
        store.add_revisit(again, answer if n < 3 else result, of_date=AT, not_modified=n < 3)
    store.close()
    run(dirs, ExportRequest("cdxj", all_visits=True), tmp_path / "o.cdxj")
    expected = cdxj_by_warcio((dirs[0] / "warc").glob("*/*"))
    assert (tmp_path / "o.cdxj").read_text() == expected
    assert expected.count("warc/revisit") == 3
    run(dirs, ExportRequest("warc", statuses=("304",), all_visits=True), tmp_path / "o.warc.gz")
    assert [kind for kind, _, _ in by_warcio(tmp_path / "o.warc.gz")] == ["warcinfo", *["request", "revisit"] * 3]
    before = {row.item: msgspec.to_builtins(row) for _, row in ExportSource(dirs).rows()}
    rebuild(dirs)
    assert {row.item: msgspec.to_builtins(row) for _, row in ExportSource(dirs).rows()} == before


def test_a_head_longer_than_a_few_kb_is_read(tmp_path: Path) -> None:
    dirs = make_crawl(tmp_path / "crawl", 0, data_dirs=1)
    row, result = page(1)
    assert result is not None
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000)).encode()
    head = b"HTTP/1.1 200 OK\r\nX-Long: " + noise + b"\r\nContent-Type: text/late\r\n\r\n"
    store = PageStore.open(dirs, crawl_id=CrawlFolder(dirs).identity().id)
    store.add(row, msgspec.structs.replace(result, head=head))
    store.close()
    run(dirs, ExportRequest("cdxj"), tmp_path / "o.cdxj")
    assert '"mime": "text/late"' in (tmp_path / "o.cdxj").read_text()


# ── WARC ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_warcio(path: Path) -> list[tuple[str, str, bytes]]:
    found = []
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            url = record.rec_headers.get_header("WARC-Target-URI") or ""
            found.append((record.rec_type, url, record.content_stream().read()))
    return found


def test_warc_holds_requests_and_responses(crawl: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "o.warc.gz"
    run(crawl, ExportRequest("warc", statuses=("200",)), path)
    expected = {row.url for row in ROWS if row.status == 200}
    (info, *rest) = by_warcio(path)
    assert info[0] == "warcinfo"
    assert [kind for kind, _, _ in rest] == ["request", "response"] * len(expected)
    assert {url for _, url, _ in rest} == expected
    assert all(request[1] == response[1] for request, response in zip(rest[::2], rest[1::2], strict=True))
    bodies = {url: body for kind, url, body in rest if kind == "response"}
    assert all(bodies[result.url] == result.body for _, result in map(page, (1, 2, 17)) if result)
    fast = [(record.headers["WARC-Type"], record.verify_payload_digest()) for record in FastIterator(str(path))]
    assert len(fast) == 2 * len(expected) + 1 and all(right for kind, right in fast if kind == "response")


def test_warc_members_are_copied_as_they_are(crawl: list[Path], tmp_path: Path) -> None:
    run(crawl, ExportRequest("warc"), tmp_path / "o.warc.gz")
    copied = (tmp_path / "o.warc.gz").read_bytes()
    run(crawl, ExportRequest("jsonl"), tmp_path / "o.jsonl")
    for record in records(tmp_path / "o.jsonl")[::7]:
        if record["warc_file"]:
            (path,) = (path for folder in crawl if (path := folder / "warc" / str(record["warc_file"])).exists())
            assert path.read_bytes()[int(str(record["warc_offset"])) :][:100] in copied


def test_warc_is_split_by_size(crawl: list[Path], tmp_path: Path) -> None:
    run(crawl, ExportRequest("warc", max_bytes=20_000), tmp_path / "many")
    files = sorted((tmp_path / "many").iterdir())
    assert len(files) > 5 and all(path.stat().st_size <= 20_000 for path in files)
    held = [by_warcio(path) for path in files]
    assert all(records[0][0] == "warcinfo" for records in held)
    responses = [url for records in held for kind, url, _ in records if kind == "response"]
    assert sorted(responses) == sorted(row.url for row in ROWS if row.status)


# ── Parquet and Markdown ───────────────────────────────────────────────────────────────────────────────────────────


def test_parquet_has_the_names_of_common_crawl(crawl: list[Path], tmp_path: Path) -> None:
    import pandas as pd  # half a second, which nobody else needs

    path = tmp_path / "o.parquet"
    run(crawl, ExportRequest("parquet", content="text"), path)
    query = f"""select fetch_status, count(*) from '{path}' where url_host_registered_domain = 'example.com'
      and fetch_time >= '2026-11-06' group by fetch_status"""
    assert dict(duckdb.execute(query).fetchall()) == Counter(row.status for row in ROWS if row.status)
    frame = pd.read_parquet(path)
    first = frame[frame.url == url_of(1)].iloc[0]
    assert first.url_surtkey == "com,example,h1:8080)/p1?a=1&b=2" and first.url_port == 8080
    assert first.content_languages == "eng" and first.content_mime_detected == "text/html"
    assert first.warc_segment == "pod0-fetcher0" and first.crawl == "c1" and first.text.startswith("Page 1")
    assert first.fetch_time == pd.Timestamp("2026-11-06T21:20:01.250Z")
    assert str(frame.url_query.iloc[1]) in ("None", "nan") and frame.warc_record_length.min() > 0
    moved = frame[frame.url == url_of(11)].iloc[0]
    assert moved.fetch_redirect == url_of(12) and moved.subset == "crawldiagnostics"


def test_parquet_columns_can_be_chosen(crawl: list[Path], tmp_path: Path) -> None:
    import pandas as pd  # half a second, which nobody else needs

    run(crawl, ExportRequest("parquet", fields=("url", "fetch_status")), tmp_path / "o.parquet")
    assert list(pd.read_parquet(tmp_path / "o.parquet").columns) == ["url", "fetch_status"]


def test_without_pyarrow_the_error_says_how_to_install_it(
    crawl: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Missing, match=r"weft\[parquet\]"):
        run(crawl, ExportRequest("parquet"), tmp_path / "o.parquet")
    assert parquet.PIECE_BYTES


def test_markdown_is_one_file_for_each_page(crawl: list[Path], tmp_path: Path) -> None:
    done = run(crawl, ExportRequest("markdown"), tmp_path / "md")
    files = sorted((tmp_path / "md").rglob("*.md"))
    readable = [row for row in ROWS if row.status == 200 and row.content_type == "text/html"]
    assert done.rows == len(files) == len(readable)
    texts = [path.read_text() for path in files]
    assert all(text.startswith("---\nurl: ") and '\nlanguage: "en"\n---\n\n# Page ' in text for text in texts)
    assert {path.parent.name for path in files} == {f"www.h{n}.example.com" for n in range(5)}
    with pytest.raises(BadInput, match="exists already"):
        run(crawl, ExportRequest("markdown"), tmp_path / "md")


# ── the command ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_writes_to_a_file_and_to_a_pipe(crawl: list[Path], tmp_path: Path) -> None:
    begin = ["export", crawl[0], "--data-dir", crawl[1], "--format"]
    told = weft(
        *begin, "jsonl", "--out", tmp_path / "o.jsonl", "--status", "2xx,404", "--fields", "url,title", "--json"
    )
    assert told.returncode == 0, told.stderr
    rows = len([row for row in ROWS if row.status in (200, 404)])
    assert json.loads(told.stdout) == {
        "schema": 1, "path": str(tmp_path / "o.jsonl"), "rows": rows, "resumed_rows": 0,
        "unread": 0, "unread_pages": [],
    }  # fmt: skip
    for name in ("jsonl", "csv", "cdxj", "warc"):
        command = [*WEFT, *map(str, begin), name, "--out", "-"]
        piped = subprocess.run(command, capture_output=True, timeout=patience(60), env=environment())
        assert piped.returncode == 0 and piped.stderr == b""
        if name != "warc":
            run(crawl, ExportRequest(name), tmp_path / f"p.{name}")
            assert piped.stdout == (tmp_path / f"p.{name}").read_bytes()
        else:
            (tmp_path / "p.warc.gz").write_bytes(piped.stdout)
            assert len(by_warcio(tmp_path / "p.warc.gz")) == 1 + 2 * len([row for row in ROWS if row.status])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--format", "parquet", "--out", "-"), "give --out a path"),
        (("--format", "jsonl", "--out", "{}/no/such/o"), "is not a folder"),
        (("--format", "jsonl", "--out", "{}"), "is a folder"),
        (("--format", "jsonl", "--out", "{}/o", "--fields", "urls"), "did you mean url"),
        (("--format", "xml", "--out", "{}/o"), "jsonl"),
        (("--format", "jsonl", "--out", "{}/o", "--links", "text"), "only Markdown has links"),
    ],
)
def test_bad_usage_is_one_message(crawl: list[Path], tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    told = weft("export", crawl[0], "--data-dir", crawl[1], *(flag.format(tmp_path) for flag in flags))
    assert told.returncode == 2 and says in told.stderr and "Traceback" not in told.stderr
    assert not list(tmp_path.iterdir())


def test_two_exports_do_not_write_one_output(crawl: list[Path], tmp_path: Path) -> None:
    held = ExportPart(tmp_path / "o.jsonl")
    with pytest.raises(Busy, match="another export"):
        run(crawl, ExportRequest("jsonl"), tmp_path / "o.jsonl")
    held.close()
    assert run(crawl, ExportRequest("jsonl"), tmp_path / "o.jsonl").rows == PAGES


def test_an_export_that_another_one_ends_before_it_holds_its_lock_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first deletes the file with its end; a lock on the deleted one would keep nobody out."""
    first, lock = ExportPart(tmp_path / "o.jsonl"), fcntl.flock

    def late(fd: int, operation: int) -> None:
        monkeypatch.undo()
        first.drop_state()
        first.close()
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    second = ExportPart(tmp_path / "o.jsonl")
    with pytest.raises(Busy, match="another export"):
        ExportPart(tmp_path / "o.jsonl")
    second.close()
