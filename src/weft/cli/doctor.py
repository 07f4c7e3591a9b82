"""`weft doctor`: checks what Weft needs on this machine, with remedies for what is missing."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from weft.cli.service.serve import ServeCommand
from weft.cli.terminal.output import output_flags, print_document, printable
from weft.cli.terminal.settings import config_flags, given, help_all

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


class DoctorCommand(ServeCommand):
    """The flags of the settings that are checked."""

    groups = {"services": "What is to run", **ServeCommand.groups}  # noqa: RUF012 - never changed


@click.command(cls=DoctorCommand, context_settings={"max_content_width": 120})
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings.")
@lambda command: config_flags(command, "service")
@output_flags
@help_all
def doctor(config_file: str | None, as_json: bool, quiet: bool, **values: Any) -> int:
    """Check what Weft needs on this machine, and say how to fix problems.

    Python, optional parts, Redis or Valkey, ports, open files, memory, disk, folders, a service's files, clock,
    Chromium. Nothing is changed. The exit code is 1 if something prevents `weft up` with these settings, else
    0.
    """
    from weft.config import load_service
    from weft.system.doctor.doctor import examine
    from weft.system.doctor.finding import CheckState

    findings = list(examine(load_service(config_file, flags=given(values, "service"))))
    is_well = all(one.verdict is not CheckState.PROBLEM for one in findings)
    if as_json:
        print_document({"ok": is_well, "findings": [dataclasses.asdict(one) for one in findings]})
        return 0 if is_well else 1
    for one in findings:
        if quiet and one.verdict is not CheckState.PROBLEM:
            continue
        word = click.style(f"{one.verdict:8}", fg=_COLOURS[one.verdict])
        click.echo(f"{word} {one.name:17} {printable(one.found)}")
        if one.advice:
            click.echo(f"{'':8} {'':17} → {printable(one.advice)}")
    return 0 if is_well else 1
