"""The main text by trafilatura: slower than main_text.py and made for articles; an extra, `weft[article]`."""

from __future__ import annotations

from weft.errors import Missing


def article(html: str, url: str) -> str:
    """The text of an article, empty where there is none."""
    try:
        from trafilatura import extract
    except ModuleNotFoundError as error:
        if error.name != "trafilatura":
            raise  # it is installed, and a dependency of it is not: naming trafilatura would mislead
        raise Missing.of_extra("trafilatura", "article") from None
    return extract(html, url=url, include_comments=False, include_tables=True) or ""
