"""How well the main text of real pages is found, and the CPU that a page takes.

    python benchmarks/main_text.py [--wcxb FILE] [--aeb FILE] [--peers PYTHON] [--pages HTML] [--ablation] [--train]

Both sets, by folds: the weights of the kinds of page are fitted on the other folds' pages. `--peers` is a Python with
trafilatura, readability-lxml and resiliparse, which then read the same pages; `--pages` writes the ten worst pages of
each set, side by side with the true text; `--ablation` leaves out one step at a time; `--train` fits the weights on
all pages and writes them to `src/weft/extract/text/page_kind.json`. Prints one JSON object; exits 1 when WCXB is under
.88, articles under .96, or a page takes more than 3 ms in the median.
"""

from __future__ import annotations

import argparse
import difflib
import html
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from harness import kind_weights, text_pages
from harness.text_pages import FOLDS, TruePage

from weft.extract.page import extract
from weft.extract.text import article, main_text, page_kind, pruning

DATA = Path(__file__).parents[2] / "shared" / "data"
TABLE = Path(page_kind.__file__).with_suffix(".json")
WORST = 10
# What `--ablation` leaves out, each with what stands in its place.
STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "comments": (main_text, "_without_comments", lambda *_: ""),
    "narrowing of articles": (main_text, "narrowed", lambda root, *_: root),
    "what precedes an article": (article, "_drop_before", lambda *_: None),
    "what follows it": (article, "_drop_behind", lambda *_: None),
    "captions": (article, "_drop_captions", lambda *_: None),
    "lines beside the matter": (article, "_drop_asides", lambda *_: None),
    "paragraphs in links": (article, "_is_linked", lambda *_: False),
    "headed sections": (pruning, "_drop_sections", lambda *_: None),
    "blocks of links": (pruning, "_drop_link_blocks", lambda *_: None),
    "parts that a reader unfolds": (pruning, "_is_folded", lambda _: False),
    "lists in the flow of a text": (pruning, "_is_in_flow", lambda _: False),
    "prose headed more or related": (pruning, "_is_prose_about", lambda *_: False),
    "lines about cookies": (pruning, "_drop_consent", lambda _: 0),
    "matter around the paragraphs": (article, "_is_matter", lambda *_: False),
    "parts sent late": (pruning, "_assembled", lambda document: document),
    "repeats in prose": (main_text, "repeats_of", lambda _: 0.0),
    "headers of parts": (pruning, "_heads_a_part", lambda header: header.find("h1") is not None),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wcxb", type=Path, default=DATA / "wcxb-dev.tar")
    parser.add_argument("--aeb", type=Path, default=DATA / "aeb-dev.tar")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
    for archive in (args.wcxb, args.aeb):
        if not archive.exists():
            print(f"{archive} is not here: name the archive with --wcxb or --aeb", file=sys.stderr)
            return 2
    pages = text_pages.wcxb(args.wcxb) + text_pages.aeb(args.aeb)
    weights = kind_weights.by_fold(pages)
    if args.train:
        TABLE.write_text(kind_weights.written(kind_weights.fitted(kind_weights.examples(pages))))
    texts, cpu, kinds = read(pages, weights)
    report: dict[str, Any] = {"weft": scores(pages, texts, cpu) | {"kinds": kind_weights.accuracy(pages, kinds)}}
    if args.peers:
        for name, peer in of_peers(args.peers, pages).items():
            report[name] = {"version": peer["version"]} | scores(pages, peer["texts"], peer["cpu_ms"])
    if args.ablation:
        report["without"] = dict(without_each(pages, weights, report["weft"]))
    if args.pages:
        args.pages.write_text(side_by_side(pages, texts), "utf-8")
    print(json.dumps(report, indent=2))
    ours = report["weft"]
    good = ours["wcxb"]["f1"] >= 0.88 and ours["aeb"]["f1"] >= 0.96 and ours["cpu_ms"]["median"] <= 3.0
    return 0 if good else 1


def read(pages: list[TruePage], weights: list[page_kind.Weights]) -> tuple[list[str], list[float], list[str]]:
    """The text of each page, the milliseconds from bytes to text, and its kind; weights are those of its fold."""
    texts, cpu, kinds = [], [], []
    for page in pages:
        with mock.patch.object(page_kind, "_weights", lambda own=weights[page.fold]: own):
            began = time.process_time()
            read = extract(page.body, page.url, "text/html")
            texts.append(read.main_text)
            cpu.append(1000 * (time.process_time() - began))
            kinds.append(str(read.page_kind))
    return texts, cpu, kinds


def scores(pages: list[TruePage], texts: list[str], cpu: list[float]) -> dict[str, Any]:
    """How good the texts of all pages are, each set by its own measure, with the spread over the folds."""
    words = [(page, text_pages.word_f1(text, page.truth)) for page, text in zip(pages, texts, strict=True)]
    mixed = [(page, score) for page, score in words if page.set == "wcxb"]
    types = sorted({page.type for page, _ in mixed})
    shingles = [
        (page, text_pages.shingle_scores(text, page.truth))
        for page, text in zip(pages, texts, strict=True)
        if page.set == "aeb"
    ]
    mean, precision, recall = text_pages.shingle_means([score for _, score in shingles])
    of_folds = [statistics.mean(s for page, s in mixed if page.fold == fold) for fold in range(FOLDS)]
    articles = [text_pages.shingle_means([s for page, s in shingles if page.fold == fold])[0] for fold in range(FOLDS)]
    return {
        "wcxb": {
            "f1": round(statistics.mean(score for _, score in mixed), 4),
            "folds": spread(of_folds),
            "types": {
                kind: round(statistics.mean(score for page, score in mixed if page.type == kind), 3) for kind in types
            },
        },
        "aeb": {
            "f1": round(mean, 4), "precision": round(precision, 4), "recall": round(recall, 4),
            "folds": spread(articles),
        },
        "cpu_ms": {"median": round(statistics.median(cpu), 2), "mean": round(statistics.mean(cpu), 2)},
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 4), "deviation": round(statistics.stdev(values), 4)}


def of_peers(python: Path, pages: list[TruePage]) -> dict[str, Any]:
    """What the tools of another environment make of the same pages; they get text, decoded as we do."""
    given = "\n".join(json.dumps([page.url, extract(page.body, page.url, "text/html").source]) for page in pages)
    script = Path(__file__).parent / "contenders" / "main_text.py"
    done = subprocess.run([python, script], input=given, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def without_each(
    pages: list[TruePage], weights: list[page_kind.Weights], whole: dict[str, Any]
) -> Iterator[tuple[str, dict[str, float]]]:
    """What both measures lose without each step."""
    for name in STEPS:
        with left_out(name):
            texts, cpu, _ = read(pages, weights)
        found = scores(pages, texts, cpu)
        yield name, {which: round(found[which]["f1"] - whole[which]["f1"], 4) for which in ("wcxb", "aeb")}


@contextmanager
def left_out(name: str) -> Iterator[None]:
    module, function, replacement = STEPS[name]
    with mock.patch.object(module, function, replacement):
        yield


def side_by_side(pages: list[TruePage], texts: list[str]) -> str:
    """The worst pages of each set as an HTML document: the true text beside the one that was found."""
    tables = difflib.HtmlDiff(wrapcolumn=70)
    parts = ["<!doctype html><meta charset=utf-8><title>Worst pages</title>", f"<style>{tables._styles}</style>"]  # type: ignore[attr-defined]
    for which in ("wcxb", "aeb"):
        ranked = sorted(
            (text_pages.word_f1(text, page.truth), page.id, page, text)
            for page, text in zip(pages, texts, strict=True)
            if page.set == which
        )
        for score, _, page, text in ranked[:WORST]:
            parts.append(f"<h2>{score:.2f} {html.escape(f'{which} {page.id} {page.type} {page.url}')}</h2>")
            true, found = page.truth[:20_000].splitlines(), text[:20_000].splitlines()
            parts.append(tables.make_table(true, found, "true", "found", context=False))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
