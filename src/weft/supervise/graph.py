"""Several services as one: started after what they need, stopped before it, each checked in every turn.

Its owner calls `turn` in a loop; nothing here waits. A service is created before those that need it, so that they are
in the order of dependency, and a cycle is impossible. Invariants: none is started while what it needs is not healthy;
none is asked to stop while one that needs it still runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.errors import BadInput, WeftError
from weft.supervise.child import ChildState
from weft.supervise.external import External
from weft.supervise.service import Service, ServiceHealth

Kept = Service | External


class Graph:
    """The services, in order of dependency."""

    def __init__(self) -> None:
        self._services: list[Kept] = []
        self._is_stopping = False
        self._asked: set[str] = set()  # those that were asked to stop

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._services)

    @property
    def is_stopping(self) -> bool:
        """Whether all services must end."""
        return self._is_stopping

    @property
    def has_ended(self) -> bool:
        """Whether none of them runs, and none will."""
        return all(service.has_ended for service in self._services)

    def add(self, services: Sequence[Kept]) -> None:
        """Adds services whose needs are in the graph already."""
        for service in services:
            if any(other.name == service.name for other in self._services):
                raise BadInput(f"{service.name}: there is a service of that name already")
            if missing := [need for need in service.needs if not any(need is other for other in self._services)]:
                raise BadInput(f"{service.name}: needs {missing[0]}, which is not among the services")
            self._services.append(service)

    def named(self, name: str) -> list[Kept]:
        """The service of that name, or those of that group: `api` is `api0` and `api1`, too, and `celery` is
        `celery_worker` and `celery_beat`."""
        exact = [one for one in self._services if one.name == name]
        return exact or [one for one in self._services if group_of(one.name) == name]

    def with_needs(self, services: Iterable[Kept]) -> list[Kept]:
        """These services, and all that they need, in order of dependency."""
        wanted = list(services)
        for service in reversed(self._services):
            if any(need is service for one in wanted for need in one.needs) and service not in wanted:
                wanted.append(service)
        return [service for service in self._services if service in wanted]

    def turn(self) -> None:
        """Checks all services, and does the work that is due."""
        for service in self._services:
            service.check()
        for service in reversed(self._services) if self._is_stopping else self._services:
            if self._is_stopping and service.name not in self._asked and self._may_stop(service):
                self._asked.add(service.name)
                service.stop()
            self._act(service)

    def _act(self, service: Kept) -> None:
        """Acts for one service; its errors do not affect the others."""
        try:
            service.act()
        except (WeftError, OSError) as error:
            if isinstance(service, Service):
                service.could_not_start(str(error))

    def stop(self) -> None:
        """Asks all services to end, in reverse order of dependency: the turns carry it out."""
        self._is_stopping = True

    def kill(self) -> None:
        """Kills all services at once."""
        self._is_stopping = True
        for service in reversed(self._services):
            service.stop(grace_s=0.0)
            self._asked.add(service.name)
            service.kill()

    def _may_stop(self, service: Kept) -> bool:
        """Whether it may stop: it has no process (systemd signals all of them at once) and is then not restarted, or no
        running service needs it.
        """
        if isinstance(service, Service) and service.pid is None:
            return True
        return all(other.has_ended or all(need is not service for need in other.needs) for other in self._services)


def group_of(name: str) -> str:
    """The group of a service, by its name."""
    return "celery" if name.startswith("celery_") else name.rstrip("0123456789")


def state_of(service: Kept) -> str:
    """The word for a service's state."""
    if isinstance(service, External):
        return "stopped" if service.has_ended else "external"
    child = service.child
    if child.state is ChildState.RUNNING:
        return "loading" if service.report.health is ServiceHealth.LOADING else "running"
    if child.state is ChildState.BACKOFF:
        if any(not need.healthy for need in service.needs):
            return "waiting"
        return "back-off" if service.starts else "starting"
    if child.state is ChildState.DEAD:
        if service.is_done:
            return "done"
        return "failed" if not service.was_stopped else "stopped"
    return str(child.state.value)
