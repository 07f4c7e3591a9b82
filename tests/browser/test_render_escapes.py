"""Pages that request what they may not: nothing of it arrives anywhere."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
from browsing import missing
from escapes import END, Listeners, listeners
from pace import patience
from rendering import BrowserProcess, chromiums, profiles

from weft.fetch.browser.messages import PartQuestion, RenderedPage, RenderOptions


@pytest.fixture
def seen() -> Iterator[Listeners]:
    with listeners() as one:
        yield one


@pytest.fixture(scope="module")
def browsers() -> Iterator[BrowserProcess]:
    if shutil.which("chromium") is None:
        missing("chromium")
    with profiles() as folder:
        one = BrowserProcess(folder)
        yield one
        one.close()


def only_allowed(question: PartQuestion) -> str:
    return "" if "/allowed" in question.url else "not allowed"


def test_nothing_arrives_that_was_not_permitted(browsers: BrowserProcess, seen: Listeners) -> None:
    page = browsers.render(
        f"{seen.own}/page", seen.leaky_page(), refuse=only_allowed, tls_verify=False,
        options=RenderOptions(blocked=(), longest_settle_s=5.0),
    )  # fmt: skip
    assert page.error == "" and b"the end" in page.html
    assert len(seen.paths("/allowed")) >= 3, "what is permitted arrives"
    assert seen.paths("/leak") == [] and seen.canary_calls == 0


@pytest.mark.parametrize("verdict", ["not allowed", None], ids=["refused", "not judged"])
def test_a_frame_that_is_removed_sends_nothing(browsers: BrowserProcess, seen: Listeners, verdict: str | None) -> None:
    """Chromium drops the rules of a frame with it, and may send what they have held back: not in each run."""
    before = browsers.link.report.refused.get("not judged", 0)
    allowed = "".join(f"<img src={target}/allowed>" for target in seen.targets[:3])
    frames = "".join(f"<iframe src={target}/allowed-frame></iframe>" for target in seen.targets[:3])
    remove = "onload = () => { for (const one of document.querySelectorAll('iframe')) one.remove() }"
    for number in range(1, 4):
        page = browsers.render(
            f"{seen.own}/page", f"{allowed}{frames}{END}<script>{remove}</script>", tls_verify=False,
            refuse=lambda question: only_allowed(question) and verdict,
        )  # fmt: skip
        assert page.error == "" and len(seen.paths("/allowed-frame")) == 3 * number
        assert seen.paths("/leak") == [] and seen.canary_calls == 0
        if verdict is not None or browsers.link.report.refused.get("not judged", 0) > before:
            break


def test_each_hop_of_a_part_is_judged(browsers: BrowserProcess, seen: Listeners) -> None:
    seen.redirects = {
        "/allowed-other": f"{seen.other}/leak", "/allowed-canary": f"{seen.canary}/leak",
        "/allowed-secure": f"{seen.secure}/allowed-back", "/allowed-back": f"{seen.canary}/leak",
    }  # fmt: skip
    worker = f"importScripts('{seen.own}/allowed-canary')"
    hops = "".join(f"fetch('{path}').catch(() => {{}});" for path in seen.redirects)
    script = f"{hops} new Worker(URL.createObjectURL(new Blob([{worker!r}])))"
    images = "".join(f"<img src={path}>" for path in seen.redirects)
    page = browsers.render(
        f"{seen.own}/page", f"{images}<script>{script}</script>{END}", refuse=only_allowed, tls_verify=False
    )
    assert page.error == "" and seen.paths("/leak") == [] and seen.canary_calls == 0
    assert {one.path for one in seen.arrived} == set(seen.redirects)
    refused = [part.url for part in page.parts if part.outcome == "not allowed"]
    assert f"{seen.other}/leak" in refused and f"{seen.canary}/leak" in refused


def test_names_of_private_addresses_lead_nowhere(browsers: BrowserProcess, seen: Listeners) -> None:
    port, canary = seen.own.rpartition(":")[2], seen.canary.rpartition(":")[2]
    inner = [f"http://inner.test:{port}", f"https://inner.test:{canary}", f"http://[::ffff:127.0.0.1]:{canary}",
             f"http://0x7f000001:{canary}", f"http://localhost:{canary}", seen.other]  # fmt: skip
    fetches = "".join(f"fetch('{origin}/allowed', {{mode: 'no-cors'}}).catch(() => {{}});" for origin in inner)
    markup = "".join(f"<img src={origin}/allowed><iframe src={origin}/allowed></iframe>" for origin in inner)
    page = browsers.render(
        "http://public.test/page", f"{markup}<script>{fetches}</script>{END}", allow_private=False,
        loopback_only=False, tls_verify=False, resolve={"inner.test": "127.0.0.1"},
    )  # fmt: skip
    assert page.error == "" and b"the end" in page.html and len(page.parts) >= 3 * len(inner)
    assert seen.arrived == [] and seen.canary_calls == 0
    assert not any(part.outcome == "200" for part in page.parts)


def test_logins_that_sites_ask_for_are_not_given(browsers: BrowserProcess, seen: Listeners) -> None:
    sources = "".join(f"<script src={origin}{path}></script>" for origin in (seen.own, seen.other)
                      for path in ("/login-allowed", "/proxy-allowed", "/allowed"))  # fmt: skip
    page = browsers.render(f"{seen.own}/page", sources + END, refuse=lambda _: "")
    assert page.error == "" and len(seen.paths("/allowed")) == 2 and len(seen.paths("/login")) == 2
    assert not any(name.lower().endswith("authorization") for one in seen.arrived for name in one.headers)


def test_scripts_post_to_the_site_of_their_page_alone(browsers: BrowserProcess, seen: Listeners) -> None:
    sent = [f"fetch('{origin}/allowed-{method}', {{method: '{method}', body: 'a'.repeat(1000)}}).catch(() => {{}});"
            for origin in (seen.own, seen.other) for method in ("POST", "PUT", "DELETE")]  # fmt: skip
    form = "<form action=/allowed-form method=post><input name=a></form>"
    script = f"<script>{''.join(sent)} setTimeout(() => document.forms[0].submit(), 300)</script>"
    page = browsers.render(f"{seen.own}/page", form + END + script, refuse=lambda _: "")
    assert page.error == "" and seen.paths("/allowed") == ["POST 127.1.0.2/allowed-POST"]
    assert {"method POST", "method PUT", "method DELETE"} <= {part.outcome for part in page.parts}


@pytest.mark.parametrize("to", ["about:blank", "blob", "data:text/html,x", "javascript:'<p>the end</p>'"])
def test_a_page_that_goes_nowhere_is_none(browsers: BrowserProcess, seen: Listeners, to: str) -> None:
    where = "URL.createObjectURL(new Blob(['x'], {type: 'text/html'}))" if to == "blob" else repr(to)
    if "javascript" in to:
        where = f'"{to}"'
    page = browsers.render(f"{seen.own}/page", f"{END}<script>setTimeout(() => location.href = {where})</script>")
    assert (page.error, b"the end" in page.html) in (("", True), ("navigation", False)) and seen.arrived == []


def test_a_gigabyte_is_cut_off(browsers: BrowserProcess, seen: Listeners) -> None:
    script = "<script>for (const one of [1, 2]) fetch('/allowed-endless', {cache: 'no-store'}).catch(() => {})</script>"
    page = browsers.render(f"{seen.own}/page", END + script, refuse=only_allowed, max_bytes=1 << 20)
    assert page.error == "" and 10 << 20 < seen.endless_bytes < 60 << 20, "ten times the limit, and what is in buffers"


def test_a_page_whose_browser_always_dies_ends(seen: Listeners) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    with profiles() as folder:
        own, came, kills = BrowserProcess(folder, idle_s=1.0), list[RenderedPage](), 0
        script = "<script>setInterval(() => fetch('/allowed'), 50)</script>"
        own.begin(f"{seen.own}/page", END + script, came.append, left_s=patience(30))

        def has_ended() -> bool:
            nonlocal kills
            if seen.arrived and not came:
                seen.arrived.clear()
                for pid in chromiums(str(folder)):
                    with suppress(ProcessLookupError):  # its browser's death has taken it along
                        os.kill(pid, signal.SIGKILL)
                kills += 1
                own.until(lambda: chromiums(str(folder)) == [] or bool(seen.arrived))
            return bool(came)

        own.until(has_ended)
        assert came[0].error == "browser" and kills >= 3
        assert own.render(f"{seen.own}/page", END).error == ""
        own.until(lambda: chromiums(str(folder)) == [])  # nothing to do: it is ended
        own.close()
