"""The pipeline `pages` beside datatrove: CPU for each page, from the same WARC files to rows without duplicates.

    python benchmarks/pages_beside.py [--corpus DIR] [--pages 200]

Both read the first pages of a crawl's WARC file (that of `weft demo`, made if none is given), take their main text,
apply the rules of Gopher and C4, remove near duplicates with MinHash and write JSON lines; Weft also writes Markdown,
signals and Parquet. datatrove tokenizes with spaCy as for English, and is done with a page at the first filter that
removes it, while Weft measures every page. One process does the work. What a run over fewer pages takes is subtracted,
so that start-up is left out. datatrove is installed into an environment of its own; where it cannot be installed or
run, that is said, and there is no row. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import children_s, weft

from weft.store.warc.foreign_warc import UnreadableStretch, find_records

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".bench" / "datatrove"
# lxml-html-clean is named since pip left it out, and then trafilatura cannot be imported.
PEER = (
    "datatrove[processing]==0.10.1", "faust-cchardet==3.2.0", "lxml-html-clean==0.4.6", "orjson==3.13.0",
    "python-magic==0.4.27", "spacy==3.8.18", "warcio==1.8.1",
)  # fmt: skip
INSTALL_S, RUN_S = 900, 240
START_PAGES = 40


class NoRow(Exception):
    """Why the peer has no figures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a crawl's data dir")
    parser.add_argument("--pages", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = args.corpus or folder / "demo"
        if args.corpus is None:
            weft(folder, "demo", "--data-dir", corpus, "--quiet")
        source = next((corpus / "warc").glob("*/*.warc.gz"))
        for count in (START_PAGES, args.pages):
            source_of(folder, count).mkdir()
            (source_of(folder, count) / "pages.warc.gz").write_bytes(first_pages(source, count))
        more = args.pages - START_PAGES
        report: dict[str, object] = {"pages": more, "weft": {"cpu_ms": of_weft(folder, args.pages, more)}}
        try:
            report["datatrove"] = {"cpu_ms": of_datatrove(folder, args.pages, more)}
        except NoRow as why:
            report["datatrove"] = f"no row: {why}"
    print(json.dumps(report, indent=1))


def first_pages(source: Path, count: int) -> bytes:
    """The beginning of a WARC file that has so many responses with status 200 in it."""
    for found in find_records(source):
        if isinstance(found, UnreadableStretch) or found.headers.get("warc-type") != "response":
            continue
        if count == 0:
            return source.read_bytes()[: found.place.offset]
        count -= found.start.startswith(b"HTTP/1.1 200")
    return source.read_bytes()


def source_of(folder: Path, count: int) -> Path:
    """Where so many pages are."""
    return folder / f"first-{count}"


def of_weft(folder: Path, pages: int, more: int) -> float:
    """CPU-ms for each further page."""
    took = {
        count: weft(
            folder, "pipeline", "run", "pages", "--set", f"items.from={source_of(folder, count)}", "--workers", 1,
            "--out", f"weft-{count}", "--fresh", "--quiet",
        )
        for count in (START_PAGES, pages)
    }  # fmt: skip
    return round(1000 * (took[pages] - took[START_PAGES]) / more, 2)


def of_datatrove(folder: Path, pages: int, more: int) -> float:
    """The same for datatrove; NoRow where it cannot be had."""
    python = set_up()
    took = {}
    for count in (START_PAGES, pages):
        before = children_s()
        script = Path(__file__).parent / "contenders" / "datatrove_pages.py"
        call([str(python), str(script), str(source_of(folder, count)), str(folder / f"datatrove-{count}")], RUN_S)
        took[count] = children_s() - before
    return round(1000 * (took[pages] - took[START_PAGES]) / more, 2)


def set_up() -> Path:
    """datatrove's environment; returns its interpreter."""
    python, stamp = VENV / "bin" / "python", VENV / "ready"
    wanted = "\n".join(PEER)
    if not stamp.is_file() or stamp.read_text() != wanted:
        call([sys.executable, "-m", "venv", "--clear", str(VENV)], INSTALL_S)
        call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEER], INSTALL_S)
        stamp.write_text(wanted)
    return python


def call(command: list[str], most_s: int) -> None:
    """Runs a command; NoRow where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s)
    except subprocess.TimeoutExpired:
        raise NoRow(f"{' '.join(command[1:4])} took longer than {most_s} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NoRow(f"{' '.join(command[1:4])}: {last}")


if __name__ == "__main__":
    main()
