"""Turns a Resource into bytes: the body of a page, and the head of the answer that carries it.

Called by the server for every page that is not in its cache, so it puts ready-encoded blocks together and formats
nothing but the links.
"""

from __future__ import annotations

from email.utils import formatdate
from html import escape
from random import Random
from struct import iter_unpack

from weft.testing.content.resources import HEAD_TAGS, Resource
from weft.testing.content.texts import Pool, SyntheticTexts

SERVER = "weft-web"
GROUPS = 16
REASONS = {
    200: "OK",
    204: "No Content",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    410: "Gone",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    451: "Unavailable For Legal Reasons",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}

# The markup of a reference by its tag; {0} is the attribute's text, {1} the anchor.
MARKUP: dict[str, str] = {
    "a": '<a href="{0}">{1}</a>\n',
    "area": '<map name="m"><area shape="rect" coords="0,0,9,9" href="{0}" alt="{1}"></map>\n',
    "iframe": '<iframe src="{0}"></iframe>\n',
    "frame": '<frame src="{0}">\n',
    "canonical": '<link rel="canonical" href="{0}">\n',
    "refresh": '<meta http-equiv="refresh" content="0; url={0}">\n',
    "stylesheet": '<link rel="stylesheet" href="{0}">\n',
    "noscript-refresh": '<noscript><meta http-equiv="refresh" content="0; url={0}"></noscript>\n',
    "nofollow": '<a rel="nofollow" href="{0}">{1}</a>\n',
    "nofollow-many": '<a href="{0}" rel="ugc nofollow noopener">{1}</a>\n',
    "nofollow-loud": "<A HREF='{0}' REL=NOFOLLOW>{1}</A>\n",
    "comment": '<!-- <a href="{0}">{1}</a> -->\n',
    "script": "<script>document.write('<a href=\"{0}\">{1}</a>')</script>\n",
    "template": '<template><a href="{0}">{1}</a></template>\n',
    "data-href": '<div data-href="{0}">{1}</div>\n',
    "img": '<img src="{0}" alt="{1}">\n',
    "form": '<form action="{0}" method="get"><button formaction="{0}">{1}</button></form>\n',
    "text": "<p>{0} {1}</p>\n",
    "style": "<style>.x{background:url({0})}</style>\n",
}
# Other forms of an ordinary link; used occasionally where the href allows it (no blanks, quotes or entities).
ODD_ANCHORS = (
    "<A HREF='{0}'>{1}</A>\n",
    "<a class=more href={0}>{1}</a>\n",
    '<a\n  title="x > y"\n  href = "{0}" >{1}</a>\n',
)
_PLAIN_HREF_STOPS = frozenset(" \t\n\"'<>=`&")


def render(resource: Resource, texts: SyntheticTexts) -> bytes:
    """The body of an answer."""
    if resource.body is not None:
        return resource.body
    if resource.content_type not in (None, "text/html") or resource.is_redirect:
        return b""
    if resource.charset == "utf-16":
        return b"\xff\xfe" + _html_page(resource, texts, "utf-8").decode().encode("utf-16-le")
    body = _html_page(resource, texts, resource.charset)
    return b"\xef\xbb\xbf" + body if resource.declared == "bom" else body


def _html_page(resource: Resource, texts: SyntheticTexts, charset: str) -> bytes:
    pool = texts.pool(resource.language, charset)
    random = Random(resource.key)
    references = resource.references
    # one call encodes all hrefs; one byte draws an anchor, of which there are 256
    hrefs = "\0".join([reference.href for reference in references]).encode(charset).split(b"\0")
    anchors = [pool.anchors[byte] for byte in random.randbytes(len(references))]
    head = [_html_head(resource, charset)]
    links = []
    for (_, _, tag), href, anchor in zip(references, hrefs, anchors, strict=bool(references)):
        if tag == "a":
            links.append(b'<a href="%b">%b</a>\n' % (href, anchor))
        elif tag in HEAD_TAGS:
            head.append(_odd_anchor(tag, href, anchor))
        else:
            links.append(_odd_anchor(tag, href, anchor))
    _vary_link(links, resource, charset)
    title = escape(resource.title).encode(charset, "xmlcharrefreplace")
    head.append(b"</head><body><header><h1>%b</h1></header><main><article>\n" % title)
    size = resource.size - sum(map(len, head)) - sum(map(len, links))
    return b"".join(
        [
            *head,
            *_mix_links_into_text(links, pool, size, random),
            b"</article></main><footer>weft</footer></body></html>\n",
        ]
    )


def _html_head(resource: Resource, charset: str) -> bytes:
    declared = ""
    if resource.declared in ("meta", "both"):
        if resource.key % 3:
            declared = f'<meta charset="{charset}">'
        else:
            declared = f'<meta http-equiv="Content-Type" content="text/html; charset={charset}">'
    start = (
        f'<!DOCTYPE html>\n<html lang="{resource.language}"><head>{declared}<title>{escape(resource.title)}</title>\n'
    )
    return (start + resource.head).encode(charset, "xmlcharrefreplace")


def _odd_anchor(tag: str, href: bytes, anchor: bytes) -> bytes:
    return MARKUP[tag].encode().replace(b"{0}", href).replace(b"{1}", anchor)


def _vary_link(links: list[bytes], resource: Resource, charset: str) -> None:
    """Writes one link in another form: upper case, single quotes, no quotes, blanks around the equals sign."""
    references = [reference for reference in resource.references if reference.tag not in HEAD_TAGS]
    if not references:
        return
    position = resource.key % len(references)
    reference = references[position]
    if reference.tag == "a" and reference.href and not _PLAIN_HREF_STOPS & set(reference.href):
        odd = ODD_ANCHORS[resource.key % len(ODD_ANCHORS)]
        links[position] = odd.format(reference.href, "more").encode(charset)


def _mix_links_into_text(links: list[bytes], pool: Pool, size: int, random: Random) -> list[bytes]:
    """Paragraphs of `size` bytes in all, with the links spread among them in groups."""
    paragraphs = pool.paragraphs
    wanted = max(1, round(size / pool.mean_paragraph_bytes))
    last = len(paragraphs) - 1  # of a power of two: all bits are set
    texts = [paragraphs[draw & last] for (draw,) in iter_unpack("<H", random.randbytes(2 * wanted))]
    woven: list[bytes] = []
    for group in range(GROUPS):
        woven += texts[group * wanted // GROUPS : (group + 1) * wanted // GROUPS]
        woven += links[group * len(links) // GROUPS : (group + 1) * len(links) // GROUPS]
    return woven


def content_type(resource: Resource) -> str | None:
    """The value of Content-Type: with the charset, without it, or with a wrong one, depending on the page."""
    if resource.content_type is None or not resource.content_type.startswith("text/"):
        return resource.content_type
    if resource.declared == "wrong":
        return f"{resource.content_type}; charset={'iso-8859-1' if resource.charset == 'utf-8' else 'utf-8'}"
    if resource.declared in ("header", "both"):
        return f"{resource.content_type}; charset={resource.charset}"
    return resource.content_type


def etag(resource: Resource) -> str:
    """The page's ETag, which changes with its edition."""
    return f'"{resource.key:016x}"'


def head(status: int, length: int | None, headers: list[tuple[str, str]]) -> bytes:
    """The status line and header fields as bytes."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}", f"Server: {SERVER}"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def headers_of(resource: Resource) -> list[tuple[str, str]]:
    """The header fields of a resource, except its length."""
    fields = []
    kind = content_type(resource)
    if kind is not None:
        fields.append(("Content-Type", kind))
    if resource.location is not None:
        fields.append(("Location", resource.location))
    elif resource.status == 200 and resource.key:
        fields.append(("ETag", etag(resource)))
        fields.append(("Last-Modified", formatdate(resource.modified, usegmt=True)))
    return [*fields, *resource.headers]
