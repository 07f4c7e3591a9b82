"""A copy of a page's tree, pruned of boilerplate.

What every page of a site has (navigation, footers, forms, consent, asides) is removed; elements with a class or id of
boilerplate are, unless they are most of the page; so are sections headed "related" and the like, and, on pages with
prose, small blocks that are mostly links. Words and limits were tuned on the pages of `benchmarks/main_text.py`.

Invariant: the document itself is never changed; what remains is in document order; a page that has text keeps some.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from weft.extract.text.names import MAX_NAME_CHARS, words_of
from weft.extract.turbo import Document, Element, is_comment

# An element marked as the content is used if more text than this is left of it after pruning.
ROOT_CHARS = 600
# An element named as boilerplate is kept if it has more than this share of the page's text.
NAMED_SHARE = 0.4
CONSENT_SHARE = 0.9
# A line about cookies has so many characters, and at most this share of the text.
CONSENT_CHARS = (40, 700)
CONSENT_TEXT_SHARE = 0.2
HIDDEN_SHARE = 0.5
FORM_SHARE = 0.3
SECTION_SHARE = 0.3
MAX_COMMENTS = 2000
# A page has prose when its paragraphs of some length have this many characters.
PROSE_CHARS = 500
PARAGRAPH_CHARS = 60
SMALL_BLOCK_CHARS = 400
LINK_DENSITY = 0.5
_JUNK = (
    "script, style, template, noscript, svg, iframe, object, video, audio, canvas, "
    # A button that is a heading opens a part of the page.
    ":not(h1, h2, h3, h4, h5, h6, dt, summary) > button, "
    "select, textarea, input, label, nav, footer, aside, menu, "
    "[role=navigation], [role=contentinfo], [role=search], [role=menu], [role=menubar]"
)
# Ids like S:1 are parts of a page that React sends late; a template B:1 is where a script puts them.
_LATE = "[hidden][id^='S:']"
MAX_LATE = 1000
_HIDDEN = (
    "dialog, [hidden]:not([id^='S:']), [style*='display:none' i], [style*='display: none' i], [role=banner], "
    "[role=complementary], [role=dialog], [role=alert], [role=alertdialog], [aria-modal=true]"
)
# Words of parts that are folded up until a reader opens them: tabs, answers to questions, slides.
_FOLDED = frozenset(
    "accordion collapse collapsed collapsible expand expandable expanded expander faq faqs answer answers tab tabs "
    "tabpanel panel toggle disclosure slide slides".split()
)
_ENTRY = "input:not([type=hidden], [type=checkbox], [type=radio], [type=submit], [type=button]), textarea"
_ROOTS = "main, [role=main], #content, #main, article"
_BLOCKS = frozenset(("ul", "ol", "div", "section", "table"))
_LISTS = frozenset(("ul", "ol"))
_HEADINGS = frozenset(("h2", "h3", "h4", "h5", "h6"))
_FLOW = frozenset(("p", "ul", "ol"))
_INLINE = frozenset("a abbr b cite code dfn em i mark q strong sub sup u".split())
_NEVER = frozenset(("html", "body", "main", "article"))

_BOILERPLATE = frozenset(
    "nav navbar navheader navfooter navigation menu megamenu submenu subnav breadcrumb breadcrumbs sidebar footer "
    "copyright skip sr visually share sharing social likes newsletter subscribe signup login popup modal lightbox "
    "tooltip dropdown related recommended recommendations recirc outbrain taboola promoted popular trending "
    "advert advertisement sponsored cta announcement notice alert disclaimer "
    "pagination pager facet facets filter filters swatch swatches cart minicart wishlist payment payments "
    "meta author authors byline bio signature badge badges vote voting rating ratings reviews respond "
    "references reflist compare tagline".split()
)
_CONSENT = frozenset(("cookie", "cookies", "consent", "onetrust", "gdpr"))
_COMMENTS = frozenset(("comment", "comments", "commentlist", "disqus"))
_NOTICES = ("p", "div", "section", "span")
_COOKIES = re.compile(r"[Cc]ookies\b").search
_USES = re.compile(
    r"\b(?:use[sd]?|using|set|store|verwende[nt]|nutzen|utilis\w+|usamos|utiliza\w*)\s+(?:\w+\s+){0,3}cookies",
    re.IGNORECASE,
).search
_AGREES = re.compile(
    r"accept|agree|consent|analy[sz]|policy|preferences|experience|akzeptier|zustimm|datenschutz|accepte|aceptar|aceita",
    re.IGNORECASE,
).search
# Names that are boilerplate only as a whole: around a post in a forum, around a product in a shop.
_COMPOUND = re.compile(
    r"(?:^|[\s_-])(?:user-?(?:info|details|card|profile|title|stats|extras)|post-?(?:profile|signature)"
    r"|message-(?:cell--user|user(?:Details|Extras|Title|Banner|Name|Info)?)|member-?(?:info|title)"
    r"|author-?(?:info|card|box)|recently-?viewed|cross-?sell|up-?sell|quotebox)(?:$|[\s_-])"
    r"|bbcode-?(?:block)?[-_]*quote|ipsQuote",
    re.IGNORECASE,
).search
_COMPOUND_WORDS = frozenset(
    "user userinfo userdetails usercard userprofile usertitle userstats post postprofile postsignature member "
    "memberinfo recently crosssell cross upsell up quotebox quote bbcode ips".split()
)
_MEANINGFUL = _BOILERPLATE | _CONSENT | _COMMENTS | _COMPOUND_WORDS
_ASIDE_HEADING = re.compile(
    r"\W*(?:related\b|recommended|trending|sponsored|advertisement|newsletter|subscribe|sign up|follow us|get in touch"
    r"|more (?:from|on|in|topics|posts|stories|articles|news|about|like)|you (?:may|might|could)\b|people also"
    r"|you\W?ll (?:also )?(?:love|like)|customers? (?:also|who|reviews?|ratings?)|frequently bought|recently viewed"
    r"|your recently|similar (?:items|products|posts|articles|questions)|popular (?:posts|articles|products|topics)"
    r"|most (?:popular|read|viewed)|recent (?:posts|comments|articles)|latest (?:posts|news|articles|stories)"
    r"|share (?:this|on|via)|leave a (?:reply|comment|review)|(?:write|post|add) a (?:review|comment)"
    r"|join the (?:conversation|discussion)|stay (?:connected|updated|in touch|up to date)|about (?:the )?author"
    r"|written by|explore (?:more|related)|(?:read|up|what to read) next|(?:keep|continue|further) reading|read more"
    r"|(?:this is )?what customers|(?:choose|select) your add-?ons|complete (?:the|your) (?:look|set|order|purchase)"
    r"|compare (?:products|with (?:similar|other))|(?:bundles|offers) (?:&|and) (?:bundles|offers)"
    r"|privacy (?:preference|overview)|your privacy|quick links|hot network|need help|contact us|report (?:this|abuse)"
    r"|(?:\d+ )?comments?\W*$|(?:customer |product |top )?reviews?\W*$|ratings? (?:&|and) reviews?"
    r"|(?:references|footnotes|tags|categories|share|see also|linked)\W*$)",
    re.IGNORECASE,
).match
# Of those the ones that also head text: it is dropped if links have more of it than this share.
_MORE_HEADING = re.compile(r"\W*(?:more (?:on|about)|related|see also)", re.IGNORECASE).match
SECTION_LINK_SHARE = 0.3
_HEADING_CHARS = 80


class _Name(Enum):
    """What an element's class or id says it is."""

    CONSENT = auto()
    BOILERPLATE = auto()
    COMMENTS = auto()


class Pruned(NamedTuple):
    """What is left of a tree, and in it the elements that call themselves comments, outer ones alone."""

    root: Element
    comments: list[Element]
    consent_chars: int  # that were removed as questions for consent


def pruned_content(document: Document) -> Pruned | None:
    """The pruned copy of the element that holds a page's main content."""
    if document.select_one(_LATE) is not None:
        document = _assembled(document)
    for candidate in _candidates(document):
        found = _pruned(candidate)
        if size_of(found.root) > ROOT_CHARS:
            return found
    body = document.find("body")
    return _pruned(body) if body is not None else None


def _assembled(document: Document) -> Document:
    """A copy in which the parts that React sends late are where its script would put them."""
    document = copy.deepcopy(document)
    places = {place.attr("id"): place for place in document.select("template[id^='B:']")}
    for part in islice(document.select(_LATE), MAX_LATE):
        place = places.get("B" + (part.attr("id") or "")[1:])
        if place is not None and part not in place.ancestors:
            del part.attrs["hidden"]
            place.insert_before(part)
    return document


def _candidates(document: Document) -> Iterator[Element]:
    """The elements that may hold the content: the largest `main`, then a unique #content or #main, a unique article."""
    found = document.select(_ROOTS)
    if mains := [element for element in found if element.tag == "main" or element.attr("role") == "main"]:
        yield max(mains, key=size_of) if len(mains) > 1 else mains[0]
    for name in ("content", "main"):
        if len(same := [element for element in found if element.attr("id") == name]) == 1:
            yield same[0]
    if len(articles := [element for element in found if element.tag == "article"]) == 1:
        yield articles[0]


def _pruned(element: Element) -> Pruned:
    """A copy of an element without boilerplate."""
    root: Element = copy.deepcopy(element)
    _reveal_noscript(root)
    # Forms that ask for something to be typed. Others may hold the whole page, as ASP.NET's do.
    forms = [form for form in root.find_all("form") if form.select_one(_ENTRY)]
    root.remove(_JUNK)
    size = size_of(root)
    dropped = _drop(forms, FORM_SHARE * size)
    dropped |= _drop([one for one in root.select(_HIDDEN) if not _is_folded(one)], HIDDEN_SHARE * size)
    named = _named(root)
    before = size_of(root)
    dropped |= _drop(named[_Name.CONSENT], CONSENT_SHARE * size)
    consent_chars = before - size_of(root) if named[_Name.CONSENT] else 0
    dropped |= _drop([header for header in root.find_all("header") if not _heads_a_part(header)], size)
    if dropped:
        size = size_of(root)
    _drop(named[_Name.BOILERPLATE], NAMED_SHARE * size)
    _drop_sections(root, SECTION_SHARE * size)
    consent_chars += _drop_consent(root)
    _drop_link_blocks(root)
    return Pruned(root, _outermost(root, named[_Name.COMMENTS][:MAX_COMMENTS]), consent_chars)


def comments_in(body: Element) -> list[Element]:
    """The elements of a page that call themselves comments, outer ones alone, as copies without forms."""
    root: Element = copy.deepcopy(body)
    for form in [form for form in root.find_all("form") if form.select_one(_ENTRY)]:
        form.decompose()
    root.remove(_JUNK)
    comments = [one for one in _named(root)[_Name.COMMENTS] if one.tag not in _NEVER]
    return _outermost(root, comments[:MAX_COMMENTS])


def _drop_consent(root: Element) -> int:
    """Drops lines that tell of cookies whatever they are called; returns how many characters they had."""
    text = root.text
    if _COOKIES(text) is None:
        return 0
    for element in root.find_all(list(_NOTICES)):
        notice = element.text
        if CONSENT_CHARS[0] < len(notice) < min(CONSENT_CHARS[1], CONSENT_TEXT_SHARE * len(text)) and _is_notice(
            notice
        ):
            element.decompose()
    return len(text) - size_of(root)


def _is_notice(text: str) -> bool:
    return _COOKIES(text) is not None and _USES(text) is not None and _AGREES(text) is not None


def _is_folded(element: Element) -> bool:
    """Whether an element is hidden only until a reader opens it."""
    if (role := element.attr("role")) == "tabpanel":
        return True
    if role not in (None, "region") or (
        "hidden" not in element.attrs and "display" not in (element.attr("style") or "")
    ):
        return False
    words = words_of((element.attr("class") or "")[:MAX_NAME_CHARS])
    return "aria-labelledby" in element.attrs or not _FOLDED.isdisjoint(words)


def _heads_a_part(header: Element) -> bool:
    """Whether a header has the headline of the page, or the headline or the introduction of one of its parts."""
    if header.find("h1") is not None:
        return True
    return header.find(["h2", "h3", "p"]) is not None and header.closest("article, section, main") is not None


def _tag(node: object) -> str:
    """The tag of an element; empty for a document, and for no node at all."""
    return getattr(node, "tag", "")


def size_of(element: Element) -> int:
    """How many characters of text an element has."""
    return len(element.text)


def _drop(elements: Iterable[Element], limit: float) -> bool:
    """Drops those elements that have not more text than `limit`; returns whether there were any."""
    dropped = False
    for element in elements:
        if element.tag not in _NEVER and size_of(element) <= limit:
            element.decompose()
            dropped = True
    return dropped


def _reveal_noscript(root: Element) -> None:
    """Keeps the content of noscript where the page has hardly anything else, as forums drawn by scripts do."""
    hidden = [element for element in root.find_all("noscript") if size_of(element) > 1000]
    if hidden:
        root.remove("script, style, template")
        if sum(map(size_of, hidden)) > size_of(root) / 2:
            for element in hidden:
                element.unwrap()


def _named(root: Element) -> dict[_Name, list[Element]]:
    """The elements whose class or id says what they are."""
    named: dict[_Name, list[Element]] = {name: [] for name in _Name}
    for element in root.select("[class], [id]"):
        classes = element.attr("class")
        what = _meaning(classes[:MAX_NAME_CHARS]) if classes else None
        if what is None and (name := element.attr("id")):
            what = _meaning(name[:MAX_NAME_CHARS])
        if what is not None and not _is_in_prose(element):
            named[what].append(element)
    return named


def _is_in_prose(element: Element) -> bool:
    """Whether an element is a word or a link in a paragraph, which would have a gap without it."""
    return element.tag in _INLINE and _tag(element.parent) == "p"


@lru_cache(maxsize=20_000)
def _meaning(names: str) -> _Name | None:
    """What a class attribute or an id says about its element; most say nothing."""
    words = words_of(names)
    if _MEANINGFUL.isdisjoint(words):
        return None
    if not _CONSENT.isdisjoint(words):
        return _Name.CONSENT
    if not _BOILERPLATE.isdisjoint(words) or _COMPOUND(names):
        return _Name.BOILERPLATE
    return None if _COMMENTS.isdisjoint(words) else _Name.COMMENTS


def _drop_sections(root: Element, limit: float) -> None:
    """Drops sections whose heading marks them as not part of the content."""
    for heading in root.select("h2, h3, h4, h5, h6"):
        title = heading.text.strip()
        if 0 < len(title) <= _HEADING_CHARS and _ASIDE_HEADING(title):
            section = _section(root, heading, len(title))
            if section is not None and size_of(section) <= limit and not _is_prose_about(title, section):
                section.decompose()


def _is_prose_about(title: str, section: Element) -> bool:
    """Whether a section headed "More on tides" has text of its own, not links to other pages."""
    links = sum(len(link.text) for link in section.find_all("a"))
    return _MORE_HEADING(title) is not None and links < SECTION_LINK_SHARE * size_of(section)


def _section(root: Element, heading: Element, title_chars: int) -> Element | None:
    """The smallest element that begins with a heading and has more text than it."""
    element = heading
    while _is_first(element) and isinstance(parent := element.parent, Element) and parent != root:
        if len(parent.text.strip()) > title_chars + 20:
            return parent
        element = parent
    return None


def _is_first(element: Element) -> bool:
    """Whether no text precedes an element in its parent (a few icons may)."""
    for sibling in islice(element.previous_siblings, 6):
        if not is_comment(sibling) and sibling.text.strip():
            return False
    return True


def _outermost(root: Element, elements: list[Element]) -> list[Element]:
    if not elements:
        return []
    inside = set(elements)
    return [element for element in elements if _is_outermost(element, root, inside)]


def _is_outermost(element: Element, root: Element, others: set[Element]) -> bool:
    for ancestor in element.ancestors:
        if ancestor in others:
            return False
        if ancestor == root:
            return True
    return False


def _drop_link_blocks(root: Element) -> None:
    """Drops small blocks that are mostly links, where there is prose beside them."""
    if not _has_prose(root):
        return
    for block in _small_blocks(root):
        if block.tag in _LISTS and _is_in_flow(block):
            continue
        if sum(len(link.text) for link in block.find_all("a")) > LINK_DENSITY * len(block.text.strip()):
            block.decompose()


def _is_in_flow(block: Element) -> bool:
    """Whether a list is part of a text: it stands behind a paragraph, or behind a heading in a text."""
    before = [one for one in islice(block.previous_siblings, 6) if isinstance(one, Element)][:2]
    if not before:
        return False
    return before[0].tag == "p" or (before[0].tag in _HEADINGS and len(before) > 1 and before[1].tag in _FLOW)


def _has_prose(root: Element) -> bool:
    """Whether paragraphs of some length have enough text; the first few mostly do."""
    chars = 0
    for paragraph in root.find_all("p"):
        if (length := len(paragraph.text)) >= PARAGRAPH_CHARS:
            chars += length
            if chars > PROSE_CHARS:
                return True
    return False


def _small_blocks(root: Element) -> Iterator[Element]:
    """The small blocks that have links, outer ones before those inside them."""
    seen: set[Element] = set()
    for link in root.find_all("a"):
        inner: list[Element] = []
        for block in link.ancestors:
            if block == root or block in seen or not isinstance(block, Element):
                break
            seen.add(block)
            if block.tag in _BLOCKS:
                if len(block.text.strip()) >= SMALL_BLOCK_CHARS:
                    break
                inner.append(block)
        yield from reversed(inner)
