"""Runs the Lua scripts: each is atomic and sent by its hash, several in one round trip where they can wait.

`later` defers a call until the next one is made. It must be idempotent, because after a broken connection it is unknown
whether it was carried out. Its arguments are computed when it is sent, since ages are among them. Every reply begins
with the server's time and the number of the operation.

A restarted server has no scripts until a process loads them, and connections of the writing process are checked
(`check_run`): `on_restart` is called before anything is sent there, and may raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn

from weft.frontier.redis.connection import Restarted, asking

if TYPE_CHECKING:
    from redis import Redis

Argument = str | bytes | int
Call = tuple[str, Callable[[], Sequence[Argument]]]
MOST_LATER = 200
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_FOLDER = files("weft.frontier.redis") / "lua"
SHARED = ("common", "sites", "items")  # in front of every script, in this order
NAMES = {name.removesuffix(".lua") for name in (path.name for path in _FOLDER.iterdir())} - {*SHARED}


@lru_cache(maxsize=64)
def source(name: str) -> str:
    """A script's text, after the shared functions that it needs.

    A function that it never calls is left out: making it would cost a microsecond at every call of the script.
    """
    *parts, own = ((_FOLDER / f"{one}.lua").read_text() for one in (*SHARED, name))
    shared = "\n".join(parts)
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(shared)}
    kept = _names(_FUNCTION.sub("", shared) + own) & functions.keys()
    while more := set().union(*(_names(functions[one]) for one in kept)) & functions.keys() - kept:
        kept |= more
    return _FUNCTION.sub(lambda found: found[0] if found[1] in kept else "", shared) + "\n" + own


def _names(text: str) -> set[str]:
    """The words of a script's text, without its comments."""
    return set(_WORD.findall(_COMMENT.sub("", text)))


@lru_cache(maxsize=64)
def digest(name: str) -> str:
    """The hash that EVALSHA names a script by."""
    return sha1(source(name).encode()).hexdigest()


class Scripts:
    """The scripts of one connection. `prefix` returns the first arguments of every call, `on_reply` gets every reply,
    `on_restart` is called when the server may have been restarted, and `on_emptied` when the database differs from the
    one that was opened; it raises.
    """

    def __init__(
        self,
        client: Redis,
        where: str,
        prefix: Callable[[], Sequence[Argument]],
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
        self._later: list[Call] = []
        self.round_trips = 0
        self.broken = False  # the last call failed: the server may have been restarted since

    def later(self, name: str, arguments: Callable[[], Sequence[Argument]]) -> None:
        """Defers a call to the next round trip, which happens at once when many calls are deferred."""
        self._later.append((name, arguments))
        if len(self._later) >= MOST_LATER:
            self.flush()

    def flush(self) -> None:
        """Sends the deferred calls."""
        if self._later:
            self._run(self._later)
            self._later = []

    def call(self, name: str, arguments: Sequence[Argument]) -> list[Any]:
        """Calls a script after the deferred ones; returns its reply without the common part."""
        replies = self._run([*self._later, (name, lambda: arguments)])
        self._later = []
        return replies[-1]

    def call_first(self, name: str, arguments: Sequence[Argument]) -> list[Any]:
        """Calls a script before the deferred ones."""
        return self._run([(name, lambda: arguments)])[0]

    def _run(self, calls: list[Call]) -> list[list[Any]]:
        from redis import exceptions as wrong

        try:
            with asking(self._where):
                try:
                    replies = self._send(calls)
                except Restarted:
                    self._on_restart()
                    replies = self._send(calls)
                unknown = [at for at, reply in enumerate(replies) if isinstance(reply, wrong.NoScriptError)]
                if unknown:
                    self._renew({calls[at][0] for at in unknown})
                    # The other calls were carried out: only these are repeated.
                    for at, reply in zip(unknown, self._send([calls[at] for at in unknown]), strict=True):
                        replies[at] = reply
                for reply in replies:
                    if isinstance(reply, wrong.ResponseError) and str(reply).startswith("EMPTIED "):
                        self._on_emptied()
                    if isinstance(reply, Exception):
                        raise reply
        except Exception:
            self.broken = True
            raise
        for reply in replies:
            self._on_reply(reply)
        return [reply[5:] for reply in replies]

    def _renew(self, names: set[str]) -> None:
        """Loads scripts; before that, once, lets the caller check what the restarted server has lost."""
        if not self._renewing:
            self._renewing = True
            try:
                self._on_restart()
            finally:
                self._renewing = False
            names = NAMES
        for name in names:
            self._client.script_load(source(name))

    def _send(self, calls: list[Call]) -> list[Any]:
        self.round_trips += 1
        prefix = self._prefix()
        steps: Any = self._client.pipeline(transaction=False)
        with steps:
            for name, arguments in calls:
                steps.execute_command("EVALSHA", digest(name), 0, *prefix, *arguments())
            answers: list[Any] = steps.execute(raise_on_error=False)
        return answers
