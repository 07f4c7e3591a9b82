"""Runs the Lua scripts: each is one atomic step, sent by its hash, several in one round trip where they can wait.

`later` keeps a call until the next one is made: it must be one that may be carried out twice, because after a broken
connection nobody knows whether it was. Its arguments are worked out when it is sent, since ages are among them. Every
reply begins with the server's time and the number of the operation.

A server that was started anew knows no script: so it is noticed, also where the connection was mended silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from weft.frontier.redis.connection import asking

if TYPE_CHECKING:
    from redis import Redis

Argument = str | bytes | int
Call = tuple[str, Callable[[], Sequence[Argument]]]
MOST_LATER = 200
_FOLDER = files("weft.frontier.redis") / "lua"
NAMES = {name.removesuffix(".lua") for name in (path.name for path in _FOLDER.iterdir())} - {"common"}


@lru_cache(maxsize=64)
def source(name: str) -> str:
    """A script's text, what all share before its own."""
    return "\n".join((_FOLDER / f"{part}.lua").read_text() for part in ("common", name))


@lru_cache(maxsize=64)
def digest(name: str) -> str:
    """The hash by which the server knows a script."""
    return sha1(source(name).encode()).hexdigest()


class Scripts:
    """The scripts of one connection. `prefix` gives what every call begins with, `heard` is told every reply, and
    `renewed` is called when the server may be another one than before."""

    def __init__(
        self,
        client: Redis,
        where: str,
        prefix: Callable[[], Sequence[Argument]],
        heard: Callable[[list[Any]], None],
        renewed: Callable[[], None],
    ) -> None:
        self._client = client
        self._where = where
        self._prefix = prefix
        self._heard = heard
        self._renewed = renewed
        self._renewing = False
        self._later: list[Call] = []
        self.round_trips = 0
        self.broken = False  # an answer did not come: the server may be another one since

    def later(self, name: str, arguments: Callable[[], Sequence[Argument]]) -> None:
        """Calls a script with the next round trip, at the latest when there are many."""
        self._later.append((name, arguments))
        if len(self._later) >= MOST_LATER:
            self.flush()

    def flush(self) -> None:
        """Makes the calls that were put off."""
        if self._later:
            self._run(self._later)
            self._later = []

    def call(self, name: str, arguments: Sequence[Argument]) -> list[Any]:
        """Calls a script after those that were put off, and gives what it replies beyond time and number."""
        replies = self._run([*self._later, (name, lambda: arguments)])
        self._later = []
        return replies[-1]

    def call_first(self, name: str, arguments: Sequence[Argument]) -> list[Any]:
        """Calls a script before those that were put off."""
        return self._run([(name, lambda: arguments)])[0]

    def _run(self, calls: list[Call]) -> list[list[Any]]:
        from redis import exceptions as wrong

        try:
            with asking(self._where):
                replies = self._send(calls)
                unknown = [at for at, reply in enumerate(replies) if isinstance(reply, wrong.NoScriptError)]
                if unknown:
                    self._renew({calls[at][0] for at in unknown})
                    # The others were carried out: only these are sent again.
                    for at, reply in zip(unknown, self._send([calls[at] for at in unknown]), strict=True):
                        replies[at] = reply
                for reply in replies:
                    if isinstance(reply, Exception):
                        raise reply
        except Exception:
            self.broken = True
            raise
        for reply in replies:
            self._heard(reply)
        return [reply[5:] for reply in replies]

    def _renew(self, names: set[str]) -> None:
        """What the server is, is seen before anything is asked of it."""
        if not self._renewing:
            self._renewing = True
            try:
                self._renewed()
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
