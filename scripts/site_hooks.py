"""What the site changes of the pages: links to files of the repository, and what the search ranks first.

A link that leads out of docs/ leads to the repository, or is its text alone while no repository is set.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNSET = "REPOSITORY_URL"
# Who searches asks how; why it was decided so is found through the index of decisions.
SEARCH = {
    "how-to": {"boost": 6},
    "tutorials": {"boost": 2},
    "troubleshooting.md": {"boost": 3},
    "decisions": {"exclude": True},
}
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The Markdown of a page as the site has it."""
    page.meta.setdefault("search", SEARCH.get(page.file.src_uri.partition("/")[0], {}))
    folder = Path("docs") / page.file.src_uri
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]

    def replaced(match: re.Match[str]) -> str:
        text, up, path, anchor = match[1], match[2], match[3], match[4] or ""
        target = (ROOT / folder.parent / up / path).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if repository == UNSET:
            return text
        return f"[{text}]({repository}/blob/main/{target.relative_to(ROOT)}{anchor})"

    return _LINK.sub(replaced, markdown)
