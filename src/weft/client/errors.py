"""What goes wrong between a client and the service, divided by what the caller does about it.

WeftError
└── ClientError
    ├── Refused       the service refuses: `status`, `detail`, and `fields` that it names; ask for something else
    ├── NoAnswer      it cannot be reached, or has broken off: again later; what was submitted is kept
    └── NotWeft       what answers there is no scrape service
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.errors import WeftError


class ClientError(WeftError):
    """The root."""


class Refused(ClientError):
    """The service does not do this."""

    exit_code = 2

    def __init__(self, status: int, detail: str, fields: Mapping[str, str], retry_after_s: float | None) -> None:
        super().__init__(detail or f"the service answered {status}")
        self.status = status
        self.detail = detail
        self.fields = dict(fields)
        self.retry_after_s = retry_after_s

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 429, 502, 503, 504)


class NoAnswer(ClientError):
    """The service is not there."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"the service at {url} does not answer: {why}; is it running? `weft serve` starts one")
        self.url = url


class NotWeft(ClientError):
    """Something else listens there."""

    exit_code = 2

    def __init__(self, url: str, what: str) -> None:
        super().__init__(f"what answers at {url} is no scrape service: {what}")
        self.url = url
