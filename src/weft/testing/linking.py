"""The links of ordinary pages: how many, where to, and in which of the many ways a link can be written.

Inside a host the pages form a tree (page k links to its FAN children), so that every page is reachable from the home
page; all other links inside a host lead to pages of lower number, and therefore never shorten the way to a page.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING
from urllib.parse import unquote

from weft.testing.resources import Reference, mix

if TYPE_CHECKING:
    from weft.testing.sites import Site
    from weft.testing.world import World

FAN = 5
NAVIGATION = 6
SIZE_RANGE = (2_000, 400_000)
DEGREE_RANGE = (6, 600)


def _lognormal(median: float, sigma: float, low: int, high: int) -> tuple[int, ...]:
    """1024 quantiles of a log-normal distribution, clamped: drawing is then one table lookup."""
    normal = NormalDist()
    quantiles = (normal.inv_cdf((step + 0.5) / 1024) for step in range(1024))
    return tuple(int(min(high, max(low, exp(log(median) + sigma * z)))) for z in quantiles)


SIZES = _lognormal(40_000, 0.75, *SIZE_RANGE)
DEGREES = _lognormal(50, 0.8, *DEGREE_RANGE)


def references(world: World, site: Site, number: int, raw_unicode: bool) -> list[Reference]:
    """Everything page `number` of a site links to. `raw_unicode`: hrefs may be written outside ASCII."""
    draw = Random(mix(site.key, number, 29)).random
    found = _certain(world, site, number)
    paths = site.paths
    here = paths[number]
    ceiling = min(number + 1, site.count)
    degree = DEGREES[int(draw() * 1024)]
    while len(found) < degree:
        kind = draw()
        if kind < 0.12:
            found.append(_across(world, draw))
        elif kind < 0.155:
            found.append(_decoration(site, draw))
        else:
            number_to = int(draw() * (min(NAVIGATION, site.count) if kind < 0.4 else ceiling))
            path = paths[number_to]
            found.append(Reference(_write(site, here, path, draw, raw_unicode), site.origin + path))
    return found


def _certain(world: World, site: Site, number: int) -> list[Reference]:
    """The links that make the web hang together: navigation, tree, the hosts below, and the site's fixtures."""
    paths = site.paths
    count = site.count
    found = [Reference("/", site.home)]
    found += [Reference(_escape(path), site.origin + path) for path in paths[1 : min(3, count)]]
    first = number * FAN + 1
    found += [Reference(_escape(path), site.origin + path) for path in paths[first : min(first + FAN, count)]]
    if number == 0:
        found += [Reference(child.home, child.home) for child in site.children]
    shelves = min(4, count)
    if number < shelves:
        found += world.fixtures(site).entrances[number::shelves]
    if mix(site.key, number, 31) % 10 < 3:
        found.append(Reference(_escape(site.origin + paths[number]), site.origin + paths[number], "canonical"))
    found.append(Reference("/static/site.css", site.origin + "/static/site.css", "stylesheet"))
    return found


def _across(world: World, draw: Callable[[], float]) -> Reference:
    """A link to another host: the popular ones (low numbers) more often, its home page half of the time."""
    sites = world.ordinary
    site = sites[int(len(sites) * draw() ** 2)]
    path = "/" if draw() < 0.5 else site.paths[int(draw() * site.count)]
    target = site.origin + path
    text = _escape(target)
    if draw() < 0.1:
        text = text[text.index("//") :]
    return Reference(text, target)


def _decoration(site: Site, draw: Callable[[], float]) -> Reference:
    """What else stands in real pages: pictures, mail addresses, scripts, files, nofollow marks."""
    kind = draw()
    number = int(draw() * 12)
    if kind < 0.3:
        path = f"/img/photo-{number}.jpg"
        return Reference(path, site.origin + path, "img")
    if kind < 0.5:
        path = f"/files/report-{number}.{('pdf', 'jpg', 'zip', 'mp4', 'docx', 'PNG')[number % 6]}"
        return Reference(path, site.origin + path)
    if kind < 0.6:
        return Reference("mailto:someone@weft-web.test", None)
    if kind < 0.7:
        return Reference("javascript:void(0)", None)
    if kind < 0.8:
        return Reference("tel:+4930123456", None)
    return Reference("/", site.home, "nofollow")


def _write(site: Site, here: str, path: str, draw: Callable[[], float], raw_unicode: bool) -> str:
    """One of the ways to write a link to a page of the same host."""
    style = draw()
    text = path
    if raw_unicode and "%" in path and style < 0.5:
        text = unquote(path)
    elif style < 0.3:
        directory = here.partition("?")[0].rpartition("/")[0] + "/"
        if text.startswith(directory):
            text = text[len(directory) :] or "./"
        elif style < 0.08:
            text = "../" * (directory.count("/") - 1 + (style < 0.02)) + (text[1:] or "./")
    elif style < 0.5:
        text = site.origin + path
    elif style < 0.54:
        text = "//" + site.origin.partition("//")[2] + path
    if style > 0.92:
        text += f"#part-{int(style * 1000)}"
    return _escape(text)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;") if "&" in text else text
