"""Stages, sources and a collector for pipelines under test, and the files that name them.

Every run of a stage is noted in the file that STAGED_TRACE names: `stage id`, one line each.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.pipelines import CollectContext, ItemResult, StageContext

TRACE = "STAGED_TRACE"
Item = Mapping[str, Any]


def items(settings: Item) -> Iterator[dict[str, Any]]:
    for number in range(settings["count"]):
        yield {"id": f"i{number:05}", "n": number, "text": f"word {number} " * (number % 7)}


def note(stage: str, name: object) -> None:
    if path := os.environ.get(TRACE):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{stage} {name}\n".encode())
        os.close(fd)


def traced(path: Path) -> Counter[str]:
    """How often each stage was run for each item, and for all."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(lines) + Counter(line.split()[0] for line in lines)


def read(item: Item, context: StageContext) -> dict[str, Any]:
    note("read", item["id"])
    time.sleep(context.settings.get("sleep", 0))
    return {"text": item["text"], "n": item["n"]}


def count(item: Item, context: StageContext) -> dict[str, Any]:
    note("count", item["id"])
    return {"words": len(context.results["read"]["text"].split()) * context.settings.get("times", 1)}


def label(item: Item, context: StageContext) -> str:
    note("label", item["id"])
    return f"{context.config.get('prefix', '')}{context.results['read']['n'] % 3}"


def join(item: Item, context: StageContext) -> dict[str, Any]:
    note("join", item["id"])
    return dict(sorted(context.results.items()))


def act(item: Item, context: StageContext) -> Any:
    """Does what the item's `do` says."""
    match item.get("do"):
        case "raise":
            raise ValueError("no such branch")
        case "skip":
            context.skip("nothing to do")
        case "hang":
            time.sleep(60)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "object":
            return object()
        case "undeclared":
            return item["secret"]
        case "print":
            print("printed by", item["id"])
            context.log.info("Logged", url="http://example.org/")
        case "fork":
            if os.fork() == 0:
                return "child"
    return item["id"]


def plain(item: Item, context: StageContext) -> Any:
    return "plain"


def file_state(item: Item, settings: Item) -> str | None:
    path = Path(item["path"])
    return path.read_text() if path.exists() else None


def thumbnail(item: Item, context: StageContext) -> str:
    note("thumbnail", item["id"])
    return context.files.write("thumbs/" + context.files.name_for(item["id"], ".png"), b"png" * item["n"])


def collect(results: Iterator[ItemResult], context: CollectContext) -> Iterator[dict[str, Any]]:
    seen: set[int] = set()
    for result in results:
        if result.status in ("ok", "skipped"):
            words = result.values["count"]["words"]
            if words not in seen:
                seen.add(words)
                yield {"id": result.id, "words": words, "place": result.position}
    context.files.write("card.md", f"# {context.total} items, {len(seen)} rows\n")


def refuse(settings: Mapping[str, Item]) -> None:
    from weft.errors import BadInput

    if settings["count"].get("times") == 0:
        raise BadInput("stages.count.settings.times must be greater than 0")


WORDS = """\
description: Counts words.
items: {{source: "staged:items", settings: {{count: {count}}}}}
config: {{prefix: p}}
check: staged:refuse
stages:
  read: {{run: "staged:read", settings: {{sleep: {sleep}}}, config: []}}
  count: {{run: "staged:count", needs: [read], config: []}}
  label: {{run: "staged:label", needs: [read]}}
  join: {{run: "staged:join", needs: [count], after: [label], config: []}}
output: {{shard_items: {shard_items}}}
"""


def words_file(folder: Path, *, count: int = 20, shard_items: int = 10, sleep: float = 0, more: str = "") -> Path:
    """The usual pipeline: four stages, of which two are beside each other."""
    path = folder / "words.yaml"
    path.write_text(WORDS.format(count=count, shard_items=shard_items, sleep=sleep) + more)
    return path
