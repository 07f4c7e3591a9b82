"""A Scrapy spider in a parser child: what it is, what its callbacks give, and what is refused by its name."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from weft.engine.loop.fetcher.robots import RobotsBook
from weft.engine.user_code.calls import CLOSED, FAILURE, ITEMS, PAGE, START, Call, CallResult, Code, Description
from weft.engine.user_code.sources import SCRAPY_MAKER
from weft.errors import BadInput
from weft.frontier.contract import RobotsRecord, SitesPart
from weft.spiders.scrapy.runner import ScrapyRunner, make
from weft.spiders.scrapy.values import decode_value, encode_value

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
URL = "http://127.0.0.1:1/"


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Makes the runner of a spider: the body of its class, and what is before it."""
    count = 0

    def runner(body: str, before: str = "", arguments: dict[str, str] | None = None, **settings: str) -> ScrapyRunner:
        nonlocal count
        count += 1
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        file = tmp_path / f"spider_{tmp_path.name}_{count}.py"
        file.write_text(f'import scrapy\n{before}\n\nclass One(scrapy.Spider):\n    name = "one"\n{lines}\n')
        return make(Code(SCRAPY_MAKER, str(file), arguments=arguments or {}, settings=settings))

    return runner


def started(runner: ScrapyRunner, skip: int = 0, most: int = 10) -> CallResult:
    return runner.run(Call(START, skip=skip, most=most), None, b"")


def page_of(result: CallResult, at: int = 0, kind: str = PAGE, status: int = 200, **more: Any) -> Call:
    """The call for the answer to a request."""
    one = result.requests[at]
    return Call(kind, one.spec, one.url, status=status, head=HEAD, **more)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"DOWNLOADER_MIDDLEWARES": {"mine.Proxies": 100}}, "DOWNLOADER_MIDDLEWARES: mine.Proxies"),
        ({"SPIDER_MIDDLEWARES": {"mine.Depth": 100}}, "SPIDER_MIDDLEWARES: mine.Depth"),
        ({"EXTENSIONS": {"mine.Status": 100}}, "EXTENSIONS: mine.Status"),
        ({"DOWNLOAD_HANDLERS": {"https": "scrapy_playwright.Handler"}}, "a handler for https"),
        ({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, "SCHEDULER"),
        ({"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"}, "dont_filter=True"),
        ({"HTTPCACHE_ENABLED": True}, "weft extract"),
        ({"ADDONS": {"mine.Addon": 0}}, "ADDONS"),
        ({"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": "x"}, "FilesPipeline"),
        ({"ITEM_PIPELINES": {"no.such.Pipeline": 1}}, "no.such.Pipeline cannot be imported"),
        ({"CLOSESPIDER_TIMEOUT_NO_ITEM": 5}, "CLOSESPIDER_TIMEOUT_NO_ITEM"),
        ({"ROBOTSTXT_OBEY": False}, "example.com is no private host"),
        ({"FEEDS": {"s3://bucket/x.json": {}}}, "not s3"),
        ({"FEEDS": {"x.pickle": {}}}, "the format 'pickle'"),
        ({"FEEDS": {"x.json": {"batch_item_count": 3}}}, "batch_item_count"),
    ],
)  # fmt: skip
def test_a_setting_that_is_not_supported_is_refused_by_its_name(made: Any, settings: Any, named: str) -> None:
    runner = made(f"start_urls = ['http://example.com/']\ncustom_settings = {settings!r}")
    with pytest.raises(BadInput, match="from-scrapy") as refused:
        runner.describe()
    assert named in str(refused.value)


def test_settings_are_mapped(made: Any) -> None:
    settings = {
        "DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS_PER_DOMAIN": 3, "DEPTH_LIMIT": 2, "USER_AGENT": "bot {x}",
        "RETRY_TIMES": 1,        "CLOSESPIDER_PAGECOUNT": 10, "CLOSESPIDER_ITEMCOUNT": 20,
        "CLOSESPIDER_TIMEOUT": 30, "CLOSESPIDER_ERRORCOUNT": 4, "COOKIES_ENABLED": False, "DOWNLOAD_TIMEOUT": 100,
        "MINE": "own", "LOG_LEVEL": "INFO",
        "AUTOTHROTTLE_ENABLED": True,
        "DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.retry.RetryMiddleware": None},
    }  # fmt: skip
    described: Description = made(f"start_urls = ['{URL}']\ncustom_settings = {settings!r}").describe()
    assert described.settings == {
        "accept": ["*/*"], "delay": 0.25, "per_domain_concurrency": 3, "max_depth": 2,
        "user_agent_template": "bot {{x}}", "max_retries": 1, "max_pages": 10, "max_items": 20, "max_duration": 30.0,
        "max_callback_errors": 4,
        "cookies": "off",        "total_timeout": 100.0, "read_timeout": 100.0, "lease_seconds": 130.0,
    }  # fmt: skip
    assert described.notes == ["without effect in Weft: AUTOTHROTTLE_ENABLED (docs/from-scrapy.md)"]


@pytest.mark.parametrize("host", ["example.com", "10.1.2.3", "localhost"])
def test_robots_txt_may_be_disregarded_on_private_hosts_alone(made: Any, host: str) -> None:
    runner = made(f"start_urls = ['http://{host}/']", ROBOTSTXT_OBEY="False", DOWNLOAD_DELAY="0")
    if host == "example.com":
        with pytest.raises(BadInput, match="ROBOTSTXT_OBEY"):
            runner.describe()
    else:
        described = runner.describe()
        assert not described.obeys_private_robots
        assert (described.settings["delay"], described.least_public_delay_s) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("origin", "text", "wanted"),
    [
        ("http://127.0.0.1:8080", "", None),
        ("http://192.168.1.2", "Crawl-delay: 3", 3.0),
        ("https://example.com", "", 1.0),
        ("https://example.com", "Crawl-delay: 0.2", 1.0),
        ("https://example.com", "Crawl-delay: 3", 3.0),
    ],
)
def test_a_short_delay_of_the_spider_holds_on_private_hosts_alone(origin: str, text: str, wanted: float | None) -> None:
    told: list[float | None] = []

    class Sites:
        def robots_known(self, _origin: str, _record: RobotsRecord, crawl_delay_s: float | None) -> None:
            told.append(crawl_delay_s)

    book = RobotsBook(cast(SitesPart, Sites()), "Weft/1", least_public_delay_s=1.0)
    book.store_record(origin, RobotsRecord("ok", f"User-agent: *\n{text}\n".encode(), 0.0))
    assert told == [wanted]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("1 +", "cannot be imported: SyntaxError"),
        ("x = 1", "has no spider of Scrapy's"),
        (
            "import scrapy\nclass A(scrapy.Spider):\n  name='a'\nclass B(scrapy.Spider):\n  name='b'",
            "has 2 spiders (A, B)",
        ),
    ],
)
def test_a_file_without_one_spider_is_refused(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "wrong.py").write_text(source)
    with pytest.raises(BadInput) as refused:
        make(Code(SCRAPY_MAKER, str(tmp_path / "wrong.py")))
    assert message in str(refused.value)
    with pytest.raises(BadInput, match="has no 'Other'" if message.startswith("has") else "cannot be imported"):
        make(Code(SCRAPY_MAKER, str(tmp_path / "wrong.py"), "Other"))


def test_start_is_continued_behind_the_requests_that_were_taken(made: Any) -> None:
    body = "async def start(self):\n    for n in range(5):\n        yield scrapy.Request(f'http://127.0.0.1/{n}')"
    runner = made(body)
    assert [one.url[-1] for one in started(runner, most=2).requests] == ["0", "1"]
    assert [one.url[-1] for one in started(runner, skip=2, most=2).requests] == ["2", "3"]
    again = started(made(body), skip=4)
    assert [one.url[-1] for one in again.requests] == ["4"]
    assert again.is_over


def test_start_requests_alone_is_enough(made: Any) -> None:
    runner = made("def start_requests(self):\n    return [scrapy.Request(self.url, self.two)]\ndef two(self, r): pass",
                  arguments={"url": URL})  # fmt: skip
    assert [(one.url, one.spec.callback) for one in started(runner).requests] == [(URL, "two")]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("scrapy.loader.ItemLoader(item={})", "meta['x'] cannot be kept: it is a ItemLoader"),
        ("[1, response]", "meta['x'][1] cannot be kept: it is a HtmlResponse"),
        ("response.css('p')", "meta['x']"),
        ("{'a': {'b': lambda: 1}}", "meta['x']['a']['b'] cannot be kept: a function"),
    ],
)
def test_what_meta_cannot_carry_is_named(made: Any, value: str, named: str) -> None:
    body = f"start_urls = ['{URL}']\ndef parse(self, response):\n    yield {{'lost': 1}}\n"
    body += f"    yield response.follow('/a', meta={{'x': {value}}})"
    runner = made(body, "import scrapy.loader")
    result = runner.run(page_of(started(runner)), None, b"<p>a</p>")
    assert named in result.error
    assert not result.items
    assert not result.requests


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("yield response.follow('/a', lambda r: 1)", "is no method of One"),
        ("yield 7", "a int was yielded"),
        ("self.crawler.engine.download(response.request)", "crawler.engine.download is not supported"),
        (
            "self.crawler.signals.connect(self.parse, scrapy.signals.spider_idle)",
            "the signal spider_idle is not supported",
        ),
        ("yield response.follow('/a', meta={'proxy': 'http://p'})", "meta['proxy'] is not supported"),
        ("yield {'x': object()}", "an item cannot be kept: 'x'"),
    ],
)
def test_what_a_callback_may_not_do_is_named(made: Any, body: str, message: str) -> None:
    runner = made(f"start_urls = ['{URL}']\ndef parse(self, response):\n    {body}", "import scrapy.signals")
    assert message in runner.run(page_of(started(runner)), None, b"<p>").error


@pytest.mark.parametrize("seconds", ["float('nan')", "float('inf')", "-1", "'5'"])
def test_a_timeout_that_is_no_number_of_seconds_costs_its_page(made: Any, seconds: str) -> None:
    request = f"scrapy.Request(r.url, meta={{'download_timeout': {seconds}}})"
    runner = made(f"start_urls = ['{URL}']\ndef parse(self, r):\n    yield {request}")
    assert "meta['download_timeout']" in (runner.run(page_of(started(runner)), None, b"").error or "")


def test_awaiting_a_deferred_is_refused(made: Any) -> None:
    runner = made(
        f"start_urls = ['{URL}']\nasync def parse(self, response):\n    await Deferred()",
        "from twisted.internet.defer import Deferred",
    )
    assert "Deferreds are not supported" in runner.run(page_of(started(runner)), None, b"").error


def test_a_failure_goes_to_the_errback_and_a_listed_status_to_the_callback(made: Any) -> None:
    runner = made(
        "handle_httpstatus_list = [404]\n"
        "async def start(self):\n    yield scrapy.Request(self.url, errback=self.failed, cb_kwargs={'n': 1})\n"
        "def parse(self, response, n):\n    yield {'status': response.status, 'n': n}\n"
        "def failed(self, failure):\n"
        "    yield {'why': type(failure.value).__name__, 'n': failure.request.cb_kwargs['n']}",
        arguments={"url": URL},
    )
    requests = started(runner)

    def items(status: int, error: str = "", detail: str = "") -> list[Any]:
        call = page_of(requests, 0, FAILURE, status, error=error, detail=detail)
        return [msgspec.json.decode(item) for item in runner.run(call, None, b"").items]

    assert items(404) == [{"status": 404, "n": 1}]
    assert items(500) == [{"why": "HttpError", "n": 1}]
    assert items(0, "timeout") == [{"why": "TimeoutError", "n": 1}]
    assert items(0, "dns") == [{"why": "DNSLookupError", "n": 1}]
    assert items(0, "robots", "Disallow: /") == [{"why": "IgnoreRequest", "n": 1}]
    assert items(0, "robots-unreachable", "dns: no such name") == [{"why": "DNSLookupError", "n": 1}]
    assert items(0, "protocol") == [{"why": "ConnectionLost", "n": 1}]


def test_pipelines_that_cannot_be_opened_say_so_and_process_nothing(made: Any) -> None:
    before = "class Broken:\n    def open_spider(self, spider):\n        raise OSError('no database')"
    runner = made(f"start_urls = ['{URL}']\ncustom_settings = {{'ITEM_PIPELINES': {{Broken: 1}}}}", before)
    result = runner.run(Call(ITEMS, items=[b'{"a": 1}']), None, b"")
    assert result.is_over
    assert "OSError" in result.error
    assert not result.processed


def test_items_reach_pipelines_with_their_classes_and_come_back_as_json(made: Any) -> None:
    before = (
        "import dataclasses, decimal\n@dataclasses.dataclass\nclass Thing:\n    price: decimal.Decimal\n"
        "class Doubled:\n    def process_item(self, item):\n        return Thing(2 * item.price)\n"
        "    def close_spider(self):\n        print('closed it')"
    )
    body = f"start_urls = ['{URL}']\ncustom_settings = {{'ITEM_PIPELINES': {{Doubled: 1}}}}\n"
    body += "def parse(self, r):\n    yield Thing(decimal.Decimal('1.5'))"
    runner = made(body, before)
    made_of_page = runner.run(page_of(started(runner)), None, b"")
    assert [msgspec.json.decode(one) for one in made_of_page.items] == [{"price": "1.5"}]
    processed = runner.run(Call(ITEMS, items=made_of_page.objects), None, b"").processed
    assert [msgspec.json.decode(one.item) for one in processed] == [{"price": "3.0"}]
    assert "closed it" in runner.run(Call(CLOSED, reason="done"), None, b"").printed


def test_state_is_saved_and_given_back(made: Any) -> None:
    body = f"start_urls = ['{URL}']\ndef parse(self, response):\n    self.state[(1, 2)] = self.state.get((1, 2), 0) + 1"
    first, second = made(body), made(body)
    state = first.run(page_of(started(first)), None, b"").state
    assert state is not None
    second.restore(state)
    again = second.run(page_of(started(second)), None, b"").state
    assert again is not None
    assert decode_value(bytes.fromhex(again.decode())) == {(1, 2): 2}


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1.5, 2**80, -(2**80), "ü", b"\0\xff", [1, [2]], (1, (2, "x")), {1, 2}, frozenset({"a"}),
        {"a": {1: b"x"}}, {"\0kind": "object"}, datetime.date(2024, 2, 29), datetime.datetime(2024, 1, 1, 12),
        datetime.time(1, 2),
        datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(1, 2, 3), Decimal("1.10"),
    ],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: object) -> None:
    back = decode_value(encode_value(value, "it"))
    assert back == value
    assert type(back) is type(value)


def test_a_class_that_is_not_loaded_is_not_made() -> None:
    data = msgspec.msgpack.encode({"\0kind": "object", "class": "subprocess:Popen", "value": {"args": "x"}})
    with pytest.raises(BadInput, match="subprocess:Popen, which is not there any more"):
        decode_value(data)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadInput, match="contains itself"):
        encode_value(endless, "meta")


def test_without_scrapy_one_line_says_how_to_install_it() -> None:
    script = (
        "import sys\nsys.modules['scrapy'] = None\n"
        "from weft.engine.user_code.calls import Code, Loading\n"
        "from weft.engine.user_code.describing import runner_of\n"
        "from weft.errors import Missing\n"
        f"try:\n    runner_of(Loading(Code({SCRAPY_MAKER!r}, 'x')))\nexcept Missing as missing:\n    print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith("scrapy is not installed: it comes with the extra 'scrapy': ")
    assert "weft[scrapy]" in line
