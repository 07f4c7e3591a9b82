"""Command-line flags for the keys of the configuration, generated from the keys.

The flag of a list accepts `a,b` and may be repeated; that of a mapping accepts one NAME=VALUE, whose value may have
commas, and may be repeated. A flag is also accepted under its key's name (`--politeness-delay-seconds` for `--delay`);
the error for an unknown flag suggests a known one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.messages import as_flags

if TYPE_CHECKING:
    from weft.config import Key

# Section of the configuration → its heading in the help, in this order.
GROUPS = {
    "scope": "Where to go",
    "limits": "When to stop",
    "extract": "What to extract from pages",
    "spider": "Your own code",
    "login": "Logins through a form",
    "logins": "Named logins",
    "store": "What to store",
    "run": "An existing crawl",
    "politeness": "How to treat a site",
    "fetch": "How to request pages",
    "proxy": "Proxies",
    "cluster": "Other machines",
    "pods": "Pods and processes",
    "redis": "Redis of the pods",
    "log": "Logs and metrics",
}
# The first flags of their groups.
FIRST = ("data_dirs", "email", "seed_file", "num_pods")
_METAVARS = {
    "seed_file": "FILE",
    "exclude_file": "FILE",
    "extract": "FILE",
    "login": "FILE",
    "logins": "FILE",
    "spider": "FILE[:CLASS]",
    "scrapy": "FILE|MODULE[:CLASS]",
    "on_page": "FILE:NAME",
    "proxies": "FILE",
    "proxy_sources": "FILE|URL",
    "proxy_test_url": "URL",
    "proxy_test_tls_url": "URL",
    "log_dir": "DIR",
    "email": "ADDRESS",
    "auth": "HOST=USER:PASSWORD",
    "headers": "[HOST:]NAME=VALUE",
    "resolve": "HOST=ADDRESS",
    "dns_servers": "ADDRESS",
    "data_dirs": "DIR",
    "data_dir": "DIR",
    "host": "ADDRESS",
    "log_level": "LEVEL",
    "only_pods": "0-3",
    "pods": "URL",
}
_SHOW_ALL_KEY = "weft.help_all"
HEADER_FLAG = "--header"
_HEADER_AS_SENT = re.compile(r"([^\s=]+):\s+(.*\S)\s*", re.DOTALL).fullmatch


class SettingsCommand(click.Command):
    """A command with a flag for every key: `--help` lists those that most crawls need, `--help-all` lists all."""

    groups = GROUPS
    product = "crawl"
    all_of: frozenset[str] = frozenset()  # sections of which `--help` lists every flag
    tuning = "What tunes a crawl (retries, breakers, timeouts, processes, Redis)"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags in groups; flags that are not settings are last."""
        settings = [option for option in self.params if isinstance(option, SettingOption)]
        others = [
            option
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and not isinstance(option, SettingOption)
        ]
        for section, heading in self.groups.items():
            listed = [option for option in settings if option.key.section == section]
            listed = [
                option
                for option in listed
                if _SHOW_ALL_KEY in ctx.meta or section in self.all_of or not option.key.tuning
            ]
            _write(ctx, formatter, heading, listed)
        _write(ctx, formatter, "Output and help", others)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes notes that apply to all flags."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(
                "Every flag is also a key of the configuration file and a WEFT_* variable: see docs/settings.md. A "
                "list takes A,B and may be repeated, NAME=VALUE may be repeated, and a switch has an opposite "
                "(--no-resume)."
            )
            if _SHOW_ALL_KEY not in ctx.meta:
                formatter.write_paragraph()
                formatter.write_text(f"{self.tuning} is in --help-all.")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses arguments; the error for an unknown flag names the intended setting."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"No such option {error.option_name!r}{self._answer(error.option_name)}", ctx
            ) from None

    def _answer(self, flag: str) -> str:
        from weft.config import keys, own_names, product_named
        from weft.names import answer

        known = keys(product_named(self.product))
        own = own_names(known)
        # The command's own flags are not settings, but may be meant as well.
        others = {
            option.lstrip("-").replace("-", "_"): option
            for parameter in self.params
            for option in parameter.opts
            if parameter.name not in known and option.startswith("--")
        }
        name = flag.lstrip("-").replace("-", "_").lower()
        suggestion = answer(name, own | others, lambda other: others.get(other) or known[own[other]].flag)
        return suggestion.replace("the key is", "the flag is").replace(
            "weft config schema", f"weft {self.name} --help-all"
        )


class SettingOption(click.Option):
    """The flag of a key. The key's name is accepted as well, which the help leaves out."""

    def __init__(self, flags: list[str], key: Key, **how: Any) -> None:
        super().__init__(flags, **how)
        self.key = key

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002
        """The help of the flag: `--delay N`, its meaning and its default."""
        key, words = self.key, self.key.default_words
        flag = key.flag if key.default is not True else f"--[no-]{key.flag[2:]}"
        flag = f"{key.letter}, {flag}" if key.letter else flag
        name = flag if key.schema.get("type") == "boolean" else f"{flag} {self.metavar}"
        default_text = (
            f"  [default: {words}]" if words and (words != "off" or key.schema.get("type") != "boolean") else ""
        )
        return name, as_flags(sentence(key.help)) + default_text


def sentence(text: str) -> str:
    """A key's help text as a sentence."""
    return text[0].upper() + text[1:] + "."


def help_all(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flag `--help-all`."""

    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[_SHOW_ALL_KEY] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.option(
        "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show every flag and exit."
    )(command)


def _write(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, options: Sequence[click.Parameter]
) -> None:
    if records := [record for option in options if (record := option.get_help_record(ctx)) is not None]:
        with formatter.section(heading):
            formatter.write_dl(records)


def config_flags(
    command: Callable[..., Any], product: str = "crawl", without: str = "", only: Sequence[str] = ()
) -> Callable[..., Any]:
    """Adds a flag for every key of a product, except those of one section; the command gets the given values.

    `only`: the sections and keys to add flags for.
    """
    from weft.config import keys, product_named

    known = {name: key for name, key in keys(product_named(product)).items() if key.section != without}
    if only:
        known = {name: key for name, key in known.items() if key.section in only or name in only}
    ordered = [*(name for name in FIRST if name in known), *(name for name in known if name not in FIRST)]
    for name in reversed(ordered):
        command = _make_option(known[name])(command)
    return command


def given(values: dict[str, Any], product: str = "crawl") -> dict[str, Any]:
    """The keys that were given on the command line, from all parameters of a command."""
    from weft.config import IN_FILES, PATTERNS, keys, product_named

    flags: dict[str, Any] = {}
    for name, item in keys(product_named(product)).items():
        value = values.get(name)
        if value is None or value == ():
            continue
        if item.schema.get("type") == "object" and name not in IN_FILES:
            value = _parse_pairs(item.letter or item.flag, value)
        elif isinstance(value, tuple):
            value = several(value, patterns=name in PATTERNS)
        flags[name] = value
    return flags


def several(texts: Iterable[str], *, patterns: bool = False) -> list[str]:
    """The items of a flag that may be repeated, with several items each time."""
    from weft.config import split

    return [item for text in texts for item in split(text, patterns=patterns)]


def _make_option(item: Key) -> Callable[..., Any]:
    from weft.config import IN_FILES

    kind, by_key = item.schema.get("type"), "--" + item.name.replace("_", "-")
    flags = list(dict.fromkeys(filter(None, (item.letter, item.flag, by_key))))
    if kind == "boolean":
        # A switch that a file or a variable has set must be reversible on the command line.
        flags = [f"{flag}/--no-{flag[2:]}" for flag in flags]
        return click.option(*flags, item.name, cls=SettingOption, key=item, default=None)
    several = (kind in ("array", "object") and item.name not in IN_FILES) or item.name == "only_pods"
    metavar = _METAVARS.get(item.name) or {"array": "A,B", "object": "NAME=VALUE"}.get(str(kind))
    metavar = metavar or _metavar_of(item.schema)
    return click.option(*flags, item.name, cls=SettingOption, key=item, metavar=metavar, multiple=several)


def _metavar_of(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    kinds = {s.get("type") for s in schema.get("anyOf", [schema])}
    return "N" if kinds & {"integer", "number"} else "TEXT"


def _parse_pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Parses NAME=VALUE texts; a repeated name is refused, since one of the values would have no effect."""
    pairs: dict[str, str] = {}
    for name, value in (_parse_pair(flag, text) for text in texts):
        if name in pairs:
            both = f": write one, {flag} 'Cookie=A; B'" if name.lower() == "cookie" else ""
            raise click.UsageError(f"{flag}: {name!r} is given twice{both}")
        pairs[name] = value
    return pairs


def _parse_pair(flag: str, text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if flag == HEADER_FLAG and (as_sent := _HEADER_AS_SENT(text)):
        return as_sent[1], as_sent[2]  # `Cookie: a=b`, as other tools take it
    if not mark:
        # Do not quote the text: all of it may be a secret.
        raise click.UsageError(f"{flag}: {name.partition(':')[0]!r} has no value: write {flag} NAME=VALUE")
    return name.strip(), value.strip()
