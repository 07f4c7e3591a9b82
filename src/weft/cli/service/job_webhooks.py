"""`weft jobs webhooks`: a task's webhook deliveries, and replays."""

from __future__ import annotations

from itertools import islice

import click
import msgspec

from weft.cli.service.service_flags import client, service_flags
from weft.cli.terminal.output import print_document, printable


@click.group()
def webhooks() -> None:
    """Show a task's webhook deliveries and failures; send events again."""


@webhooks.command("list")
@click.argument("task_id")
@click.option("--failed", is_flag=True, help="Only events that were never delivered.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=1000, show_default=True, help="At most this many."
)
@service_flags
def list_(
    task_id: str, failed: bool, limit: int, server: str | None, key_file: str | None, as_json: bool, quiet: bool
) -> int:
    """Show the progress of a task's webhook, and the result of each event."""
    weft = client(server, key_file)
    hook = weft.webhook(task_id)
    deliveries = list(
        islice((one for one in weft.deliveries(task_id) if not failed or one.delivered_at is None), limit)
    )
    if as_json:
        print_document(msgspec.to_builtins(hook) | {"deliveries": msgspec.to_builtins(deliveries)})
        return 0
    for one in deliveries:
        result = one.error or f"HTTP {one.status}"
        tries = "" if one.attempts == 1 else f"  {one.attempts} attempts"
        click.echo(printable(f"{one.number:>8}  {one.event:9}  {one.last_at:%Y-%m-%d %H:%M:%S}  {result}{tries}"))
    if not quiet:
        again = f", next attempt {hook.next_attempt_at:%Y-%m-%d %H:%M:%S}" if hook.next_attempt_at else ""
        error = f" ({hook.last_error})" if hook.last_error else ""
        click.echo(printable(f"{hook.url}: {hook.state}{error}{again}"), err=True)
    return 0


@webhooks.command()
@click.argument("task_id")
@click.option("--number", "numbers", metavar="N", type=int, multiple=True, help="This event alone; may be repeated.")
@click.option("--after", metavar="N", type=int, help="All events after this one; -1 for all.")
@service_flags
def replay(
    task_id: str, numbers: tuple[int, ...], after: int | None, server: str | None, key_file: str | None,
    as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Send a task's events again, with the same ids.

    Without a number, a webhook that was given up continues where it stopped.
    """
    hook = client(server, key_file).replay(task_id, after=after, numbers=numbers)
    if as_json:
        print_document(msgspec.to_builtins(hook))
    elif not quiet:
        click.echo(printable(f"{hook.url}: {hook.state}"), err=True)
    return 0


@webhooks.command()
@service_flags
def secret(server: str | None, key_file: str | None, as_json: bool, quiet: bool) -> int:  # noqa: ARG001
    """Print the secret that signs deliveries, to verify signatures."""
    webhook_secret = client(server, key_file).webhook_secret()
    if as_json:
        print_document({"secret": webhook_secret})
    else:
        click.echo(webhook_secret)
    return 0
