"""Links that lead out of docs/ are files of the repository: on the site they lead there, or are their text alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNSET = "REPOSITORY_URL"
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The Markdown of a page as the site has it."""
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
