"""The exit code and the final state of a crawl for each reason to end."""

from __future__ import annotations

from weft.engine.loop.stop import Stop

EXIT_BAD_USE = 2
EXIT_SERVER_AWAY = (
    75  # exit code of a process whose pod's Redis did not answer at its start: not a crash, it is restarted
)
EXIT_CODES = {
    Stop.DONE: 0, Stop.MAX_PAGES: 3, Stop.BUDGET: 3, Stop.MAX_DURATION: 3, Stop.CALLBACK_ERRORS: 3,
    Stop.MAX_ITEMS: 3, Stop.CLOSED: 3,
    Stop.LOGIN_FAILED: 3,  # of a process; the command ends with 2 and the reason
    Stop.INTERRUPTED: 130, Stop.CANCELLED: 130,
}  # fmt: skip
EXIT_NOTHING = 4  # finished, but nothing was stored (see `outcome`)
_STATE_BY_EXIT_CODE = {0: "finished", 3: "limit", 130: "interrupted"}
FINAL_EXIT_CODES = frozenset({EXIT_BAD_USE, *EXIT_CODES.values()})


def state_of(reason: Stop) -> str:
    """The state of a crawl that has ended for a reason."""
    if reason is Stop.LOGIN_FAILED:
        return "failed"
    return str(reason) if reason is Stop.CANCELLED else _STATE_BY_EXIT_CODE[EXIT_CODES[reason]]
