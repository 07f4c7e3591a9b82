"""What a repository says about itself: package.json, else pyproject.toml. Pure: texts in, a `ModuleManifest` out.

What must stay true: a file of any content gives a manifest, if need be an empty one with its `problem`; texts are cut
to lengths that a catalogue can have, and nothing in them is believed to be of the type it should have.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.pipelines.builtin.modules.analysis import licences

MAX_TEXT = 500
MAX_TAGS = 20
_NOT_IN_TAGS = re.compile(r"[^\w.+#-]+")


@dataclass(frozen=True, slots=True)
class ModuleManifest:
    """What was read from the one manifest of a repository."""

    file: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    homepage: str = ""
    author: str = ""
    licence: str = ""  # as it is written there
    keywords: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()  # the commands of package.json's scripts
    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # group → package → range
    problem: str = ""


def of_package_json(text: str) -> ModuleManifest:
    """Parses a package.json."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return ModuleManifest(file="package.json", problem=f"package.json is no JSON: {_first_line(error)}")
    if not isinstance(data, dict):
        return ModuleManifest(file="package.json", problem="package.json holds no object")
    groups = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies")
    return ModuleManifest(
        file="package.json",
        name=_text(data.get("name")),
        version=_text(data.get("version")),
        description=_text(data.get("description")),
        homepage=_text(data.get("homepage")),
        author=_person_name(data.get("author")),
        licence=licences.stated(data.get("license") or data.get("licenses"))[:MAX_TEXT],
        keywords=_tags_from_keywords(data.get("keywords")),
        scripts=tuple(_text(line) for line in _table_or_empty(data.get("scripts")).values()),
        declared={group: ranges for group in groups if (ranges := _version_ranges(data.get(group)))},
    )


def of_pyproject(text: str) -> ModuleManifest:
    """Parses a pyproject.toml: the standard table, else Poetry's."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return ModuleManifest(file="pyproject.toml", problem=f"pyproject.toml is no TOML: {_first_line(error)}")
    project, poetry = (
        _table_or_empty(data.get("project")),
        _table_or_empty(_table_or_empty(data.get("tool")).get("poetry")),
    )
    facts = project or poetry
    urls = {str(name).lower(): url for name, url in _table_or_empty(facts.get("urls")).items()}
    authors = facts.get("authors")
    return ModuleManifest(
        file="pyproject.toml",
        name=_text(facts.get("name")),
        version=_text(facts.get("version")),
        description=_text(facts.get("description")),
        homepage=_text(urls.get("homepage") or facts.get("homepage")),
        author=_person_name(authors[0] if isinstance(authors, list) and authors else None),
        licence=licences.stated(facts.get("license"))[:MAX_TEXT] or _licence_of_classifiers(facts.get("classifiers")),
        keywords=_tags_from_keywords(facts.get("keywords")),
        declared=_python_groups(data, project, poetry),
    )


def requirements(lines: Any) -> dict[str, str]:
    """Parses requirements (PEP 508) into name → specifier; options, paths and URLs are left out."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    ranges: dict[str, str] = {}
    for line in lines if isinstance(lines, list) else ():
        if not isinstance(line, str):
            continue
        try:
            requirement = Requirement(re.split(r"\s[#-]", line[:MAX_TEXT])[0].strip())
        except InvalidRequirement:
            continue
        ranges[str(canonicalize_name(requirement.name))] = str(requirement.specifier)
    return ranges


def _python_groups(data: Any, project: Any, poetry: Any) -> dict[str, dict[str, str]]:
    groups = {"dependencies": requirements(project.get("dependencies"))}
    for name, lines in _table_or_empty(project.get("optional-dependencies")).items():
        groups[f"optional:{name}"] = requirements(lines)
    for name, lines in _table_or_empty(data.get("dependency-groups")).items():
        groups[f"group:{name}"] = requirements(lines)
    groups["build-system"] = requirements(_table_or_empty(data.get("build-system")).get("requires"))
    groups["dependencies"] |= _poetry_dependencies(poetry.get("dependencies"))
    groups["group:dev"] = groups.get("group:dev", {}) | _poetry_dependencies(poetry.get("dev-dependencies"))
    for name, group in _table_or_empty(poetry.get("group")).items():
        groups[f"group:{name}"] = _poetry_dependencies(_table_or_empty(group).get("dependencies"))
    return {name: ranges for name, ranges in groups.items() if ranges}


def _poetry_dependencies(table: Any) -> dict[str, str]:
    from packaging.utils import canonicalize_name

    ranges = {}
    for name, said in _table_or_empty(table).items():
        if name.lower() != "python":
            version = said.get("version") if isinstance(said, dict) else said
            ranges[str(canonicalize_name(name))] = _text(version)
    return ranges


def _licence_of_classifiers(classifiers: Any) -> str:
    """The licence among the trove classifiers: `License :: OSI Approved :: MIT License`."""
    names = [str(entry).split(" :: ") for entry in classifiers] if isinstance(classifiers, list) else []
    return next((parts[-1] for parts in names if parts[0] == "License"), "")[:MAX_TEXT]


def _version_ranges(table: Any) -> dict[str, str]:
    return {_text(name): _text(said) for name, said in _table_or_empty(table).items() if name}


def _tags_from_keywords(said: Any) -> tuple[str, ...]:
    """Keywords as tags: small letters, hyphens for spaces, each once; npm allows a text with commas, too."""
    words = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else []
    tags = (_NOT_IN_TAGS.sub("-", word.strip().lower()).strip("-")[:40] for word in words if isinstance(word, str))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS]


def _person_name(said: Any) -> str:
    """An author's name, without the address: `Ada <ada@example.org> (https://…)`, or a table."""
    text = _text(said.get("name")) if isinstance(said, dict) else _text(said)
    return re.split(r"[<(]", text)[0].strip()


def _table_or_empty(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def _text(said: Any) -> str:
    return " ".join(said.split())[:MAX_TEXT] if isinstance(said, str) else ""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
