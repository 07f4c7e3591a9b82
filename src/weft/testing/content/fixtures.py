"""The special URLs of a host: redirects, errors, nofollow marks, unusual links, and the like.

Each function in KINDS fills a Shelf with one kind. Hosts 0 to 2 have every kind, the others one or two, hosts with a
Crawl-delay only what robots.txt is about. What must never be requested lives under /never/ and is served as a plain
page, so that a crawler that requests it shows up in the arrival log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from weft.testing.content.resources import FOR_EVER, Flaw, Reference, Resource, mix
from weft.testing.content.sites import SyntheticSite, WorldSpec


@dataclass
class HostFixtures:
    """The special URLs of one host. `entrances`: the links to them that ordinary pages carry."""

    site: SyntheticSite
    neighbour: SyntheticSite
    resources: dict[str, Resource] = field(default_factory=dict)
    entrances: list[Reference] = field(default_factory=list)

    def url(self, path: str) -> str:
        return self.site.origin + path

    def enter(self, path: str, tag: str = "a", href: str | None = None) -> None:
        """Makes an ordinary page link to a path."""
        self.entrances.append(Reference(href or path.replace("&", "&amp;"), self.url(path), tag))

    def put(self, resource: Resource) -> Resource:
        self.resources[resource.path] = resource
        resource.language = self.site.language.code
        resource.key = mix(self.site.key, *resource.path.encode())
        resource.title = resource.title or f"{resource.kind} {resource.path}"
        return resource

    def page(
        self, path: str, *references: Reference, kind: str = "page", head: str = "", nofollow: bool = False
    ) -> Resource:
        """Adds a small page with a link to the home page."""
        links = [Reference("/", self.site.home), *references]
        return self.put(Resource(path, kind=kind, references=links, head=head, nofollow=nofollow))

    def link(self, path: str, tag: str = "a", href: str | None = None) -> Reference:
        """A link to a new small page."""
        if path not in self.resources:
            self.page(path, kind="never" if path.startswith("/never/") else "page")
        return Reference(href or path.replace("&", "&amp;"), self.url(path), tag)

    def redirect(self, path: str, status: int, location: str, target: str) -> None:
        self.put(Resource(path, kind="redirect", status=status, location=location, leads_to=target))


def redirects(shelf: HostFixtures) -> None:
    written = {301: "/landed/301", 302: "../landed/302", 303: "/landed/303#part", 307: "//{}/landed/307", 308: "{}"}
    for status, location in written.items():
        path = f"/landed/{status}"
        shelf.page(path)
        authority = shelf.site.origin.partition("//")[2]
        text = location.format(shelf.url(path) if status == 308 else authority)
        shelf.redirect(f"/go/{status}", status, text, shelf.url(path))
        shelf.enter(f"/go/{status}")
    for name, hops in (("chain", 3), ("hops5", 5), ("hops7", 7)):
        for hop in range(1, hops + 1):
            after = f"/{name}/{hop + 1}" if hop < hops else f"/landed/{name}"
            shelf.redirect(f"/{name}/{hop}", 302, after, shelf.url(after))
        shelf.page(f"/landed/{name}")
        shelf.enter(f"/{name}/1")
    shelf.page("/private/by-redirect")
    shelf.redirect("/go/private", 301, "/private/by-redirect", shelf.url("/private/by-redirect"))
    shelf.enter("/go/private")


def redirect_loops(shelf: HostFixtures) -> None:
    shelf.redirect("/spin/a", 302, "/spin/b", shelf.url("/spin/b"))
    shelf.redirect("/spin/b", 302, "a", shelf.url("/spin/a"))
    shelf.redirect("/spin/self", 301, "/spin/self", shelf.url("/spin/self"))
    shelf.enter("/spin/a")
    shelf.enter("/spin/self")


def redirects_away(shelf: HostFixtures) -> None:
    """Redirects to another host: to its home page, and to a page that has no other link to it."""
    away = shelf.neighbour
    if away is shelf.site:
        return
    shelf.redirect("/away/home", 301, away.home, away.home)
    target = f"{away.origin}/visitors/{shelf.site.index}"
    shelf.redirect("/away/visit", 307, target, target)
    shelf.enter("/away/home")
    shelf.enter("/away/visit")


def errors(shelf: HostFixtures) -> None:
    for status in (404, 410, 403, 451):
        path = f"/gone/{status}"
        link = shelf.link(f"/never/from-{status}")
        shelf.put(Resource(path, kind=f"status-{status}", status=status, references=[link]))
        shelf.enter(path)
    shelf.put(Resource("/gone/204", kind="status-204", status=204, body=b"", content_type=None))
    shelf.enter("/gone/204")
    shelf.enter("/gone/unknown", href="/gone/unknown#top")


def nofollow_marks(shelf: HostFixtures) -> None:
    for name, tag in (("plain", "nofollow"), ("many", "nofollow-many"), ("loud", "nofollow-loud")):
        shelf.entrances.append(shelf.link(f"/never/nofollow-{name}", tag))
    for name, content in (("meta", "noindex, nofollow"), ("none", "NONE")):
        head = f'<meta name="robots" content="{content}">'
        shelf.page(f"/marked/{name}", shelf.link(f"/never/{name}-nofollow"), head=head, nofollow=True)
        shelf.enter(f"/marked/{name}")
    header = shelf.page("/marked/header", shelf.link("/never/header-nofollow"), nofollow=True)
    header.headers = (("X-Robots-Tag", "noarchive, nofollow"),)
    shelf.enter("/marked/header")
    shelf.page("/marked/noindex", shelf.link("/found/past-noindex"), head='<meta name="robots" content="noindex">')
    shelf.enter("/marked/noindex")
    quiet = shelf.page("/marked/header-noindex", shelf.link("/found/past-header-noindex"))
    quiet.headers = (("X-Robots-Tag", "noindex"),)
    shelf.enter("/marked/header-noindex")


def not_links(shelf: HostFixtures) -> None:
    """A page with many texts that only look like links, and one real link after them."""
    tags = ("comment", "script", "template", "data-href", "noscript-refresh", "img", "form", "text", "style")
    references = [shelf.link(f"/never/{tag}", tag) for tag in tags]
    shelf.page("/odd/not-links", *references, shelf.link("/found/after-not-links"))
    shelf.enter("/odd/not-links")


def base_href(shelf: HostFixtures) -> None:
    """Two base elements: the first wins."""
    shelf.page("/lib/v2/first")
    shelf.page("/lib/second")
    shelf.page("/found/beside-base")
    base = shelf.page(
        "/odd/deep/based",
        Reference("first", shelf.url("/lib/v2/first")),
        Reference("../second", shelf.url("/lib/second")),
        Reference("/found/beside-base", shelf.url("/found/beside-base")),
        Reference("#here", shelf.url("/lib/v2/")),
        head='<base href="/lib/v2/"><base href="/never/">',
    )
    base.references = [link for link in base.references if link.href != "/"]
    shelf.page("/lib/v2/")
    shelf.enter("/odd/deep/based")


def frames(shelf: HostFixtures) -> None:
    left, right = shelf.link("/frames/left", "frame"), shelf.link("/frames/right", "frame")
    body = (
        "<html><head><title>Frames</title></head>"
        f'<frameset cols="30%,70%"><frame src="{left.href}"><frame src="{right.href}"></frameset></html>'
    )
    shelf.put(Resource("/odd/frames", references=[left, right], body=body.encode(), title="Frames"))
    shelf.enter("/odd/frames")
    shelf.page("/odd/embedded", shelf.link("/frames/inner", "iframe"), shelf.link("/frames/region", "area"))
    shelf.enter("/odd/embedded")


def head_links(shelf: HostFixtures) -> None:
    shelf.page("/odd/print?page=1", shelf.link("/found/canonical-only", "canonical"))
    shelf.enter("/odd/print?page=1")
    shelf.page("/odd/refresh", shelf.link("/found/refreshed", "refresh"))
    shelf.enter("/odd/refresh")


def duplicates(shelf: HostFixtures) -> None:
    """Twins are byte-identical, near twins differ in a few words (the title and a paragraph)."""
    for name in ("twin", "near"):
        first = shelf.page(f"/same/{name}-1")
        second = shelf.page(f"/same/{name}-2")
        second.key, second.size = first.key, 12_000
        first.size = 12_000
        first.title = second.title = f"Same {name}"
        if name == "near":
            second.references = [*second.references, shelf.link("/found/near")]
            second.title = "Nearly the same"
        shelf.enter(f"/same/{name}-1")
        shelf.enter(f"/same/{name}-2")


def hard_hrefs(shelf: HostFixtures) -> None:
    """Valid but unusual hrefs, mixed with texts that are not URLs."""
    origin = shelf.site.origin
    scheme, _, authority = origin.partition("://")
    written: list[tuple[str, str | None]] = [
        ("http://[", None),
        ("http://", None),
        (f"{scheme}://{authority.split(':')[0]}:99999/never/port", None),
        ("http://a b.weft-web.test/", None),
        ("data:text/html,hello", None),
        ("ftp://127.0.0.1/never/ftp", None),
        ("  /hard/spaces-around \n", "/hard/spaces-around"),
        ("/hard/a space", "/hard/a%20space"),
        ("/hard/%7Etilde", "/hard/%7Etilde"),
        ("/hard/%e6%97%a5", "/hard/%e6%97%a5"),
        ("/hard/日本", "/hard/" + quote("日本")),
        ("../../../../hard/above-root", "/hard/above-root"),
        ("/hard/./one/../two", "/hard/two"),
        ("/hard/new\n\tline", "/hard/newline"),
        ("\\hard\\backslash", "/hard/backslash"),
        ("/hard/q?a=1&amp;b=2", "/hard/q?a=1&b=2"),
        ("/hard/q?a=1&#38;b=3", "/hard/q?a=1&b=3"),
        ("/hard/q?a=1&copy=2", "/hard/q?a=1&copy=2"),
        ("/hard/q?a=1&amp;amp;b=4", "/hard/q?a=1&amp;b=4"),
        ("?only=query", "/odd/hard-hrefs?only=query"),
        (f"{scheme.upper()}://{authority}/hard/upper-scheme", "/hard/upper-scheme"),
        (f"{scheme}://user:secret@{authority}/hard/credentials", "/hard/credentials"),
        (f"{scheme}:/hard/one-slash", "/hard/one-slash"),
        ("/hard/'quote'", "/hard/'quote'"),
        ("/hard/plus+plus?q=a+b%20c", "/hard/plus+plus?q=a+b%20c"),
        ("/view?file=report.pdf", "/view?file=report.pdf"),
        ("/hard/dir.jpg/page", "/hard/dir.jpg/page"),
        ("/hard/double//slash", "/hard/double//slash"),
        ("/hard/empty?", "/hard/empty?"),
    ]
    for _, path in written:
        if path:
            shelf.page(path)
    references = [Reference(href, origin + path if path else None) for href, path in written]
    shelf.page("/odd/hard-hrefs", *references)
    shelf.enter("/odd/hard-hrefs")


def encodings(shelf: HostFixtures) -> None:
    """Raw non-ASCII in hrefs of legacy charsets: the path goes out as UTF-8, the query in the page's charset."""
    for charset, word in (("iso-8859-1", "café"), ("windows-1251", "книга"), ("shift_jis", "東京"), ("euc-kr", "서울")):
        path = f"/enc/{quote(word)}?q={quote(word, encoding=charset)}"
        shelf.page(path)
        page = shelf.page(f"/odd/in-{charset}", Reference(f"/enc/{word}?q={word}", shelf.url(path)))
        page.charset, page.declared = charset, "meta" if charset == "shift_jis" else "header"
        shelf.enter(f"/odd/in-{charset}")


def other_types(shelf: HostFixtures) -> None:
    """Not HTML: stored, never parsed for links. Without a type, but plainly HTML: parsed."""
    never = shelf.link("/never/from-plain-text")
    body = f'See <a href="{never.target}">here</a> or {never.target}\n'.encode()
    shelf.put(Resource("/raw/notes", kind="raw", references=[never], content_type="text/plain", body=body))
    binary = Resource("/raw/blob", kind="raw", references=[never], content_type="application/octet-stream")
    binary.body = b"\x7fBLOB\0\1\2\3" + body
    shelf.put(binary)
    shelf.enter("/raw/notes")
    shelf.enter("/raw/blob")
    untyped = shelf.page("/raw/untyped", shelf.link("/found/past-untyped"))
    untyped.content_type = None
    shelf.enter("/raw/untyped")


def refused_links(shelf: HostFixtures) -> None:
    """Links that are left out by extension or by length."""
    for path in ("/files/scan.JPEG", "/files/list.csv?all=1", "/files/tape.tar.gz", "/files/film.mp4#t=3", "/feed.xml"):
        clean = path.partition("#")[0]
        shelf.page(clean, kind="never")
        shelf.enter(clean, href=path)
    long = "/never/" + "long-" * 420
    shelf.enter(long)


def robots_matters(shelf: HostFixtures) -> None:
    """Paths that the styles of robots.txt speak about; whether one may be requested depends on the host's style."""
    paths = [
        "/private/a",
        "/private/open/b",
        "/x/secret-1.html",
        "/x/secret-1.html?v=1",
        f"/{quote('café')}/menu",
        f"/{quote('naïve')}/art",
        "/tie/breaker",
        "/only-weft/c",
        "/x/find?q=1",
    ]
    for path in paths if shelf.site.index < 16 else paths[shelf.site.index % 3 :: 3]:
        shelf.page(path)
        shelf.enter(path)


def cookie_wall(shelf: HostFixtures) -> None:
    """Redirects to itself until its cookie comes back."""
    shelf.page("/wall", shelf.link("/found/behind-wall"), kind="cookie-wall")
    shelf.enter("/wall")


def always_broken(shelf: HostFixtures) -> None:
    page = shelf.page("/broken/always", kind="broken")
    page.flaw = Flaw("broken", FOR_EVER, status=500)
    shelf.enter("/broken/always")


def soft_404(shelf: HostFixtures) -> None:
    shelf.enter("/nothing/here-1")
    shelf.enter("/nothing/here-2?x=1")


KINDS: tuple[Callable[[HostFixtures], None], ...] = (
    redirects,
    redirect_loops,
    redirects_away,
    errors,
    nofollow_marks,
    not_links,
    base_href,
    frames,
    head_links,
    duplicates,
    hard_hrefs,
    encodings,
    other_types,
    refused_links,
)


def fill(site: SyntheticSite, neighbour: SyntheticSite, spec: WorldSpec) -> HostFixtures:
    """The special URLs of one host."""
    shelf = HostFixtures(site, neighbour)
    robots_matters(shelf)
    shelf.put(Resource("/static/site.css", kind="style", content_type="text/css", body=b"body{margin:0}\n"))
    if site.index < 3:
        shelf.put(Resource("/start.json", kind="raw", content_type="application/json", body=b'{"start": true}\n'))
    if site.role != "ordinary" or site.robots.crawl_delay_s:
        return shelf
    for index, kind in enumerate(KINDS):
        if site.index < spec.stocked or mix(site.key, index, 41) % 12 == 0:
            kind(shelf)
    if site.index == 3 and neighbour is not site:
        shelf.redirect("/start", 302, neighbour.home, neighbour.home)
    if spec.messy:
        if site.index < spec.stocked or mix(site.key, 43) % 8 == 0:
            cookie_wall(shelf)
        if site.flavour == "broken":
            always_broken(shelf)
        if site.flavour == "soft-404":
            soft_404(shelf)
    return shelf
