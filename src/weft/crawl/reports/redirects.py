"""Follows redirects through stored rows."""

from __future__ import annotations

from weft.records import TOO_MANY_REDIRECTS, Row
from weft.store.pages import PageStore


def redirect_chain_of(store: PageStore, row: Row, crawl: int = 0) -> list[Row]:
    """A redirect, and the last row of each URL that it leads to; ends before a URL that is in the chain already.
    `crawl`: only rows of that crawl."""
    chain, known = [row], {row.url}
    while 300 <= row.status < 400 and row.final_url not in known and (rows := store.rows_of_url(row.final_url, crawl)):
        row = rows[-1]
        chain.append(row)
        known.add(row.url)
    return chain


def leads_to_no_page(store: PageStore, row: Row, crawl: int = 0) -> bool:
    """Whether the redirects of a row are circular, or too many: only one of their rows has the error."""
    chain = redirect_chain_of(store, row, crawl)
    return any(one.error == TOO_MANY_REDIRECTS for one in chain) or (
        300 <= chain[-1].status < 400 and chain[-1].final_url in {one.url for one in chain}
    )
