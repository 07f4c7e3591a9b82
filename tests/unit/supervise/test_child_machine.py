"""The life of a child process, step by step with a clock of our own, and any walk through it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from weft.supervise.child import Child, ChildState, RestartPolicy, Step
from weft.supervise.process import Exit

POLICY = RestartPolicy(
    first_delay_s=1,
    factor=2,
    max_delay_s=5,
    jitter=0.5,
    start_timeout_s=20,
    stable_after_s=60,
    max_failures=4,
    stop_grace_s=3,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make(policy: RestartPolicy = POLICY, chance: float = 0.0) -> tuple[Child, Clock]:
    clock = Clock()
    return Child("fetcher-0", policy, clock=clock, chance=lambda: chance), clock


def test_new_child_is_to_be_started_at_once() -> None:
    child, _ = make()
    assert child.state is ChildState.BACKOFF
    assert child.next_step() is Step.START
    assert child.next_step() is Step.START


def test_started_child_runs_when_it_says_so() -> None:
    child, _ = make()
    child.spawned()
    child.spawned(42)
    assert (child.state, child.pid, child.starts) == (ChildState.STARTING, 42, 1)
    child.ready()
    assert child.state is ChildState.RUNNING
    assert child.next_step() is Step.NOTHING
    assert child.wake_s() is None


def test_child_not_ready_in_time_is_to_be_killed() -> None:
    child, clock = make()
    child.spawned(42)
    clock.now_s += 19.9
    assert child.next_step() is Step.NOTHING
    assert child.wake_s() == 120.0
    clock.now_s += 0.2
    assert child.next_step() is Step.KILL


def test_delays_grow_to_the_maximum_and_a_crash_loop_is_given_up() -> None:
    child, clock = make()
    for delay_s in (1, 2, 4):
        child.spawned(1)
        child.exited(Exit(code=1))
        assert child.state is ChildState.BACKOFF
        clock.now_s += delay_s - 0.01
        assert child.next_step() is Step.NOTHING
        clock.now_s += 0.02
        assert child.next_step() is Step.START
    child.spawned(1)
    child.exited(Exit(code=1))
    assert child.looping
    assert child.state is ChildState.DEAD
    assert child.last_exit == Exit(code=1)


def test_jitter_lengthens_the_delay() -> None:
    child, clock = make(chance=1.0)
    child.spawned(1)
    child.exited(Exit(code=1))
    clock.now_s += 1.4
    assert child.next_step() is Step.NOTHING
    clock.now_s += 0.2
    assert child.next_step() is Step.START


def test_death_after_a_stable_run_is_forgiven_and_restarted_at_once() -> None:
    child, clock = make()
    child.spawned(1)
    child.exited(Exit(code=1))
    clock.now_s += 1
    child.spawned(2)
    child.ready()
    clock.now_s += 61
    child.exited(Exit(signal=9))
    assert (child.failures, child.next_step()) == (0, Step.START)


def test_early_death_counts_although_it_was_running() -> None:
    child, clock = make()
    child.spawned(1)
    child.ready()
    clock.now_s += 5
    child.exited(Exit(signal=11))
    assert (child.failures, child.next_step()) == (1, Step.NOTHING)


def test_owner_may_judge_a_death_itself() -> None:
    child, clock = make()
    child.spawned(1)
    child.ready()
    child.exited(Exit(signal=9), failed=False)
    assert (child.failures, child.next_step()) == (0, Step.START)
    child.spawned(2)
    child.ready()
    clock.now_s += 1000
    child.exited(Exit(signal=9), failed=True)
    assert child.failures == 1


def test_stop_asks_once_then_kills_after_the_grace() -> None:
    child, clock = make()
    child.spawned(1)
    child.ready()
    child.stop()
    assert child.next_step() is Step.TERMINATE
    child.asked_to_stop()
    assert child.next_step() is Step.NOTHING
    clock.now_s += 3
    assert child.next_step() is Step.KILL
    child.exited(Exit(signal=9))
    assert child.state is ChildState.DEAD
    assert not child.looping
    assert child.next_step() is Step.NOTHING


def test_recycled_child_starts_again_without_delay() -> None:
    child, _ = make()
    child.spawned(1)
    child.ready()
    child.stop(again=True, grace_s=1)
    child.exited(Exit(code=0))
    assert (child.state, child.failures, child.next_step()) == (ChildState.BACKOFF, 0, Step.START)


def test_stop_during_a_recycling_wins() -> None:
    child, _ = make()
    child.spawned(1)
    child.ready()
    child.stop(again=True)
    child.stop()
    child.exited(Exit(code=0))
    assert child.state is ChildState.DEAD


def test_stop_in_back_off_needs_no_process() -> None:
    child, _ = make()
    child.stop()
    assert child.state is ChildState.DEAD


class Walk(RuleBasedStateMachine):
    """Any order of events, also late and doubled ones, keeps what the module promises."""

    def __init__(self) -> None:
        super().__init__()
        self.child, self.clock = make()
        self.was_dead = False

    @rule(seconds=st.floats(0, 70))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @precondition(lambda self: self.child.next_step() is Step.START)
    @rule()
    def start(self) -> None:
        assert not self.was_dead
        self.child.spawned(7)

    @rule()
    def ready(self) -> None:
        self.child.ready()

    @rule(code=st.integers(0, 3))
    def exit(self, code: int) -> None:
        self.child.exited(Exit(code=code))

    @rule(again=st.booleans())
    def stop(self, again: bool) -> None:
        self.child.stop(again=again)

    @precondition(lambda self: self.child.next_step() is Step.TERMINATE)
    @rule()
    def told(self) -> None:
        self.child.asked_to_stop()

    @invariant()
    def promises(self) -> None:
        child = self.child
        assert not (self.was_dead and child.state is not ChildState.DEAD)
        self.was_dead = child.state is ChildState.DEAD
        assert (child.pid is not None) == child.alive
        assert child.failures <= POLICY.max_failures
        if child.state is ChildState.DEAD:
            assert child.next_step() is Step.NOTHING


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=60, stateful_step_count=30)


FORGIVING = RestartPolicy(
    first_delay_s=1, factor=2, max_delay_s=5, jitter=0, stable_after_s=10, max_failures=5, health_forgives=True
)


def died(child: Child, clock: Clock, *, healthy_s: float | None = None) -> None:
    """One more life: healthy for that long, or never."""
    while child.next_step() is not Step.START:
        clock.now_s += 0.5
    child.spawned(42)
    if healthy_s is not None:
        child.ready()
        clock.now_s += healthy_s
    child.exited(Exit(1))


def test_a_crash_loop_is_five_deaths_without_health() -> None:
    child, clock = make(FORGIVING)
    for _ in range(4):
        died(child, clock)
    assert child.state is ChildState.BACKOFF
    died(child, clock, healthy_s=1)  # it has been healthy: the count begins again, the delay does not
    assert (child.deaths_without_health, child.failures, child.state) == (0, 5, ChildState.BACKOFF)
    for _ in range(5):
        assert not child.looping
        died(child, clock)
    assert child.looping and child.counted_failures == 5


def test_ten_seconds_of_health_start_the_back_off_anew() -> None:
    child, clock = make(FORGIVING)
    for _ in range(3):
        died(child, clock, healthy_s=9.9)
    assert child.failures == 3 and child.wake_s() == clock.now_s + 4
    died(child, clock, healthy_s=10.1)
    assert child.failures == 0 and child.next_step() is Step.START


def test_loading_is_neither_health_nor_a_start_that_takes_too_long() -> None:
    child, clock = make(FORGIVING)
    child.spawned(42)
    child.ready(healthy=False)
    clock.now_s += 3600
    assert child.state is ChildState.RUNNING and child.next_step() is Step.NOTHING
    child.exited(Exit(None, 9), failed=True)
    assert child.deaths_without_health == 1
    died(child, clock, healthy_s=0)
    assert child.deaths_without_health == 0
