"""What JavaScript and TypeScript code imports, read from its syntax tree by tree-sitter. Pure; no code is run.

`import`, `export … from`, `import()`, `require()`, `require.resolve()`, `import x = require()`: with one plain text as
their argument. A tree is made of any text, mistakes and all, so that one odd line does not hide the others.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

SCRIPTS = (".js", ".mjs", ".cjs", ".jsx")
TYPED = (".ts", ".mts", ".cts")
TYPED_JSX = (".tsx",)
SUFFIXES = SCRIPTS + TYPED + TYPED_JSX
MAX_BYTES = 500_000  # larger ones are bundles of what others wrote
MAX_S = 5.0  # for one file: 100,000 quotation marks in a row take the parser minutes
_PIECE_BYTES = 2048
BUILT_IN = frozenset(
    "assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain "
    "events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl "
    "stream string_decoder sys timers tls trace_events tty url util v8 vm wasi worker_threads zlib".split()
)
_PACKAGE = re.compile(r"(@[a-z0-9~-][\w.~-]*/[a-z0-9~-][\w.~-]*|[A-Za-z0-9~][\w.~-]*)(?:/.*)?")
_LOADING_FUNCTIONS = (b"require", b"require.resolve")
_STATEMENTS_WITH_SOURCE = {"import_statement", "export_statement", "import_require_clause"}


@dataclass(slots=True)
class JavascriptImports:
    """The packages that files import, and how many files could not be read in full."""

    needed: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)  # within `try`
    unreadable: int = 0


def read(source: bytes, suffix: str, into: JavascriptImports, max_s: float = MAX_S) -> None:
    """Adds the imports of one file; of one that takes too long, only those at its beginning."""
    source = source[:MAX_BYTES]
    tree = _parser_for(_grammar_of(suffix)).parse(_TimedParser(source, max_s).read)
    into.unreadable += bool(tree.root_node.has_error)
    for text, is_optional in _specifiers_in(tree.root_node, source):
        if (package := package_of(text)) is not None:
            (into.optional if is_optional else into.needed).add(package)


class _TimedParser:
    """Passes a text to the parser in pieces, and ends the text early when the time limit is over.

    The end of the text is the one thing that stops a parser: its own time limits are gone, or crash. Pieces that were
    handed out stay as they were: it reads them again.
    """

    def __init__(self, source: bytes, max_s: float) -> None:
        self._source = source
        self._until = time.monotonic() + max_s
        self._handed_out = 0

    def read(self, offset: int, _: Any) -> bytes:
        end = offset + _PIECE_BYTES
        if end > self._handed_out:
            if time.monotonic() > self._until:
                end = self._handed_out
            self._handed_out = max(self._handed_out, end)
        return self._source[offset:end]


def package_of(specifier: str) -> str | None:
    """The package that an import specifier names; None for files of the repository, URLs, and node's own modules."""
    if specifier.startswith((".", "/", "#", "node:", "~/", "@/")) or ":" in specifier:
        return None
    match = _PACKAGE.fullmatch(specifier)
    return None if match is None or match[1] in BUILT_IN else match[1]


def _specifiers_in(root: Any, source: bytes) -> list[tuple[str, bool]]:
    """Every import specifier, and whether it is within `try`. A stack, not recursion: code may be nested deeply."""
    texts, stack = [], [(root, False)]
    while stack:
        node, is_optional = stack.pop()
        if (text := _specifier_of(node, source)) is not None:
            texts.append((text, is_optional))
        inside = is_optional or node.type == "try_statement"
        stack += [(child, inside) for child in node.named_children]
    return texts


def _specifier_of(node: Any, source: bytes) -> str | None:
    if node.type in _STATEMENTS_WITH_SOURCE:
        return _plain(node.child_by_field_name("source"), source)
    if node.type == "call_expression" and _is_loading_function(node.child_by_field_name("function"), source):
        arguments = node.child_by_field_name("arguments")
        given = [child for child in arguments.named_children if child.type != "comment"] if arguments else []
        return _plain(given[0], source) if given else None
    return None


def _is_loading_function(function: Any, source: bytes) -> bool:
    if function is None:
        return False
    return function.type == "import" or source[function.start_byte : function.end_byte] in _LOADING_FUNCTIONS


def _plain(node: Any, source: bytes) -> str | None:
    """The content of a string literal; None if it has escapes or placeholders."""
    if node is None or node.type not in ("string", "template_string"):
        return None
    if any(child.type not in ("string_fragment", "template_chars") for child in node.named_children):
        return None
    return source[node.start_byte + 1 : node.end_byte - 1].decode(errors="replace")


def _grammar_of(suffix: str) -> str:
    return "typescript" if suffix in TYPED else "tsx" if suffix in TYPED_JSX else "javascript"


@cache
def _parser_for(grammar: str) -> Any:
    import tree_sitter
    import tree_sitter_javascript
    import tree_sitter_typescript

    languages = {
        "javascript": tree_sitter_javascript.language,
        "typescript": tree_sitter_typescript.language_typescript,
        "tsx": tree_sitter_typescript.language_tsx,
    }
    return tree_sitter.Parser(tree_sitter.Language(languages[grammar]()))
