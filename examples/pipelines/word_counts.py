"""Stages of word_counts.yaml: weft pipeline run examples/pipelines/word_counts.yaml --set items.folder=docs"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.errors import BadInput
from weft.pipelines import CollectContext, ItemResult, StageContext


def documents(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The source: a reference to each document; the workers do the reading."""
    found = sorted(Path(settings["folder"]).glob(settings["pattern"]))
    if not found:
        raise BadInput(f"there is no {settings['pattern']} in {settings['folder']}")
    for path in found:
        yield {"id": path.name, "path": str(path)}


def state(item: Mapping[str, Any], _settings: Mapping[str, Any]) -> list[int]:
    """The fingerprint: another size or time, and the document is read again."""
    found = Path(item["path"]).stat()
    return [found.st_size, found.st_mtime_ns]


def read(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    text = Path(item["path"]).read_text()
    context.log.info("Read", characters=len(text))
    return {"title": text.partition("\n")[0].strip("# "), "text": text}


def words(_item: Mapping[str, Any], context: StageContext) -> dict[str, int]:
    found = re.findall(r"[^\W\d_]+", context.results["read"]["text"].lower())
    return dict(Counter(word for word in found if len(word) >= context.settings["shortest"]).most_common(100))


def links(_item: Mapping[str, Any], context: StageContext) -> list[str]:
    return sorted(set(re.findall(r"\]\(([^)#]+)", context.results["read"]["text"])))


def table(results: Iterator[ItemResult], context: CollectContext) -> Iterator[dict[str, Any]]:
    """The collector: a row for each word, with the documents that it is in."""
    total: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for result in results:
        for word, count in result.values.get("words", {}).items():
            total[word] += count
            places.setdefault(word, []).append(str(result.id))
    context.files.write("top.txt", "".join(f"{word} {count}\n" for word, count in total.most_common(20)))
    for word, count in sorted(total.items()):
        yield {"word": word, "count": count, "documents": places[word]}
