"""What kind of page a page is, by its structure, and how certain that is.

Signals are facts that many sites share: declared types (JSON-LD, Open Graph), words of the address, how much of the
text is in paragraphs, in links, in repeated elements. Each has a weight for each kind, whole numbers in
`page_kind.json`, which `benchmarks/main_text.py --train` fits; the kind with the largest sum is the page's.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import NamedTuple, TypeAlias

from weft.extract.text.article import Paragraph
from weft.extract.text.names import MAX_NAME_CHARS, words_of
from weft.extract.turbo import Document, Element

MAX_SCHEMA_CHARS = 20_000
# One unit of certainty in the table of weights.
SCALE = 100


class PageKind(StrEnum):
    """What a page is for."""

    ARTICLE = "article"
    DOCUMENTATION = "documentation"
    FORUM = "forum"  # threads, questions with answers
    PRODUCT = "product"
    LISTING = "listing"  # of products, articles, people: pages whose items have pages of their own
    LANDING = "landing"  # home pages, services


Weights: TypeAlias = dict[str, dict[PageKind, int]]  # of each signal for each kind, in hundredths


class Judgement(NamedTuple):
    """The kind of a page, and its probability among all kinds, 0 to 1."""

    kind: PageKind
    certainty: float


_TYPE = re.compile(r'"@type"\s*:\s*\[?\s*"(?:https?://schema.org/)?([A-Za-z]{3,40})"')
_SCHEMA = {
    "article": frozenset("Article NewsArticle BlogPosting Report TechArticle ScholarlyArticle Recipe HowTo".split()),
    "product": frozenset("Product ProductGroup Offer AggregateOffer".split()),
    "forum": frozenset("DiscussionForumPosting QAPage Question Answer Comment".split()),
    "list": frozenset("ItemList CollectionPage SearchResultsPage OfferCatalog".split()),
    "organization": frozenset("Organization LocalBusiness WebSite Service Corporation".split()),
    "faq": frozenset(("FAQPage",)),
}
_PATH = {
    "article": "blog blogs news article articles story stories post posts features guides magazine press academy learn "
    "resources advice how-to recipes archives archive report reports entry",
    "documentation": "docs doc documentation reference manual api wiki developer developers guide help man handbook "
    "tutorial tutorials stable latest std library",
    "forum": "forum forums thread threads topic topics t questions question comments discussion discussions community "
    "boards board viewtopic.php showthread.php viewforum.php r bbs qna",
    "product": "product products item items dp p ip pd pr buy",
    "listing": "category categories collection collections shop store catalog catalogue search browse tag tags list "
    "lists c b jobs courses directory rankings awards coupons",
    "landing": "services service solutions about platform pricing industries company business payments",
}
_PATH_WORDS = {word: name for name, listed in _PATH.items() for word in listed.split()}
_HOST = {
    "blog": "blog blogs news", "docs": "docs developer developers", "shop": "shop store",
    "forum": "forum forums community discuss bbs",
}  # fmt: skip
# What platforms write into the class or id of the body.
_BODY = {
    "article": "single postid article",
    "docs": "docs wiki ns-0",
    "forum": "forum forums thread topic viewtopic showthread question questions",
    "product": "product productpage pdp",
    "listing": "archive category tag tax collection search catalog categories tags",
    "home": "home homepage frontpage front index",
    "page": "page pageid landing",
}
_BODY_WORDS = {word: name for name, listed in _BODY.items() for word in listed.split()}
# Of the programs that call themselves the generator of a page.
_GENERATOR = {
    "docs": "sphinx mkdocs docusaurus vuepress vitepress gitbook rustdoc javadoc doxygen docutils asciidoctor "
    "nextra starlight mediawiki dokuwiki",
    "forum": "discourse phpbb vbulletin xenforo flarum mybb vanilla smf nodebb invision",
    "shop": "woocommerce shopify magento prestashop opencart bigcommerce",
}
_GENERATOR_WORDS = {word: name for name, listed in _GENERATOR.items() for word in listed.split()}
_FORUM_HOST = re.compile(r"forum|discuss|community|boards?\.")
_PRICE_SIGNS = "$€£¥₹"
_PRICE_STEPS = (1, 3, 8, 20)
_HOST_WORDS = {word: name for name, listed in _HOST.items() for word in listed.split()}
_DATED = re.compile(r"/(?:19|20)\d\d(?:/|-)(?:0?[1-9]|1[0-2])(?:/|-|\b)")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){3,}")
# Words of classes and ids, and the counts from which on they say something.
_NAMED = {
    "prices": ("price prices", (1, 3, 10)),
    "cart": ("cart addtocart addtobag minicart quantity qty sku swatch swatches variant variants", (1, 3)),
    "posts": ("postbody cooked message messages reply replies answer answers thread topic forum usertext", (2, 8)),
    "post": ("post posts entry hentry", (1, 4)),
    "docs": (
        "sphinx docs documentation docusaurus mkdocs toctree rustdoc api reference literal highlight method",
        (1, 5),
    ),
    "authors": ("author authors byline", (1, 4)),
    "comments": ("comment comments commentlist", (1, 5)),
    "cards": ("card cards tile tiles grid products listing listings results", (3, 10, 30)),
    "filters": ("filter filters facet facets sort sorting", (1, 5)),
    "reviews": ("review reviews rating ratings testimonial testimonials", (1, 5)),
    "prose": ("article articlebody story content richtext prose markdown body", (2, 8)),
    "hero": ("hero cta banner feature features pricing logos", (1, 4)),
}
_NAMED_WORDS = {word: name for name, (listed, _) in _NAMED.items() for word in listed.split()}
_TAGS = {
    "article": (1, 2, 5), "h1": (1, 2), "time": (1, 4), "pre": (1, 4), "code": (1, 10), "table": (1, 3),
    "h2": (1, 4, 10), "h3": (3, 10), "img": (1, 5, 15, 40), "li": (20, 60, 150),
    "dt": (1, 5), "form": (1, 3), "button": (1, 5, 20), "iframe": (1,), "figure": (1, 5), "blockquote": (1,),
}  # fmt: skip


def judged(document: Document, url: str, root: Element, found: list[Paragraph]) -> Judgement:
    """What kind of page a document is, with its pruned tree and the paragraphs in it."""
    return weighed(signals(document, url, root, found), _weights())


def weighed(facts: list[str], weights: Weights) -> Judgement:
    """The likeliest kind by some signals."""
    sums = dict.fromkeys(PageKind, 0)
    for fact in ("always", *facts):
        for kind, weight in weights.get(fact, {}).items():
            sums[kind] += weight
    best = max(sums, key=lambda kind: sums[kind])
    return Judgement(best, 1 / sum(math.exp((value - sums[best]) / SCALE) for value in sums.values()))


@lru_cache(maxsize=1)
def _weights() -> Weights:
    text = resources.files(__package__).joinpath("page_kind.json").read_text()
    return {name: {PageKind(kind): weight for kind, weight in row.items()} for name, row in json.loads(text).items()}


def signals(document: Document, url: str, root: Element, found: list[Paragraph]) -> list[str]:
    """The names of the facts that hold for a page."""
    return [*_declared(document), *_address(url), *_platform(document), *_counts(document, root), *_shape(root, found)]


def _declared(document: Document) -> list[str]:
    names = []
    types: set[str] = set()
    for script in islice(document.select("script[type*='ld+json' i]"), 20):
        types.update(_TYPE.findall(script.text, 0, MAX_SCHEMA_CHARS))
    names += [f"schema {name}" for name, listed in _SCHEMA.items() if not listed.isdisjoint(types)]
    if (kind := document.select_one("meta[property='og:type'], meta[name='og:type']")) is not None:
        value = (kind.attr("content") or "").strip().lower()
        names.append(f"og {value if value in ('article', 'website', 'product') else 'other'}")
    items = {(e.attr("itemtype") or "").rpartition("/")[2] for e in islice(document.select("[itemtype]"), 100)}
    return names + [f"microdata {name}" for name, listed in _SCHEMA.items() if not listed.isdisjoint(items)]


def _platform(document: Document) -> list[str]:
    names: set[str] = set()
    body = document.find("body")
    if body is not None:
        given = f"{body.attr('class') or ''} {body.attr('id') or ''}"[:MAX_NAME_CHARS]
        names |= {f"body {_BODY_WORDS[word]}" for word in words_of(given) if word in _BODY_WORDS}
    generator = document.select_one("meta[name=generator i]")
    if generator is not None:
        words = (generator.attr("content") or "")[:MAX_NAME_CHARS].lower().split()
        names |= {f"generator {_GENERATOR_WORDS[word]}" for word in words if word in _GENERATOR_WORDS}
    return sorted(names)


def _address(url: str) -> list[str]:
    host, _, path = url.partition("://")[2].partition("/")
    path, _, query = path.lower().partition("?")
    segments = [part for part in path.split("/") if part]
    names = [f"path {name}" for name in dict.fromkeys(_PATH_WORDS[part] for part in segments if part in _PATH_WORDS)]
    if (label := _HOST_WORDS.get(host.partition(".")[0])) is not None:
        names.append(f"host {label}")
    if _FORUM_HOST.search(host):
        names.append("host named forum")
    if not segments:
        names.append("path none")
    elif len(segments) == 1:
        names.append("path short")
    if _DATED.search("/" + path):
        names.append("path dated")
    if segments and _SLUG.search(segments[-1]):
        names.append("path slug")
    if query:
        names.append("query")
    return names


def _counts(document: Document, root: Element) -> list[str]:
    """How often tags occur in the page, and telling words in the classes of what was left of it."""
    names = [f"{tag} {step}" for tag, steps in _TAGS.items() for step in _reached(len(document.find_all(tag)), steps)]
    named: Counter[str] = Counter()
    for classes, count in Counter(element.attr("class") or "" for element in root.select("[class]")).items():
        for name in _named(classes[:MAX_NAME_CHARS]):
            named[name] += count
    for name, (_, steps) in _NAMED.items():
        names += [f"named {name} {step}" for step in _reached(named[name], steps)]
    return names


def _reached(count: int, steps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(step for step in steps if count >= step)


@lru_cache(maxsize=20_000)
def _named(classes: str) -> frozenset[str]:
    return frozenset(_NAMED_WORDS[word] for word in words_of(classes) if word in _NAMED_WORDS)


def _shape(root: Element, found: list[Paragraph]) -> list[str]:
    text = root.text
    size = max(1, len(text))
    prices = sum(map(text.count, _PRICE_SIGNS))
    prose = sum(one.chars for one in found)
    links = sum(len(link.text) for link in root.find_all("a"))
    names = [f"prose {step}" for step in (20, 40, 60, 80) if 100 * prose >= step * size]
    names += [f"prices {step}" for step in _reached(prices, _PRICE_STEPS)]
    names += [f"linked {step}" for step in (5, 15, 30, 50) if 100 * links >= step * size]
    names += [f"chars {step}" for step in (500, 1500, 4000, 12000, 40000) if size >= step]
    names += [f"paragraphs {step}" for step in (3, 8, 20, 50) if len(found) >= step]
    if found:
        mean = prose // len(found)
        names += [f"mean {step}" for step in (150, 250, 400) if mean >= step]
        top = max(one.chars for one in found)
        names += [f"longest {step}" for step in (300, 600, 1200) if top >= step]
    return names
