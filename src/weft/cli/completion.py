"""`weft completion SHELL`: prints the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: source it, or save it where your shell looks.

    \b
    bash:  source <(weft completion bash)
    zsh:   source <(weft completion zsh)
    fish:  weft completion fish > ~/.config/fish/completions/weft.fish
    """
    from weft.cli.main import weft

    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(weft, {}, "weft", "_WEFT_COMPLETE").source())
