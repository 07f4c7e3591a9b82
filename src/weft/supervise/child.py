"""The life of one child process as a state machine; it starts and kills nothing itself.

    BACKOFF ──START──► STARTING ──ready──► RUNNING
       ▲                  │ exited            │ exited
       └──── restart ─────┴───────────────────┘          stop() leads from anywhere to STOPPING, then DEAD
                                                         too many failures in a row lead to DEAD

The owner (the worker pool, the crawl's orchestrator) asks `next_step()` what to do now, does it in its own way, and
reports what happened: `spawned`, `ready`, `exited`. Invariants: one process at a time; never started before its delay
is over; never started again after DEAD; a child that was asked to stop is killed once its grace is over, which begins
again for as long as it makes progress (`still_ending`).
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from weft.supervise.process import Exit


class ChildState(enum.Enum):
    """The state of a child."""

    BACKOFF = "back-off"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"


class Step(enum.Enum):
    """The owner's next action."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a child is restarted, and when that is given up."""

    first_delay_s: float = 0.1
    factor: float = 2.0
    max_delay_s: float = 30.0
    jitter: float = 0.1
    start_timeout_s: float = 30.0
    stable_after_s: float = 10.0
    """A child that ran this long before it died starts again at once, its failures forgotten."""
    max_failures: int = 5
    """This many failures in a row are a crash loop: DEAD."""
    health_forgives: bool = False
    """A crash loop is made of deaths without health alone; a death after it only delays the next start."""
    stop_grace_s: float = 10.0


class Child:
    """The state of one child process, through all its restarts."""

    def __init__(
        self,
        name: str,
        policy: RestartPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.policy = policy
        self.state = ChildState.BACKOFF
        self.pid: int | None = None
        self.failures = 0
        self.deaths_without_health = 0  # in a row
        self.starts = 0
        self.last_exit: Exit | None = None
        self._clock = clock
        self._chance = chance
        self._due_s = clock()
        self._since_s = clock()
        self._was_healthy = False
        self._asked_to_stop = False
        self._grace_s = policy.stop_grace_s
        self._again = False

    @property
    def alive(self) -> bool:
        """Whether there is a process, or one is being started."""
        return self.state in (ChildState.STARTING, ChildState.RUNNING, ChildState.STOPPING)

    @property
    def looping(self) -> bool:
        """Whether it was given up after too many failures in a row."""
        return self.state is ChildState.DEAD and self.counted_failures >= self.policy.max_failures

    @property
    def counted_failures(self) -> int:
        """The failures in a row that count as a crash loop."""
        return self.deaths_without_health if self.policy.health_forgives else self.failures

    def wake_s(self) -> float | None:
        """When `next_step` will next have something to do by itself; None if only an event can change that."""
        if self.state is ChildState.BACKOFF or self.state is ChildState.STOPPING:
            return self._due_s
        return self._since_s + self.policy.start_timeout_s if self.state is ChildState.STARTING else None

    def next_step(self) -> Step:
        """The owner's next action. The answer is the same until the action was done."""
        now_s = self._clock()
        if self.state is ChildState.BACKOFF:
            return Step.START if now_s >= self._due_s else Step.NOTHING
        if self.state is ChildState.STARTING:
            return Step.KILL if now_s >= self._since_s + self.policy.start_timeout_s else Step.NOTHING
        if self.state is ChildState.STOPPING:
            return self._stopping_step(now_s)
        return Step.NOTHING

    def _stopping_step(self, now_s: float) -> Step:
        if now_s >= self._due_s:
            return Step.KILL
        return Step.NOTHING if self._asked_to_stop else Step.TERMINATE

    def spawned(self, pid: int | None = None) -> None:
        """The owner has started it; the pid may follow later."""
        if self.state is ChildState.BACKOFF:
            self._enter(ChildState.STARTING)
            self.starts += 1
            self._was_healthy = False
        self.pid = pid

    def ready(self, *, healthy: bool = True) -> None:
        """The child reports that it is ready; with `healthy` False, that it will be, and needs time."""
        if self.state is ChildState.STARTING or (
            self.state is ChildState.RUNNING and healthy and not self._was_healthy
        ):
            self._enter(ChildState.RUNNING)
        self._was_healthy = self._was_healthy or healthy

    def still_ending(self) -> None:
        """The child was asked to end, and makes progress with that: its grace period begins again."""
        if self.state is ChildState.STOPPING:
            self._due_s = max(self._due_s, self._clock() + self._grace_s)

    def asked_to_stop(self) -> None:
        """The owner has asked the child to end; it waits for the grace period, then KILL."""
        self._asked_to_stop = True

    def stop(self, *, again: bool = False, grace_s: float | None = None) -> None:
        """Requests the child's end; with `again` a new process replaces it."""
        self._again = again and self.state is not ChildState.DEAD
        if self.state is ChildState.BACKOFF and not again:
            self._enter(ChildState.DEAD)
        elif self.state in (ChildState.STARTING, ChildState.RUNNING):
            self._enter(ChildState.STOPPING)
            self._asked_to_stop = False
            self._grace_s = self.policy.stop_grace_s if grace_s is None else grace_s
            self._due_s = self._since_s + self._grace_s

    def exited(self, how: Exit, *, failed: bool | None = None, final: bool = False) -> None:
        """The process has ended. `failed` overrides the judgement by its running time: True counts towards the crash
        loop.

        `final`: it would end the same way again, and is not restarted.
        """
        if not self.alive:
            return
        self.last_exit, self.pid = how, None
        if self.state is ChildState.STOPPING:
            self._enter(ChildState.BACKOFF if self._again else ChildState.DEAD)
            self._due_s = self._since_s
            return
        if failed is None:
            failed = self.state is ChildState.STARTING or self._clock() - self._since_s < self.policy.stable_after_s
        self.failures = self.failures + 1 if failed else 0
        self.deaths_without_health = 0 if self._was_healthy or not failed else self.deaths_without_health + 1
        is_over = final or self.counted_failures >= self.policy.max_failures
        self._enter(ChildState.DEAD if is_over else ChildState.BACKOFF)
        self._due_s = self._since_s + self._delay_s()

    def _delay_s(self) -> float:
        if self.failures == 0:
            return 0.0
        policy = self.policy
        delay_s = min(policy.max_delay_s, policy.first_delay_s * policy.factor ** (self.failures - 1))
        return delay_s * (1 + policy.jitter * self._chance())

    def _enter(self, state: ChildState) -> None:
        self.state = state
        self._since_s = self._clock()
