"""Over sixty git repositories of every kind that `modules` meets, with what must come of each.

`gallery(shop, server_url)` makes them with real git and gives the entries of the list, in order; `FEW` are the ids of
the dozen or so that the short run takes. Limits that belong to them: `SETTINGS`.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from git_repositories import Files, Link, Submodule, Workshop, git
from PIL import Image, ImageDraw

MAX_BYTES = 8_000_000
SETTINGS = {
    "clone.allow_private": "true",
    "clone.transports": "[https, ssh, file, http]",
    "clone.max_bytes": str(MAX_BYTES),
    "clone.max_files": "300",
    "clone.timeout_s": "60",
    "analyse.eslint": "off",
}
MIT = (
    "MIT License\n\nCopyright (c) 2020 Ada\n\nPermission is hereby granted, free of charge, to any person obtaining a "
    "copy of this software. The above copyright notice and this permission notice shall be included."
)
README = (
    "# %s\n\nA thing of use.\n\n## Installation\n\n```sh\ninstall it\n```\n\n## Usage\n\n"
    + "Some words. " * 30
    + "\n\n## License\n"
)


@dataclass(frozen=True)
class Expected:
    """What must come of one entry: `phase` is empty where all goes well; `says` is in the error, or in the row."""

    id: str
    entry: dict[str, Any]
    phase: str = ""
    says: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # paths in the row → values
    make: Callable[[], object] = lambda: None

    def faults(self, row: dict[str, Any]) -> list[str]:
        """What is not as it must be in the catalogue's row."""
        found = []
        if (row["failure_phase"] or "") != self.phase or self.says not in (row["error"] or ""):
            found.append(f"{self.id}: {row['status']} in {row['failure_phase']}: {row['error']}")
        for path, value in self.about.items():
            at: Any = row
            for name in path.split("."):
                at = at and at.get(name)
            if at != value:
                found.append(f"{self.id}: {path} is {at!r}, not {value!r}")
        return found


def picture(text: str = "", size: tuple[int, int] = (640, 400), kind: str = "PNG") -> bytes:
    """A screenshot."""
    image = Image.new("RGB", size, (24, 60 + sum(text.encode()) % 150, 120))
    ImageDraw.Draw(image).rectangle((8, 8, size[0] - 8, size[1] // 2), fill="white")
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def bomb(side: int = 50_000) -> bytes:
    """A small PNG that says it has side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100_000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def javascript(name: str, licence: Any = "MIT", **more: Any) -> Files:
    """A package of npm's kind."""
    package = {
        "name": name,
        "version": "1.2.0",
        "description": f"Shows {name}.",
        "license": licence,
        "keywords": ["MagicMirror", name],
        "dependencies": {"moment": "^2.29.0", "left-pad": "~1.1.0"},
        "devDependencies": {"eslint": "^9.0.0"},
    }
    return {
        "package.json": json.dumps(package | more),
        "index.js": "// require('in-a-comment')\nconst moment = require('moment');\nconst ws = require('ws');\n",
        "README.md": README % name,
        "images/screenshot.png": picture(name),
    }


def python(name: str, licence: str = "Apache-2.0") -> Files:
    """A package of PyPI's kind."""
    return {
        "pyproject.toml": f'[project]\nname = "{name}"\nversion = "0.3"\nlicense = "{licence}"\nkeywords = ["sun"]\n'
        'dependencies = ["requests<2.30", "flask"]\n',
        f"src/{name}/__init__.py": "import os\nimport requests\nimport yaml\n",
        "tests/test_it.py": f"import {name}\n",
        "README.rst": f"{name}\n=====\n\nInstall\n-------\n",
        "LICENSE": "Apache License\nVersion 2.0, January 2004",
    }


def gallery(shop: Workshop, server_url: str, only: Collection[str] = ()) -> list[Expected]:
    """Makes them, all or those with these ids; in the order of the list."""
    kinds = (_plain, _odd_content, _odd_repositories, _refused, _addresses, _over_http)
    found = [one for kind in kinds for one in kind(shop, server_url) if not only or one.id in only]
    for one in found:
        one.make()
    return found


def _plain(shop: Workshop, _: str) -> Iterator[Expected]:
    """What most repositories are."""
    licences: dict[Any, str] = {
        "MIT": "permissive",
        "Apache 2.0": "permissive",
        "GPLv3": "copyleft",
        "ISC": "permissive",
        "UNLICENSED": "proprietary",
        "AGPL-3.0": "network-copyleft",
        "WTFPL": "public-domain",
        "MIT OR GPL-2.0": "permissive",
    }
    for number, (licence, verdict) in enumerate(licences.items()):
        name = f"MMM-Clock{number}"
        entry = {"name": name, "maintainer": "ada", "url": shop.url(name)}
        facts = {"about.licence.verdict": verdict, "about.tags": ["magicmirror", name.lower()]}
        make = partial(shop.make, name, javascript(name, licence), when=1_500_000_000 + number * 30_000_000)
        yield Expected(f"{name}-----ada", entry, about=facts, make=make)
    for number in range(6):
        name = f"sun{number}"
        facts = {"analysis.python.missing": ["pyyaml"], "about.licence.spdx": "Apache-2.0"}
        yield _local(shop, name, python(name), {**facts, "analysis.python.unused": ["flask"]})
    unmet = {"analysis.javascript.missing": ["ws"], "analysis.javascript.unused": ["left-pad"]}
    files = {**javascript("both"), **python("both"), "LICENSE": MIT}
    yield _local(shop, "both", files, {**unmet, "analysis.python.missing": ["pyyaml"]})


def _local(shop: Workshop, name: str, files: Files, facts: dict[str, Any]) -> Expected:
    return Expected(name, {"id": name, "url": shop.url(name)}, about=facts, make=partial(shop.make, name, files))


def _odd_content(shop: Workshop, _: str) -> Iterator[Expected]:
    """Taken, whatever is in them."""
    submodules = '[submodule "lib"]\n\tpath = lib\n\turl = https://host.invalid/x\n'
    owning = "require('fs').writeFileSync('owned', '')"
    odd: dict[str, tuple[Files, dict[str, Any]]] = {
        "bare": ({"a.txt": "x"}, {"about.manifest": None, "analysis.readme": None, "about.licence.verdict": "none"}),
        "broken-json": ({"package.json": "{,"}, {"about.name": None, "about.manifest": "package.json"}),
        "broken-toml": ({"pyproject.toml": "= ="}, {"about.manifest": "pyproject.toml"}),
        "nested-json": ({"package.json": "[" * 50_000}, {"about.name": None}),
        "licence-file": ({"LICENSE": MIT}, {"about.licence.spdx": "MIT"}),
        "two-licences": (
            {**javascript("x"), "LICENSE": "GNU GENERAL PUBLIC LICENSE Version 3"},
            {"about.licence.differs": True},
        ),
        "rubbish-image": ({"screenshot.png": "no image", "README.md": "# x"}, {"about.thumbnail": None}),
        "bomb-image": ({"screenshot.png": bomb()}, {"about.thumbnail": None}),
        "second-image": ({"screenshot.png": bomb(), "b.jpg": picture("b", kind="JPEG")}, {"about.screenshot": "b.jpg"}),
        "icon-only": ({"icon.png": picture(size=(32, 32))}, {"about.screenshot": None}),
        "evil-readme": (
            {"README.md": "# <script>alert(1)</script>\n<img src=x onerror=alert(2)>"},
            {"analysis.readme.headings": 1},
        ),
        "bytes-readme": ({"README.md": b"\xff\xfe\x00# x"}, {"about.screenshot": None}),
        "deep-python": (
            {"a.py": "(" * 5_000, "b.py": "import numpy"},
            {"analysis.python.missing": ["numpy"], "analysis.python.unreadable": 1},
        ),
        "deep-script": ({"a.js": "(" * 5_000, "b.js": "import 'x'"}, {"analysis.javascript.missing": ["x"]}),
        "filter": ({".gitattributes": "* filter=evil", "a": "x"}, {"repository.files": 2}),
        "lfs": (
            {".gitattributes": "*.png filter=lfs", "screenshot.png": "version https://git-lfs\n"},
            {"about.thumbnail": None},
        ),
        "inner-links": (
            {"README.md": Link("docs/r.md"), "docs/r.md": README % "x", "loop": Link("loop")},
            {"analysis.readme.problems": []},
        ),
        "submodule": ({"lib": Submodule(), ".gitmodules": submodules}, {"repository.submodules": ["lib"]}),
        "evil-eslint": ({"eslint.config.js": owning, ".eslintrc.js": "boom(", "a.js": "1"}, {"repository.files": 3}),
    }
    for name, (files, facts) in odd.items():
        yield _local(shop, name, files, facts)


def _odd_repositories(shop: Workshop, _: str) -> Iterator[Expected]:
    """Taken, however the repository is made."""

    def detached() -> None:
        git(shop.make("detached", {"a": "x"}), "update-ref", "--no-deref", "HEAD", "refs/heads/main")

    def hooked() -> None:
        hook = shop.make("hooked", {"a": "x"}) / "hooks" / "post-checkout"
        hook.parent.mkdir()
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)

    entry = {"id": "named-branch", "url": shop.url("dev-only"), "branch": "dev"}
    yield Expected("named-branch", entry, make=partial(shop.make, "dev-only", {"a": "x"}, branch="dev"))
    yield Expected("detached", {"id": "detached", "url": shop.url("detached")}, make=detached)
    future = partial(shop.make, "future", {"a": "x"}, when=10**15)
    facts = {"repository.maintained": "unknown"}
    yield Expected("future", {"id": "future", "url": shop.url("future")}, about=facts, make=future)
    odd = partial(shop.raw_tree, "odd-names", [("100644", "a\nb", b"x"), ("100644", "caf\udce9.py", b"import x")])
    yield Expected("odd/../names", {"id": "odd/../names", "url": shop.url("odd-names")}, make=odd)
    yield Expected("hooked", {"id": "hooked", "url": shop.url("hooked")}, make=hooked)


def _refused(shop: Workshop, _: str) -> Iterator[Expected]:
    """Not taken, for what is in them or is not."""

    def damaged() -> None:
        for file in (shop.make("damaged", {"a": "x" * 100}) / "objects").rglob("*"):
            if file.is_file():
                file.chmod(0o600)
                file.write_bytes(b"rubbish")

    by_link: Files = {"p/q/d": Link("../.."), "l": Link("p/q/d/../../x")}
    made: dict[str, tuple[Callable[[], object], str]] = {
        "empty": (partial(shop.empty, "empty"), "no commits"),
        "no-default": (partial(shop.make, "no-default", {"a": "x"}, branch="dev"), "no default branch"),
        "link-to-etc": (partial(shop.make, "link-to-etc", {"etc": Link("/etc")}), "'etc' leads out"),
        "link-up": (partial(shop.make, "link-up", {"d/l": Link("../../../x")}), "'d/l' leads out"),
        "link-by-link": (partial(shop.make, "link-by-link", by_link), "'l' leads out"),
        "link-into-git": (partial(shop.make, "link-into-git", {"g": Link(".git/config")}), "'g' leads out"),
        "hooks-in-tree": (partial(shop.with_hooks_in_its_tree, "hooks-in-tree"), "git refuses what is in it"),
        "zeros": (lambda: shop.make("zeros", {"z": b"\0" * (MAX_BYTES * 4)}), "more than the limit"),
        "noise": (lambda: shop.make("noise", {"n": os.urandom(MAX_BYTES + 100_000)}), "larger than the limit"),
        "many-files": (lambda: shop.make("many-files", {f"f{n}": "" for n in range(400)}), "it has 400 files"),
        "damaged": (damaged, "git"),
    }
    for name, (make, says) in made.items():
        yield Expected(name, {"id": name, "url": shop.url(name)}, "clone", says, make=make)


def _addresses(shop: Workshop, _: str) -> Iterator[Expected]:
    """Not taken, for what the list says."""
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "option": ({"url": "--upload-pack=touch /tmp/x"}, "option of git"),
        "helper": ({"url": "ext::sh -c touch% /tmp/x"}, "transport helpers"),
        "git-protocol": ({"url": "git://host.invalid/x"}, "'git' is not allowed"),
        "path": ({"url": str(shop.folder / "target.git")}, "written file:///path"),
        "with-login": ({"url": "https://me:word@host.invalid/x"}, "login"),
        "metadata": ({"url": "http://169.254.169.254/x.git"}, "cloud metadata"),
        "unresolved": ({"url": "https://host.invalid/x"}, "cannot be resolved"),
        "nowhere": ({"url": shop.url("nowhere")}, "there is no repository"),
        "no-repository": ({"url": "file:///etc"}, "there is no repository"),
        "no-url": ({}, "no `url`"),
        "bad-branch": ({"url": shop.url("sun0"), "branch": "-x"}, "name of a branch"),
        "no-branch": ({"url": shop.url("sun0"), "branch": "nope"}, "no branch 'nope'"),
    }
    for name, (fields, says) in bad.items():
        yield Expected(name, {"id": name, **fields}, "clone", says)


def _over_http(shop: Workshop, server_url: str) -> Iterator[Expected]:
    """Over the loopback server of tests/shared/git_server.py."""

    def served() -> None:
        if not (shop.folder / "served.git").exists():
            git(shop.make("served", javascript("served")), "update-server-info")

    transports = {
        "smart": "",
        "dumb": "",
        "moved": "",
        "away": "cloud metadata",
        "loop": "redirects",
        "login": "needs a login",
        "broken": "cannot be reached",
        "none": "there is no repository",
    }
    for way, says in transports.items():
        entry = {"id": f"http-{way}", "url": f"{server_url}/{way}/served.git"}
        facts = {} if says else {"about.name": "served"}
        yield Expected(entry["id"], entry, "clone" if says else "", says, about=facts, make=served)


FEW = (
    "MMM-Clock0-----ada sun0 bare bomb-image submodule named-branch empty no-default link-to-etc hooks-in-tree option "
    "helper http-moved http-login"
).split()
