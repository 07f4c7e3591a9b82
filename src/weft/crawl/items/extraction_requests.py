"""`weft extract DIR --failed`: calls the callbacks of failed pages again, and commits their items, in the processes
that own the crawl: those that run it, or some that are started for this and send no requests.

    DATA/crawls/crawl/extract.json        the number of the last extraction request
    DATA/crawls/crawl/extracted-POD.json  the outcome of the last request that a pod has finished

A request that is interrupted by a kill is finished by the crawl's next processes.
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
    """A pod's report on an extraction request."""

    number: int
    made: Reextracted


def last_request(folder: CrawlFolder) -> int:
    """The number of the last request; 0 if there was none."""
    path = folder.own_folder / "extract.json"
    return int(open_json(path, _REMEDY).get("number", 0)) if path.exists() else 0


def add_request(folder: CrawlFolder) -> int:
    """Requests that the crawl's processes extract failed pages again; returns the request's number. The caller holds
    the folder."""
    number = last_request(folder) + 1
    replace_file(folder.own_folder / "extract.json", sealed_json({"number": number, "at": time.time()}))
    return number


def read_report(folder: CrawlFolder, pod: int) -> ExtractedByPod:
    """A pod's last report."""
    path = _report_path(folder, pod)
    if not path.exists():
        return ExtractedByPod(0, Reextracted())
    try:
        return msgspec.convert(open_json(path, _REMEDY), ExtractedByPod)
    except msgspec.ValidationError as error:
        raise Damaged(path, f"cannot be read: {error}", _REMEDY) from None


def combined_result(folder: CrawlFolder, number: int) -> Reextracted | None:
    """The combined outcome of a request; None until all pods have finished it."""
    total = Reextracted()
    for pod in range(folder.pods):
        write_report = read_report(folder, pod)
        if write_report.number < number:
            return None
        total.add(write_report.made)
    return total


def write_report(folder: CrawlFolder, pod: int, number: int, made: Reextracted) -> None:
    """Stores a pod's report on a finished request."""
    values = msgspec.to_builtins(ExtractedByPod(number, made))
    replace_file(_report_path(folder, pod), sealed_json(values))


def _report_path(folder: CrawlFolder, pod: int) -> Path:
    return folder.own_folder / f"extracted-{pod}.json"
