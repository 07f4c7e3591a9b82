"""A process that judges a share of the requests: reads its work from stdin, and writes its report to stdout."""

from __future__ import annotations

import sys

from msgspec import msgpack

from weft.crawl.reports.audit import AuditWork, judge_share


def main() -> None:
    """The entry point of the process."""
    work = msgpack.decode(sys.stdin.buffer.read(), type=AuditWork)
    sys.stdout.buffer.write(msgpack.encode(judge_share(work)))


if __name__ == "__main__":
    main()
