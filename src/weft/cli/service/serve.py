"""`weft serve`: runs the scrape service until it is stopped."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.terminal.output import output_flags, print_document
from weft.cli.terminal.settings import SettingsCommand, config_flags, given, help_all


class ServeCommand(SettingsCommand):
    """A command with the service's flags."""

    product = "service"
    tuning = "What tunes it (timeouts, headers, logs)"
    groups = {  # noqa: RUF012 - never changed
        "server": "Where to listen",
        "jobs": "Tasks",
        "fetch": "How to request pages",
        "proxy": "Proxies",
        "cluster": "Other machines",
        "log": "Logs",
    }


@click.command(cls=ServeCommand, context_settings={"max_content_width": 120})
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@lambda command: config_flags(command, "service", without="services")
@output_flags
@help_all
def serve(config_file: str | None, as_json: bool, quiet: bool, **values: Any) -> int:
    """Run the scrape service, which accepts tasks over HTTP and runs them in the background.

    \b
    weft serve --email you@example.com
    curl -d '{"url": "https://example.com"}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:8000/scraping/async-scrape

    Tasks and pages are kept in the data dir; a service that is started with it again continues them. Ctrl-C stops it
    cleanly. Its address in a browser is the dashboard. Beyond loopback it needs API keys.
    """
    from weft.config import load_service
    from weft.jobs.processes.services import ALL_ADDRESSES
    from weft.system.background import log_in_foreground
    from weft.system.supervisor import Supervisor

    config = load_service(config_file, flags=given(values, "service"))
    supervisor = Supervisor(config)

    def say() -> None:
        url = supervisor.urls["api"]
        if as_json:
            print_document({"url": url})
        elif not quiet:
            where = f"open it in a browser; its routes: {url}/docs"
            if config.server.host in ALL_ADDRESSES:
                where += "; other machines: the same port at this machine's address"
            click.echo(f"weft: the scrape service listens on {url} ({where})", err=True)

    supervisor.run(say, ("engine", "api"), until_failure=True, is_open=lambda: log_in_foreground(config))
    return 0
