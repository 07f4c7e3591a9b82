"""Checks for settings that contradict each other, and for values that are wrong in a way that no type expresses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any
from urllib.parse import urlsplit

from weft.config.crawl import VIEWPORT
from weft.config.masking import without_login
from weft.config.pods import PodSpec, numbers
from weft.config.tree import BLOOM_KEYS, was_given
from weft.errors import BadInput, Missing
from weft.patterns import BadPattern, compile_url_pattern, is_url_pattern

MOST_ACTIONS = 50
# The actions on a page before it is read, with the fields that each needs.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "wait": (), "click": ("selector",), "write": ("text",), "press": ("key",), "scroll": (),
    "select": ("selector", "value"), "screenshot": (), "pdf": (), "executeJavascript": ("script",),
}  # fmt: skip


def contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The problems of a crawl's settings: each as (key, message)."""
    if values["lease_seconds"] <= values["total_timeout"]:
        yield "lease_seconds", f"must be more than total_timeout ({values['total_timeout']:g})"
    if values["resume"] and values["fresh"]:
        yield "fresh", "cannot be combined with resume: either continue or start over"
    if values["start_or_resume"] and values["fresh"]:
        yield "fresh", "cannot be combined with start_or_resume, which never deletes a crawl"
    if values["ignore_robots"] and not values["allow_private"]:
        yield "ignore_robots", "is for loopback and private addresses alone: set `allow_private=True`, too"
    for name in ("retry_failed", "recrawl"):
        if values[name] and not values["resume"]:
            yield name, "works on resume alone: set `resume=True`, too"
    yield from _list_contradictions(values)
    yield from _pod_contradictions(values, origins)
    yield from _header_contradictions(values)
    yield from _host_contradictions(values)
    yield from _render_contradictions(values)
    yield from _worker_contradictions(values, "workers")
    if values["logins"]:
        yield from _logins_contradictions(values["logins"])
    if values["login"]:
        yield from _login_contradictions(values)
    if values["render"] != "never" and values["politeness_scope"] == "ip":
        yield "render", "a browser's requests are not counted by address: use politeness_scope domain or host"


def _worker_contradictions(values: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    if values[name] == "local":
        return
    if values["proxies"] is not None and "scope" in values:
        yield name, "workers do not go through proxies: leave out one of the two"
    if values.get("politeness_scope") == "ip":
        yield name, "workers look addresses up for themselves: use politeness_scope domain or host"
    if values.get("pods"):
        yield name, "pods on Redis ask for their pages themselves: use `num_pods`, or leave workers at local"
    if not values["broker"]:
        yield name, "workers are reached through a broker: give its address, `broker`"
    if not values["cluster_key"] and not values["cluster_key_file"]:
        yield name, "workers need the cluster's key, `cluster_key_file`: `weft cluster init` makes one"


def service_contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """The problems of the scrape service's settings: each as (key, message)."""
    yield from _header_contradictions(values)
    yield from _open_credentials(values)
    yield from _host_contradictions(values)
    yield from _render_contradictions(values)
    if values["logins"]:
        yield from _logins_contradictions(values["logins"])
    yield from _worker_contradictions(values, "task_workers")
    for name in ("data_dir", "host"):
        if not values[name].strip():
            yield name, "is empty: write a value, or leave it out"


def _login_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from weft.logins import read_login  # imported here: most crawls have no login

    try:
        read_login(values["login"])  # whether a login of that name exists is checked when the crawl starts
    except BadInput as error:
        yield "login", str(error)
    if values["cookies"] == "off":
        yield "login", "a session is a cookie: leave `cookies` at jar"
    if values["pods"]:
        yield "login", "does not work with pods on Redis, whose server would hold the session: use `num_pods`"


def _logins_contradictions(logins: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from weft.logins import login_of

    for name in logins:
        try:
            login_of({"name": name}, logins)
        except BadInput as error:
            yield "logins", f"{name}: {error}"


def _host_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for host, address in values["resolve"].items():
        if not host.strip():
            yield "resolve", f"a host is missing before {address!r}: write `resolve={{'HOST': 'ADDRESS'}}`"
        elif not _is_address(address):
            yield "resolve", f"{host}: {address!r} is not an IP address"
    for pattern in values["accept"]:
        if not re.fullmatch(r"text|html|xml|json|pdf|[^\s/;,]+/[^\s/;,]+", pattern):
            known = "text, html, xml, json or pdf"
            yield (
                "accept",
                f"{pattern!r} is not a content type: write {known}, a glob as image/*, or */* for everything",
            )
    yield from _name_server_contradictions(values["dns_servers"])
    yield from _proxy_contradictions(values)


def _render_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not re.fullmatch("none|viewport|full|css:.+", values["render_screenshot"]):
        yield "render_screenshot", "use none, viewport, full, or css:SELECTOR for an element"
    if not re.fullmatch("[1-9][0-9]{1,3}x[1-9][0-9]{1,3}", values["render_viewport"]):
        yield "render_viewport", f"use WIDTHxHEIGHT in pixels, as {VIEWPORT}"
    given = [
        name
        for name in ("render_wait_for", "render_scrolls", "render_mobile", "render_pdf", "render_actions")
        if values[name]
    ]
    given += ["render_screenshot"] if values["render_screenshot"] != "none" else []
    given += ["render_viewport"] if values["render_viewport"] != VIEWPORT else []
    if values["render"] == "never":
        for name in given:
            yield name, "pages are not rendered: set render to auto or always, too"
    # a service's tasks choose between proxies and a browser, so only crawls are checked
    elif values["proxies"] is not None and "scope" in values:
        yield "render", "browsers do not go through proxies: leave out one of the two"
    for number, action in enumerate(values["render_actions"], 1):
        if why := wrong_action(action):
            yield "render_actions", f"action {number}: {why}"
    if len(values["render_actions"]) > MOST_ACTIONS:
        yield "render_actions", f"has {len(values['render_actions'])} actions: {MOST_ACTIONS} at most"


def wrong_action(action: Mapping[str, Any]) -> str:
    """What is wrong with an action on a page; empty if it is valid."""
    kind = str(action.get("type"))
    if kind not in ACTIONS:
        return f"{kind!r} is none of {', '.join(ACTIONS)}"
    if kind == "wait" and "milliseconds" not in action:
        return "" if isinstance(action.get("selector"), str) else "needs `milliseconds` or `selector`"
    for name in ACTIONS[kind]:
        is_good = isinstance(action.get(name), int) if name == "milliseconds" else isinstance(action.get(name), str)
        if not is_good:
            return f"needs `{name}`"
    return ""


def _proxy_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("proxy_sticky", "proxy_apart", "direct_fallback"):
        if values[name] and values["proxies"] is None and not values["proxy_sources"]:
            yield name, "there are no proxies: give a file of them, `proxies=FILE`"
    if values["proxy_sources"] and values["proxy_test_url"] is None:
        yield "proxy_sources", "are collected and tested: give the page to test them with, `proxy_test_url=URL`"
    for name in ("proxy_test_url", "proxy_test_tls_url"):
        if values[name] is not None and (why := wrong_test_url(values[name], needs_tls="tls" in name)):
            yield name, why


def wrong_test_url(url: str, *, needs_tls: bool = False) -> str:
    """Why a page cannot be used to test proxies; empty if it can."""
    schemes = "https" if needs_tls else "https?"
    if not re.match(schemes + r"://[^/\s]", url):
        return f"{url!r} is not a URL that begins with {schemes.replace('?', ':// or http')}://"
    if "@" in url.split("/", 3)[2]:
        return "has a login, which would be sent through every proxy: give a page that needs none"
    return ""


def _name_server_contradictions(servers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if "system" in servers and len(servers) > 1:
        yield "dns_servers", "`system` cannot be combined with others: the C library has its own name servers"
    for server in servers:
        if server != "system" and not _is_server(server):
            yield "dns_servers", f"{server!r} is not a name server: write its address, 192.0.2.1, or 192.0.2.1:53"


def _is_server(text: str) -> bool:
    """Whether a text is an IP address, with or without a port; an IPv6 address with a port is in brackets."""
    match = re.fullmatch(r"\[(.*)\](?::(\d+))?|([^:]*)(?::(\d+))?|(.*)", text)
    if match is None:
        return False
    inside, port, plain, other_port, bare = match.groups()
    number = int(port or other_port or 53)
    return _is_address(inside or plain or bare or "") and 0 < number < 65536


def _list_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("include", "exclude"):
        for pattern in values[name]:
            try:
                if is_url_pattern(pattern):
                    compile_url_pattern(pattern)
                elif pattern.startswith("re:"):
                    re.compile(pattern.removeprefix("re:"))
            except (re.error, OverflowError, RecursionError, BadPattern) as error:
                yield name, f"{pattern!r} is not a regular expression: {error}"
            except Missing as error:
                yield name, f"{pattern!r} cannot be used: {error}"
    for name in ("data_dirs", "store", "include", "exclude", "strip_query"):
        listed = values[name]
        if not all(listed):
            yield name, "holds an empty text: write a value, or leave it out"
        if name in ("data_dirs", "store"):
            first = [os.path.normpath(one) for one in listed]
            if again := next((one for at, one in enumerate(listed) if first[at] in first[:at]), None):
                yield name, f"{again!r} is listed twice"


def _header_contradictions(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Checks values that are sent in a header with every request."""
    template = values["user_agent_template"]
    try:
        fields = {(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template)}
    except ValueError as error:
        yield "user_agent_template", f"only {{version}} and {{email}} are allowed in braces ({error})"
    else:
        for name, spec, conversion in fields:
            if name is not None and (name not in ("version", "email") or spec or conversion):
                yield "user_agent_template", f"only {{version}} and {{email}} are allowed in braces, not {name!r}"
    if values["email"] and not re.fullmatch(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)*", values["email"]):
        yield "email", f"{values['email']!r} is not an e-mail address: write one like you@example.com"
    for name in ("user_agent_template", "email"):
        if re.search(r"[\r\n\0]", values[name] or ""):
            yield name, f"{values[name]!r} cannot be sent in a header: it has a line break in it"
    if values["headers"] or values["auth"]:
        yield from _credential_contradictions(values["headers"], values["auth"])


def _credential_contradictions(headers: Mapping[str, str], logins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    from weft.credentials import split_name, wrong_header, wrong_host  # imported here: most crawls have no credentials

    names = set[tuple[str, ...]]()
    for key, value in headers.items():
        if why := wrong_header(key, value):
            yield "headers", why
        elif (name := tuple(part.lower() for part in split_name(key))) in names:
            yield "headers", f"{key!r} is given twice; write one header with both values"
        else:
            names.add(name)
    for host, login in logins.items():
        if ":" not in login:
            yield "auth", f"{host}: write user:password"
        elif why := wrong_host(host):
            yield "auth", why


def _open_credentials(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The service's credentials must name a host: callers choose the seeds, and could have the credentials sent
    anywhere."""
    if not values["headers"]:
        return
    from weft.credentials import without_host

    for name in without_host(values["headers"]):
        yield "headers", f"{name!r} may be a credential, and tasks choose their own URLs: name its host, 'HOST:{name}'"


def _pod_contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    pods: tuple[PodSpec, ...] = values["pods"]
    for number, pod in enumerate(pods):
        if bool(pod.redis_url) == pod.managed:
            yield "pods", f"pod {number}: write either redis_url: redis://HOST:PORT/DB or managed: true"
        elif pod.redis_url and not _is_redis_url(pod.redis_url):
            yield "pods", f"pod {number}: {_no_redis_url(pod.redis_url)}"
    if pods and values["num_pods"] > len(pods):
        yield "num_pods", f"is {values['num_pods']}, but pods lists {len(pods)}: list as many, or leave num_pods out"
    if values["parse_queue_soft_limit"] > values["parse_queue_hard_limit"]:
        yield "parse_queue_soft_limit", f"must not be above parse_queue_hard_limit ({values['parse_queue_hard_limit']})"
    for name in BLOOM_KEYS if pods and values["seen_filter"] == "exact" else ():
        if was_given(origins, name):
            exact = f"seen_filter is exact ({origins['seen_filter']}), which has no use for it"
            yield name, f"{exact}: leave one of them out, or set seen_filter: bloom"
    if not pods:
        yield from _embedded_contradictions(values, origins)
    if values["only_pods"] is None:
        return
    try:
        last = numbers(values["only_pods"])[-1]
    except ValueError:
        yield "only_pods", f"{values['only_pods']!r} names no pods; write 0-3, or 0,2"
        return
    if not pods:
        yield "only_pods", "works with Redis pods alone: embedded ones are all on one machine"
    elif last >= values["num_pods"]:
        yield "only_pods", f"there is no pod {last}: there are {values['num_pods']}, counted from 0"


def _embedded_contradictions(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if values["num_pods"] > 1 and values["politeness_scope"] == "ip":
        # An address may serve domains of several pods, and embedded pods do not know each other's requests.
        yield "politeness_scope", "`ip` needs one embedded pod, or Redis pods (`pods`): use those, or domain or host"
    if values["fetchers_per_pod"] != 1:
        yield "fetchers_per_pod", "an embedded pod is one process: use num_pods for more, or Redis pods"
    if values["parsers_per_pod"]:
        yield "parsers_per_pod", "an embedded pod parses in its one process: leave it 0, or use Redis pods"
    if values["seen_filter"] != "exact":
        yield "seen_filter", "bloom works with Redis pods alone; embedded ones are exact"
    for name in BLOOM_KEYS:
        if was_given(origins, name):
            yield name, "embedded pods are exact, and have no use for it: leave it out, or use Redis pods (`pods`)"


def _is_redis_url(text: str) -> bool:
    scheme, mark, _ = text.partition("://")
    try:
        urlsplit(text).port  # noqa: B018 (it raises where the port is no number)
    except ValueError:
        return False
    return bool(mark) and scheme in ("redis", "rediss", "unix")


def _no_redis_url(text: str) -> str:
    more = f". For {text} embedded pods: `num_pods={text}`" if text.isdecimal() else ""
    must = "must begin with redis://, rediss:// or unix://, as in redis://HOST:PORT/DB, or be managed"
    return f"{without_login(text)!r} is not a Redis URL: it {must}{more}"


def _is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        return bool(ip_address(text))
    except ValueError:
        return False
