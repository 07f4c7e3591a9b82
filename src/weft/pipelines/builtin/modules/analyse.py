"""The stage `analyse`: the README, the dependencies, what ESLint says, and signs of maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.pipelines.builtin.modules import dependencies, eslint, readme, signs
from weft.pipelines.builtin.modules.enrich import readme_of
from weft.pipelines.builtin.modules.place import tree_of
from weft.pipelines.builtin.modules.tree import Tree
from weft.pipelines.stage import StageContext

DEFAULTS: dict[str, Any] = {"eslint": "auto", "eslint_timeout_s": 120}


def analyse(item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """Looks at a tree; runs nothing of it."""
    settings = {**DEFAULTS, **context.settings}
    tree = Tree(tree_of(item["id"], context))
    javascript, python = dependencies.manifests(tree)
    file = readme_of(tree)
    found = {
        "readme": readme.checked(file, tree.text(file)).plain() if file else None,
        "javascript": dependencies.of_javascript(tree, javascript),
        "python": dependencies.of_python(tree, python),
        "signs": signs.of_tree(tree),
    }
    found["eslint"] = _eslint(tree, found["javascript"], settings, context)
    context.log.info("Analysed", readme=file, files=len(tree.sizes))
    return found


def tools(item: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:  # noqa: ARG001 - what a fingerprint is called with
    """The fingerprint of `analyse`: the ESLint of this machine."""
    return eslint.fingerprint(settings.get("eslint", DEFAULTS["eslint"]))


def _eslint(tree: Tree, javascript: Any, settings: Mapping[str, Any], context: StageContext) -> dict[str, Any] | None:
    """None where there is no JavaScript to look at."""
    if not javascript or not javascript["files"]:
        return None
    timeout_s, left_s = float(settings["eslint_timeout_s"]), context.remaining_s()
    if left_s is not None:
        timeout_s = min(timeout_s, max(1.0, left_s - 5.0))
    found = eslint.checked(tree.root, settings["eslint"], timeout_s)
    if "absent" in found:
        context.log.info("ESLint has not looked at it", reason=found["absent"])
    return found
