"""The links of ordinary pages: their number, their targets, and the forms in which links are written.

Within a host the pages form a tree (page k links to its FAN children), so that every page is reachable from the home
page; all other links within a host lead to pages with lower numbers, and therefore never shorten a path.
"""

from __future__ import annotations

from math import exp, log
from random import Random
from statistics import NormalDist
from struct import iter_unpack
from typing import TYPE_CHECKING
from urllib.parse import unquote

from weft.testing.content.resources import Reference, mix

if TYPE_CHECKING:
    from weft.testing.content.sites import SyntheticSite
    from weft.testing.world import World

FAN = 5
NAVIGATION = 6
SIZE_RANGE = (2_000, 400_000)
DEGREE_RANGE = (6, 600)
# Bounds on 16-bit random numbers. Kinds of links: to another host, to something other than a page, to the navigation.
_ACROSS, _DECORATION, _NAVIGATION = (int(share * 65536) for share in (0.12, 0.155, 0.4))
# Forms of links: relative, absolute, without scheme, from the root, with a fragment.
_RELATIVE, _ABSOLUTE, _PLAIN, _FRAGMENT = (int(share * 65536) for share in (0.3, 0.5, 0.54, 0.92))


def _lognormal(median: float, sigma: float, low: int, high: int) -> tuple[int, ...]:
    """1024 quantiles of a log-normal distribution, clamped: drawing is then one table lookup."""
    normal = NormalDist()
    quantiles = (normal.inv_cdf((step + 0.5) / 1024) for step in range(1024))
    return tuple(int(min(high, max(low, exp(log(median) + sigma * z)))) for z in quantiles)


SIZES = _lognormal(40_000, 0.75, *SIZE_RANGE)
DEGREES = _lognormal(50, 0.8, *DEGREE_RANGE)


def references(world: World, site: SyntheticSite, number: int, raw_unicode: bool) -> list[Reference]:
    """Everything page `number` of a site links to. `raw_unicode`: hrefs may be written outside ASCII."""
    random = Random(mix(site.key, number, 29))
    links = _structural_links(world, site, number)
    degree = DEGREES[int(random.random() * 1024)]
    directory = site.paths[number].partition("?")[0].rpartition("/")[0] + "/"
    plain = site.plain_links
    ceiling = min(number + 1, site.count)
    navigation = min(NAVIGATION, site.count)
    # Three 16-bit numbers a link, drawn all at once: drawing them one by one would take most of the time of this
    # function.
    for kind, pick, style in iter_unpack("<HHH", random.randbytes(6 * max(0, degree - len(links)))):
        if kind < _ACROSS:
            links.append(_link_to_other_host(world, kind, pick, style, raw_unicode))
        elif kind < _DECORATION:
            links.append(_decorative_link(site, pick, style))
        else:
            link = plain[pick * (navigation if kind < _NAVIGATION else ceiling) >> 16]
            links.append(
                link if _PLAIN <= style < _FRAGMENT else _link_in_style(site, directory, link, style, raw_unicode)
            )
    return links


def _structural_links(world: World, site: SyntheticSite, number: int) -> list[Reference]:
    """The links that connect the web: navigation, tree, the hosts below, and the site's fixtures."""
    count = site.count
    first = number * FAN + 1
    links = [*site.plain_links[: min(3, count)], *site.plain_links[first : min(first + FAN, count)]]
    if number == 0:
        links += [Reference(child.home, child.home) for child in site.children]
    shelves = min(4, count)
    if number < shelves:
        links += world.fixtures(site).entrances[number::shelves]
    if mix(site.key, number, 31) % 10 < 3:
        own = site.plain_links[number]
        links.append(Reference(own.href if number % 2 else site.origin + own.href, own.target, "canonical"))
    links.append(Reference("/static/site.css", site.origin + "/static/site.css", "stylesheet"))
    return links


def _link_to_other_host(world: World, kind: int, pick: int, style: int, raw_unicode: bool) -> Reference:
    """A link to another host: the popular ones (low numbers) more often, its home page half of the time."""
    site = world.ordinary[len(world.ordinary) * pick * pick >> 32]
    link = site.absolute_link(0 if style & 1 else style)
    if raw_unicode and site.host.startswith("xn--") and kind % 2:
        return Reference(link.href.replace(site.host, site.host.encode().decode("idna")), link.target)
    return Reference(link.href[link.href.index("//") :], link.target) if kind % 10 == 0 else link


def _decorative_link(site: SyntheticSite, pick: int, style: int) -> Reference:
    """Other content of real pages: images, mail addresses, scripts, files, nofollow marks."""
    number = pick % 12
    kind = style % 10
    if kind < 3:
        path = f"/img/photo-{number}.jpg"
        return Reference(path, site.origin + path, "img")
    if kind < 5:
        path = f"/files/report-{number}.{('pdf', 'jpg', 'zip', 'mp4', 'docx', 'PNG')[number % 6]}"
        return Reference(path, site.origin + path)
    if kind < 8:
        return Reference(("mailto:someone@weft-web.test", "javascript:void(0)", "tel:+4930123456")[kind - 5], None)
    return Reference("/", site.home, "nofollow")


def _link_in_style(site: SyntheticSite, directory: str, link: Reference, style: int, raw_unicode: bool) -> Reference:
    """A link to a page of the same host in another form."""
    target = link.target
    assert target is not None
    text = path = target[len(site.origin) :]
    if raw_unicode and "%" in path and style < _PLAIN:
        text = unquote(path)
    elif style < _RELATIVE:
        text = _relative_path(directory, path, style)
        if text is path:
            return link
    elif style < _ABSOLUTE:
        text = target
    elif style < _PLAIN:
        text = target[target.index("//") :]
    else:
        text = f"{path}#part-{style % 100}"
    return Reference(text.replace("&", "&amp;") if "&" in text else text, target)


def _relative_path(directory: str, path: str, style: int) -> str:
    """A path relative to the page's directory if that is short; occasionally with `../`, even above the root."""
    if path.startswith(directory):
        return path[len(directory) :] or "./"
    if style % 4:
        return path
    return "../" * (directory.count("/") - 1 + (style % 16 == 0)) + (path[1:] or "./")
