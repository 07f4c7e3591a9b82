"""Generates files from the configuration: docs/settings.md, and the types of the keywords of `weft.crawl` for editors.

`make settings` writes both; a test checks that they are current.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_type_hints

from weft.config.keys import Key, accepted, keys
from weft.config.tree import CRAWL, SERVICE, Product

_INTRO = """# Settings

Made from the configuration by `make settings`: change the sections in `src/weft/config`, not this page.

Each setting is a flag of `weft crawl`, a `WEFT_*` variable (`WEFT_` and the key in capitals), a key of a YAML file
(`--config`) and a keyword of `weft.crawl` in Python; the first of these that is given counts. Flags, variables and
keywords take the flag's name and the key's. How lists and mappings are written: [crawling](crawl.md#settings). Those
marked * are in `weft crawl --help-all` alone: few crawls need them.
"""
_SERVICE = """# Settings of the scrape service

Each is a flag of `weft serve`, a `WEFT_*` variable and a key of a YAML file (`weft serve --config`). Those that
`weft crawl` has, too, mean the same there. Those marked * are in `weft serve --help-all` alone.
"""
_KEYWORDS = '''"""The settings that `weft.crawl` accepts as keywords, by key and by flag. Made by `make settings`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from weft.logins import FormLogin

Path = str | os.PathLike[str]


class {name}(TypedDict, total=False):
    """Every setting; `data_dir`, which may be left out, and what names own code are parameters of their own."""
'''
_PLAIN = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}
_PATHS = frozenset({"seed_file", "exclude_file", "log_dir"})


def settings_page() -> str:
    """The text of docs/settings.md."""
    return "\n".join([_INTRO, *_tables(CRAWL), _SERVICE, *_tables(SERVICE)])


def keywords_module() -> str:
    """The source of the module with the keywords' types."""
    lines = [_KEYWORDS.format(name="Settings")]
    for item in keys().values():
        names = dict.fromkeys((item.name, item.flag.removeprefix("--").replace("-", "_")))
        lines += [
            f"    {name}: {_annotation_of(item)}" for name in names if name not in ("data_dir", "spider", "on_page")
        ]
    return "\n".join([*lines, ""])


def _tables(product: Product) -> Iterator[str]:
    known = keys(product)
    for section, struct in get_type_hints(product.tree).items():
        yield f"## {(struct.__doc__ or '').rstrip('.')}\n"
        yield "| key | flag | default | accepts | |\n|---|---|---|---|---|"
        yield from (_line(item) for item in known.values() if item.section == section)
        yield ""


def _line(item: Key) -> str:
    default, flag = item.default_words, item.flag + (" *" if item.tuning else "")
    accepts = accepted(item.schema).replace(" or nothing", "").replace("|", r"\|")
    mark, stars = flag.partition(" ")[::2]
    default_text = f"`{default}`" if default and " " not in default else default or "none"
    meaning = item.help[0].upper() + item.help[1:]
    return f"| `{item.name}` | `{mark}`{' ' + stars if stars else ''} | {default_text} | {accepts} | {meaning} |"


def _annotation_of(key: Key) -> str:
    """The Python annotation of a setting, as source code, for editors; further limits are checked by the
    configuration.
    """
    if key.name == "pods":
        return "str | Sequence[str | Mapping[str, object]]"
    if key.name == "only_pods":
        return "str | int | Sequence[str | int] | None"
    if key.name == "login":
        return "Mapping[str, object] | FormLogin | Path"
    if key.name in _PATHS:
        return "Path | None" if "anyOf" in key.schema else "Path"
    return _annotation_of_schema(key.schema, "Path" if key.name == "data_dirs" else "str")


def _annotation_of_schema(schema: dict[str, Any], text: str) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_annotation_of_schema(one, text) for one in schema["anyOf"]))
    if "enum" in schema:
        return f"Literal[{', '.join(repr(one) for one in schema['enum'])}]".replace("'", '"')
    if schema["type"] == "array":
        return f"{text} | Sequence[{text}]"
    if schema["type"] == "object":
        is_plain = schema.get("additionalProperties", {}).get("type") == "string"
        return "Mapping[str, str]" if is_plain else "Mapping[str, object] | Path"
    return _PLAIN[schema["type"]]
