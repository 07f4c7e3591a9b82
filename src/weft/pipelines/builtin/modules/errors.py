"""What can be wrong with one repository, by what the caller does about it.

WeftError
├── Refused      its address or what is in it: trying again changes nothing
└── GitFailed    git could not do it: a clone that was to be updated is made again, anything else fails the item
"""

from __future__ import annotations

from weft.errors import WeftError


class RefusedRepository(WeftError):
    """A repository was refused; the message has the reason."""


class GitFailed(WeftError):
    """Git ended with an error. Failures are counted by `kind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
