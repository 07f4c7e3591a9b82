"""The small parts of the exports: keys, filters, file names, cells, columns."""

from __future__ import annotations

import re
import time
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import urls
from weft.errors import BadInput, BadUrl
from weft.records import Row
from weft.store.export.columns import COLUMNS, common_crawl_columns
from weft.store.export.lines import _csv_cell
from weft.store.export.markdown import file_name, markdown_document
from weft.store.export.request import DEFAULT_COLUMNS, ExportRequest, RowSelection, parse_since
from weft.store.export.source import parse_head
from weft.store.export.surt import surt_key


def row(url: str = "http://example.com/", **changes: object) -> Row:
    fields: dict[str, object] = {
        "item": 1, "crawl": 1, "url": url, "final_url": url, "status": 200, "fetched_at": 1_794_000_000.25,
        "content_type": "text/html", "charset": "utf-8", "language": "de", "title": "A", "depth": 0, "parent": 0,
        "digest": "sha1:ABC", "length": 3, "error": "",
    }  # fmt: skip
    return Row(**(fields | changes))  # type: ignore[arg-type]


# Sort-friendly keys as web archives write them: what the Internet Archive's own implementation gives for these URLs.
KEYS = {
    "http://example.com/": "com,example)/",
    "https://www.example.com/Path/Index.HTML": "com,example)/path/index.html",
    "http://www2.example.co.uk:8080/a?b=1": "uk,co,example:8080)/a?b=1",
    "https://example.com:443/": "com,example)/",
    "https://example.com:80/x": "com,example:80)/x",
    "http://example.com/a/b/": "com,example)/a/b",
    "http://example.com/a//b///c": "com,example)/a/b/c",
    "http://example.com/?": "com,example)/",
    "http://example.com/?b=2&a=1&A=0": "com,example)/?a=0&a=1&b=2",
    "http://example.com/?b&a=&c": "com,example)/?a=&b&c",
    "http://example.com/?&&": "com,example)/?&&",
    "http://example.com/%41%2fb%20c": "com,example)/a/b%20c",
    "http://example.com/caf%C3%A9?q=%C3%A9+x": "com,example)/caf%c3%a9?q=%c3%a9+x",
    "http://example.com/%2541": "com,example)/a",
    "http://example.com/a?PHPSESSID=0123456789abcdef0123456789abcdef&x=1": "com,example)/a?x=1",
    "http://example.com/a?x=1&jsessionid=0123456789abcdef0123456789abcdef": "com,example)/a?&x=1",
    "http://example.com/a?cfid=1&cftoken=2&z=3": "com,example)/a?z=3",
    "http://127.0.0.1:8000/x": "1,0,0,127:8000)/x",
    "http://www.com/": "com)/",
    "http://xn--mnchen-3ya.de/": "de,xn--mnchen-3ya)/",
    "http://example.com/(S(abcdefghijklmnopqrstuvwx))/page.aspx?X=1": "com,example)/page.aspx?x=1",
    "http://example.com/a%2F..%2Fb/./c": "com,example)/b/c",
    "http://example.com/a;jsessionid=12?x=1;y=2": "com,example)/a;jsessionid=12?x=1;y=2",
    "http://example.com/%": "com,example)/%25",
    "http://example.com/a?u=http://x.com/?y%26z": "com,example)/a?u=http://x.com/?y&z",
    "http://example.com/%e4%bd%a0": "com,example)/%e4%bd%a0",
    "http://example.com/~user/": "com,example)/~user",
    "http://example.com/a+b%2Bc": "com,example)/a+b+c",
}


@pytest.mark.parametrize(("url", "key"), KEYS.items(), ids=KEYS)
def test_keys_are_those_of_the_archives(url: str, key: str) -> None:
    assert surt_key(urls.canonical(url)) == key


@given(st.text("aB1/.%?&=~+;()-_é ", max_size=30))
def test_the_key_of_any_path_is_lower_case_and_the_same_for_www_and_https(path: str) -> None:
    try:
        url = urls.canonical(f"http://www.Example.com/{path}")
    except BadUrl:
        return
    key = surt_key(url)
    assert key.startswith("com,example)/") and key == key.lower() and " " not in key
    assert key == surt_key(urls.canonical(f"https://example.com/{path}"))


def test_statuses_are_codes_and_kinds() -> None:
    takes = RowSelection(ExportRequest("jsonl", statuses=("404", "2xx", "0")), 0.0).matches
    assert [code for code in (0, 200, 204, 301, 404, 410, 500) if takes(row(status=code))] == [0, 200, 204, 404]


def test_hosts_are_exact_or_a_whole_domain() -> None:
    takes = RowSelection(ExportRequest("jsonl", hosts=("a.com", "*.b.com")), 0.0).matches
    there = ["http://a.com/", "http://a.com:81/", "http://b.com/", "http://x.y.b.com/", "http://[::1]:80/"]
    others = ["http://x.a.com/", "http://ab.com/", "http://xb.com/", "http://c.com/a.com"]
    assert [url for url in there + others if takes(row(url))] == there[:4]
    assert RowSelection(ExportRequest("jsonl", hosts=("[::1]",)), 0.0).matches(row("http://[::1]:81/"))


def test_since_is_a_date_a_time_or_so_long_ago() -> None:
    assert parse_since("2026-11-06") == 1_793_923_200
    assert parse_since("2026-11-06T01:00:00+01:00") == 1_793_923_200
    assert abs(parse_since("2h") - (time.time() - 7200)) < 5
    assert parse_since("") == 0
    with pytest.raises(BadInput, match="write a date"):
        parse_since("yesterday")


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (ExportRequest("jsonl", fields=("urll",)), "did you mean url"),
        (ExportRequest("jsonl", content="txt"), "did you mean text"),
        (ExportRequest("jsonl", statuses=("abc",)), "2xx"),
        (ExportRequest("jsonl", max_bytes=1), "WARC"),
        (ExportRequest("warc", content="text"), "`content`"),
        (ExportRequest("cdxj", fields=("url",)), "`fields`"),
        (ExportRequest("markdown", links="txt"), "did you mean text"),
        (ExportRequest("jsonl", content="text", links="drop"), "only Markdown has links"),
        (ExportRequest("jsonl", since="7 years"), "write a date"),
    ],
)
def test_what_cannot_be_is_reported(order: ExportRequest, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        order.check()


def test_the_columns_are_those_asked_for_and_the_content() -> None:
    assert ExportRequest("jsonl", fields=("title", "url"), content="text").columns(DEFAULT_COLUMNS) == (
        "title",
        "url",
        "text",
    )
    assert ExportRequest("jsonl").columns(DEFAULT_COLUMNS) == DEFAULT_COLUMNS


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert _csv_cell(text) == "'" + text
    assert _csv_cell("x" + text) == "x" + text


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/../../etc/passwd", "http://example.com/%2e%2e%2f%2e%2e%2fetc", "http://example.com/a%00b",
        "http://example.com/" + "a" * 1900, "http://example.com/con", "http://[::1]:80/x", "http://example.com/a\\b",
        "http://example.com/%F0%9F%98%80", "http://example.com/?q=/../x", "http://example.com/.hidden", "http://a../x",
    ],
)  # fmt: skip
def test_file_names_are_safe(url: str) -> None:
    name = file_name(urls.canonical(url))
    assert re.fullmatch(r"[a-z0-9_][a-z0-9._-]*/([a-z0-9][a-z0-9-]*-)?[0-9a-f]{16}\.md", name), name
    assert ".." not in name and len(name) < 340


def test_two_urls_never_share_a_file() -> None:
    names = {file_name(f"http://example.com/{path}") for path in ("a-b", "a/b", "a%20b", "A-b", "a?b", "a-b/", "")}
    assert len(names) == 7


def test_front_matter_is_yaml_whatever_the_title_holds() -> None:
    import yaml

    class Page:
        text = main_text = comments = html = ""
        described: ClassVar[dict[str, str | float | None]] = {}
        markdown_text = markdown_drop = ""
        markdown = "# Hello\n\n---\n"
        language = "en"
        mime = "text/html"

    _, front, body = markdown_document(row(title='a: "b"\n--- # é'), Page(), Page().markdown).split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["title"] == 'a: "b"\n--- # é' and facts["language"] == "de"
    assert facts["url"] == "http://example.com/" and str(facts["fetched_at"]).startswith("2026-11-06")
    assert body.strip().startswith("# Hello")


def test_hosts_have_the_parts_that_common_crawl_gives_them() -> None:
    told = common_crawl_columns(row("https://www.a.bbc.co.uk:8443/p?q=1"), "c1")
    assert tuple(told) == COLUMNS
    assert told["url_surtkey"] == "uk,co,bbc,a:8443)/p?q=1"
    names = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")
    assert [told[f"url_host_{name}"] for name in names] == ["uk", "co", "bbc", "a", "www"]
    assert told["url_host_registry_suffix"] == "co.uk" and told["url_host_registered_domain"] == "bbc.co.uk"
    assert (told["url_protocol"], told["url_port"], told["url_path"], told["url_query"]) == ("https", 8443, "/p", "q=1")
    assert told["content_languages"] == "deu" and told["content_digest"] == "ABC"
    private = common_crawl_columns(row("http://me.blogspot.com/"), "c1")
    assert private["url_host_registered_domain"] == "blogspot.com" and private["url_port"] is None
    assert private["url_host_private_domain"] == "me.blogspot.com"
    address = common_crawl_columns(row("http://127.0.0.1:80/"), "c1")
    assert address["url_host_name"] == "127.0.0.1" and address["url_host_tld"] is None


def test_a_head_that_is_cut_is_reported() -> None:
    whole = b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: 999\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"
    record = parse_head(whole)
    assert record.kind == "response" and record.http().get("a") == "b" and record.http().body == b""
    for cut in (10, 60, 78):
        with pytest.raises(ValueError):
            parse_head(whole[:cut])
