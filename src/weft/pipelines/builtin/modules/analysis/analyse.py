"""The stage `analyse`: the README, the dependencies, what ESLint says, and signs of maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.pipelines.builtin.modules.analysis import dependencies, eslint, readme, signs
from weft.pipelines.builtin.modules.registries.enrich import readme_of
from weft.pipelines.builtin.modules.repositories.clone_folder import tree_of
from weft.pipelines.builtin.modules.repositories.tree import Tree
from weft.pipelines.stage import StageContext

DEFAULTS: dict[str, Any] = {"eslint": "auto", "eslint_timeout_s": 120}


def analyse(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Analyses the files of a repository's clone, without running any of its code."""
    settings = {**DEFAULTS, **context.settings}
    tree = Tree(tree_of(item["id"], context))
    javascript, python = dependencies.javascript_and_python_manifests(tree)
    file = readme_of(tree)
    facts = {
        "readme": readme.checked(file, tree.text(file)).plain() if file else None,
        "javascript": dependencies.of_javascript(tree, javascript),
        "python": dependencies.of_python(tree, python),
        "signs": signs.of_tree(tree),
    }
    facts["eslint"] = _run_eslint(tree, facts["javascript"], settings, context)
    context.log.info("Analysed", readme=file, files=len(tree.sizes))
    return facts


def tools(item: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:  # noqa: ARG001 - what a fingerprint is called with
    """The fingerprint of `analyse`: which ESLint this machine has."""
    return eslint.fingerprint(settings.get("eslint", DEFAULTS["eslint"]))


def _run_eslint(
    tree: Tree, javascript: Any, settings: Mapping[str, Any], context: StageContext
) -> dict[str, Any] | None:
    """The findings of ESLint; None if there is no JavaScript to check."""
    if not javascript or not javascript["files"]:
        return None
    timeout_s, left_s = float(settings["eslint_timeout_s"]), context.remaining_s()
    if left_s is not None:
        timeout_s = min(timeout_s, max(1.0, left_s - 5.0))
    problems = eslint.checked(tree.root, settings["eslint"], timeout_s)
    if "absent" in problems:
        context.log.info("ESLint has not looked at it", reason=problems["absent"])
    return problems
