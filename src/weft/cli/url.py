"""`weft url URL...`: shows how Weft interprets a URL."""

from __future__ import annotations

import click

from weft.cli.terminal.output import output_flags, print_document


@click.command()
@click.argument("texts", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--pods", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="Pods to shard over."
)
@click.option(
    "--data-dirs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Data dirs to shard over.",
)
@output_flags
def url(texts: tuple[str, ...], pods: int, data_dirs: int, as_json: bool, quiet: bool) -> None:  # noqa: ARG001
    """Show how Weft interprets a URL: its canonical form, domain and pod."""
    from weft import urls

    rows = []
    for text in texts:
        canonical = urls.seed(text)
        domain = urls.domain_of(canonical)
        rows.append(
            {
                "url": canonical,
                "domain": domain,
                "pod": urls.pod_of(domain, pods),
                "data_dir": urls.data_dir_of(canonical, data_dirs),
                "skipped_as_link": urls.skipped_extension(canonical),
            }
        )
    if as_json:
        print_document({"urls": rows})
        return
    for row in rows:
        click.echo("  ".join(f"{name}={value}" for name, value in row.items() if value is not None))
