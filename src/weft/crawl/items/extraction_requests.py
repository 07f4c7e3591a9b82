"""`weft extract DIR --failed`: the callbacks of failed pages are called again, and what they make is committed, by the
processes that own the crawl: those that run it, or some that are started for this and request nothing.

    DATA/crawls/crawl/extract.json        the last order: its number
    DATA/crawls/crawl/extracted-POD.json  what came of the last one that a pod has carried out

An order that is cut off by a kill is carried out by the crawl's next processes.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from weft.crawl.folder import CrawlFolder
from weft.engine.user_code.calls import Reextracted
from weft.errors import Damaged
from weft.files import replace_file
from weft.sealed import open_json, sealed_json

_REMEDY = "it says which pages are to be extracted again: delete it, and call `weft extract --failed` once more"


class ExtractedByPod(msgspec.Struct, frozen=True):
    """What a pod has to report of an order."""

    number: int
    made: Reextracted


def last_order(folder: CrawlFolder) -> int:
    """The number of the last order; 0 if there was none."""
    path = folder.own / "extract.json"
    return int(open_json(path, _REMEDY).get("number", 0)) if path.exists() else 0


def give_order(folder: CrawlFolder) -> int:
    """Has the crawl's processes extract what has failed; the order's number. The caller holds the folder."""
    number = last_order(folder) + 1
    replace_file(folder.own / "extract.json", sealed_json({"number": number, "at": time.time()}))
    return number


def reported(folder: CrawlFolder, pod: int) -> ExtractedByPod:
    """What a pod has reported last."""
    path = _report(folder, pod)
    if not path.exists():
        return ExtractedByPod(0, Reextracted())
    try:
        return msgspec.convert(open_json(path, _REMEDY), ExtractedByPod)
    except msgspec.ValidationError as error:
        raise Damaged(path, f"cannot be read: {error}", _REMEDY) from None


def carried_out(folder: CrawlFolder, number: int) -> Reextracted | None:
    """What came of an order; None until all pods have carried it out."""
    total = Reextracted()
    for pod in range(folder.pods):
        report = reported(folder, pod)
        if report.number < number:
            return None
        total.add(report.made)
    return total


def report(folder: CrawlFolder, pod: int, number: int, made: Reextracted) -> None:
    """A pod has carried out an order."""
    values = msgspec.to_builtins(ExtractedByPod(number, made))
    replace_file(_report(folder, pod), sealed_json(values))


def _report(folder: CrawlFolder, pod: int) -> Path:
    return folder.own / f"extracted-{pod}.json"
