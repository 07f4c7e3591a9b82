"""A site of small pages: built by frameworks, drawn by plain scripts, and written by a server.

`NEEDS_BROWSER` is the manifest: what a reader finds in each page, and whether scripts must draw it first. The pages say
nothing of it. Eight of its twenty pages, with the one that links to all, are drawn by scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

BUILT = Path(__file__).parent / "built_pages"
_DRAW = (
    "<script>setTimeout(() => {{ document.{where}.innerHTML = '<h1>{text}</h1><p>drawn by a script</p>' }})</script>"
)
_MENU = "<header><nav><a href=/>Start</a> <a href=/hours>Hours</a></nav></header>"
_FOOTER = "<footer>All rights reserved, and a <a href=/hours>long imprint</a> of our company</footer>"


def _page(body: str, title: str = "a page") -> str:
    return f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{title}</title></head><body>{body}</html>"


def _drawn(before: str, where: str, text: str) -> str:
    return _page(before + _DRAW.format(where=where, text=text))


PAGES = {
    "/spinner": _drawn("<div id=view><div class=wait>Loading…</div></div>", "querySelector('#view')", "Spun yarn"),
    "/bones": _drawn("<section id=page><div></div><div></div></section>", "querySelector('#page')", "Bare bones"),
    "/between": _drawn(f"{_MENU}<main></main>{_FOOTER}", "querySelector('main')", "Between the bars"),
    "/element": _drawn(f"{_MENU}<shop-window></shop-window>", "querySelector('shop-window')", "Shop window"),
    "/body": _drawn("", "body", "Whole body"),
    "/server": _page(
        "<div id=root><h1>Server sent</h1><p>Words that were there.</p></div><script src=/none.js></script>"
    ),
    "/hours": _page(f"{_MENU}<h1>Opening hours</h1><p>Monday to Friday.</p><div id=ad></div><script>1</script>"),
    "/thanks": _page("<p>Thanks, your message has arrived here.</p><a href=/>Back</a><script>1</script>"),
    "/pictures": _page("<h1>Harbour views</h1><img src=/a.png><img src=/b.png><script>1</script>"),
    "/soldout": _page("<h1>Sold out</h1><p>Come back soon.</p><script>1</script><noscript><img src=/p.gif></noscript>"),
    "/chat": _page(f"<h1>Long read</h1><p>{'words of a long page ' * 40}</p><div id=app></div><script>1</script>"),
    "/form": _page(
        "<form action=/find><label>Search <input name=q></label><button>Go</button></form><script>1</script>"
    ),
    "/widget": _page(f"{_MENU}<h1>Fares</h1><p>Two crowns a crossing.</p><fare-chart></fare-chart><script>1</script>"),
    "/closed": _page(f"{_MENU}<main><p>We are closed today, sorry.</p></main><div id=chat></div><script>1</script>"),
    "/note": _page("<div id=root><p>A note of five words.</p></div><script type=module>1</script>"),
    "/more/lamp": _page("<h1>Lamp of brass</h1><p>A lamp for the table, with a shade of linen.</p>"),
}
NEEDS_BROWSER = {
    "/react/": ("A chair that was built with care", True), "/vue/": ("Harbours of the north", True),
    "/plain/": ("The sloop sails at noon", True),
    "/spinner": ("Spun yarn", True), "/bones": ("Bare bones", True), "/between": ("Between the bars", True),
    "/element": ("Shop window", True), "/body": ("Whole body", True), "/server": ("Words that were there", False),
    "/hours": ("Monday to Friday", False), "/thanks": ("your message has arrived", False),
    "/pictures": ("Harbour views", False), "/soldout": ("Come back soon", False), "/chat": ("Long read", False),
    "/more/lamp": ("shade of linen", False), "/form": ("Search", False), "/widget": ("Two crowns", False),
    "/closed": ("closed today", False), "/note": ("A note of five words", False),
}  # fmt: skip


class _Handler(SimpleHTTPRequestHandler):
    def send_head(self) -> BytesIO | None:
        path = self.path.partition("?")[0]
        links = "".join(f"<a href={one}>{one}</a> " for one in NEEDS_BROWSER)
        text = _page(f"<h1>All pages</h1><p>{'words to read ' * 30}</p>{links}") if path == "/" else PAGES.get(path)
        if text is None:
            return super().send_head()  # type: ignore[return-value]
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        return BytesIO(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def built_site() -> Iterator[str]:
    """Its address, while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(BUILT)))
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
