"""Errors between a client and the service, divided by what the caller does about them.

WeftError
└── ClientError
    ├── Refused       the service refuses the request: `status`, `detail`, and the wrong `fields`; change the request
    ├── NoAnswer      it cannot be reached, or the connection broke: retry later; submitted tasks are kept
    └── NotWeft       the server at this URL is not a scrape service
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.errors import WeftError


class ClientError(WeftError):
    """The base of all errors of a client."""


class Refused(ClientError):
    """The service refuses the request; `detail` has the reason."""

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
    """The service cannot be reached."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"the service at {url} does not answer: {why}; is it running? `weft serve` starts one")
        self.url = url


class NotWeft(ClientError):
    """The server at this URL is not a scrape service."""

    exit_code = 2

    def __init__(self, url: str, what: str) -> None:
        super().__init__(f"the server at {url} is not a scrape service: {what}")
        self.url = url
