"""Writes a lexbor tree as plain lines or as Markdown (GitHub's), in the same form as turbohtml.

One walk over the tree, without recursion, because pages may nest deeply. Each open element has a frame: blocks collect
finished blocks (a paragraph, a whole list, a table) and the line that is being written; elements inside a line collect
pieces of it. Lists and quotations indent their content, up to MAX_INDENTS levels.
"""

from __future__ import annotations

import re
from typing import Any

MAX_INDENTS = 20
MAX_COLUMNS = 100

_BLOCKS = frozenset(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol optgroup option p pre "
    "search section summary table tbody td tfoot th thead tr ul".split()
)
_UNREAD = frozenset("script style template noscript head title meta link".split())
_LISTS = frozenset("ul ol menu dir".split())
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_VERBATIM = frozenset("pre code kbd samp tt".split())
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~", "strike": "~~"}
_BREAK = "\x00"  # a line break; no text of a tree holds it, for the parser replaces it
_EDGES = " \t\n\r\f" + _BREAK

_SPACES = re.compile(r"[ \t\n\r\f]+").sub
_SPECIAL = re.compile(r"([\\`*_\[\]]|<(?=[a-zA-Z/!?]))").sub
_LINE_START = re.compile(r"^(?:([#>+-]|=+)(?=\s|$)|(\d{1,9})([.)])(?=\s|$))").sub
_LANGUAGE = re.compile(r"(?:^|\s)lang(?:uage)?-(\S+)").search
_TICKS = re.compile(r"`+").findall
_ITEM = re.compile(r"(?:- |\d+\. )").match
_WRITTEN_OUT = re.compile(r"[\s()<>]").search


def text(node: Any) -> str:
    """As plain lines."""
    return _Plain().write(node)


def markdown(node: Any) -> str:
    """As Markdown."""
    return _Markdown().write(node)


class _Frame:
    """An open element."""

    __slots__ = ("blocks", "is_block", "is_broken", "items", "line", "loose", "node", "rows", "tag")

    def __init__(self, node: Any, tag: str, is_block: bool) -> None:
        self.node = node
        self.tag = tag
        self.is_block = is_block
        self.is_broken = False  # a block came inside this inline element, so that it cannot be marked as a whole
        self.blocks: list[str] = []
        self.line: list[str] = []
        self.items: list[str] = []  # of a list
        self.rows: list[list[str]] = []  # of a table
        self.loose = False


class _Plain:
    """Writes text as a reader sees it."""

    loose_gap = "\n"

    def __init__(self) -> None:
        self._stack: list[_Frame] = []
        self._indents = 0

    def write(self, root: Any) -> str:
        """The whole of a node's content."""
        bottom = _Frame(root, "", True)
        self._stack = [bottom]
        node, end = root.first_child, root.mem_id
        while node is not None:
            if self._enter(node):
                node = node.first_child
                continue
            while node.next is None:
                node = node.parent
                if node is None or node.mem_id == end:
                    break
                self._leave()
            else:
                node = node.next
                continue
            break
        self._flush(bottom)
        return "\n\n".join(bottom.blocks)

    def _enter(self, node: Any) -> bool:
        """Enters a node; returns whether to walk its children."""
        tag = node.tag
        if node.is_text_node:
            self._stack[-1].line.append(self.plain(node.text_content or ""))
            return False
        if not node.is_element_node or tag in _UNREAD:
            return False
        if tag in _VERBATIM and (tag == "pre" or self.loose_gap != "\n"):
            self._verbatim(node, tag)
            return False
        is_block = tag in _BLOCKS
        if is_block:
            self._end_line()
        if node.first_child is None:
            self._empty(node, tag)
            return False
        self._stack.append(_Frame(node, tag, is_block))
        self._indents += tag in _LISTS or tag == "blockquote"
        return True

    def _empty(self, node: Any, tag: str) -> None:
        top = self._stack[-1]
        if tag == "br":
            top.line.append(_BREAK)
        elif tag == "img":
            top.line.append(self.image(node))
        elif tag == "hr":
            top.blocks += self.rule()
        elif tag in _BLOCKS:
            self._put(_Frame(node, tag, True))

    def _verbatim(self, node: Any, tag: str) -> None:
        if tag == "pre":
            self._end_line()
            self._block().blocks += self.code(node)
        else:
            self._stack[-1].line.append(self.code_span(node))

    def _leave(self) -> None:
        frame = self._stack.pop()
        if not frame.is_block:
            inner = "".join(frame.line)
            self._stack[-1].line.append(inner if frame.is_broken else self.inline(frame.node, frame.tag, inner))
            return
        self._flush(frame)
        self._put(frame)
        self._indents -= frame.tag in _LISTS or frame.tag == "blockquote"

    def _put(self, frame: _Frame) -> None:
        """Hands a finished block to the one around it."""
        tag, outer = frame.tag, self._block()
        if tag == "li":
            if outer.tag in _LISTS:
                self._item(frame, outer)
            else:
                outer.blocks += self._bulleted(frame, "- ")
        elif tag in _LISTS:
            gap = self.loose_gap if frame.loose else "\n"
            outer.blocks += [gap.join(frame.items)] if frame.items else []
            outer.blocks += frame.blocks
        elif tag == "blockquote":
            inside = "\n\n".join(frame.blocks)
            outer.blocks += [self.quote(inside)] if inside and self._indents <= MAX_INDENTS else frame.blocks
        elif tag in _HEADINGS:
            outer.blocks += self.heading(" ".join(frame.blocks), int(tag[1]))
        elif tag in ("td", "th"):
            outer.items.append(self.cell(" ".join(" ".join(frame.blocks).split())))
        elif tag == "tr":
            outer.rows += [frame.items] if frame.items else []
            outer.blocks += frame.blocks
        elif tag == "table":
            outer.blocks += [*frame.blocks, *self.table(frame.rows)]
        else:
            outer.blocks += frame.blocks
            outer.rows += frame.rows
            outer.loose = outer.loose or tag == "p"

    def _item(self, frame: _Frame, outer: _Frame) -> None:
        number = len(outer.items) + _number(outer.node.attributes.get("start"), 1)
        outer.loose = outer.loose or (frame.loose and len(frame.blocks) > 1)
        outer.items += self._bulleted(frame, f"{number}. " if outer.tag == "ol" else "- ")

    def _bulleted(self, frame: _Frame, bullet: str) -> list[str]:
        parts: list[str] = []
        for block in frame.blocks:  # a list follows its line at once, a paragraph after an empty line
            parts += ["\n" if _ITEM(block) else "\n\n", block]
        inside = "".join(parts[1:])
        indent = " " * len(bullet) if self._indents <= MAX_INDENTS else ""
        return [(bullet + inside.replace("\n", "\n" + indent)).rstrip()]

    def _end_line(self) -> None:
        """Ends the current line before a block begins: the text before it becomes a block of its own."""
        top = self._stack[-1]
        if top.is_block:
            self._flush(top)
            return
        pieces: list[str] = []
        for frame in reversed(self._stack):
            pieces[:0] = frame.line
            frame.line.clear()
            if frame.is_block:
                frame.line += pieces
                self._flush(frame)
                return
            frame.is_broken = True

    def _flush(self, frame: _Frame) -> None:
        if frame.line:
            lines = [_SPACES(" ", line).strip(" ") for line in "".join(frame.line).split(_BREAK)]
            frame.line.clear()
            if paragraph := self.paragraph(lines):
                frame.blocks.append(paragraph)

    def _block(self) -> _Frame:
        """The innermost block that is open."""
        top = self._stack[-1]
        return top if top.is_block else next(frame for frame in reversed(self._stack) if frame.is_block)

    # ── where the two forms differ ───────────────────────────────────────────────────────────────────────────────

    def plain(self, data: str) -> str:
        """A piece of text."""
        return data

    def inline(self, _node: Any, _tag: str, inner: str, /) -> str:
        """An element inside a line."""
        return inner

    def image(self, _node: Any, /) -> str:
        """A picture."""
        return ""

    def code_span(self, node: Any) -> str:
        """Code inside a line."""
        return node.text(deep=True) or ""

    def paragraph(self, lines: list[str]) -> str:
        """Lines of running text as one block."""
        return "\n".join(lines).strip("\n")

    def heading(self, title: str, _level: int, /) -> list[str]:
        """A heading."""
        return [title] if title else []

    def code(self, node: Any) -> list[str]:
        """Preformatted text."""
        code = (node.text(deep=True) or "").strip("\n")
        return [code] if code.strip() else []

    def rule(self) -> list[str]:
        """A line across."""
        return []

    def quote(self, inside: str) -> str:
        """A quotation."""
        return "\n".join(f"    {line}".rstrip() for line in inside.split("\n"))

    def cell(self, inside: str) -> str:
        """One cell of a table."""
        return inside

    def table(self, rows: list[list[str]]) -> list[str]:
        """A table."""
        lines = "\n".join(" ".join(filter(None, row)) for row in rows)
        return [lines] if lines.strip() else []


class _Markdown(_Plain):
    """Writes Markdown."""

    loose_gap = "\n\n"

    def plain(self, data: str) -> str:
        """A piece of text, what would mean something to Markdown escaped."""
        return _SPECIAL(r"\\\1", data).replace("\N{NO-BREAK SPACE}", "&#160;")

    def inline(self, node: Any, tag: str, inner: str, /) -> str:
        """An element inside a line."""
        bare = inner.strip(_EDGES)
        if mark := _MARKS.get(tag):
            return _spaced(inner, f"{mark}{bare}{mark}") if bare else inner
        if tag == "q":
            return f'"{inner}"'
        if tag == "a" and (url := node.attributes.get("href")) is not None:
            label = _SPACES(" ", bare.replace(_BREAK, " "))
            return _spaced(inner, f"[{label}]({_target(url, node.attributes.get('title'))})") if label else ""
        return inner

    def image(self, node: Any, /) -> str:
        """A picture."""
        alt = " ".join((node.attributes.get("alt") or "").split())
        return f"![{alt}]({_target(node.attributes.get('src'), node.attributes.get('title'))})"

    def code_span(self, node: Any) -> str:
        """Code inside a line, between more backticks than are in it."""
        code = " ".join((node.text(deep=True) or "").split())
        if not code:
            return ""
        ticks = "`" * (1 + max(map(len, _TICKS(code)), default=0))
        space = " " if code.startswith("`") or code.endswith("`") else ""
        return f"{ticks}{space}{code}{space}{ticks}"

    def paragraph(self, lines: list[str]) -> str:
        """Lines of running text as one block; what would begin a list or a heading is escaped."""
        return "  \n".join(_LINE_START(_escaped, line) for line in lines).strip(" \n")

    def heading(self, title: str, level: int, /) -> list[str]:
        """A heading."""
        return [f"{'#' * level} {title}"] if title else []

    def code(self, node: Any) -> list[str]:
        """Preformatted text in a fence longer than any in it."""
        code = node.text(deep=True) or ""
        if not code.strip():
            return []
        inner = node.css_first("code")
        names = " ".join(one.attributes.get("class") or "" for one in (inner, node) if one is not None)
        language = _LANGUAGE(names)
        fence = "`" * max(3, 1 + max(map(len, _TICKS(code)), default=0))
        return [f"{fence}{language[1] if language else ''}\n{code.removesuffix(chr(10))}\n{fence}"]

    def rule(self) -> list[str]:
        """A line across."""
        return ["---"]

    def quote(self, inside: str) -> str:
        """A quotation."""
        return "\n".join(f"> {line}".rstrip() for line in inside.split("\n"))

    def cell(self, inside: str) -> str:
        """One cell of a table."""
        return inside.replace("|", "\\|")

    def table(self, rows: list[list[str]]) -> list[str]:
        """A table, its first row as the head."""
        if not rows:
            return []
        width = min(max(map(len, rows)), MAX_COLUMNS)
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))][:width])} |" for row in rows]
        return ["\n".join([lines[0], f"|{' --- |' * width}", *lines[1:]])]


def _number(value: str | None, otherwise: int) -> int:
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,9}", value.strip()) else otherwise


def _target(url: str | None, title: str | None) -> str:
    url = (url or "").strip()
    if _WRITTEN_OUT(url):
        url = f"<{url.replace('<', '%3C').replace('>', '%3E')}>"
    return f'{url} "{title}"' if title and '"' not in title else url


def _spaced(inner: str, made: str) -> str:
    """What was made of a piece, with the space that the piece had at its ends: marks must touch what they mark."""
    before = " " if inner[:1].isspace() else ""
    after = " " if inner[-1:].isspace() else ""
    return f"{before}{made}{after}"


def _escaped(found: re.Match[str]) -> str:
    return f"{found[2]}\\{found[3]}" if found[2] else f"\\{found[1]}"
