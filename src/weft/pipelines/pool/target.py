"""The function a pool runs, as a name that a worker can import: nothing is pickled.

`CallableTarget.of` is the parent's side, `CallableTarget.load` the worker's. A function of the running script is found
by running the script's file under another name in the worker, as multiprocessing does; its `if __name__ == "__main__"`
part stays out.
"""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from weft.errors import BadInput

SCRIPT_NAME = "__weft_worker__"
_is_loading = False


def refuse_while_loading() -> None:
    """Refuses to start a pool while a worker imports its script: such pools would start more workers without end."""
    if _is_loading:
        raise BadInput('the script runs its pool on import: put that part under `if __name__ == "__main__":`')


class CallableTarget(msgspec.Struct, frozen=True):
    """`module:name`, or `name` in a script file."""

    module: str
    name: str
    script: str | None = None

    def __str__(self) -> str:
        return f"{self.module if self.script is None else self.script}:{self.name}"

    @classmethod
    def of(cls, function: Callable[..., Any] | str) -> CallableTarget:
        """Makes a target from a function, or from the text `module:function` or `script.py:function`; BadInput if no
        worker could import it by that name.
        """
        return cls._parse(function) if isinstance(function, str) else cls._of_function(function)

    @classmethod
    def _parse(cls, text: str) -> CallableTarget:
        module, colon, name = text.rpartition(":")
        script = module.endswith(".py")
        if not colon or not all(
            part.isidentifier() for part in [*([] if script else module.split(".")), *name.split(".")]
        ):
            raise BadInput(
                f"{text!r} does not name a function; write module:function, like mypackage.work:process_item, "
                "or script.py:function"
            )
        if not script:
            return cls(module, name)
        if not Path(module).is_file():
            raise BadInput(f"{text!r} does not name a function: there is no file {module}")
        return cls(SCRIPT_NAME, name, str(Path(module).absolute()))

    @classmethod
    def _of_function(cls, function: Callable[..., Any]) -> CallableTarget:
        name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
        if (
            not callable(function)
            or inspect.isclass(function)
            or not name
            or not module
            or hasattr(function, "__self__")
        ):
            raise _unreachable_error(function, "it is not a plain function")
        if "<" in name:
            raise _unreachable_error(function, "it is a lambda or is defined inside another function")
        if module == "__main__":
            return cls._of_script(function, name)
        value = _look_up(sys.modules.get(module), name)
        if value is not function:
            raise _unreachable_error(function, f"{module}:{name} is something else, or nothing")
        return cls(module, name)

    @classmethod
    def _of_script(cls, function: Callable[..., Any], name: str) -> CallableTarget:
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name:
            return cls(spec.name, name)
        path = getattr(main, "__file__", None)
        if path is None or not Path(path).is_file():
            raise _unreachable_error(function, "it was typed in or read from stdin, there is no file to import it from")
        return cls(SCRIPT_NAME, name, str(Path(path).absolute()))

    def load(self) -> Callable[..., Any]:
        """Imports the function; any error is raised unchanged."""
        function = _look_up(self._import_holder(), self.name)
        if not callable(function):
            raise BadInput(f"{self} is not there" if function is None else f"{self} is not a function")
        if inspect.iscoroutinefunction(function):
            raise BadInput(f"{self} is a coroutine function; a worker runs plain functions")
        return function  # type: ignore[no-any-return]

    def _import_holder(self) -> Any:
        global _is_loading
        _is_loading = True
        try:
            if self.script is None:
                return import_module(self.module)
            return SimpleNamespace(**runpy.run_path(self.script, run_name=SCRIPT_NAME))
        finally:
            _is_loading = False


def _look_up(holder: Any, name: str) -> Any:
    for part in name.split("."):
        holder = getattr(holder, part, None)
    return holder


def _unreachable_error(function: object, why: str) -> BadInput:
    shown = getattr(function, "__qualname__", None) or repr(function)[:80]
    return BadInput(f"{shown} cannot be imported by name in a worker: {why}. Give a function at a module's top level.")
