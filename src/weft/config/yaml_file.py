"""Reads YAML files of settings: the values and their lines, and errors of form.

Imported where it is used: PyYAML is slow to import, and most processes read no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from weft.errors import BadConfig

LONGEST_FILE = 16 << 20  # bytes
_REFERENCE = re.compile(r"(?<=[:,\s])(\$\{(?:env|file):[^}'\n]*\})(?=\s*[,}\n])")


def parsed(text: str) -> Any:
    """Parses one YAML value; raises ValueError if it is invalid."""
    try:
        return yaml.safe_load(readable(text))
    except yaml.YAMLError as error:
        raise ValueError(_first_line(error)) from None


def readable(text: str) -> str:
    """Quotes `{user: ${env:NAME}}` as is necessary in YAML, because users mostly leave the quotes out."""
    if not _REFERENCE.search(text):
        return text
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return _REFERENCE.sub(r"'\1'", text)
    return text


def entries(
    path: Path, unknown: Callable[[str], str | None], environment: Mapping[str, str] | None, problems: list[str]
) -> Iterator[tuple[str, Any, str, bool]]:
    """Every key with its value, its line, and whether a variable was inserted; `unknown` returns the problem for
    unknown keys. Without an `environment`, `${VAR}` is ordinary text."""
    for name_node, node in _mapping(path, problems):
        name, location = str(name_node.value), f"{path}:{name_node.start_mark.line + 1}"
        if (answer := unknown(name)) is not None:
            problems.append(f"{location}: {answer}")
            continue
        lax = False if environment is None else _fill_in(node, path, environment, problems)
        if lax is None:
            continue
        loader = yaml.SafeLoader("")
        try:
            yield name, loader.construct_document(node), location, lax
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date, or a number of 5,000 digits
            problems.append(f"{location}: {name}: {_first_line(error)}")
        finally:
            loader.dispose()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(LONGEST_FILE + 1)
    if len(raw) > LONGEST_FILE:
        raise BadConfig([f"{path}: is longer than {LONGEST_FILE >> 20} MiB: it is not a configuration"])
    return raw.decode()


def _mapping(path: Path, problems: list[str]) -> list[tuple[yaml.Node, yaml.Node]]:
    """The top-level keys and values of a YAML file; errors of form are added to the problems."""
    try:
        root = yaml.compose(readable(_read(path)), Loader=yaml.SafeLoader)
    except OSError as error:
        raise BadConfig([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise BadConfig([f"{path}: is not UTF-8 text"]) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadConfig([f"{path}:{line}: is not YAML: {error.problem}"]) from None
    except yaml.YAMLError as error:
        raise BadConfig([f"{path}: is not YAML: {_first_line(error)}"]) from None
    except RecursionError:
        raise BadConfig([f"{path}: is nested too deeply"]) from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise BadConfig([f"{path}:1: holds {kind}; write `key: value` lines"])
    if (own := _holds_itself(root, {})) is not None:
        raise BadConfig([f"{path}:{own}: this value holds itself, by an alias (*name); write it out"])
    problems += [f"{path}:{line}: {text}" for line, text in _repeated(root, set())]
    problems += [
        f"{path}:{name.start_mark.line + 1}: a key must be a plain word"
        for name, _ in root.value
        if not isinstance(name, yaml.ScalarNode)
    ]
    return [pair for pair in root.value if isinstance(pair[0], yaml.ScalarNode)]


def _holds_itself(node: yaml.Node, within: dict[int, bool]) -> int | None:
    """The line of a node that contains itself; `within` has the visited nodes, and whether each is an ancestor of this
    one."""
    if isinstance(node, yaml.ScalarNode) or id(node) in within:
        return node.start_mark.line + 1 if within.get(id(node)) else None
    within[id(node)] = True
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    for part in parts:
        if (line := _holds_itself(part, within)) is not None:
            return line
    within[id(node)] = False
    return None


def _repeated(root: yaml.MappingNode, met: set[int]) -> Iterator[tuple[int, str]]:
    """Keys that occur twice in a mapping, at any depth: YAML would silently keep the last.

    `met`: the visited mappings, since aliases can place one in many locations.
    """
    if id(root) in met:
        return
    met.add(id(root))
    first: dict[str, int] = {}
    for name, value in root.value:
        line, text = name.start_mark.line + 1, str(name.value)
        if text in first:
            yield line, f"key {text!r} is repeated; line {first[text]} has it already"
        first.setdefault(text, line)
        if isinstance(value, yaml.MappingNode):
            yield from _repeated(value, met)


_VARIABLE = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _fill_in(node: yaml.Node, path: Path, environment: Mapping[str, str], problems: list[str]) -> bool | None:
    """Replaces `${VAR}` and `${VAR:-else}` (`$${VAR}` is an escape); returns None if a variable is not set, else
    whether any was replaced."""
    filled, missing = False, False

    def put(match: re.Match[str]) -> str:
        nonlocal filled, missing
        escaped, variable, otherwise = match.groups()
        if escaped:
            return match[0][1:]
        filled = True
        text: str | None = environment.get(variable, otherwise)
        if text is None:
            missing = True
            location = f"{path}:{scalar.start_mark.line + 1}"
            problems.append(
                f"{location}: ${{{variable}}} is not set in the environment; set it or write ${{{variable}:-x}}"
            )
        return text or ""

    for scalar in _string_values(node, set()):
        scalar.value = _VARIABLE.sub(put, scalar.value)
    return None if missing else filled


def _string_values(node: yaml.Node, met: set[int]) -> Iterator[yaml.ScalarNode]:
    """The strings in a value, without keys; each once, even if aliases place it in several locations."""
    if id(node) in met:
        return
    met.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.tag.endswith(":str"):
            yield node
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _string_values(value, met)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _string_values(value, met)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
