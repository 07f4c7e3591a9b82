"""Sixty git repositories of every kind that `modules` meets, with what must come of each.

`gallery(shop, server_url)` makes them with real git and gives the entries of the list, in order; `FEW` are the ids of
the dozen that the short run takes. Limits that belong to them: `SETTINGS`.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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


def gallery(shop: Workshop, server_url: str) -> list[Expected]:
    """Makes them all."""
    found: list[Expected] = []
    for make in (_plain, _odd_content, _odd_repositories, _refused, _addresses, _over_http):
        found += make(shop, server_url)
    return found


def _plain(shop: Workshop, _: str) -> Iterator[Expected]:
    """What most repositories are."""
    for number, licence in enumerate(
        ["MIT", "Apache 2.0", "GPLv3", "ISC", "UNLICENSED", {"type": "BSD-3-Clause"}, "AGPL-3.0", "WTFPL"]
    ):
        name = f"MMM-Clock{number}"
        shop.make(name, javascript(name, licence), when=1_500_000_000 + number * 30_000_000)
        verdict = [
            "permissive",
            "permissive",
            "copyleft",
            "permissive",
            "proprietary",
            "permissive",
            "network-copyleft",
            "public-domain",
        ]
        entry = {"name": name, "maintainer": "ada", "url": shop.url(name)}
        yield Expected(
            f"{name}-----ada",
            entry,
            about={"about.licence.verdict": verdict[number], "about.tags": ["magicmirror", name.lower()]},
        )
    for number in range(6):
        shop.make(f"sun{number}", python(f"sun{number}"))
        facts = {
            "analysis.python.missing": ["pyyaml"],
            "analysis.python.unused": ["flask"],
            "about.licence.spdx": "Apache-2.0",
        }
        yield Expected(f"sun{number}", {"id": f"sun{number}", "url": shop.url(f"sun{number}")}, about=facts)
    facts = {"analysis.javascript.missing": ["ws"], "analysis.javascript.unused": ["left-pad"]}
    shop.make("both", {**javascript("both"), **python("both"), "LICENSE": MIT})
    yield Expected(
        "both", {"id": "both", "url": shop.url("both")}, about={**facts, "analysis.python.missing": ["pyyaml"]}
    )


def _odd_content(shop: Workshop, _: str) -> Iterator[Expected]:
    """Taken, whatever is in them."""
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
        "submodule": (
            {"lib": Submodule(), ".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = https://host.invalid/x\n'},
            {"repository.submodules": ["lib"]},
        ),
        "evil-eslint": (
            {
                "eslint.config.js": "require('fs').writeFileSync('owned', '')",
                ".eslintrc.js": "boom(",
                "a.js": "let a = 1",
            },
            {"repository.files": 3},
        ),
    }
    for name, (files, facts) in odd.items():
        shop.make(name, files)
        yield Expected(name, {"id": name, "url": shop.url(name)}, about=facts)


def _odd_repositories(shop: Workshop, _: str) -> Iterator[Expected]:
    """Taken, however the repository is made."""
    shop.make("dev-only", {"a": "x"}, branch="dev")
    yield Expected("named-branch", {"id": "named-branch", "url": shop.url("dev-only"), "branch": "dev"})
    path = shop.make("detached", {"a": "x"})
    git(path, "update-ref", "--no-deref", "HEAD", "refs/heads/main")
    yield Expected("detached", {"id": "detached", "url": shop.url("detached")}, about={"repository.branch": ""})
    shop.make("far-future", {"a": "x"}, when=10**15)
    yield Expected(
        "far-future", {"id": "far-future", "url": shop.url("far-future")}, about={"repository.maintained": "unknown"}
    )
    shop.raw_tree("odd-names", [("100644", "a\nb", b"x"), ("100644", "caf\udce9.py", b"import x")])
    yield Expected("odd/../names", {"id": "odd/../names", "url": shop.url("odd-names")}, about={"repository.files": 2})
    hooked = shop.make("hooked", {"a": "x"})
    (hooked / "hooks").mkdir()
    (hooked / "hooks" / "post-checkout").write_text("#!/bin/sh\nexit 1\n")
    (hooked / "hooks" / "post-checkout").chmod(0o755)
    yield Expected("hooked", {"id": "hooked", "url": shop.url("hooked")})


def _refused(shop: Workshop, _: str) -> Iterator[Expected]:
    """Not taken, for what is in them or is not."""
    made: dict[str, tuple[Callable[[str], object], str]] = {
        "empty": (shop.empty, "no commits"),
        "no-default": (lambda name: shop.make(name, {"a": "x"}, branch="dev"), "no default branch"),
        "link-to-etc": (lambda name: shop.make(name, {"etc": Link("/etc")}), "'etc' leads out"),
        "link-up": (lambda name: shop.make(name, {"d/l": Link("../../../x")}), "'d/l' leads out"),
        "link-by-link": (
            lambda name: shop.make(name, {"p/q/d": Link("../.."), "l": Link("p/q/d/../../x")}),
            "'l' leads out",
        ),
        "link-into-git": (lambda name: shop.make(name, {"g": Link(".git/config")}), "'g' leads out"),
        "hooks-in-tree": (shop.with_hooks_in_its_tree, "git refuses what is in it"),
        "zeros": (lambda name: shop.make(name, {"z": b"\0" * (MAX_BYTES * 4)}), "more than the limit"),
        "noise": (lambda name: shop.make(name, {"n": os.urandom(MAX_BYTES + 100_000)}), "larger than the limit"),
        "many-files": (lambda name: shop.make(name, {f"f{number}": "" for number in range(400)}), "it has 400 files"),
    }
    for name, (make, says) in made.items():
        make(name)
        yield Expected(name, {"id": name, "url": shop.url(name)}, "clone", says)
    damaged = shop.make("damaged", {"a": "x" * 100})
    for file in (damaged / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"rubbish")
    yield Expected("damaged", {"id": "damaged", "url": shop.url("damaged")}, "clone", "git")


def _addresses(shop: Workshop, _: str) -> Iterator[Expected]:
    """Not taken, for what the list says."""
    shop.make("target", {"a": "x"})
    bad = {
        "option": ("--upload-pack=touch /tmp/x", "option of git"),
        "helper": ("ext::sh -c touch% /tmp/x", "transport helpers"),
        "git-protocol": ("git://host.invalid/x", "'git' is not allowed"),
        "path": (str(shop.folder / "target.git"), "written file:///path"),
        "with-login": ("https://me:word@host.invalid/x", "login"),
        "metadata": ("http://169.254.169.254/x.git", "cloud metadata"),
        "unresolved": ("https://host.invalid/x", "cannot be resolved"),
        "nowhere": (shop.url("nowhere"), "there is no repository"),
        "no-repository": ("file:///etc", "there is no repository"),
    }
    for name, (url, says) in bad.items():
        yield Expected(name, {"id": name, "url": url}, "clone", says)
    yield Expected("no-url", {"id": "no-url"}, "clone", "no `url`")
    yield Expected(
        "no-branch", {"id": "no-branch", "url": shop.url("target"), "branch": "nope"}, "clone", "no branch 'nope'"
    )
    yield Expected(
        "bad-branch", {"id": "bad-branch", "url": shop.url("target"), "branch": "-x"}, "clone", "name of a branch"
    )


def _over_http(shop: Workshop, server_url: str) -> Iterator[Expected]:
    """Over the loopback server of tests/shared/git_server.py."""
    git(shop.make("served", javascript("served")), "update-server-info")
    for way in ("smart", "dumb", "moved"):
        yield Expected(
            f"http-{way}",
            {"id": f"http-{way}", "url": f"{server_url}/{way}/served.git"},
            about={"about.name": "served"},
        )
    failing = {
        "away": "cloud metadata",
        "loop": "redirects",
        "login": "needs a login",
        "broken": "cannot be reached",
        "none": "there is no repository",
    }
    for way, says in failing.items():
        yield Expected(f"http-{way}", {"id": f"http-{way}", "url": f"{server_url}/{way}/served.git"}, "clone", says)


FEW = (
    "MMM-Clock0-----ada sun0 bare bomb-image submodule named-branch empty no-default link-to-etc hooks-in-tree option "
    "helper http-moved http-login"
).split()
