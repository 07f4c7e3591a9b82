"""`weft compose`: a Docker Compose file for the Redis servers of a crawl's pods."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.terminal.output import output_flags, print_document


@click.command()
@click.option(
    "--pods", metavar="N", type=int, default=16, show_default=True, help="How many servers, one for each pod."
)
@click.option(
    "--base-port", metavar="PORT", type=int, default=6379, show_default=True, help="The host's port of the first one."
)
@click.option(
    "--total-memory-gb", metavar="GB", type=int, default=1440, show_default=True, help="Memory of all servers together."
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default="docker-compose.yml",
    show_default=True,
    help="The file.",
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The host's address that the servers listen on.",
)
@click.option("--monitoring/--no-monitoring", default=True, help="Prometheus and Grafana beside them.  [default: with]")
@click.option("--backup", is_flag=True, help="Keep a file that exists as NAME.bak, instead of refusing.")
@output_flags
def compose(
    pods: int,
    base_port: int,
    total_memory_gb: int,
    output: Path,
    bind: str,
    monitoring: bool,
    backup: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write a Docker Compose file for the Redis servers of a crawl's pods.

    \b
    weft compose --pods 4 --total-memory-gb 64 > crawl.yaml

    Standard output has the `pods:` list that goes with it; what to run next goes to standard error. Passwords are
    generated into `.env`, Prometheus and Grafana with the crawl's dashboard listen on 127.0.0.1:9090 and :3000.
    """
    import yaml

    from weft.system.compose import ComposePlan

    plan = ComposePlan(pods, base_port, total_memory_gb, output, bind, monitoring)
    written = plan.write(backup=backup)
    if as_json:
        print_document(
            {
                "files": [str(path) for path in written],
                "pods": [pod["redis_url"] for pod in plan.crawl_settings()["pods"]],
                "memory_mb": {"limit": plan.pod_mb, "maxmemory": plan.filled_mb},
                "start": plan.start_commands(),
            }
        )
        return 0
    click.echo(yaml.safe_dump(plan.crawl_settings(), sort_keys=False), nl=False)
    if not quiet:
        click.echo(_summary(plan.pods, plan.ports, plan.pod_mb, plan.filled_mb, written), err=True)
        if bind not in ("127.0.0.1", "::1"):
            click.echo(
                f"The servers listen on {bind}: only the password protects them, and nothing is encrypted.", err=True
            )
        folder = "" if output.parent == Path() else f" in {output.parent}"
        click.echo(f"With the lines on standard output in crawl.yaml, run{folder}:", err=True)
        for command in plan.start_commands():
            click.echo(f"  {command}", err=True)
    return 0


def _summary(pods: int, ports: range, pod_mb: int, filled_mb: int, written: list[Path]) -> str:
    which = f"port {ports[0]}" if pods == 1 else f"ports {ports[0]} to {ports[-1]}"
    servers = "1 Redis server" if pods == 1 else f"{pods} Redis servers"
    wrote = f"Wrote {', '.join(map(str, written))}." if written else "All files are there already."
    return f"{wrote}\n{servers}, {which}, {pod_mb:,} MB each, of which data may fill {filled_mb:,} MB."
