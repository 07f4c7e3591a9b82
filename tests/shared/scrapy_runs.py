"""One Scrapy spider, run by Scrapy and by Weft, and the items that it is expected to give.

python tests/shared/scrapy_runs.py     has Scrapy run every spider, and keeps its items as those that are expected
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pace import patience
from scrapy_site import scrapy_site

SPIDERS = Path(__file__).parent / "scrapy_spiders"
EXPECTED = SPIDERS / "expected"
NAMES = sorted(path.stem for path in SPIDERS.glob("*.py"))
Items = list[dict[str, Any]]


def in_order(items: Items) -> list[str]:
    """Items as texts, in an order that does not depend on when their pages came."""
    return sorted(json.dumps(item, sort_keys=True, ensure_ascii=False) for item in items)


def expected(name: str) -> list[str]:
    """What Scrapy has made of the site."""
    return (EXPECTED / f"{name}.jsonl").read_text().splitlines()


def by_scrapy(name: str, site: str, folder: Path) -> Items:
    """The items of a run of Scrapy's."""
    out = folder / "scrapy.jsonl"
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDERS / f"{name}.py"), "-a", f"site={site}"]
    done = subprocess.run(
        [*command, "-O", str(out), "-s", "LOG_LEVEL=ERROR"],
        cwd=folder, capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text().splitlines()]


def main() -> None:
    """Has Scrapy run all of them."""
    for name in NAMES:
        with scrapy_site() as site, tempfile.TemporaryDirectory() as folder:
            lines = in_order(by_scrapy(name, site.url, Path(folder)))
        (EXPECTED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        print(f"{name}: {len(lines)} items", file=sys.stderr)


if __name__ == "__main__":
    main()
