"""A crawl by either parser is the same crawl: `html_parser` changes what it costs, not what it finds."""

from __future__ import annotations

import json
from pathlib import Path

from crawling import Crawler, weft

from weft.testing.web import synthetic_web


def test_a_crawl_by_lexbor_finds_and_exports_what_one_by_turbohtml_does(tmp_path: Path) -> None:
    found = []
    with synthetic_web(hosts=4, pages=30, profile="calm", stocked=1, seed=4) as web:
        for parser in ("turbohtml", "lexbor"):
            crawler = Crawler(web.seeds, tmp_path / parser, "--html-parser", parser, delay_s=0.0)
            assert crawler.run() == 0, crawler.said
            out = tmp_path / f"{parser}.jsonl"
            flags = ("--format", "jsonl", "--content", "text", "--fields", "url,status,title,language", "--out", out)
            assert weft("export", crawler.data_dir, *flags).returncode == 0
            found.append(sorted(out.read_text().splitlines()))
    by_turbohtml, by_lexbor = ([json.loads(line) for line in lines] for lines in found)
    assert len(by_turbohtml) > 100
    facts = ("url", "status", "title", "language")
    assert [[row[fact] for fact in facts] for row in by_lexbor] == [
        [row[fact] for fact in facts] for row in by_turbohtml
    ]
    words = ([(row["text"] or "").split() for row in rows] for rows in (by_turbohtml, by_lexbor))
    assert all(one == other for one, other in zip(*words, strict=True))
