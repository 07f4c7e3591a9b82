"""A pod's frontier among others: what it queues, what it sends on, and what it takes in, each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import urls
from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, End, EndedLease, PageLinks, RobotsRecord, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.outbox import NUMBERS_SKIPPED, PodMessage, encode_message, read_message
from weft.records import Found, Purpose

PODS = 2


def hosts(pod: int, count: int = 3) -> list[str]:
    """Names that belong to a pod, with one letter and with more."""
    names = [*"abcdefghij", *(f"site{number}" for number in range(50))]
    mine = [name for name in names if urls.pod_of(urls.domain(name), PODS) == pod]
    return [mine[0], *mine[-count + 1 :]]


HERE, THERE = hosts(0), hosts(1)


class Pods:
    """Pod 0, opened again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.frontier: EmbeddedFrontier | None = None

    def open(self, limits: CrawlLimits | None = None) -> EmbeddedFrontier:
        self.close()
        section = PolitenessSection(delay_s=0.0, places=9)
        self.frontier = EmbeddedFrontier(self.folder, section, pod=0, pods=PODS)
        assert self.frontier.crawls.open_crawl("test", limits or CrawlLimits()) == 1
        self.frontier.recovery.recover()
        return self.frontier

    def close(self) -> None:
        if self.frontier is not None:
            self.frontier.close()
        self.frontier = None


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path / "f")
    yield made
    made.close()


def sent(frontier: EmbeddedFrontier, after: int = 0) -> list[Found]:
    frontier.durability.commit()
    found: list[Found] = []
    while (message := frontier.pods.outbox.next_message(1, after)) is not None:
        after = message[0]
        found += read_message(message[1]).found_urls()
    return found


def test_a_url_belongs_to_the_pod_of_its_domain(pods: Pods) -> None:
    frontier = pods.open()
    for scheme in ("http", "https"):
        for _ in range(2):
            assert [frontier.pods.pod_of(f"{scheme}://{host}/x") for host in (*HERE, *THERE)] == [0] * 3 + [1] * 3
            assert [frontier.pods.owns(f"{scheme}://{host}/x") for host in (HERE[0], THERE[0])] == [True, False]


def test_what_is_anothers_is_sent_once_and_counts_as_new(pods: Pods) -> None:
    frontier = pods.open()
    found = [Found(f"https://{host}/1", 1, 5) for host in (*HERE, *THERE)]
    admission = frontier.queue.admit(1, found)
    assert (admission.new, admission.duplicates) == (6, 0)
    assert frontier.status.stats().queued == 3
    again = frontier.queue.admit(1, found)
    assert (again.new, again.duplicates) == (0, 6)
    assert sent(frontier) == found[3:]
    assert frontier.queue.unseen(1, [one.url for one in found]) == []
    fresh = [f"https://{HERE[0]}/2", f"https://{THERE[0]}/2"]
    assert frontier.queue.unseen(1, [*fresh, found[0].url, found[3].url]) == fresh
    assert (frontier.status.stats().sent, frontier.status.stats().received) == (1, 0)


def test_redirects_and_sitemaps_are_sent_whenever_they_come(pods: Pods) -> None:
    frontier = pods.open()
    hop = Found(f"https://{THERE[0]}/1", 1, 5, 1, about="https://x/")
    sitemap = Found(f"https://{THERE[0]}/map.xml", 0, purpose=Purpose.SITEMAP, about=f"https://{THERE[0]}")
    for _ in range(2):
        assert frontier.queue.admit(1, [hop, sitemap]).new == 2
    assert sent(frontier) == [hop, sitemap] * 2


def test_where_depth_decides_a_shorter_way_is_sent_too(pods: Pods) -> None:
    frontier = pods.open(CrawlLimits(max_depth=5))
    news = [frontier.queue.admit(1, [Found(f"https://{THERE[0]}/1", depth)]).new for depth in (3, 3, 2, 3)]
    assert news == [1, 0, 1, 0]


def test_a_message_is_taken_in_once_and_what_is_on_disk_need_not_come_again(pods: Pods) -> None:
    frontier = pods.open()
    other = EmbeddedFrontier(pods.folder.with_name("other"), PolitenessSection(delay_s=0.0, places=9), pod=1, pods=PODS)
    other.crawls.open_crawl("test", CrawlLimits())
    other.recovery.recover()
    links = [Found(f"https://{HERE[0]}/{number}", 2, 7, offsite=1) for number in range(3)]
    hop = Found(f"https://{HERE[1]}/hop", 1, 5, 1, about="https://x/")
    other.queue.admit(1, [*links, hop])
    other.notes.scope_extended(1, "https://new/")
    other.sites.robots_known(f"https://{HERE[0]}", RobotsRecord("ok", b"body", 9e12), None)
    other.durability.commit()
    message = other.pods.outbox.next_message(0, 0)
    assert message is not None
    number, body = message
    received = frontier.inbox.receive(1, number, body)
    assert received is not None
    assert (received.scopes, [count for _, count, _ in received.admissions]) == ([(1, "https://new/")], [3, 1])
    assert [admission.new for *_, admission in received.admissions] == [3, 1]
    assert frontier.inbox.receive(1, number, body) is None
    assert (
        frontier.pods.last_message_from(1),
        frontier.pods.last_message_from(0),
        frontier.status.stats().received,
    ) == (
        number,
        0,
        number,
    )
    assert frontier.notes.scope_extensions(1) == ["https://new/"]
    record = frontier.sites.robots(f"https://{HERE[0]}")
    assert record is not None and record.body == b"body"
    queued = sorted(frontier.queue.items(1), key=lambda item: item.url)
    assert [(one.url, one.depth, one.parent, one.hops, one.about, one.offsite) for one in queued] == sorted(
        (one.url, one.depth, one.parent, one.hops, one.about, one.offsite) for one in (*links, hop)
    )
    assert frontier.pods.durable_numbers == {}
    frontier.durability.sync()
    assert frontier.pods.durable_numbers == {}, "not committed yet"
    frontier.durability.commit()
    frontier.durability.sync()
    assert frontier.pods.durable_numbers == {1: number}
    assert pods.open().pods.last_message_from(1) == number
    other.close()


def test_a_robots_txt_that_another_pod_waits_for_is_asked_for_through_a_restart_and_reported(pods: Pods) -> None:
    frontier = pods.open()
    # Its robots.txt leads to a place of this pod.
    request = Found(f"https://{HERE[0]}/robots-of-other", 0, 3, 1, Purpose.ROBOTS, f"https://{THERE[0]}")
    frontier.queue.admit(1, [request])
    frontier.sites.robots_known(f"https://{HERE[0]}", RobotsRecord("allow", b"", 9e12), None)
    frontier = pods.open()
    (lease,) = frontier.leases.claim("me", 9)
    assert (lease.url, lease.purpose, lease.about, lease.hops) == (request.url, Purpose.ROBOTS, request.about, 1)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), ok=True)])
    frontier.sites.robots_known(lease.about, RobotsRecord("ok", b"x", 9e12), 4.0)
    frontier.leases.finish([EndedLease(lease, End.OTHER)])
    frontier.durability.commit()
    message = frontier.pods.outbox.next_message(1, 0)
    assert message is not None
    (notice,) = read_message(message[1]).robots
    assert (notice.origin, notice.record.body, notice.crawl_delay_s) == (request.about, b"x", 4.0)
    assert pods.open().leases.claim("me", 9) == [], "the request is done"


@pytest.mark.parametrize("is_queued", [True, False], ids=["before", "after"])
def test_a_pod_that_waits_for_a_robots_txt_asks_again_when_the_crawl_is_paused(pods: Pods, is_queued: bool) -> None:
    """The redirect comes before the pause, or after it."""
    frontier = pods.open()
    other = EmbeddedFrontier(pods.folder.with_name("other"), PolitenessSection(delay_s=0.0, places=9), pod=1, pods=PODS)
    other.crawls.open_crawl("test", CrawlLimits())
    other.recovery.recover()
    frontier.queue.admit(1, [Found(f"https://{HERE[0]}/1", 0)])
    (robots,) = frontier.leases.claim("me", 9)
    hop = Found(f"https://{THERE[0]}/robots.txt", 0, robots.parent, 1, Purpose.ROBOTS, robots.about)
    frontier.leases.cool([TransferEnd(robots, frontier.now(), ok=True)])
    frontier.leases.finish([EndedLease(robots, End.OTHER)])
    if is_queued:
        other.queue.admit(1, [hop])
    other.crawls.pause(1)
    if not is_queued:
        other.queue.admit(1, [hop])
    assert frontier.leases.claim("me", 9) == [], "another pod has it"
    other.durability.commit()
    message = other.pods.outbox.next_message(0, 0)
    assert message is not None
    frontier.inbox.receive(1, *message)
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == [f"https://{HERE[0]}/robots.txt"]
    other.close()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_robots_txt_that_led_to_another_pod_is_not_asked_for_here_again(pods: Pods, goes_on: bool) -> None:
    frontier = pods.open()
    about = f"https://{THERE[0]}"
    frontier.queue.admit(1, [Found(f"https://{HERE[0]}/robots.txt", 0, hops=1, purpose=Purpose.ROBOTS, about=about)])
    if goes_on:
        frontier.queue.admit(
            1, [Found(f"https://{THERE[1]}/robots.txt", 0, hops=2, purpose=Purpose.ROBOTS, about=about)]
        )
    frontier = pods.open()
    asked = [lease.url for lease in frontier.leases.claim("me", 9)]
    assert asked == ([] if goes_on else [f"https://{HERE[0]}/robots.txt"])


def test_what_is_queued_is_told_when_a_pod_comes_back(pods: Pods) -> None:
    frontier = pods.open()
    frontier.queue.admit(
        1, [Found(f"https://{host}/{number}", 1) for host in (HERE[0], THERE[0]) for number in range(3)]
    )
    pods.close()
    again = EmbeddedFrontier(pods.folder, PolitenessSection(delay_s=0.0, places=9), pod=0, pods=PODS)
    again.crawls.open_crawl("test", CrawlLimits())
    assert again.recovery.recover() == 3
    again.close()


def test_a_robots_txt_of_its_own_is_kept_here(pods: Pods) -> None:
    frontier = pods.open()
    frontier.sites.robots_known(f"https://{HERE[0]}", RobotsRecord("ok", b"mine", 9e12), 7.0)
    record = frontier.sites.robots(f"https://{HERE[0]}")
    assert record is not None and record.body == b"mine"
    frontier.durability.commit()
    assert frontier.pods.outbox.next_message(1, 0) is None


def test_an_errand_that_cannot_be_done_is_answered(pods: Pods) -> None:
    frontier = pods.open()
    own = Found(f"https://{HERE[0]}/robots.txt", 0, 3, 0, Purpose.ROBOTS, f"https://{HERE[0]}")
    request = Found(f"https://{HERE[0]}/robots-of-other", 0, 3, 1, Purpose.ROBOTS, f"https://{THERE[0]}")
    frontier.queue.admit(1, [own, request])
    (lease,) = frontier.leases.claim("me", 1)
    frontier.leases.cool([TransferEnd(lease, frontier.now(), slow_down=True, retry_after_s=1e9)])
    frontier.durability.commit()
    message = frontier.pods.outbox.next_message(1, 0)
    assert message is not None
    (notice,) = read_message(message[1]).robots
    assert (notice.origin, notice.record.status) == (request.about, "unreachable")


@pytest.mark.parametrize(("boot", "leaps"), [("another boot", True), (None, False)])
def test_after_another_boot_messages_are_numbered_from_far_on(pods: Pods, boot: str | None, leaps: bool) -> None:
    frontier = pods.open()
    frontier.queue.admit(1, [Found(f"https://{THERE[0]}/1", 0)])
    frontier.durability.commit()
    if boot is not None:
        frontier._base.journal.put_meta("boot", boot)
    frontier = pods.open()
    frontier.queue.admit(1, [Found(f"https://{THERE[0]}/2", 0)])
    frontier.durability.commit()
    assert frontier.status.stats().sent == (NUMBERS_SKIPPED + 2 if leaps else 2)


def test_a_message_about_a_crawl_that_is_not_here_any_more_is_received_and_does_nothing(pods: Pods) -> None:
    frontier = pods.open()
    ended = frontier.crawls.open_crawl("ended", CrawlLimits())
    frontier.crawls.close_crawl(ended)
    for number, name in enumerate(("never heard of", "ended"), 1):
        message = PodMessage([], [], [(7, f"https://{HERE[0]}/")], [], {7: name})
        message.add(7, Found(f"https://{HERE[0]}/{number}", 1, 5))
        message.add(7, Found(f"https://{HERE[0]}/{number}/moved", 1, 5, hops=1))
        received = frontier.inbox.receive(1, number, encode_message(message))
        assert received is not None and received.admissions == [] and received.scopes == []
    assert frontier.pods.last_message_from(1) == 2 and frontier.status.stats().queued == 0


def test_permits_that_come_later_let_a_crawl_go_on(pods: Pods) -> None:
    frontier = pods.open(CrawlLimits(max_pages=10))
    frontier.permits.allow(1, 0)
    frontier.sites.robots_known(f"https://{HERE[0]}", RobotsRecord("allow", b"", 9e12), None)
    frontier.queue.admit(1, [Found(f"https://{HERE[0]}/1", 0)])
    assert frontier.leases.claim("me", 9) == []
    frontier.permits.allow(1, 1)
    assert len(frontier.leases.claim("me", 9)) == 1


@pytest.mark.parametrize("max_depth", [None, 5])
def test_links_of_both_pods_are_counted_whether_they_are_new_or_known(pods: Pods, max_depth: int | None) -> None:
    frontier = pods.open(CrawlLimits(max_depth=max_depth))
    links = [PageLinks(f"https://{host}", [f"https://{host}/{page}" for page in range(3)], 2, 0) for host in THERE[:2]]
    links.insert(1, PageLinks(f"https://{HERE[0]}", [f"https://{HERE[0]}/1"], 2, 0))
    counts = []
    for _ in range(2):
        admission = frontier.queue.admit_links(1, links)
        counts.append((admission.new, admission.duplicates))
    assert counts == [(7, 0), (0, 7)]
    nearer = frontier.queue.admit_links(1, [PageLinks(links[0].origin, links[0].urls, 1, 0)])
    assert (nearer.new, nearer.duplicates) == ((0, 3) if max_depth is None else (3, 0))
    assert [one.url for one in sent(frontier)][:6] == [*links[0].urls, *links[2].urls]


def test_a_message_of_several_crawls_is_taken_in_but_for_those_that_have_ended(pods: Pods) -> None:
    frontier = pods.open()
    message = PodMessage([], [], [], [], {7: "ended", 8: "test"})
    for crawl in (7, 8):
        message.add(crawl, Found(f"https://{HERE[0]}/hop", 1, 5, 1, about="https://x/"))
        message.add(crawl, Found(f"https://{HERE[1]}/robots.txt", 0, 5, 1, Purpose.ROBOTS, f"https://{THERE[0]}"))
    received = frontier.inbox.receive(1, 1, encode_message(message))
    assert received is not None
    assert [(crawl, count) for crawl, count, _ in received.admissions] == [(1, 1), (1, 0)]
    assert frontier.status.stats().queued == 2


def test_a_robots_txt_for_a_crawl_that_is_not_opened_again_hides_none_of_another(pods: Pods) -> None:
    frontier = pods.open()
    other = frontier.crawls.open_crawl("other", CrawlLimits())
    for crawl, host, about in ((other, HERE[0], THERE[0]), (1, HERE[1], THERE[1])):
        frontier.queue.admit(crawl, [Found(f"https://{host}/robots.txt", 0, 5, 1, Purpose.ROBOTS, f"https://{about}")])
    frontier = pods.open()
    assert [lease.url for lease in frontier.leases.claim("me", 9)] == [f"https://{HERE[1]}/robots.txt"]


def test_links_from_another_pod_are_held_to_the_robots_txt_of_their_origin(pods: Pods) -> None:
    frontier, origin = pods.open(), f"https://{HERE[0]}"
    frontier.sites.robots_known(origin, RobotsRecord("ok", b"", 9e12), None)
    frontier.queue.forbids = lambda _crawl, _record, of, found: {url: "rule" for url in found if url == of + "/no"}
    message = PodMessage([], [], [], [], {1: "test"})
    for path in ("/no", "/yes"):
        message.add(1, Found(origin + path, 1, 5))
    assert frontier.inbox.receive(1, 1, encode_message(message)) is not None
    assert [item.url for item in frontier.queue.items(1)] == [origin + "/yes"]
    assert [one.item.url for one in frontier.rejected.rejections()] == [origin + "/no"]


@pytest.mark.parametrize("hops", [0, 1])
def test_what_comes_to_the_wrong_pod_is_told_where_that_is_checked(
    pods: Pods, caplog: pytest.LogCaptureFixture, hops: int
) -> None:
    frontier = pods.open()
    for number, checks in enumerate((False, True), 1):
        frontier.pods._checks_ownership = checks
        message = PodMessage([], [], [], [], {1: "test"})
        for host in (HERE[0], THERE[0]):
            message.add(1, Found(f"https://{host}/{number}", 1, 5, hops))
        assert frontier.inbox.receive(1, number, encode_message(message)) is not None
        told = [record for record in caplog.records if record.getMessage() == "a URL went to the wrong pod"]
        assert [record.fields["url"] for record in told] == [f"https://{THERE[0]}/2"] * checks  # type: ignore[attr-defined]
