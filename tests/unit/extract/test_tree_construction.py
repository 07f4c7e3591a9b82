"""What the parser makes of odd markup, by the html5lib tests, which nobody here wrote.

Only whole documents: Weft parses no fragments. Namespaces and doctypes are left out, for nothing here asks for them.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from weft.extract import turbo

ARCHIVE = Path(__file__).parents[4] / "shared/data/html5lib-tree-construction.tar"


class Case(NamedTuple):
    """Some markup and its tree."""

    name: str
    markup: str
    tree: list[str]


@cache
def cases() -> list[Case]:
    if not ARCHIVE.exists():
        missing = "the html5lib tests are not here: shared/data/html5lib-tree-construction.tar"
        if os.environ.get("WEFT_REQUIRE_DATA"):
            pytest.fail(missing)
        pytest.skip(missing)
    found: list[Case] = []
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            file = (
                archive.extractfile(member) if member.name.endswith(".dat") and "scripted" not in member.name else None
            )
            if file is not None:
                text = file.read().decode("utf-8", "surrogatepass")
                found += cases_of(Path(member.name).stem, text)
    return found


def cases_of(file: str, text: str) -> Iterator[Case]:
    for number, block in enumerate(re.split(r"(?m)^#data\n", text)[1:]):
        markup, _, rest = f"\n{block}".partition("\n#errors")
        if "\n#document-fragment" in rest or "\n#script-on" in rest or "<?" in markup:
            continue  # the standard has changed what `<?` begins since
        tree = rest.partition("\n#document\n")[2].rstrip("\n")
        yield Case(f"{file}-{number}", markup[1:], plain_lines(tree))


def plain_lines(tree: str) -> list[str]:
    """A tree's lines without namespaces and doctypes."""
    lines: list[str] = []
    for line in tree.split("\n"):
        if not line.startswith("| ") and lines:
            lines[-1] += "\n" + line
        elif not line.startswith("| <!DOCTYPE"):
            line = re.sub(r"^(\| +<)(?:svg|math) ", r"\1", line)
            lines.append(re.sub(r"^(\| +)(xlink|xml|xmlns) (\S+=)", r"\1\2:\3", line))
    return [re.sub(r"(?s)^(\| +<!--)\s*(.*?)\s*-->$", r"\1 \2 -->", line) for line in lines]


def sorted_as(name: str) -> str:
    """Attributes with a namespace are sorted by both, with a space in between."""
    return name.replace(":", " ") if name in ("xml:lang", "xml:space") or name.startswith("xlink:") else name


def described(tag: str, attributes: dict[str, str | None], indent: str) -> list[str]:
    return [
        f"{indent}<{tag}>",
        *(f'{indent}  {name}="{attributes[name] or ""}"' for name in sorted(attributes, key=sorted_as)),
    ]


def turbohtml_lines(node: Any, depth: int = 0) -> Iterator[str]:
    """What turbohtml makes of it: a template's content is a fragment below it."""
    for child in node.children:
        indent, kind = "| " + "  " * depth, type(child).__name__
        if kind == "Element":
            yield from described(child.tag, {name: child.attr(name) for name in child.attrs}, indent)
            yield from turbohtml_lines(child, depth + 1)
        elif kind == "DocumentFragment":
            yield f"{indent}content"
            yield from turbohtml_lines(child, depth + 1)
        elif kind == "Text":
            yield f'{indent}"{child.data}"'
        elif kind in ("Comment", "ProcessingInstruction"):
            yield f"{indent}<!-- {child.data.strip()} -->"


def test_every_document_becomes_the_tree_that_the_standard_says() -> None:
    wrong = [case.name for case in cases() if list(turbohtml_lines(turbo.parse_at_once(case.markup))) != case.tree]
    assert len(cases()) > 1500
    assert wrong == []
