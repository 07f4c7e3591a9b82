"""What `modules` reads from manifests and READMEs of any content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.pipelines.builtin.modules.analysis import manifest, readme

README = """
Clock
=====

![Build](https://img.shields.io/build.svg) ![the clock](images/clock.png)
<img alt="x" src='docs/night.jpg'>

## Installation

```sh
# this is no heading
git clone …
```

Usage
-----
Words enough for anyone, %s.

### License
MIT
""" % ("word " * 60)


def test_package_json_is_read() -> None:
    found = manifest.of_package_json(
        json.dumps(
            {
                "name": "clock",
                "version": "1.2.3",
                "description": "  A\n clock ",
                "author": "Ada <ada@example.org> (https://example.org)",
                "license": "MIT",
                "keywords": ["Clock", "big  time", "clock", 7, ""],
                "scripts": {"test": "jest --ci"},
                "dependencies": {"moment": "^2.0.0"},
                "devDependencies": {"jest": "*"},
            }
        )
    )
    assert (found.name, found.version, found.description, found.author) == ("clock", "1.2.3", "A clock", "Ada")
    assert found.keywords == ("clock", "big-time")
    assert found.scripts == ("jest --ci",)
    assert found.declared == {"dependencies": {"moment": "^2.0.0"}, "devDependencies": {"jest": "*"}}


def test_pyproject_is_read() -> None:
    found = manifest.of_pyproject(
        """
        [project]
        name = "sun"
        version = "0.1"
        authors = [{name = "Grace", email = "g@example.org"}]
        license = {text = "BSD-3-Clause"}
        keywords = ["sun", "Time Zones"]
        dependencies = ["requests>=2", "PyYAML ; python_version < '3.13'", "broken >"]
        urls = {Homepage = "https://example.org"}
        [project.optional-dependencies]
        fast = ["orjson[x]==3.*"]
        [dependency-groups]
        dev = ["pytest", {include-group = "fast"}]
        [build-system]
        requires = ["hatchling"]
        """
    )
    assert (found.name, found.author, found.licence, found.homepage) == (
        "sun",
        "Grace",
        "BSD-3-Clause",
        "https://example.org",
    )
    assert found.keywords == ("sun", "time-zones")
    assert found.declared == {
        "dependencies": {"requests": ">=2", "pyyaml": ""},
        "optional:fast": {"orjson": "==3.*"},
        "group:dev": {"pytest": ""},
        "build-system": {"hatchling": ""},
    }


def test_poetrys_table_and_a_licence_by_classifier_are_read() -> None:
    poetry = manifest.of_pyproject(
        """
        [tool.poetry]
        name = "moon"
        authors = ["Mary <m@example.org>"]
        [tool.poetry.dependencies]
        python = "^3.11"
        requests = {version = "^2.0", optional = true}
        [tool.poetry.group.dev.dependencies]
        pytest = "*"
        """
    )
    assert (poetry.name, poetry.author) == ("moon", "Mary")
    assert poetry.declared == {"dependencies": {"requests": "^2.0"}, "group:dev": {"pytest": "*"}}
    classified = manifest.of_pyproject('[project]\nname="x"\nclassifiers=["License :: OSI Approved :: MIT License"]')
    assert classified.licence == "MIT License"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "[" * 100_000, '{"keywords": {"a": 1}, "author": [], "license": 7}']
)
def test_a_package_json_of_any_content_is_a_manifest(text: str) -> None:
    found = manifest.of_package_json(text)
    assert found.file == "package.json" and found.keywords == ()
    assert bool(found.problem) == ("keywords" not in text)


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["name", "license", "type", "author", "keywords", "dependencies", "scripts", "x"]),
                inner,
            )
        ),
    )
)
def test_no_value_of_the_wrong_type_breaks_a_manifest(value: Any) -> None:
    assert manifest.of_package_json(json.dumps(value)).file == "package.json"


@pytest.mark.parametrize("text", ["=", "[project]\ndependencies = 7", "[tool]\npoetry = []", "a = " + "[" * 5_000])
def test_a_pyproject_of_any_content_is_a_manifest(text: str) -> None:
    assert manifest.of_pyproject(text).declared == {}


def test_a_readme_is_checked() -> None:
    found = readme.checked("README.md", README)
    assert found.headings == 4 and found.code_blocks == 1 and found.badges == 1
    assert found.images == ("images/clock.png", "docs/night.jpg")
    assert found.problems == ()
    assert found.has["installation"] and found.has["usage"] and found.has["licence"] and found.has["code"]
    assert not found.has["updating"]


def test_what_a_readme_lacks_is_said() -> None:
    assert readme.checked("README", "").problems == (
        "it is empty",
        "it has no heading",
        "no section about installation",
        "no section about usage",
        "the licence is not mentioned in a heading",
    )
    assert readme.checked("README.md", "# Clock\nshort").problems[0] == "it has 2 words"


def test_headings_in_code_and_lines_without_a_text_above_are_none() -> None:
    assert readme.checked("README.md", "```\n# Usage\n```\n\n---\n\n-----\n").headings == 0


@pytest.mark.parametrize("piece", ["<img ", "![", "![a](", "<h1>", "# # ", " ", "=", "#", "\n=\n", "<img src="])
def test_a_readme_of_any_shape_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    """With patterns that begin again at each place, 300,000 characters of some of these take minutes."""
    assert readme.checked("README.md", (piece * 300_000)[:300_000]).file == "README.md"
    assert readme.checked("README.md", "# " + (piece * 300_000)[:300_000]).headings >= 0
