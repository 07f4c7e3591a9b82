"""The main text of pages by other tools, with the CPU that each page takes. Run in an environment that has them.

    python benchmarks/contenders/main_text.py < pages

Reads JSON lines of [url, HTML]; prints one of {tool: {"version": ..., "texts": [...], "cpu_ms": [...]}}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version


def trafilatura(url: str, html: str) -> str:
    from trafilatura import extract

    return extract(html, url=url, include_comments=False, include_tables=True) or ""


def readability(url: str, html: str) -> str:
    from lxml.html import fromstring
    from readability import Document

    return fromstring(Document(html).summary()).text_content()


def resiliparse(url: str, html: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return extract_plain_text(html, main_content=True, alt_texts=False)


TOOLS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "trafilatura": ("trafilatura", trafilatura),
    "readability-lxml": ("readability-lxml", readability),
    "resiliparse": ("resiliparse", resiliparse),
}


def main() -> None:
    pages = [json.loads(line) for line in sys.stdin]
    report = {}
    for name, (package, extract) in TOOLS.items():
        texts, cpu = [], []
        extract("https://example.com/", "<p>imported</p>" * 50)
        for url, html in pages:
            began = time.process_time()
            try:
                text = extract(url, html)
            except Exception:  # a page that a tool cannot read has no text
                text = ""
            cpu.append(1000 * (time.process_time() - began))
            texts.append(text)
        report[name] = {"version": version(package), "texts": texts, "cpu_ms": cpu}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
