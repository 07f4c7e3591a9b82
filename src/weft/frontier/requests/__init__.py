"""The request log: every request that is made, written before its first byte is sent.

It is the evidence of politeness (`weft audit`), and restores the politeness clocks after a crash: a site whose last
request ended waits from that end, one whose request was in flight waits from now. Lines of tab-separated text:

    S item monotonic wall key delay places url crawl   a request of a crawl (its number) is about to start; without
                                                   places it was a part of a page in a browser, logged at its end
    E item monotonic status                        it has ended (`unasked`: it was not made after all)
    B boot-id monotonic wall [revision]            a process opened the log; monotonic times are of this boot, and
                                                   requests follow that revision of the crawl's settings
    R monotonic digest origin                      from here on this robots.txt is in force for an origin
    C monotonic crawl revision trust               from here on requests of a crawl follow that revision of its own
                                                   settings, and the robots.txt files of that trust (may be empty)

Behind each of them is its CRC-32, eight digits.

Appended with one write(2) for each batch, so that a killed process leaves whole lines; a new file is begun at
ROTATE_BYTES, and the closed one is packed (`packed`, `segments`, `upkeep`). A power cut may leave half a line, or zeros
in its place: the next opening ends it with a NUL, so that it never joins the line that follows. A damaged line is
skipped and counted (`UnreadableLines`); as long as one may hide a recent request, every site waits a full delay
(`RecentRequests.unsure_at`).
"""

from weft.frontier.requests.reading import (
    RecentRequests,
    UnreadableLines,
    last_requests,
    missing_bytes,
    read_events,
    read_site,
)
from weft.frontier.requests.request_lines import (
    LogEvent,
    LogOpening,
    LostLines,
    RequestEnd,
    RequestStart,
    RobotsKnown,
    SettingsInForce,
    boot_id,
    robots_digest,
    robots_evidence,
    with_checksum,
)
from weft.frontier.requests.upkeep import Retention
from weft.frontier.requests.writing import RequestLog

__all__ = [
    "LogEvent",
    "LogOpening",
    "LostLines",
    "RecentRequests",
    "RequestEnd",
    "RequestLog",
    "RequestStart",
    "Retention",
    "RobotsKnown",
    "SettingsInForce",
    "UnreadableLines",
    "boot_id",
    "last_requests",
    "missing_bytes",
    "read_events",
    "read_site",
    "robots_digest",
    "robots_evidence",
    "with_checksum",
]  # fmt: skip
