"""The keys of the configuration, their names and accepted values: read from the sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints

import msgspec

from weft.config.section import LARGEST, LONGEST_S
from weft.config.tree import CRAWL, IN_FILES, LETTERS, SHORT_FLAGS, Product


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration: its section, its name and the values it accepts."""

    name: str
    section: str
    attribute: str
    type: Any
    help: str
    schema: dict[str, Any]
    default: Any
    tuning: bool  # for few crawls: only in `--help-all`
    computed: str = ""  # description of a default that follows from other values

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return SHORT_FLAGS.get(self.name, "--" + self.name.replace("_", "-"))

    @property
    def letter(self) -> str:
        """Its flag of one letter, if it has one."""
        return LETTERS.get(self.name, "")

    @property
    def default_words(self) -> str:
        """The default as text; empty if it is None."""
        if self.computed:
            return self.computed
        value = self.default
        if isinstance(value, bool):
            return "on" if value else "off"
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        if isinstance(value, int | float):
            return f"{value:g}" if isinstance(value, float) else str(value)
        return str(value or "")


@cache
def keys(product: Product = CRAWL) -> Mapping[str, Key]:
    """Every key of a product, in the order of the sections."""
    by_name = {}
    for section, struct in get_type_hints(product.tree).items():
        hints = get_type_hints(struct, include_extras=True)
        (_, defs) = msgspec.json.schema_components([struct], ref_template="{name}")
        properties = defs[struct.__name__]["properties"]
        if "PodSpec" in defs:
            properties["pods"]["items"] = defs["PodSpec"]
        for info in msgspec.structs.fields(struct):
            schema = properties[info.encode_name]
            default = (
                info.default_factory() if info.default is msgspec.NODEFAULT and not info.required else info.default
            )
            by_name[info.encode_name] = Key(
                info.encode_name, section, info.name, hints[info.name], schema["description"], schema, default,
                any(getattr(meta, "extra", None) for meta in hints[info.name].__metadata__),
                product.computed_words.get(info.encode_name, ""),
            )  # fmt: skip
    return MappingProxyType(by_name)


def own_names(known: Mapping[str, Key]) -> dict[str, str]:
    """Maps every spelling of a setting, its key and the name of its flag, to the key."""
    return {item.flag.removeprefix("--").replace("-", "_"): name for name, item in known.items()} | {
        name: name for name in known
    }


def json_schema(product: Product = CRAWL) -> dict[str, Any]:
    """A JSON Schema of a product's YAML file, for editors."""
    properties = {}
    for item in keys(product).values():
        # a list of texts may be written as one text
        schema = item.schema
        if item.name == "pods":  # a pod may be written as its URL
            schema = {**schema, "items": {"anyOf": [schema["items"], {"type": "string"}]}}
        if item.name == "only_pods":
            one = {"type": "integer"}, {"type": "array", "items": {"type": ["string", "integer"]}}
            schema = {"anyOf": [*schema["anyOf"], *one]}
        if schema.get("type") == "array" or item.name in IN_FILES:  # may be the name of a file with the value
            schema = {"anyOf": [schema, {"type": "string"}]}
        properties[item.name] = {**schema, "description": item.help}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Weft configuration" if product is CRAWL else f"Weft configuration of the {product.name}",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def accepted(schema: dict[str, Any]) -> str:
    """The accepted values of a key as text."""
    if "anyOf" in schema:
        return " or ".join("nothing" if s.get("type") == "null" else accepted(s) for s in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return "a list of " + _plural(schema.get("items", {}))
    if "exclusiveMaximum" in schema:
        return f"a number above {schema['exclusiveMinimum']:g} and below {schema['exclusiveMaximum']:g}"
    if schema.get("type") == "object" and schema.get("additionalProperties", {}).get("type") in (None, "object"):
        return "a mapping, or a file that has one"
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "a text",
        "object": "a mapping of texts, like {NAME: VALUE}",
    }
    text = words.get(schema.get("type", ""), "another value")
    most = schema.get("maximum", LARGEST)
    end = "" if most in (LARGEST, LONGEST_S) else f" to {most:,.0f}"
    if "minimum" in schema:
        least = schema["minimum"]
        text += f" from {least:,}" if isinstance(least, int) else f" from {least:g}"
        text += end or " up"
    if "exclusiveMinimum" in schema:
        text += f" above {schema['exclusiveMinimum']:g}" + end.replace(" to ", ", at most ")
    return text


def _plural(items: dict[str, Any]) -> str:
    if "enum" in items:
        return ", ".join(map(str, items["enum"]))
    if items.get("type") == "object":
        return "pods, each `redis_url: redis://HOST:PORT/DB` or `managed: true`"
    return "texts"
