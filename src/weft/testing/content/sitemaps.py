"""The sitemaps of the synthetic web, and the pages that only a sitemap names.

A site's `sitemap` style: plain (one file), index (an index of a gzip file and a plain one), probe (a plain file at
/sitemap.xml that no robots.txt names). All under /vault/ is found through the sitemap alone.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from html import escape

from weft.testing.content.resources import Reference, Resource, mix
from weft.testing.content.sites import SyntheticSite

_XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def orphans(site: SyntheticSite) -> list[Resource]:
    """The pages that only the sitemap names: some ordinary ones, and one with an extension that a link would be
    rejected for."""
    pages = []
    for number in range(2 + site.count // 20):
        path = f"/vault/box-{number}" if number % 2 else f"/vault/box?no={number}&sure=1"
        pages.append(_orphan_page(site, path, Reference(f"/vault/leaf-{number}", f"{site.origin}/vault/leaf-{number}")))
        pages.append(_orphan_page(site, f"/vault/leaf-{number}"))
    pages.append(Resource("/vault/table.csv", kind="orphan", content_type="text/csv", body=b"a,b\n1,2\n"))
    return pages


def _orphan_page(site: SyntheticSite, path: str, *references: Reference) -> Resource:
    return Resource(
        path,
        kind="orphan",
        references=[Reference("/", site.home), *references],
        language=site.language.code,
        title=f"Orphan {path}",
        key=mix(site.key, *path.encode()),
    )


def entries(site: SyntheticSite) -> list[str]:
    """The paths a site's sitemap lists: orphans, some ordinary pages, and one that robots.txt may forbid."""
    if site.sitemap is None:
        return []
    listed = [page.path for page in orphans(site) if "/leaf-" not in page.path]
    return [*listed, *site.paths[: 1 + site.count // 4], "/private/in-sitemap"]


def files(site: SyntheticSite) -> list[Resource]:
    """The sitemap files, and the resources that only they list."""
    listed = entries(site)
    if not listed:
        return []
    resources = [*orphans(site), _orphan_page(site, "/private/in-sitemap")]
    if site.sitemap != "index":
        return [*resources, _sitemap_file("/sitemap.xml", _urlset_xml(site, listed))]
    half = len(listed) // 2
    parts = ["/sitemaps/part-1.xml.gz", "/sitemaps/part-2.xml"]
    index = "".join(f"<sitemap><loc>{site.origin}{part}</loc></sitemap>\n" for part in parts)
    packed = _sitemap_file(parts[0], gzip.compress(_urlset_xml(site, listed[:half]), mtime=0))
    packed.content_type = "application/gzip"
    return [
        *resources,
        packed,
        _sitemap_file(parts[1], _urlset_xml(site, listed[half:])),
        _sitemap_file("/sitemap_index.xml", f"{_HEAD}<sitemapindex {_XMLNS}>\n{index}</sitemapindex>\n".encode()),
    ]


def file_paths(site: SyntheticSite) -> list[str]:
    """The paths of a site's sitemap files."""
    if site.sitemap is None:
        return []
    if site.sitemap != "index":
        return ["/sitemap.xml"]
    return ["/sitemap_index.xml", "/sitemaps/part-1.xml.gz", "/sitemaps/part-2.xml"]


def _urlset_xml(site: SyntheticSite, paths: list[str]) -> bytes:
    rows = []
    for path in paths:
        day = datetime.fromtimestamp(1_600_000_000 + mix(site.key, *path.encode()) % 100_000_000, UTC).date()
        rows.append(f"<url><loc>{escape(site.origin + path, quote=False)}</loc><lastmod>{day}</lastmod></url>\n")
    return f"{_HEAD}<urlset {_XMLNS}>\n{''.join(rows)}</urlset>\n".encode()


def _sitemap_file(path: str, body: bytes) -> Resource:
    return Resource(path, kind="sitemap", content_type="application/xml", body=body)
