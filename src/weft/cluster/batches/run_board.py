"""What brain and hands share on the broker about one run of a pool. Names follow `weft:{cluster id}:run:{run}`; a run's
own name is random and kept in its directory.

    (the run)         hash    epoch, stop (the run stops), back:{task} (return what is not begun); written by the brain,
                              time to live 60 s: without it every hand stops working for the run
    :claim:{task}     string  the process that has claimed the task; `done` or `closed` afterwards; remembered longer
                              than Celery may deliver the task again
    :lease:{task}     string  its process lives; renewed twice a second, time to live 6 s; written by hands
    :status:{task}    string  what it does, signed; written by hands
    :results          stream  `m`: signed reports of hands; `c`: the brain has closed a task. Trimmed by the brain when
                              it has journalled them; a resumed run finds here what its killed brain had not read
    :bytes            string  bytes in that stream and in the bodies that belong to it
    :body:{name}      string  what is too large for a message: facts and code of the run, items, results

Invariants: a task is claimed once (lua/claim.lua); what was pushed before a task was closed stands before the mark in
the stream, and nothing is pushed after it (lua/push.lua, lua/close.lua); times are the broker's.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from weft.cluster.batches.batch_messages import INLINE_BYTES, BodyRef, digest
from weft.cluster.broker import Broker
from weft.errors import WeftError

RUN_S = 60.0
LEASE_S = 6.0
CLAIM_S = 2 * 3600.0
KEPT_S = 24 * 3600.0
BODY_S = 600.0
MOST_BYTES = 64 << 20
"""Results of one run that wait for its brain."""
_LUA = files("weft.cluster.batches") / "lua"


class BodyGone(WeftError):
    """What lay beside a message is gone, or is not what was signed."""


class RunBoard:
    """One run's part of the broker, either side."""

    def __init__(self, broker: Broker, run: str) -> None:
        self.broker = broker
        self.run = run
        self.root = broker.key(f"run:{run}")
        self.results = f"{self.root}:results"
        self.bytes = f"{self.root}:bytes"
        self._scripts: dict[str, Any] = {}

    def name(self, kind: str, task: str) -> str:
        """The broker's key for something that belongs to one task."""
        return f"{self.root}:{kind}:{task}"

    def script(self, name: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Runs one of the scripts in `lua/`."""
        if name not in self._scripts:
            self._scripts[name] = self.broker.client.register_script((_LUA / f"{name}.lua").read_text())
        with self.broker.asking():
            return self._scripts[name](keys=list(keys), args=list(arguments))

    def put(self, data: bytes, *, kept_s: float = BODY_S, name: str | None = None) -> BodyRef:
        """A body for a message: in it if it is small and has no name, else beside it."""
        if len(data) <= INLINE_BYTES and name is None:
            return BodyRef(inline=base64.b64encode(data).decode(), size=len(data))
        name = name or secrets.token_hex(16)
        with self.broker.asking():
            self.broker.client.set(self.name("body", name), data, px=int(kept_s * 1000))
        return BodyRef(None, name, digest(data), len(data))

    def get(self, ref: BodyRef) -> bytes:
        """The body; BodyGone if it is not there as it was signed."""
        if ref.inline is not None:
            return base64.b64decode(ref.inline)
        with self.broker.asking():
            found: Any = self.broker.client.get(self.name("body", ref.name or ""))
        if not isinstance(found, bytes) or digest(found) != ref.digest:
            raise BodyGone(f"{ref.size:,} bytes that belong to a message are gone from the broker")
        return found


class BrainBoard(RunBoard):
    """The brain's side of a run's board."""

    def __init__(self, broker: Broker, run: str, *, claim_s: float = CLAIM_S) -> None:
        super().__init__(broker, run)
        self.epoch = 0
        self._claim_ms = int(claim_s * 1000)

    def open(self) -> int:
        """A new epoch: what is out counts no longer. Returns the broker's time in ms."""
        now_ms, self.epoch = (
            int(word) for word in self.script("open", [self.root, self.broker.key("pool")], [int(RUN_S * 1000)])
        )
        return now_ms

    def heartbeat(self, kept: Sequence[str]) -> tuple[int, bool]:
        """The brain lives, and what it has put beside the run is kept. Returns the broker's time, and whether the run
        is there as it was opened."""
        keys = [
            self.root,
            self.broker.key("pool"),
            self.results,
            self.bytes,
            *(self.name("body", name) for name in kept),
        ]
        now_ms, there = self.script(
            "heartbeat",
            keys,
            [self.epoch, int(RUN_S * 1000), int(KEPT_S * 1000), int(BODY_S * 1000)],
        )
        return int(now_ms), bool(there)

    def leases(self, tasks: Sequence[str]) -> list[bool]:
        """Whether the process of each task lives."""
        if not tasks:
            return []
        with self.broker.asking():
            found: Any = self.broker.client.mget([self.name("lease", task) for task in tasks])
        return [one is not None for one in found]

    def statuses(self, tasks: Sequence[str]) -> list[str | None]:
        """The last signed status of each task."""
        if not tasks:
            return []
        with self.broker.asking():
            found: Any = self.broker.client.mget([self.name("status", task) for task in tasks])
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else None for one in found]

    def close_task(self, task: str) -> None:
        """Nothing more is accepted of it; its mark comes in the stream."""
        keys = [self.name("claim", task), self.name("lease", task), self.results, self.root]
        self.script("close", keys, [task, self._claim_ms, int(KEPT_S * 1000)])

    def ask_back(self, task: str) -> None:
        """The hand returns what it has not begun."""
        with self.broker.asking():
            self.broker.client.hset(self.root, f"back:{task}", 1)

    def ask_stop(self) -> None:
        """All hands return what they have not begun."""
        with self.broker.asking():
            self.broker.client.hset(self.root, "stop", 1)

    def read(self, after: str, block_ms: int | None, count: int = 200) -> list[tuple[str, dict[bytes, bytes]]]:
        """Entries of the stream behind an id."""
        with self.broker.asking():
            found: Any = self.broker.client.xread({self.results: after}, count=count, block=block_ms)
        if not found:
            return []
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
        return [(entry_id.decode(), fields or {}) for entry_id, fields in entries]

    def trim(self, last: str, size: int, bodies: Sequence[str]) -> None:
        """Everything up to there is in the journal."""
        keys = [self.results, self.bytes, *(self.name("body", name) for name in bodies)]
        self.script("trim", keys, [last, size])

    def wake_reader(self) -> None:
        """An entry that says nothing: whoever waits for one waits no longer."""
        with self.broker.asking():
            self.broker.client.xadd(self.results, {"w": ""})
            self.broker.client.pexpire(self.results, int(KEPT_S * 1000))

    def forget(self, bodies: Sequence[str], *, results: bool) -> None:
        """The run is over: hands stop, and nothing of it is left but claims, which expire."""
        names = [self.root, *(self.name("body", name) for name in bodies)]
        with self.broker.asking():
            self.broker.client.delete(*names, *((self.results, self.bytes) if results else ()))
