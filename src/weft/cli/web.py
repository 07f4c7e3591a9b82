"""`weft web`: serves the synthetic web until it is stopped, and writes the expected requests of a crawl."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.terminal.output import output_flags
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.testing.content.sites import WorldSpec
    from weft.testing.world import World

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--hosts", metavar="N", default=20, show_default=True, help="How many hosts.")
@click.option("--pages", metavar="N", default=1000, show_default=True, help="How many ordinary pages, over all hosts.")
@click.option("--seed", metavar="N", default=0, show_default=True, help="The same seed gives the same web.")
@click.option("--port", metavar="N", default=8400, show_default=True, help="Port of every host; 0 finds a free one.")
@click.option(
    "--profile", type=click.Choice(["calm", "messy", "hostile"]), default="calm", show_default=True,
    help="How well-kept the web is.",
)  # fmt: skip
@click.option("--arrivals", type=FILE, help="Append every request to this file, as JSON lines.")
@click.option("--expected", type=FILE, help="Write the oracle: which URLs a crawl must, may and must never request.")
@click.option(
    "--crawl-config", type=FILE, help="The crawl that --expected is for (YAML); default: scope any, no limits."
)
@click.option("--seeds", "seeds_file", type=FILE, help="Write the seed URLs to this file.")
@click.option("--tls", is_flag=True, help="Serve https, with certificates of the test authority (see --json: ca_file).")
@click.option(
    "--names/--no-names", default=None, help="Hosts are names on 127.0.0.1 (default with --tls), not addresses."
)
@click.option(
    "--nginx", "nginx_dir", type=click.Path(file_okay=False, path_type=Path), help="Write files and nginx.conf."
)
@click.option("--latency", "latency_ms", metavar="N", default=0.0, help="Milliseconds to wait before every answer.")
@click.option("--gzip", "use_gzip", is_flag=True, help="Compress answers for clients that accept gzip.")
@click.option(
    "--edition",
    metavar="N",
    default=0,
    show_default=True,
    help="A later edition of the same web: some pages have changed.",
)
@click.option(
    "--changed", metavar="N", default=0.05, show_default=True, help="Share of pages that each edition changes."
)
@click.option("--duration", "duration_s", metavar="N", type=float, help="Stop after this many seconds.")
@click.option("--cache-mb", metavar="N", default=256, show_default=True, help="Memory for ready answers.")
@output_flags
def web(
    hosts: int,
    pages: int,
    seed: int,
    port: int,
    profile: Any,
    arrivals: Path | None,
    expected: Path | None,
    crawl_config: Path | None,
    seeds_file: Path | None,
    tls: bool,
    names: bool | None,
    nginx_dir: Path | None,
    latency_ms: float,
    use_gzip: bool,
    edition: int,
    changed: float,
    duration_s: float | None,
    cache_mb: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Serve a deterministic synthetic web on loopback.

    Every host is an address of its own (127.1.0.1 and on). calm is a well-kept web, messy one with failures and traps,
    hostile one that attacks its crawler. The web ends on Ctrl-C or SIGTERM.
    """
    from weft.testing.content.sites import WorldSpec
    from weft.testing.server import ServeOptions, prepare, run

    if cache_mb < 0 or any(not 0 <= number < 1e9 for number in (latency_ms, duration_s or 0.0)):
        raise BadInput("--latency, --cache-mb and --duration must be numbers from 0 up, below a billion")
    if crawl_config and not expected:
        raise BadInput("--crawl-config says which crawl --expected is for: give --expected FILE too")
    spec = WorldSpec(
        hosts=hosts,
        pages=pages,
        seed=seed,
        profile=profile,
        port=port,
        names=tls if names is None else names,
        tls=tls,
        edition=edition,
        changed=changed,
    )
    if nginx_dir:
        _write_nginx(spec, nginx_dir, seeds_file, expected, crawl_config, as_json)
        return
    options = ServeOptions(
        _check_writable(arrivals), latency_ms / 1000, use_gzip, cache_mb << 20, duration_s=duration_s
    )
    server, sockets = prepare(spec, options)
    _write_files(server.world, seeds_file, expected, crawl_config)
    run(server, sockets, lambda: _announce(server.world, seeds_file, as_json, quiet))


def _check_writable(path: Path | None) -> str | None:
    """Checks now that a file can be written, rather than at the first request."""
    if path:
        try:
            path.open("ab").close()
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
    return str(path) if path else None


def _write_file(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _write_files(world: World, seeds_file: Path | None, expected: Path | None, crawl_config: Path | None) -> None:
    seeds = world.seeds()
    if seeds_file:
        _write_file(seeds_file, "".join(f"{seed}\n" for seed in seeds).encode())
    if expected:
        import msgspec

        from weft.testing.oracle import CrawlPlan, expect, plan_from_yaml

        plan = plan_from_yaml(crawl_config, seeds) if crawl_config else CrawlPlan(tuple(seeds))
        _write_file(expected, msgspec.json.format(msgspec.json.encode(expect(world, plan)), indent=1))


def _announce(world: World, seeds_file: Path | None, as_json: bool, quiet: bool) -> None:
    """Prints the facts on stdout, and the next command on stderr."""
    spec = world.spec
    facts: dict[str, Any] = {
        "port": spec.port,
        "profile": spec.profile,
        "hosts": spec.hosts,
        "pages": spec.pages,
        "first_host": world.ordinary[0].home,
        "last_host": world.sites[-1].home,
        "seeds": world.seeds(),
    }
    if as_json:
        import msgspec

        from weft.cli.terminal.output import SCHEMA

        if spec.names:
            facts["resolve"] = world.resolve()
        if spec.tls:
            from weft.testing.tls import CA_FILE

            facts["ca_file"] = str(CA_FILE)
        click.echo(msgspec.json.encode({"schema": SCHEMA} | facts))
        return
    click.echo(f"{spec.pages} pages on {spec.hosts} hosts, {facts['first_host']} to {facts['last_host']}")
    if not quiet:
        seeds = seeds_file or "SEEDS (write them with --seeds SEEDS)"
        click.echo(f"weft crawl --seed-file {seeds} --scope any --delay 0.2 --allow-private", err=True)
        click.echo("Ctrl-C ends it.", err=True)


def _write_nginx(
    spec: WorldSpec,
    directory: Path,
    seeds_file: Path | None,
    expected: Path | None,
    crawl_config: Path | None,
    as_json: bool,
) -> None:
    from weft.testing.nginx import write
    from weft.testing.world import World

    if spec.profile != "calm":
        raise BadInput("--nginx writes plain files, so it can only serve --profile calm")
    if spec.port == 0 or spec.tls:
        raise BadInput("--nginx needs a --port to write into its config, and serves no --tls")
    world = World(spec)
    written = write(world, directory)
    _write_files(world, seeds_file, expected, crawl_config)
    command = f"nginx -c {written.config}"
    if as_json:
        from weft.cli.terminal.output import print_document

        print_document(
            {"config": str(written.config), "files": written.files, "bytes": written.bytes, "command": command}
        )
    else:
        click.echo(f"{written.files} files, {written.bytes / 1e6:.0f} MB in {directory}. Start it with:\n  {command}")
