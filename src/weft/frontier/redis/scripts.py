"""Runs the Lua scripts: each is atomic and sent by its hash, several in one round trip where they can wait.

`later` defers a call until the next one is made. It must be idempotent, because after a broken connection it is unknown
whether it was carried out. Its arguments are computed when it is sent, since ages are among them. Every reply begins
with the server's time and the number of the operation.

A restarted server has no scripts until a process loads them, and connections of the writing process are checked
(`check_run_id`): `on_restart` is called before anything is sent there, and may raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn

from weft.frontier.redis.connection import Restarted, convert_errors

if TYPE_CHECKING:
    from redis import Redis

ScriptArgument = str | bytes | int
ScriptCall = tuple[str, Callable[[], Sequence[ScriptArgument]]]
MOST_DEFERRED = 200
_FUNCTION_PATTERN = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_COMMENT_PATTERN = re.compile(r"--.*")
_WORD_PATTERN = re.compile(r"[A-Za-z_]\w*")
_LUA_FOLDER = files("weft.frontier.redis") / "lua"
SHARED_SCRIPTS = ("common", "sites", "items")  # in front of every script, in this order
SCRIPT_NAMES = {name.removesuffix(".lua") for name in (path.name for path in _LUA_FOLDER.iterdir())} - {*SHARED_SCRIPTS}


@lru_cache(maxsize=64)
def script_source(name: str) -> str:
    """A script's text, after the shared functions that it needs.

    A function that it never calls is left out: making it would cost a microsecond at every call of the script.
    """
    *parts, own = ((_LUA_FOLDER / f"{one}.lua").read_text() for one in (*SHARED_SCRIPTS, name))
    shared = "\n".join(parts)
    functions = {found[1]: found[0] for found in _FUNCTION_PATTERN.finditer(shared)}
    kept = _used_words(_FUNCTION_PATTERN.sub("", shared) + own) & functions.keys()
    while more := set().union(*(_used_words(functions[one]) for one in kept)) & functions.keys() - kept:
        kept |= more
    return _FUNCTION_PATTERN.sub(lambda found: found[0] if found[1] in kept else "", shared) + "\n" + own


def _used_words(text: str) -> set[str]:
    """The words of a script's text, without its comments."""
    return set(_WORD_PATTERN.findall(_COMMENT_PATTERN.sub("", text)))


@lru_cache(maxsize=64)
def script_digest(name: str) -> str:
    """The hash that EVALSHA names a script by."""
    return sha1(script_source(name).encode()).hexdigest()


class Scripts:
    """The scripts of one connection. `prefix` returns the first arguments of every call, `on_reply` gets every reply,
    `on_restart` is called when the server may have been restarted, and `on_emptied` when the database differs from the
    one that was opened; it raises.
    """

    def __init__(
        self,
        client: Redis,
        where: str,
        prefix: Callable[[], Sequence[ScriptArgument]],
        on_reply: Callable[[list[Any]], None],
        on_restart: Callable[[], None],
        on_emptied: Callable[[], NoReturn],
    ) -> None:
        self._client = client
        self._where = where
        self._prefix = prefix
        self._on_reply = on_reply
        self._on_restart = on_restart
        self._on_emptied = on_emptied
        self._renewing = False
        self._deferred_calls: list[ScriptCall] = []
        self.round_trips = 0
        self.has_failed = False  # the last call failed: the server may have been restarted since

    def defer(self, name: str, arguments: Callable[[], Sequence[ScriptArgument]]) -> None:
        """Defers a call to the next round trip, which happens at once when many calls are deferred."""
        self._deferred_calls.append((name, arguments))
        if len(self._deferred_calls) >= MOST_DEFERRED:
            self.send_deferred()

    def send_deferred(self) -> None:
        """Sends the deferred calls."""
        if self._deferred_calls:
            self._run_calls(self._deferred_calls)
            self._deferred_calls = []

    def call(self, name: str, arguments: Sequence[ScriptArgument]) -> list[Any]:
        """Calls a script after the deferred ones; returns its reply without the common part."""
        replies = self._run_calls([*self._deferred_calls, (name, lambda: arguments)])
        self._deferred_calls = []
        return replies[-1]

    def call_first(self, name: str, arguments: Sequence[ScriptArgument]) -> list[Any]:
        """Calls a script before the deferred ones."""
        return self._run_calls([(name, lambda: arguments)])[0]

    def _run_calls(self, calls: list[ScriptCall]) -> list[list[Any]]:
        from redis import exceptions as wrong

        try:
            with convert_errors(self._where):
                try:
                    replies = self._send_calls(calls)
                except Restarted:
                    self._on_restart()
                    replies = self._send_calls(calls)
                unknown = [at for at, reply in enumerate(replies) if isinstance(reply, wrong.NoScriptError)]
                if unknown:
                    self._reload_scripts({calls[at][0] for at in unknown})
                    # The other calls were carried out: only these are repeated.
                    for at, reply in zip(unknown, self._send_calls([calls[at] for at in unknown]), strict=True):
                        replies[at] = reply
                for reply in replies:
                    if isinstance(reply, wrong.ResponseError) and str(reply).startswith("EMPTIED "):
                        self._on_emptied()
                    if isinstance(reply, Exception):
                        raise reply
        except Exception:
            self.has_failed = True
            raise
        for reply in replies:
            self._on_reply(reply)
        return [reply[5:] for reply in replies]

    def _reload_scripts(self, names: set[str]) -> None:
        """Loads scripts; before that, once, lets the caller check what the restarted server has lost."""
        if not self._renewing:
            self._renewing = True
            try:
                self._on_restart()
            finally:
                self._renewing = False
            names = SCRIPT_NAMES
        for name in names:
            self._client.script_load(script_source(name))

    def _send_calls(self, calls: list[ScriptCall]) -> list[Any]:
        self.round_trips += 1
        prefix = self._prefix()
        steps: Any = self._client.pipeline(transaction=False)
        with steps:
            for name, arguments in calls:
                steps.execute_command("EVALSHA", script_digest(name), 0, *prefix, *arguments())
            answers: list[Any] = steps.execute(raise_on_error=False)
        return answers
