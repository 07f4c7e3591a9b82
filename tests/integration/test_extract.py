"""Rules as settings of a crawl: fields are in the rows, come out of every reader and export, and harm no other page."""

from __future__ import annotations

import csv
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler
from engines import END_S, kill, until
from fastwarc.warc import ArchiveIterator, WarcRecordType
from odd_pages import PAGES
from pace import patience

import weft
from weft.crawl.reports.page_export import export
from weft.crawl.reports.rebuild import rebuild
from weft.errors import BadConfig, BadInput
from weft.extract.rules.field_rules import BadRules
from weft.store.export.request import ExportRequest
from weft.store.pages import PageStore

RULES: dict[str, Any] = {
    "title": "h1",
    "price": {"css": ".price", "type": "number", "required": True},
    "tags": {"css": ".tag", "many": True},
    "formula": {"css": ".formula"},
}
PATTERNS = RULES | {"number": {"regex": r"No\. (\d+)", "type": "number"}}
GOODS = 8


class _Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name.startswith("odd-"):
            body = PAGES[int(name[4:])].html
        elif self.path == "/odd":
            body = "".join(f"<a href=/odd-{at}>{at}</a>" for at in range(len(PAGES)))
        else:
            at = int(name) if name.isdigit() else 0
            words = "kills-parsers" if at == 3 else f"word{at} " * 5
            body = (
                f"<h1>Thing {at}</h1><p class=price>{'free' if at == 2 else f'{at},50'}<p>No. {at} {words}"
                f"<b class=tag>a</b><b class=tag>b{at}</b><i class=formula>=1+{at}</i>"
                + "".join(f"<a href=/{one}>{one}</a>" for one in range(GOODS))
            )
        data = body.encode("utf-8", "replace")
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def rows_of(data_dir: Path) -> dict[str, dict[str, Any]]:
    store = PageStore.open([data_dir], read_only=True)
    try:
        return {
            row.url.rpartition("/")[2]: json.loads(row.fields or "{}") | {"error": row.error} for row in store.rows()
        }
    finally:
        store.abandon()


@pytest.fixture(scope="module")
def crawled(shop: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl by the command line, its rules in a file, its parser children killed by one page."""
    tmp_path = tmp_path_factory.mktemp("extract")
    (tmp_path / "rules.json").write_text(json.dumps(PATTERNS))
    crawler = Crawler([f"{shop}/1"], tmp_path, "--extract", tmp_path / "rules.json", delay_s=0)
    assert crawler.run(WEFT_TEST_DEADLY_MARK="kills-parsers") == 0, crawler.said
    return crawler.data_dir


def test_fields_are_in_the_rows_and_a_page_that_kills_its_parser_costs_that_page_alone(crawled: Path) -> None:
    found = rows_of(crawled)
    assert set(found) >= {str(at) for at in range(GOODS)}
    for at in set(range(GOODS)) - {2, 3}:
        assert found[str(at)]["fields"] == {
            "title": f"Thing {at}", "price": at + 0.5, "tags": ["a", f"b{at}"], "formula": f"=1+{at}", "number": at,
        }  # fmt: skip
        assert found[str(at)]["field_errors"] == {}
    assert found["2"]["fields"]["price"] is None and list(found["2"]["field_errors"]) == ["price"]
    assert found["3"] == {"error": "parse_crash"}


def test_exports_have_the_fields_and_no_formula(crawled: Path, tmp_path: Path) -> None:
    export([crawled], ExportRequest("jsonl"), tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    one = next(line for line in lines if line["url"].endswith("/5"))
    assert one["fields"]["price"] == 5.5 and one["field_errors"] == {}
    export([crawled], ExportRequest("json"), tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == lines
    export([crawled], ExportRequest("csv"), tmp_path / "a.csv")
    cells = {row["url"][-2:]: row for row in csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text()))}
    assert cells["/5"]["fields.price"] == "5.5" and json.loads(cells["/5"]["fields.tags"]) == ["a", "b5"]
    assert cells["/5"]["fields.formula"] == "'=1+5"
    assert cells["/2"]["fields.price"] == "" and "price" in json.loads(cells["/2"]["field_errors"])
    export([crawled], ExportRequest("markdown"), tmp_path / "md")
    assert any('fields: {"title": "Thing 5"' in path.read_text() for path in (tmp_path / "md").rglob("*.md"))
    export([crawled], ExportRequest("csv", ("url", "fields.title")), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text().startswith("url,fields.title\n")


def test_parquet_has_the_fields_as_json(crawled: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export([crawled], ExportRequest("parquet"), tmp_path / "a.parquet")
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    fields = {row["url"][-2:]: row["fields"] for row in rows}
    assert json.loads(fields["/5"])["title"] == "Thing 5" and fields["/3"] is None


def test_a_rebuilt_index_has_the_fields(crawled: Path) -> None:
    before = rows_of(crawled)
    rebuild([crawled])
    assert rows_of(crawled) == before


def test_odd_pages_over_http(shop: str, tmp_path: Path) -> None:
    """Every odd page in a crawl of its own: together in one engine, that is."""
    with weft.Engine(tmp_path / "engine", allow_private=True, delay=0) as engine:
        for at, odd in enumerate(PAGES):
            engine.open(f"odd{at}", f"{shop}/odd-{at}", extract=odd.rules, seeded_urls_only=True)
        for at, odd in enumerate(PAGES):
            engine.wait(f"odd{at}", patience(END_S))
            (page,) = engine.pages(f"odd{at}")
            expected = json.loads(json.dumps(odd.values).replace("shop.example/goods", page.url.split("/")[2]))
            plain = "url" not in json.dumps(odd.rules)
            if plain:
                assert page.fields == expected, odd.name
            assert tuple(page.field_errors) == odd.errors, odd.name


@pytest.mark.parametrize(
    "pods",
    [("--num-pods", 2), ("--pods", "managed", "--fetchers-per-pod", 1, "--parsers-per-pod", 1)],
    ids=["embedded", "redis"],
)
def test_pods_read_the_same_fields(shop: str, pods: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(PATTERNS))
    crawler = Crawler([f"{shop}/1"], tmp_path, "--extract", tmp_path / "rules.json", *pods, delay_s=0)
    assert crawler.run() == 0, crawler.said
    found = {url: row["fields"] for url, row in rows_of(crawler.data_dir).items()}
    assert {url: (one["title"], one["number"]) for url, one in found.items()} == {
        str(at): (f"Thing {at}", at) for at in range(GOODS)
    }


def test_one_crawl_of_an_engine_is_exported_by_its_name(shop: str, tmp_path: Path) -> None:
    with weft.Engine(tmp_path / "engine", allow_private=True, delay=0) as engine:
        engine.open("goods", f"{shop}/1", extract=RULES, max_pages=5)
        engine.open("plain", f"{shop}/1", max_pages=3)
        for name in ("goods", "plain"):
            engine.wait(name, patience(END_S))
        for name, count in (("goods", 5), ("plain", 3)):
            done = engine.export(name, "json", tmp_path / f"{name}.json", statuses=["2xx"])
            rows = json.loads((tmp_path / f"{name}.json").read_text())
            assert done.rows == len(rows) == count
            assert all(("fields" in row) is (name == "goods") for row in rows)
            engine.export(name, "warc", tmp_path / f"{name}.warc.gz")
            with (tmp_path / f"{name}.warc.gz").open("rb") as file:
                found = [one.headers["WARC-Target-URI"] for one in ArchiveIterator(file, WarcRecordType.response)]
            assert sorted(found) == sorted(row["url"] for row in rows)
            for format_ in ("jsonl", "csv", "cdxj"):
                out = io.BytesIO()
                engine.export(name, format_, out, statuses=["2xx"])
                assert len(out.getvalue().splitlines()) == count + (format_ == "csv")
            engine.export(name, "markdown", tmp_path / name)
            assert len(list((tmp_path / name).rglob("*.md"))) == count
        with pytest.raises(BadInput, match="no format 'pdf'"):
            engine.export("goods", "pdf", tmp_path / "x")
        with pytest.raises(BadInput, match="'nobody'"):
            engine.export("nobody", "json", tmp_path / "x")


def test_rules_survive_a_kill_of_the_engine(shop: str, tmp_path: Path) -> None:
    with weft.Engine(tmp_path / "engine", allow_private=True, delay=0.05) as engine:
        engine.open("goods", f"{shop}/1", extract=PATTERNS)
        until(lambda: engine.standing("goods").pages >= 2)
        kill(engine)
        engine.wait("goods", patience(END_S))
        fields = {page.url.rpartition("/")[2]: page.fields for page in engine.pages("goods")}
    assert {at: found["title"] for at, found in fields.items()} == {str(at): f"Thing {at}" for at in range(GOODS)}
    assert list(fields["1"]) == list(PATTERNS)


def test_bad_rules_are_named_by_their_paths_before_anything_is_asked(shop: str, tmp_path: Path) -> None:
    with pytest.raises(BadRules, match=r"extract\.price\.css: "):
        next(weft.crawl(shop, extract={"price": "a["}, allow_private=True))
    with pytest.raises(BadConfig, match=r"nowhere\.json cannot be read"):
        next(weft.crawl(shop, extract=tmp_path / "nowhere.json", allow_private=True))
    (tmp_path / "laughs.yaml").write_text(
        "a0: &a0 {css: a}\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    )
    with pytest.raises(BadConfig, match="parts"):
        next(weft.crawl(shop, extract=tmp_path / "laughs.yaml", allow_private=True))
    with weft.Engine(tmp_path / "engine", allow_private=True) as engine:
        with pytest.raises(BadRules) as caught:
            engine.open("goods", shop, extract={"a": {"xpath": "//["}})
        assert caught.value.found[0][0] == "extract.a.xpath"
        engine.open("goods", shop, extract=RULES)
        with pytest.raises(BadInput, match="other settings"):
            engine.open("goods", shop, extract={"title": "h2"})
