"""Pages of twenty real starters: built by their frameworks, drawn by scripts or written when they were built.

Each has a host of its own, since most refer to their files from the root. `STARTERS` is the manifest, which no page
refers to: whether scripts must draw it, a text that a reader finds there, and its links.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

FOLDER = Path(__file__).parent / "built_pages" / "starters"
DOMAIN = "starters.test"
# Builds of one app whose files are the same.
_SHARED = {"react-router-spa": "react-router"}


class StarterPage(NamedTuple):
    """What a reader finds in a page."""

    is_drawn: bool
    text: str
    links: tuple[str, ...] = ()
    taken_away: str = ""  # by its scripts, of what the server sent


_OF_VITE = (
    "https://vite.dev/", "https://github.com/vitejs/vite", "https://chat.vite.dev/", "https://x.com/vite_js",
    "https://bsky.app/profile/vite.dev",
)  # fmt: skip
_OF_KIT = ("https://svelte.dev/docs/kit", "https://github.com/sveltejs/kit")


def _of_vite(file: str, own_link: str) -> StarterPage:
    return StarterPage(True, f"Edit {file} and save to test HMR", (*_OF_VITE, own_link))


# By host and path.
STARTERS = {
    "vite-vanilla/": _of_vite("src/main.js", "https://developer.mozilla.org/en-US/docs/Web/JavaScript"),
    "vite-vue/": _of_vite("src/App.vue", "https://vuejs.org/"),
    "vite-react/": _of_vite("src/App.jsx", "https://react.dev/"),
    "vite-preact/": _of_vite("src/app.jsx", "https://preactjs.com/"),
    "vite-lit/": _of_vite("src/my-element.js", "https://lit.dev/"),  # in a shadow tree, around text that was there
    "vite-svelte/": _of_vite("src/App.svelte", "https://svelte.dev/"),
    "vite-solid/": _of_vite("src/App.jsx", "https://solidjs.com/"),
    "create-vue/": StarterPage(True, "Vue’s official documentation provides you with", ("/about", "https://vuejs.org/")),
    "angular/": StarterPage(True, "Congratulations! Your app is running.", ("https://angular.dev/tutorials",)),
    "react-router-spa/": StarterPage(True, "Forty kinds of apples ripen here", ("/apples",)),
    "nuxt-spa/": StarterPage(True, "all of them wound by hand on Mondays", ("/tickets",)),
    "next/trees": StarterPage(True, "Rowan, with its leaves and bark", ("/trees/Larch", "/trees/Rowan")),
    "next/": StarterPage(False, "To get started, edit the page.js file.", ("https://nextjs.org/learn",)),
    "vitepress/": StarterPage(False, "when it is built", taken_away="Return to top "),
    "react-router/": StarterPage(False, "Forty kinds of apples ripen here", ("/apples",)),
    "nuxt/": StarterPage(False, "all of them wound by hand on Mondays", ("/tickets",)),
    "astro/": StarterPage(False, "open to visitors in summer", ("/tides/",)),
    "sveltekit/": StarterPage(False, "to your new SvelteKit app", _OF_KIT),
    "sveltekit/about": StarterPage(False, "This is a SvelteKit app.", _OF_KIT),
    "sveltekit/sverdle/how-to-play": StarterPage(False, "Sverdle is a clone of Wordle", _OF_KIT),
}  # fmt: skip


def source_of(name: str) -> str:
    """A page as its server sends it."""
    host, _, path = name.partition("/")
    return (FOLDER / host / (f"{path}.html" if path else "index.html")).read_text("utf-8")


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        name = (self.headers["Host"] or "").partition(".")[0]
        for starter in (name, _SHARED.get(name, name)):
            there = Path(super().translate_path(path)).relative_to(Path.cwd())
            for one in (FOLDER / starter / there, FOLDER / starter / f"{there}.html"):
                if one.exists():
                    return str(one)
        return str(FOLDER / "none")

    def log_message(self, *_: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a browser that goes is none


@contextmanager
def starter_site() -> Iterator[int]:
    """Its port, while it runs; each starter is at NAME.starters.test."""
    server = _Quiet(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
