"""Pages with the markup of real ones: what a parser, a compressor and a link scanner have to do depends on it.

Taken from the 68 pages of 25 to 70 KB among the 300 real ones of shared/data (medians): 480 elements on 44 KB, of which
two thirds are tags, a tenth is blanks for layout and the rest is text; 1.3 attributes each; mostly a, div, li, span, p.
`python harness/markup.py REAL.tar WEB_FOLDER` sets the pages of a web beside real ones.
"""

from __future__ import annotations

import gzip
import re
import statistics
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from weft.testing.content.resources import Resource
from weft.testing.content.texts import SyntheticTexts

SNIPPET = 420  # characters of text in a card
HEAD = """<!DOCTYPE html>
<html lang="{language}" class="no-js">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
  <meta name="description" content="{anchor}">
  <meta property="og:type" content="article">
  <meta property="og:title" content="{title}">
  <meta property="og:description" content="{anchor}">
  <meta name="twitter:card" content="summary_large_image">
  <meta name="theme-color" content="#1d3557">
</head>
<body class="page page--{tone} has-sidebar layout-{number}">
  <header class="site-header" id="top">
    <div class="container"><div class="site-header__brand"><h1 class="site-title">{title}</h1></div></div>
    <nav class="site-nav" aria-label="{anchor}">
      <ul class="menu menu--primary" id="menu-{number}">
"""
MENU = """        <li class="menu-item menu-item-type-{tone} menu-item-{number}">
          <a class="menu-item__link" href="{href}"><span class="menu-item__label">{anchor}</span></a>
        </li>
"""
MIDDLE = """      </ul>
    </nav>
  </header>
  <main class="site-main" id="content">
    <article class="entry entry--{tone}" id="entry-{number}">
      <div class="entry__grid grid grid--3">
"""
CARD = """        <div class="grid__cell card card--{tone}" data-id="{number}">
          <div class="card__body">
            <h3 class="card__title" id="card-{number}">{title}</h3>
            <p class="card__text">{text}</p>
            <ul class="card__facts list list--inline">
              <li class="list__item"><span class="icon icon--{tone}"></span><strong>{anchor}</strong></li>
              <li class="list__item"><span class="label label--muted">{number}</span></li>
            </ul>
            <div class="card__footer"><span class="card__date">{number}</span></div>
          </div>
        </div>
"""
LINK = '<a class="card__link" href="{href}" rel="bookmark">{anchor}</a>'
PLAIN = '<span class="card__label">{anchor}</span>'
END = """      </div>
    </article>
  </main>
  <footer class="site-footer"><div class="container"><p class="site-footer__note">weft</p></div></footer>
</body>
</html>
"""
TONES = ("primary", "secondary", "news", "feature", "compact", "wide", "archive", "media")


def render(resource: Resource, texts: SyntheticTexts) -> bytes:
    """A page in UTF-8: most of its links in a menu, the others on cards, as many as its size asks for."""
    pool = texts.pool(resource.language, "utf-8")
    random = Random(resource.key)
    hrefs = [reference.href for reference in resource.references]
    menu = len(hrefs) * 3 // 4

    def filled(template: str, **more: str) -> str:
        anchor = pool.anchors[random.getrandbits(8)].decode()
        return template.format(anchor=anchor, tone=random.choice(TONES), number=random.randrange(10_000), **more)

    made = [filled(HEAD, language=resource.language, title=resource.title)]
    made += [filled(MENU, href=href) for href in hrefs[:menu]]
    made.append(filled(MIDDLE))
    left = hrefs[menu:]
    size = sum(len(part.encode()) for part in made)
    while left or size < resource.size:
        title = filled(LINK, href=left.pop()) if left else filled(PLAIN)
        text = random.choice(pool.paragraphs)[3:-5].decode()[:SNIPPET]
        made.append(filled(CARD, title=title, text=text))
        size += len(made[-1].encode())
    return "".join([*made, END]).encode()


# ── beside real pages ───────────────────────────────────────────────────────────────────────────────────────────────


def measure(name: str, bodies: list[bytes]) -> None:
    """What such pages are like, and what they cost: medians."""
    import turbohtml
    from isal import igzip

    rows = []
    for body in bodies:
        text, kb = body.decode("utf-8", "replace"), len(body) / 1024
        packed = igzip.compress(body, 1)
        rows.append(
            (
                kb,
                len(re.findall(r"<[a-zA-Z]", text)) / kb,
                len(body) / len(packed),
                _best(lambda text=text: turbohtml.parse(text)) / kb,
                _best(lambda body=body: igzip.compress(body, 1)) / kb,
            )
        )
    size, elements, ratio, parsing, packing = map(statistics.median, zip(*rows, strict=True))
    print(
        f"{name}: {len(bodies)} pages of {size:.0f} KB; for each KB {elements:.1f} elements, "
        f"{parsing:.2f} us to parse, {packing:.2f} us to compress to 1/{ratio:.1f}"
    )


def _best(what: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        what()
        return time.perf_counter() - began

    return min(once() for _ in range(3)) * 1e6


def _real(tar: Path) -> Iterator[bytes]:
    with tarfile.open(tar) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".html.gz") else None
            if file is not None:
                yield gzip.decompress(file.read())


if __name__ == "__main__":
    measure("real", [body for body in _real(Path(sys.argv[1])) if 25_000 < len(body) < 70_000])
    measure("this web", [path.read_bytes() for path in sorted(Path(sys.argv[2]).rglob("*.page"))[::97]])
