"""Runs what is typed at the prompt of `weft shell`, or what comes from `-c` and standard input."""

from __future__ import annotations

import ast
import code
import sys
from typing import Any

from weft.cli.shell.value_display import displayed
from weft.cli.terminal.messages import as_flags
from weft.cli.terminal.output import printable
from weft.errors import BadInput
from weft.spiders.running_code import failed


def parse_statements(text: str | bytes, file: str) -> ast.Module:
    """The statements of a text; BadInput with the line that is wrong."""
    try:
        return ast.parse(text, file)
    except SyntaxError as error:
        raise BadInput(f"line {error.lineno}: {error.msg}: {(error.text or '').strip()}") from None
    except ValueError as error:  # a null character
        raise BadInput(f"the statements are no Python: {error}") from None


def run_statements(statements: ast.Module, file: str, names: dict[str, Any]) -> int:
    """Runs statements one after the other, as if each was typed; returns the exit code: 1 after an exception."""
    with displayed():
        return _run_each(statements, file, names)


def _run_each(statements: ast.Module, file: str, names: dict[str, Any]) -> int:
    for statement in statements.body:
        try:
            typed = compile(ast.Interactive([statement]), file, "single", dont_inherit=True)
            exec(typed, names)  # noqa: S102 (the user's own statements)
        except SystemExit as end:
            return _exit_code(end)
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            raise
        except BaseException as error:
            _print_error(f"line {_line_of(error, file) or statement.lineno}: {error_message(error)}")
            return 1
    return 0


def run_prompt(names: dict[str, Any], banner: str) -> int:
    """The prompt, until Ctrl-D or `exit()`."""
    _complete_names(names)
    try:
        with displayed():
            ShellPrompt(names).interact(banner=banner, exitmsg="")
    except SystemExit as end:
        return _exit_code(end)
    return 0


class ShellPrompt(code.InteractiveConsole):
    """A prompt whose errors are one message, with the lines of the user's own files."""

    def __init__(self, names: dict[str, Any]) -> None:
        super().__init__(names, filename="<prompt>")

    def showtraceback(self) -> None:
        """Prints the exception that a statement has raised."""
        error = sys.exception()
        if isinstance(error, KeyboardInterrupt):
            self.write("\nKeyboardInterrupt\n")
        elif error is not None:
            self.write(f"{printable(error_message(error), err=True)}\n")


def error_message(error: BaseException) -> str:
    """What Weft refuses as its message, other exceptions with the traceback of the user's own files."""
    text = failed(error).traceback.rstrip()
    is_of_weft = type(error).__module__.startswith("weft.")
    return as_flags(str(error)) if is_of_weft and not text.startswith("Traceback") else text


def _line_of(error: BaseException, file: str) -> int:
    """The line of the statements that raised; 0 if none did."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _exit_code(end: SystemExit) -> int:
    """The code of `exit(...)`; a text is printed, as Python does."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    _print_error(str(end.code))
    return 1


def _print_error(message: str) -> None:
    print(printable(f"weft: {message}", err=True), file=sys.stderr)


def _complete_names(names: dict[str, Any]) -> None:
    """Completes names and attributes with the tab key, where Python has readline."""
    try:
        import readline
        import rlcompleter
    except ImportError:
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
