"""The stage `enrich`: what a repository says about itself, its tags, its licence, and a picture of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.pipelines.builtin.modules import screenshots
from weft.pipelines.builtin.modules.analysis import licences, manifest, readme
from weft.pipelines.builtin.modules.repositories.clone_folder import tree_of
from weft.pipelines.builtin.modules.repositories.tree import Tree
from weft.pipelines.stage import StageContext

DEFAULTS: dict[str, Any] = {"thumbnail_width": 320, "thumbnail_height": 240}
_README_NAME = re.compile(r"readme(?:\.(?:md|markdown|mdown|rst|txt|adoc))?", re.IGNORECASE)
_LICENCE_NAME = re.compile(r"(?:un)?licen[cs]e(?:[-.].*)?|copying(?:[-.].*)?", re.IGNORECASE)
_README_SUFFIXES = (".md", ".markdown", ".rst", ".txt", "")  # of two READMEs the first of these is used


def enrich(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Reads the manifest, the licence and the README's pictures; writes a thumbnail."""
    settings = {**DEFAULTS, **context.settings}
    tree = Tree(tree_of(item["id"], context))
    manifest_read = manifest_of(tree)
    if manifest_read.problem:
        context.log.warning("The manifest cannot be read", problem=manifest_read.problem)
    picture, shot = _make_thumbnail(tree, settings)
    name = None
    if picture is not None:
        name = context.files.write(f"thumbnails/{context.files.name_for(item['id'], '.webp')}", picture)
    context.log.info("Enriched", manifest=manifest_read.file or None, screenshot=shot or None)
    return {
        "manifest": manifest_read.file or None,
        "manifest_problem": manifest_read.problem or None,
        "name": manifest_read.name or None,
        "version": manifest_read.version or None,
        "description": manifest_read.description or None,
        "homepage": manifest_read.homepage or None,
        "author": manifest_read.author or None,
        "tags": list(manifest_read.keywords),
        "licence": licence_of(manifest_read.licence, tree),
        "screenshot": shot or None,
        "thumbnail": name,
    }


def manifest_of(tree: Tree) -> manifest.ModuleManifest:
    """The manifest of a repository: package.json, else pyproject.toml."""
    if "package.json" in tree.sizes:
        return manifest.of_package_json(tree.text("package.json"))
    if "pyproject.toml" in tree.sizes:
        return manifest.of_pyproject(tree.text("pyproject.toml"))
    return manifest.ModuleManifest()


def licence_of(said: str, tree: Tree) -> dict[str, Any]:
    """The licence of the manifest, else of the licence file; both if they differ."""
    files = tree.at_top(lambda name: _LICENCE_NAME.fullmatch(name) is not None)
    by_file = next((name for file in files if (name := licences.of_text(tree.text(file, 40_000)))), None)
    by_manifest = licences.spdx(said)
    expression = by_manifest or (None if licences.is_owned(said) else by_file)
    if licences.is_owned(said):
        verdict = licences.PROPRIETARY
    elif expression is None and not said and not files:
        verdict = licences.NONE
    else:
        verdict = licences.judged(expression)
    return {
        "spdx": expression,
        "stated": said or None,
        "file": files[0] if files else None,
        "verdict": verdict,
        "differs": bool(by_manifest and by_file and not licences.agree(by_manifest, by_file)),
    }


def readme_of(tree: Tree) -> str | None:
    """The README of the top folder."""
    readme_name = tree.at_top(lambda name: _README_NAME.fullmatch(name) is not None)

    def order(name: str) -> tuple[int, str]:
        suffix = "." + name.rpartition(".")[2].lower() if "." in name else ""
        return (_README_SUFFIXES.index(suffix) if suffix in _README_SUFFIXES else len(_README_SUFFIXES), name)

    return min(readme_name, key=order, default=None)


def _make_thumbnail(tree: Tree, settings: Mapping[str, Any]) -> tuple[bytes | None, str]:
    """The thumbnail of the first picture that gives one, and the path of the picture."""
    file = readme_of(tree)
    mentioned = readme.checked(file, tree.text(file)).images if file else ()
    for path in screenshots.ranked(tree.sizes, mentioned)[: screenshots.MAX_TRIED]:
        data = tree.read(path, screenshots.MAX_FILE_BYTES)
        small = screenshots.thumbnail(data, int(settings["thumbnail_width"]), int(settings["thumbnail_height"]))
        if small is not None:
            return small, path
    return None, ""
