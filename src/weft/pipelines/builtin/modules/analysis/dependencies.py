"""Dependencies: what a repository declares, what its code imports, and how the two differ. Pure, over a `Tree`.

`missing`: imported and declared nowhere. `unused`: declared to be needed at run time and imported nowhere; development
tools are not judged, because nothing imports them. What is imported within `try` may be absent and is never missing.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from weft.pipelines.builtin.modules.analysis import javascript_imports, python_imports
from weft.pipelines.builtin.modules.analysis.manifest import ModuleManifest, of_package_json, of_pyproject, requirements
from weft.pipelines.builtin.modules.repositories.tree import Tree

Groups = dict[str, dict[str, str]]
MAX_FILES = 5_000
_REQUIREMENTS_FILE = re.compile(r"requirements.*\.txt|requirements/.*\.txt", re.IGNORECASE)
_RUN_TIME_GROUP = "dependencies"


def of_javascript(tree: Tree, manifest: ModuleManifest) -> dict[str, Any] | None:
    """The dependencies of a repository with JavaScript; None if it has neither code nor package.json."""
    imports = javascript_imports.JavascriptImports()
    files = list(tree.own(*javascript_imports.SUFFIXES))[:MAX_FILES]
    for path in files:
        javascript_imports.read(tree.read(path), posixpath.splitext(path)[1].lower(), imports)
    if not files and manifest.file != "package.json":
        return None
    declared: Groups = {group: dict(ranges) for group, ranges in manifest.declared.items()}
    used = imports.needed | imports.optional
    itself = {manifest.name}
    known = {name for group in declared.values() for name in group} | itself
    typed = {_package_of_types(name) for name in known}  # `@types/x` declares the types of x
    return {
        "files": len(files),
        "unreadable": imports.unreadable,
        "declared": declared,
        "used": sorted(used - itself),
        "missing": sorted(name for name in imports.needed - known if name not in typed),
        "unused": sorted(
            name
            for name in declared.get(_RUN_TIME_GROUP, {})
            if name not in used and not _is_called_in_scripts(name, manifest.scripts)
        ),
    }


def of_python(tree: Tree, manifest: ModuleManifest) -> dict[str, Any] | None:
    """The dependencies of a repository with Python; None if it has neither code nor a manifest for it."""
    declared: Groups = {group: dict(ranges) for group, ranges in manifest.declared.items()}
    listed = [path for path in tree.sizes if _REQUIREMENTS_FILE.fullmatch(path)]
    for path in listed:
        name = _RUN_TIME_GROUP if path == "requirements.txt" else path
        declared[name] = declared.get(name, {}) | requirements(tree.text(path).splitlines())
    imports = python_imports.PythonImports()
    files = list(tree.own(".py"))[:MAX_FILES]
    for path in files:
        python_imports.read(tree.read(path), imports)
    if not files and not listed and manifest.file != "pyproject.toml":
        return None
    local = _local_modules(files) | sys.stdlib_module_names | {"__future__", "__main__"}
    known = {name for group in declared.values() for name in group}
    needed, optional = (_packages_of_modules(modules, local, known) for modules in (imports.needed, imports.optional))
    itself = {re.sub(r"[-_.]+", "-", manifest.name.lower())}
    used = (needed | optional) - itself
    return {
        "files": len(files),
        "unreadable": imports.unreadable,
        "declared": {group: ranges for group, ranges in declared.items() if ranges},
        "used": sorted(used),
        "missing": sorted(needed - known - itself),
        "unused": sorted(name for name in declared.get(_RUN_TIME_GROUP, {}) if name not in used),
    }


def javascript_and_python_manifests(tree: Tree) -> tuple[ModuleManifest, ModuleManifest]:
    """The parsed package.json and pyproject.toml at the root; an empty manifest for one that is missing."""
    javascript = of_package_json(tree.text("package.json")) if "package.json" in tree.sizes else ModuleManifest()
    python = of_pyproject(tree.text("pyproject.toml")) if "pyproject.toml" in tree.sizes else ModuleManifest()
    return javascript, python


def _local_modules(files: Iterable[str]) -> set[str]:
    """The names by which the repository may import its own modules: those of all folders and files with Python."""
    names = set()
    for path in files:
        parts = path.removesuffix(".py").split("/")
        names.update(parts)
    return names


def _packages_of_modules(modules: Iterable[str], local: Iterable[str], known: set[str]) -> set[str]:
    local = set(local)
    return {_package_of_module(module, known) for module in modules if module.split(".")[0] not in local}


def _package_of_module(module: str, known: set[str]) -> str:
    """The package that provides a module: a declared one that fits, else the one that is known for it,
    else its name.
    """
    parts = module.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for prefix in prefixes:
        for name in _names_for(prefix):
            if name in known:
                return name
    return next(
        (python_imports.PACKAGES[prefix] for prefix in prefixes if prefix in python_imports.PACKAGES),
        _normalized_name(parts[0]),
    )


def _names_for(module: str) -> Iterable[str]:
    if (package := python_imports.PACKAGES.get(module)) is not None:
        yield package
        yield from python_imports.SAME.get(package, ())
    plain = _normalized_name(module)
    yield plain
    if "." not in module:
        yield f"python-{plain}"
        yield f"py{plain}"


def _normalized_name(module: str) -> str:
    return re.sub(r"[-_.]+", "-", module.lower()).strip("-")


def _package_of_types(name: str) -> str:
    """The package that a package of types describes: `@types/react` → `react`, `@types/scope__name` → `@scope/name`."""
    if not name.startswith("@types/"):
        return name
    scope, _, rest = name.removeprefix("@types/").partition("__")
    return f"@{scope}/{rest}" if rest else scope


def _is_called_in_scripts(name: str, scripts: Iterable[str]) -> bool:
    """Whether a script of package.json calls the package: its command mostly has the name of the package."""
    words: Mapping[str, None] = dict.fromkeys(word for line in scripts for word in re.split(r"[\s&|;\"']+", line))
    command = name.rpartition("/")[2]
    return command in words or any(word.startswith(f"node_modules/{name}/") for word in words)
