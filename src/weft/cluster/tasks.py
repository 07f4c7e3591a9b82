"""What a hand can do: one function for each queue, named here by its entry point and imported when it is first needed.

A function gets the body of a task and a `HandSide`, and gives the body of the result; both are JSON. It may raise: the
result then says so. A queue whose module is not there, or whose libraries are missing, is not offered by the hand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.cluster.broker import Broker
from weft.cluster.signing import Message, Signer
from weft.errors import BadInput, Missing, WeftError

SYSTEM = "system"  # the queue of the supervisor's own worker


@dataclass(frozen=True, slots=True)
class TaskKind:
    """How the tasks of one queue are run. `once`: acknowledged on receipt, never redelivered; otherwise Celery delivers
    a task again when its hand dies, `tries` times at most."""

    name: str
    entry: str
    limit_s: float  # of one run; the process is killed a little later
    own_queue: bool = False  # one queue for each hand
    tries: int = 1
    hears_late: bool = False  # its function is called for a task that came too late, to report that nothing was done
    after: tuple[str, ...] = ()  # besides its own kind: whose results a chain or chord may hand to it

    @property
    def once(self) -> bool:
        """Whether a task is begun at most once."""
        return self.tries == 1


KINDS = {
    kind.name: kind
    for kind in (
        TaskKind("fetch", "weft.cluster.pages.fetch_task:run", 330.0, own_queue=True, hears_late=True),
        TaskKind("render", "weft.cluster.pages.render_task:run", 180.0, own_queue=True),
        TaskKind("batches", "weft.cluster.batch_task:run", 3000.0, tries=3),
        TaskKind("proxies", "weft.cluster.refresh.proxy_task:run", 120.0, tries=3),
        TaskKind(SYSTEM, "weft.cluster.refresh.system_task:run", 120.0, tries=3, after=("proxies",)),
        TaskKind("heartbeat", "weft.cluster.heartbeat_task:run", 5.0),
    )
}
CHOSEN = ("fetch", "render", "batches", "proxies")  # what `--queues` may name; every hand answers heartbeats


@dataclass(frozen=True, slots=True)
class HandSide:
    """What a task's function is given besides its body."""

    broker: Broker
    signer: Signer
    hand: str
    folder: Path  # of this process, for files of its own; survives tasks, not the hand
    accept_code: bool
    message: Message
    granted: tuple[bool, ...]  # for each id of the body's `claims`, else for the message itself
    deadline: float  # of the task, by `hand_clock`
    browser_sandbox: bool = True
    shared_dir: Path | None = None  # where large results go, if the brain reads it, too
    earlier: tuple[Message, ...] = field(default=())  # results of the tasks before it in a chain or chord
    is_late: bool = False  # nothing may be begun any more


def hand_clock() -> float:
    """Seconds by a clock that runs on while the machine is suspended: what wakes up knows that its deadline is over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def profiles_of(hand: str) -> str:
    """How the folders of a hand's browsers begin. They are not in the hand's own, which a browser must not read."""
    return f"weft-browsers-{os.getuid()}-{hand}-"


TaskFunction = Callable[[dict[str, Any], HandSide], Mapping[str, Any]]


def task_name(kind: str) -> str:
    """A task's name at Celery."""
    return f"weft.{kind}"


def load(kind: TaskKind) -> TaskFunction:
    """The function of a queue; WeftError if this machine cannot do such tasks: its module may say so (`trouble`)."""
    module_name, _, name = kind.entry.partition(":")
    try:
        module: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        raise Missing.of_extra(f"{error.name}, for queue {kind.name!r},", "cluster") from None
    if (trouble := getattr(module, "trouble", None)) is not None and (why := trouble()):
        raise BadInput(f"queue {kind.name!r}: {why}")
    function: TaskFunction = getattr(module, name)
    return function


def available() -> dict[str, str]:
    """Each queue that may be chosen, with the reason why this machine cannot serve it (empty: it can)."""
    troubles = {}
    for name in CHOSEN:
        try:
            load(KINDS[name])
            troubles[name] = ""
        except WeftError as error:
            troubles[name] = str(error)
    return troubles
