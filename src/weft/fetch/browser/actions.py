"""Actions on a rendered page before it is read: plain data from settings, a task or a spider."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

from weft.fetch.browser.devtools import DevtoolsPipe
from weft.fetch.browser.messages import RenderOptions

MOST_PX = 20_000
MOST_SHEETS = 200
SELECTOR_S = 10.0  # how long an action waits for its element
MOST_ACTIONS = 50
MOST_WAIT_S = 60.0
_POLL_S = 0.1
_KEYS = {
    "Enter": (13, "\r"), "Tab": (9, "\t"), "Escape": (27, ""), "Backspace": (8, ""), "Delete": (46, ""),
    "ArrowUp": (38, ""), "ArrowDown": (40, ""), "ArrowLeft": (37, ""), "ArrowRight": (39, ""), "Space": (32, " "),
    "Home": (36, ""), "End": (35, ""), "PageUp": (33, ""), "PageDown": (34, ""),
}  # fmt: skip
_PAPERS = {  # in inches
    "A3": (11.7, 16.54), "A4": (8.27, 11.7), "A5": (5.83, 8.27), "Letter": (8.5, 11.0), "Legal": (8.5, 14.0),
    "Tabloid": (11.0, 17.0),
}  # fmt: skip
_FIND = "document.querySelector({selector})"
_CENTRE = """(() => {{ const one = document.querySelector({selector}); if (!one) return null;
  one.scrollIntoView({{block: "center", inline: "center", behavior: "instant"}});
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2, box.width, box.height,
          scrollX + box.x, scrollY + box.y] }})()"""
_SELECT = """(() => {{ const one = document.querySelector({selector}); if (!one) return null;
  one.value = {value}; one.dispatchEvent(new Event("input", {{bubbles: true}}));
  one.dispatchEvent(new Event("change", {{bubbles: true}})); return one.value === {value} }})()"""
_HIDES_TEXT = "document.activeElement instanceof HTMLInputElement && document.activeElement.type === 'password'"
_HEIGHT = "document.documentElement ? document.documentElement.scrollHeight : 0"


class ActionFailed(Exception):
    """An action cannot be carried out; the message names it, and the reason."""


class PageActions:
    """Carries out the actions of an order on a page."""

    def __init__(
        self,
        pipe: DevtoolsPipe,
        session: str,
        frame: str,
        settle: Callable[[], Awaitable[None]],
        options: RenderOptions,
    ) -> None:
        self._pipe = pipe
        self._session = session
        self._frame = frame
        self._settle = settle
        self._options = options
        self.pictures: list[bytes] = []
        self.pdf = b""

    async def evaluate(self, expression: str) -> Any:
        """Evaluates an expression in a world that the page's scripts cannot change."""
        world = await self._pipe.call("Page.createIsolatedWorld", self._session, frameId=self._frame, worldName="weft")
        answer = await self._pipe.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True,
            contextId=world["executionContextId"],
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise ActionFailed(str(answer["exceptionDetails"].get("exception", {}).get("description", "failed"))[:300])
        return answer["result"].get("value")

    async def wait_for(self, what: str | float | None) -> None:
        """Waits for an element, or for some seconds."""
        if what is None:
            return
        if isinstance(what, str):
            await self._element(what)
        else:
            await asyncio.sleep(min(what, MOST_WAIT_S))

    async def scroll_to_end(self, most: int) -> None:
        """Scrolls down while the page grows, at most `most` times."""
        height = -1
        for _ in range(most):
            now = await self.evaluate(_HEIGHT)
            if now == height or now > MOST_PX * 10:
                return
            height = now
            await self.evaluate(f"window.scrollTo(0, {_HEIGHT})")
            await self._settle()

    async def run(self) -> None:
        """Carries out all actions, in order."""
        for number, action in enumerate(self._options.actions[:MOST_ACTIONS], 1):
            kind = str(action.get("type", ""))
            carry_out = _ACTIONS.get(kind)
            if carry_out is None:
                raise ActionFailed(f"action {number}: {kind!r} is none of {', '.join(_ACTIONS)}")
            try:
                await carry_out(self, action)
            except ActionFailed as why:
                raise ActionFailed(f"action {number} ({kind}): {why}") from None
            except KeyError as missing:
                raise ActionFailed(f"action {number} ({kind}): {missing} is missing") from None

    async def picture(self, *, is_full: bool) -> bytes:
        """The page as a PNG: what is in view, or all of it up to 20,000 px."""
        clip: dict[str, Any] = {}
        if is_full:
            size = (await self._pipe.call("Page.getLayoutMetrics", self._session))["cssContentSize"]
            width, height = min(size["width"], MOST_PX), min(size["height"], MOST_PX)
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        return await self._capture(is_full, clip)

    async def picture_of(self, selector: str) -> bytes:
        """An element as a PNG."""
        _, _, width, height, left, top = await self._element(selector)
        box = {"x": left, "y": top, "width": max(1, min(width, MOST_PX)), "height": max(1, min(height, MOST_PX))}
        return await self._capture(True, {"clip": {**box, "scale": 1}})

    async def printed(self, *, paper: str = "Letter", is_landscape: bool = False) -> bytes:
        """The page as a PDF, of its first sheets."""
        width, height = _PAPERS[paper]
        made = await self._pipe.call(
            "Page.printToPDF", self._session, printBackground=True, pageRanges=f"1-{MOST_SHEETS}",
            landscape=is_landscape, paperWidth=width, paperHeight=height,
        )  # fmt: skip
        return b64decode(made["data"])

    async def _capture(self, is_beyond: bool, clip: dict[str, Any]) -> bytes:
        taken = await self._pipe.call(
            "Page.captureScreenshot", self._session, format="png", captureBeyondViewport=is_beyond, **clip
        )
        return b64decode(taken["data"])

    async def _element(self, selector: str) -> list[float]:
        """Waits for an element; returns its centre in the view, its size, and its corner in the page."""
        until = time.monotonic() + SELECTOR_S
        while True:
            box = await self.evaluate(_CENTRE.format(selector=json.dumps(selector)))
            if box is not None:
                return list(box)
            if time.monotonic() > until:
                raise ActionFailed(f"no element matches {selector!r} within {SELECTOR_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _wait(self, action: dict[str, Any]) -> None:
        milliseconds = action.get("milliseconds")
        await self.wait_for(str(action["selector"]) if milliseconds is None else float(milliseconds) / 1000)

    async def _click(self, action: dict[str, Any]) -> None:
        x, y, *_ = await self._element(str(action["selector"]))
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self._pipe.call(
                "Input.dispatchMouseEvent", self._session, type=kind, x=x, y=y,
                button="none" if kind == "mouseMoved" else "left", clickCount=0 if kind == "mouseMoved" else 1,
            )  # fmt: skip
        await self._settle()

    async def _write(self, action: dict[str, Any]) -> None:
        if "selector" in action:
            await self._element(str(action["selector"]))
            await self.evaluate(_FIND.format(selector=json.dumps(str(action["selector"]))) + ".focus()")
        if action.get("is_plain") and await self.evaluate(_HIDES_TEXT):
            raise ActionFailed("it is a password, and is given as plain text: write ${env:NAME}")
        await self._pipe.call("Input.insertText", self._session, text=str(action["text"]))

    async def _press(self, action: dict[str, Any]) -> None:
        key = str(action["key"])
        code, text = _KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key if len(key) == 1 else ""))
        if not code:
            raise ActionFailed(f"{key!r} is no key: one character, or one of {', '.join(_KEYS)}")
        name = " " if key == "Space" else key
        for kind in ("keyDown", "keyUp"):
            await self._pipe.call(
                "Input.dispatchKeyEvent", self._session, type=kind, key=name, windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )  # fmt: skip
        await self._settle()

    async def _scroll(self, action: dict[str, Any]) -> None:
        if "selector" in action:
            await self._element(str(action["selector"]))
            return
        sign = "-" if action.get("direction") == "up" else ""
        await self.evaluate(f"window.scrollBy(0, {sign}window.innerHeight)")
        await self._settle()

    async def _select(self, action: dict[str, Any]) -> None:
        selector, value = str(action["selector"]), str(action["value"])
        await self._element(selector)
        is_chosen = await self.evaluate(_SELECT.format(selector=json.dumps(selector), value=json.dumps(value)))
        if not is_chosen:
            raise ActionFailed(f"{selector!r} has no option {value!r}")
        await self._settle()

    async def _screenshot(self, action: dict[str, Any]) -> None:
        self.pictures.append(await self.picture(is_full=bool(action.get("fullPage"))))

    async def _print(self, action: dict[str, Any]) -> None:
        paper = str(action.get("format", "Letter"))
        if paper not in _PAPERS:
            raise ActionFailed(f"{paper!r} is no paper: use one of {', '.join(_PAPERS)}")
        self.pdf = await self.printed(paper=paper, is_landscape=action.get("landscape") is True)

    async def _script(self, action: dict[str, Any]) -> None:
        if not self._options.allow_scripts:
            raise ActionFailed("scripts of callers are off: `allow_scripts` permits them")
        answer = await self._pipe.call(
            "Runtime.evaluate", self._session, expression=str(action["script"]), returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise ActionFailed("the script has failed")
        await self._settle()


_ACTIONS: dict[str, Callable[[PageActions, dict[str, Any]], Awaitable[None]]] = {
    "wait": PageActions._wait,
    "click": PageActions._click,
    "write": PageActions._write,
    "press": PageActions._press,
    "scroll": PageActions._scroll,
    "select": PageActions._select,
    "screenshot": PageActions._screenshot,
    "pdf": PageActions._print,
    "executeJavascript": PageActions._script,
}
