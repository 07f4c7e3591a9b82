"""What happens to the items of a worker that died: pure rules, no process in sight.

- What it had finished stays finished. What it had not begun goes back into the queue.
- The item it held is tried once more, alone, on a fresh worker. A second death and it is quarantined.
- SIGKILL and SIGSTOP may come from outside (an operator, the kernel short of memory) and hit any worker. When an item
  proves not to be the cause (it ended well on its next try, or no item was held), or STORM_ITEMS different items are
  hit, then for the next minute such deaths do not count, and an item hit by them has up to STORM_TRIES tries. The first
  deaths of such a storm may hit one item twice, so a verdict that rests on them alone waits for DOUBT_S.
- A death with nothing begun blames the batch (an item that cannot even be decoded, say): it is halved until one item is
  left, which then is the suspect.
- When the keeper itself dies, every item that was running is a suspect. With several of them that proves nothing about
  any one; each is tried again with nothing else running. Only a keeper's death with a lone item counts against it, and
  since that may come from outside as well, it takes as many of those as of other deaths from outside.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable

from weft.pipelines.pool.task import Task

OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Deaths by these may well have nothing to do with what the worker was doing."""
STORM_TRIES = 6
STORM_ITEMS = 4
DOUBT_S = 1.0
_STORM_MEMORY_S = 60.0


class CrashRules:
    """Decides whether an item is to blame for deaths; remembers recent deaths from outside."""

    def __init__(self, tries: int = 2, clock: Callable[[], float] = time.monotonic) -> None:
        self._tries = tries
        self._clock = clock
        self._innocent_s = float("-inf")
        self._hit: dict[int, float] = {}

    def ended(self, tasks: list[Task]) -> None:
        """These tasks have ended; if workers were killed from outside with them before, they were not the cause."""
        if any(task.outside for task in tasks):
            self.saw_innocent()

    def saw_innocent(self) -> None:
        """Records a death from outside that no item can have caused."""
        self._innocent_s = self._clock()

    def strike(self, task: Task, *, outside: bool, with_keeper: bool = False) -> bool:
        """A worker died with this task. True: it is to be quarantined; False: it is to be tried again, alone.

        `with_keeper`: it was the only task that was running when the keeper died. Such deaths of several tasks are no
        sign of a storm: each of them runs alone from then on, so random kills of the keeper would hit few of them."""
        task.tries += 1
        task.strikes += 1
        task.outside += outside
        if with_keeper:
            task.secluded = True
        elif outside:
            self._saw_hit(task)
        return self.guilty(task)

    def in_company(self, task: Task) -> None:
        """The keeper died while this task and others were running: it must run alone from now on."""
        task.tries += 1
        task.secluded = True

    def guilty(self, task: Task) -> bool:
        """Whether it is to blame, as far as is known now."""
        stormy = self._clock() - self._innocent_s < _STORM_MEMORY_S
        return (self._proven_in_storm(task) if stormy else task.strikes) >= self._tries

    def doubtful(self, task: Task) -> bool:
        """Whether it would not be to blame if a storm of kills shows."""
        return self._proven_in_storm(task) < self._tries

    def _proven_in_storm(self, task: Task) -> int:
        return task.strikes - task.outside if task.strikes < STORM_TRIES else task.strikes

    def _saw_hit(self, task: Task) -> None:
        now_s = self._clock()
        self._hit[task.position] = now_s
        self._hit = {place: at_s for place, at_s in self._hit.items() if now_s - at_s < _STORM_MEMORY_S}
        if len(self._hit) >= STORM_ITEMS:
            self.saw_innocent()


class Queue:
    """Work that is at no worker: batches, suspects, and suspects that must run with nothing else in the pool."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.batches: deque[list[Task]] = deque()
        self.suspects: deque[Task] = deque()
        self.exclusive: deque[Task] = deque()

    def __bool__(self) -> bool:
        return bool(self.batches or self.suspects or self.exclusive)

    def next(self, *, fresh: bool, pool_idle: bool) -> tuple[list[Task], bool] | None:
        """The next batch for a worker, and whether it must be alone there. Suspects go first, to fresh workers only."""
        if self.exclusive:
            return ([self.exclusive.popleft()], True) if fresh and pool_idle else None
        if fresh and self.suspects:
            return [self.suspects.popleft()], True
        return (self.batches.popleft(), False) if self.batches else None

    def put_back(self, tasks: list[Task]) -> None:
        """Puts unbegun tasks first in the queue, in batches of the usual size: stolen ones may be of several."""
        size = self._batch_size
        self.batches.extendleft(reversed([tasks[at : at + size] for at in range(0, len(tasks), size)]))

    def bisect(self, tasks: list[Task]) -> None:
        """Halves a batch of which an unknown item kills workers; the halves stay apart from now on."""
        half = (len(tasks) + 1) // 2
        self.put_back(tasks[half:])
        self.put_back(tasks[:half])

    def tasks(self) -> int:
        """How many tasks wait."""
        return sum(map(len, self.batches)) + len(self.suspects) + len(self.exclusive)
