"""Save the main text of every page of a site as Markdown files: headings, lists, tables and links stay, menus go.

    WEFT_EMAIL=you@example.com python examples/save_markdown.py https://example.com ./pages

The files are named after their URLs; each begins with where it came from.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from pathlib import Path

import weft


def name_of(url: str) -> str:
    """A file name that tells the URL, and is no other URL's."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", url.partition("://")[2]).strip("-")[:80]
    return f"{readable}-{sha256(url.encode()).hexdigest()[:8]}.md"


def main(seed: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    saved = 0
    for page in weft.crawl(seed):
        if page.page.kind != "html" or not (text := page.page.markdown.strip()):
            continue
        path = folder / name_of(page.url)
        path.write_text(f"<!-- {page.url} -->\n\n{text}\n", encoding="utf-8")
        saved += 1
        print(path)
    print(f"{saved} pages saved in {folder}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
