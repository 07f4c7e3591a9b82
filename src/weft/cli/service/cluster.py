"""`weft cluster` and `weft worker`: the key of a cluster, what it is doing, and a machine that works for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.output import columns, output_flags, print_document, printable

if TYPE_CHECKING:
    from weft.config import ClusterSection

_config_file = click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
_broker = click.option("--broker", metavar="URL", help="The broker, as in redis://10.0.0.7:6379/0 (WEFT_BROKER).")
_key_file = click.option("--key-file", metavar="FILE", help="File with the cluster's key (WEFT_CLUSTER_KEY_FILE).")


@click.group()
def cluster() -> None:
    """Have other machines fetch and compute for the crawls of this one.

    One machine decides, and keeps everything; any number of workers carry out short tasks. They meet at a broker, a
    Redis or Valkey, and know each other by a key.
    """


@cluster.command()
@click.option("--key-file", metavar="FILE", default="cluster.key", show_default=True, help="Where the key is written.")
@_broker
@output_flags
def init(key_file: str, broker: str | None, as_json: bool, quiet: bool) -> int:
    """Make a cluster's key, and say what to do with it on this machine and the others."""
    from weft.cluster.broker import Broker, is_private
    from weft.cluster.key import make_key

    url = broker or os.environ.get("WEFT_BROKER") or ""
    if url:
        probe = Broker(url, "")
        probe.check()
        probe.close()
    path = Path(key_file).absolute()
    key = make_key(path)
    address = url or "redis://BROKER:6379/0"
    line = f"weft worker --broker {shlex.quote(address)} --key-file {shlex.quote(path.name)}"
    if as_json:
        print_document({"cluster": key.cluster_id, "key_file": str(path), "worker": line})
        return 0
    click.echo(
        f"cluster {key.cluster_id}: its key is in {printable(str(path))}; with it a machine can send and run tasks"
    )
    if not quiet:
        click.echo(f"on every other machine: copy the key there (mode 0600), then\n\n    {printable(line)}\n", err=True)
        if url and not is_private(url):
            why = "requests with passwords or cookies do not go to workers over it; use rediss://"
            click.echo(f"weft: this broker is asked without TLS: {why}", err=True)
    return 0


@cluster.command()
@_config_file
@_broker
@_key_file
@click.option("--data-dir", metavar="DIR", default=None, help="Of `weft up --cluster`: whose broker and key are asked.")
@output_flags
def status(
    config_file: str | None, broker: str | None, key_file: str | None, data_dir: str | None, as_json: bool, quiet: bool
) -> int:
    """Show a cluster's brain, hands, queues, and what was refused.

    Without a broker it is the cluster of the `weft up --cluster` whose data dir this is.
    """
    from contextlib import closing

    from weft.cluster.dispatch import Cluster
    from weft.cluster.status import cluster_status

    with closing(Cluster.configured(_cluster_section(config_file, broker, key_file, data_dir, of_up=True))) as one:
        one.broker.check()
        facts = cluster_status(one)
    if as_json:
        print_document(facts)
    else:
        _print_status(facts, quiet=quiet)
    return 0


@click.command()
@_config_file
@_broker
@_key_file
@click.option("--queues", metavar="NAMES", default="", help="Of fetch, render, batches, proxies; default: all it can.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=None,
    help="Tasks at a time; default: one a core.",
)
@click.option("--no-browser-sandbox", is_flag=True, help="Run browsers without their sandbox, where none can be had.")
@click.option("--accept-code", is_flag=True, help="Run code of users that comes with tasks, signed with the key.")
@click.option("--visibility-timeout", type=click.FloatRange(1, 86400), metavar="S", default=3600.0, hidden=True)
def worker(
    config_file: str | None,
    broker: str | None,
    key_file: str | None,
    queues: str,
    concurrency: int | None,
    no_browser_sandbox: bool,
    accept_code: bool,
    visibility_timeout: float,
) -> int:
    """Work for a cluster on this machine, until it is stopped.

    \b
    weft worker --broker rediss://:PASSWORD@10.0.0.7:6379/0 --key-file cluster.key

    Ctrl-C or SIGTERM lets tasks that run come to their end; a second one does not.
    """
    from weft.cluster.hand import Hand, chosen_queues, say_on_stderr
    from weft.cluster.key import configured_broker, configured_key

    section = _cluster_section(config_file, broker, key_file)
    url, key = configured_broker(section), configured_key(section)
    chosen = [name for name in queues.replace(",", " ").split() if name]
    names = chosen_queues(chosen, browser_sandbox=not no_browser_sandbox)
    many = concurrency or len(os.sched_getaffinity(0))
    hand = Hand(
        url,
        key,
        names,
        concurrency=many,
        accept_code=accept_code,
        say=say_on_stderr,
        visibility_s=visibility_timeout,
        shared_dir=Path(section.shared_dir) if section.shared_dir else None,
        browser_sandbox=not no_browser_sandbox,
    )
    return hand.run()


def _cluster_section(
    config_file: str | None,
    broker: str | None,
    key_file: str | None,
    data_dir: str | None = None,
    *,
    of_up: bool = False,
) -> ClusterSection:
    """The settings of the cluster: flags, then the environment, then the file; `of_up`: then those that
    `weft up --cluster` has made in its data dir."""
    from weft.config import load_service

    given = {"broker": broker, "cluster_key_file": key_file, "data_dir": data_dir}
    config = load_service(config_file, flags={name: value for name, value in given.items() if value})
    if of_up and (data_dir or not config.cluster.broker):
        from weft.system.celery import KEY, with_cluster

        if data_dir or (Path(config.server.data_dir) / KEY).exists():
            return with_cluster(config, may_make=False).cluster
    return config.cluster


def _print_status(facts: dict[str, Any], *, quiet: bool) -> None:
    brain = facts["brain"]
    about = f"brain on {brain.get('host')}, pid {brain.get('pid')}" if brain else "no brain"
    click.echo(printable(f"cluster {facts['cluster']} at {facts['broker']}: {about}"))
    rows: list[tuple[str, ...]] = [("hand", "state", "report", "tasks", "done", "failed", "load", "queues")]
    rows += [_hand_row(hand) for hand in facts["hands"]]
    if len(rows) > 1:
        click.echo("\n".join(printable(line) for line in columns(rows)))
    elif not quiet:
        click.echo("no hands; start one with `weft worker`", err=True)
    waiting = ", ".join(f"{name} {length:,}" for name, length in facts["queues"].items() if length)
    click.echo(f"waiting: {waiting or 'nothing'}")
    refused = ", ".join(f"{name} {n:,}" for name, n in facts["refused"].items())
    if refused:
        click.echo(printable(f"refused: {refused}"))
    for one in facts["refused_hands"]:
        click.echo(printable(f"{one['age_s']:.0f} s ago: {one['why']}"))


def _hand_row(hand: dict[str, Any]) -> tuple[str, ...]:
    if hand["state"] == "refused":
        return (hand["hand"], "refused", f"{hand['age_s']:.0f} s ago", "", "", "", "", hand["why"])
    tasks = f"{hand['running']} of {hand['concurrency']}"
    counts = (str(hand["done"]), str(hand["failed"]), str(hand["load"]))
    return (hand["hand"], hand["state"], f"{hand['age_s']:.0f} s ago", tasks, *counts, ",".join(hand["queues"]))
