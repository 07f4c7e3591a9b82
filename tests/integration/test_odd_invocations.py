"""What people type wrongly, over every command: each ends in one clear message and exit code 2, and writes nothing.

In this process, through the door that `weft` itself takes; test_door.py starts real ones.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from weft.cli.main import run

URL = "http://127.0.0.1:9/"
CRAWL = f"crawl {URL} --allow-private --prometheus-port 0"

FLAGS = [
    ("--delay x", "--delay: 'x' is not accepted; use a number from 0 up"),
    ("--politeness-delay-seconds x", "--delay: 'x' is not accepted"),
    ("--delay nan", "--delay"),
    ("--max-pages 1.5", "--max-pages: '1.5' is not accepted; use a whole number from 1 up"),
    ("--max-pages ''", "--max-pages: '' is not accepted"),
    ("--num-pods 0", "use a whole number from 1 to 256"),
    ("--body-memory-bytes 5", "use a whole number from 1,048,576 to 1,099,511,627,776"),
    ("--num-pods 257", "use a whole number from 1 to 256"),
    ("--bloom-filter-error-rate 2", "use a number above 0 and below 1"),
    ("--bloom-filter-capacity 5", "embedded pods are exact, and have no use for it"),
    ("--seen-filter bloom", "bloom works with Redis pods alone"),
    ("--pods managed --seen-filter exact --bloom-filter-capacity 5", "seen_filter is exact (--seen-filter)"),
    ("--pods 4", "as in redis://HOST:PORT/DB, or be managed. For 4 embedded pods: --num-pods 4"),
    ("--pods localhost:6379", "pod 0: 'localhost:6379' is not a Redis URL"),
    ("--pods redis://127.0.0.1:1,redis://127.0.0.1:2", "pod 0: redis://127.0.0.1:1/0: refuses the connection"),
    ("--pods redis://h:port", "'redis://h:port' is not a Redis URL"),
    ("--pods managed,managed --num-pods 3", "--num-pods: is 3, but pods lists 2: list as many"),
    ("--pods managed,managed --num-pods 1 --only-pods 1", "there is no pod 1: there are 1"),
    ("--only-pods 0", "works with Redis pods alone"),
    ("--only-pods x --pods managed", "'x' names no pods; write 0-3, or 0,2"),
    ("--only-pods 3-1 --pods managed", "names no pods"),
    ("--only-pods '' --pods managed", "names no pods"),
    ("--fetchers-per-pod 2", "an embedded pod is one process"),
    ("--parsers-per-pod 2", "parses in its one process"),
    ("--politeness-scope ip --num-pods 2", "`ip` needs one embedded pod"),
    ("--data-dir ''", "--data-dir: "),
    ("--data-dir a,./a", "--data-dir: './a' is listed twice"),
    ("--data-dir a --data-dir a", "is listed twice"),
    ("--store papyrus", "--store: ['papyrus'] is not accepted; use a list of text, warc"),
    ("--store text,papyrus", "use a list of text, warc"),
    ("--store ,", "use a list of text, warc"),
    ("./no-such-file.txt", "'./no-such-file.txt': a path, not a URL"),
    ("/etc/hosts", "/etc/hosts is a file, not a URL: if it lists URLs, one a line, use --seed-file"),
    ("/etc", "/etc is a folder, not a URL: a crawl in it is continued with --resume --data-dir"),
    ("--header X", "--header: 'X' has no value: write --header NAME=VALUE"),
    ("--header Authorization:secret", "--header: 'Authorization' has no value: write --header NAME=VALUE"),
    ("--header Cookie:a=b", "write Cookie=VALUE, or HOST:Cookie=VALUE"),
    ("--email notanemail", "--email: 'notanemail' is not an e-mail address: write one like you@example.com"),
    ("--email 'me @example.com'", "is not an e-mail address"),
    ("--render-js", "'--render-js'; here it is '--render'"),
    ("--respect-robots", "'--respect-robots'; robots.txt is always obeyed: leave it out"),
    ("--timeout 3", "'--timeout'; here it is '--total-timeout'"),
    ("--frontier-batch-size 3", "leave it out"),
    ("--qqqqqq 3", "'--qqqqqq'; `weft crawl --help-all` lists the known ones"),
    ("--header =v", "'' is not a header that can be sent"),
    ("--auth example.com", "--auth: 'example.com' has no value"),
    ("--auth example.com=me", "example.com: write user:password"),
    ("--resolve a=b", "'b' is not an IP address"),
    ("--resolve =127.0.0.1", "a host is missing"),
    ("--include re:(", "is not a regular expression"),
    ("--include '*/a/*,re:('", "'re:(' is not a regular expression"),
    ("--user-agent-template {x", "only {version} and {email} are allowed in braces"),
    ("--user-agent-template {version.__class__}", "only {version} and {email} are allowed in braces"),
    ("--email $'a\\nb'", "cannot be sent in a header"),
    ("--cookies maybe", "use one of jar, off"),
    ("--log-level LOUD", "use one of DEBUG, ERROR, INFO, WARNING"),
    ("--prometheus-port 70000", "use a whole number from 0 to 65,535"),
    ("--lease-seconds 1", "must be more than total_timeout (60)"),
    ("--parse-queue-soft-limit 9 --parse-queue-hard-limit 8", "must not be above parse_queue_hard_limit (8)"),
    ("--config nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
    ("--config /dev/zero", "/dev/zero: is longer than 16 MiB"),
    ("--seed-file /dev/zero", "/dev/zero: is not text"),
    ("--seed-file /dev/null", "/dev/null: has no URL"),
    ("--exclude-file /dev/zero", "exclude_file /dev/zero"),
    ("--resume", "holds no crawl"),
    ("--resume --fresh", "either continue or start over"),
    ("--retry-failed", "works on resume alone"),
    ("--recrawl", "works on resume alone"),
    ("--max_pages 3", "no such option '--max_pages'; the flag is '--max-pages'"),
    ("--max-page 3", "no such option '--max-page'; did you mean '--max-pages'?"),
    ("--no-progres", "did you mean '--no-progress'?"),
    ("--qqqqq", "`weft crawl --help-all` lists the known ones"),
    ("--allow-private=true", "does not take a value"),
    ("--scope", "requires an argument"),
    # names of others
    ("--redis-pods 4", "here it is '--pods'"),
    ("--redis-host localhost", "here it is '--pods'"),
    ("--override-max-pages 3", "here it is '--max-pages'"),
    ("--override-fetcher-workers 3", "here it is '--fetcher-workers'"),
    ("--num-fetcher-processes 3", "here it is '--fetchers-per-pod'"),
    ("--http-timeout-seconds 3", "here it is '--total-timeout'"),
    ("--http-max-retries 3", "here it is '--max-retries'"),
    ("--max-content-length 3", "here it is '--max-body-bytes'"),
    ("--extract-text", "here it is '--store'"),
    ("--store-raw-html", "here it is '--store'"),
    ("--enable-prometheus", "here it is '--prometheus-port'; 0 turns the endpoint off"),
    ("--cores-per-pod 8", "it is computed"),
    ("--global-coordination-redis-pod 0", "pod 0 always coordinates"),
    ("--global-metrics-update-interval 5", "here it is '--metrics-update-seconds'"),
]

COMMANDS = [
    ("", "Usage: weft"),
    ("crwl", "Did you mean 'crawl'?"),
    ("-x", "no such option"),
    ("crawl", "no seeds: give URLs"),
    ("crawl http://", "the host is missing"),
    ("run --scrapy x.py -a novalue", "-a: 'novalue' has no value: write -a NAME=VALUE"),
    ("crawl https://example.com/", "--email you@example.com"),
    ("config", "Usage: weft config"),
    ("config chek", "no such command 'chek'"),
    ("config check", "missing argument 'FILE'"),
    ("config check nowhere.yaml", "cannot be read: No such file"),
    ("config check .", "cannot be read: Is a directory"),
    ("config check /dev/zero", "is longer than 16 MiB"),
    ("config show delya", "no key 'delya'; did you mean 'politeness_delay_seconds'?"),
    ("config show http_timeout_seconds", "no key 'http_timeout_seconds'; here it is 'total_timeout'"),
    ("config show --config nowhere.yaml", "cannot be read"),
    ("stats nowhere", "nowhere holds no crawl: start one there first\n      weft crawl URL --data-dir nowhere"),
    ("stats", "missing argument"),
    ("get nowhere http://h.test/", "nowhere holds no crawl"),
    ("get nowhere", "missing argument"),
    ("export nowhere --format jsonl --out -", "nowhere holds no crawl"),
    ("export nowhere --format xml --out -", "--format: 'xml' is not accepted; use one of jsonl, json, csv"),
    ("export nowhere", "missing option"),
    ("explain nowhere http://h.test/", "nowhere holds no crawl"),
    ("explain nowhere http://h.test/ --data-dir a,b", "nowhere holds no crawl"),
    ("audit nowhere", "nowhere holds no crawl"),
    ("rebuild nowhere", "nowhere holds no crawl"),
    ("watch nowhere", "nowhere holds no crawl"),
    ("url ''", "the URL is empty"),
    ("url a --pods 0", "--pods"),
    ("completion tcsh", "shell: 'tcsh' is not accepted; use one of bash, zsh, fish"),
    ("web --hosts 0", "hosts must be 1 or more"),
    ("web --port 99999", "port must be from 0 to 65535"),
    ("web --latency nan", "must be numbers from 0 up"),
    ("web --duration inf", "must be numbers from 0 up"),
    ("web --seeds nowhere/x --duration 0 --port 0", "nowhere/x: No such file"),
    ("web --crawl-config x", "give --expected FILE too"),
    ("demo --hosts 0", "--hosts"),
    ("pool run nowhere --items x", "'nowhere' does not name a function"),
    ("pool run os --items /dev/null", "'os' does not name a function"),
    ("pool replay nowhere x", "nowhere"),
]

VARIABLES = [
    ("WEFT_DELAY", "soon", "WEFT_DELAY: 'soon' is not accepted; use a number from 0 up"),
    ("WEFT_DELLAY", "0", "WEFT_DELLAY names no key; did you mean 'WEFT_DELAY'?"),
    ("WEFT_MAX_PAGE", "3", "did you mean 'WEFT_MAX_PAGES'?"),
    ("WEFT_CONFIG", "x.yaml", "WEFT_CONFIG names no key; give the file as --config FILE"),
    ("WEFT_REDIS_HOST", "h", "here it is 'WEFT_PODS'"),
    ("WEFT_OVERRIDE_MAX_PAGES", "3", "here it is 'WEFT_MAX_PAGES'"),
    ("WEFT_EXTRACT_TEXT", "1", "here it is 'WEFT_STORE'"),
    ("WEFT_PODS", "4", "pod 0: '4' is not a Redis URL"),
    ("WEFT_HEADERS", "X=1", "WEFT_HEADERS: *** is not accepted; use a mapping of texts, like {NAME: VALUE}"),
    ("WEFT_RESOLVE", "{h: [1]}", "use a mapping of texts"),
    ("WEFT_RESOLVE", "{h: ", "use a mapping of texts"),
    ("WEFT_RESUME", "perhaps", "use true or false"),
    ("WEFT_BLOOM_FILTER_CAPACITY", "10", "embedded pods are exact"),
    ("WEFT_DEBUG_POD_ASSIGNMENT", "maybe", "'maybe' is not accepted; use true or false"),
]

FILES = [
    ("delay: 1", "F:1: unknown key 'delay'; the key is 'politeness_delay_seconds'"),
    ("num_pods: 3\npods: [managed]", "F:1: num_pods: is 3, but pods lists 1"),
    ("pods: [{host: a, port: 1}]", "use a list of pods, each `redis_url: redis://HOST:PORT/DB` or `managed: true`"),
    ("pods: [{redis_url: 'http://a'}]", "pod 0: 'http://a' is not a Redis URL"),
    ("pods: 3", "use a list of pods"),
    ("seen_filter: exact\nbloom_filter_capacity: 5\npods: [managed]", "F:2: bloom_filter_capacity: seen_filter is"),
    ("bloom_filter_capacity: 5", "F:1: bloom_filter_capacity: embedded pods are exact"),
    ("data_dirs: ['']", "F:1: data_dirs: holds an empty text"),
    ("data_dirs: a, a", "F:1: data_dirs: 'a' is listed twice"),
    ("store: [text, text]", "F:1: store: 'text' is listed twice"),
    ("include: {a: b}", "F:1: include: {'a': 'b'} is not accepted; use a list of texts"),
    ("http_max_retries: 3\nmax_content_length: 3", "F:2: unknown key 'max_content_length'; here it is"),
    ("enable_prometheus: false", "here it is 'prometheus_port'; 0 turns the endpoint off"),
    ("redis:\n  host: a", "F:1: unknown key 'redis'; here it is 'pods'"),
    ("max_pages: !!python/name:os.system x", "could not determine a constructor"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without Weft's variables."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WEFT_")]:
        monkeypatch.delenv(name)


def check(arguments: str, says: str, capfd: pytest.CaptureFixture[str], left: tuple[str, ...] = ()) -> None:
    words = [word.replace("\\n", "\n").removeprefix("$") if "\\n" in word else word for word in shlex.split(arguments)]
    assert run(words) == 2
    said = capfd.readouterr()
    assert says in said.err + (said.out if not words else ""), said.err
    assert "Traceback" not in said.err and "internal error" not in said.err and "secret" not in said.err
    assert words == [] or said.out == "" or "Usage:" in said.out
    assert sorted(path.name for path in Path().iterdir()) == sorted(left)


@pytest.mark.parametrize(("flags", "says"), FLAGS)
def test_a_flag(flags: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    check(f"{CRAWL} {flags}", says, capfd)


@pytest.mark.parametrize(("arguments", "says"), COMMANDS)
def test_a_command(arguments: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    check(arguments, says, capfd)


@pytest.mark.parametrize(("name", "value", "says"), VARIABLES)
def test_a_variable(
    name: str, value: str, says: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    check(CRAWL, says, capfd)
    check("config show", says, capfd)


@pytest.mark.parametrize(("text", "says"), FILES)
def test_a_file(text: str, says: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("F").write_text(text + "\n")
    check("config check F", says, capfd, left=("F",))
    check(f"{CRAWL} --config F", says, capfd, left=("F",))
