"""The command `koord`: mounts the groups of commands, and nothing else."""

import typer

from koord.cli import sandbox

app = typer.Typer(
    name="koord",
    help="Koordinator's scheduling for AI and batch jobs, as Kubernetes operators.",
    no_args_is_help=True,
)
app.add_typer(sandbox.app, name="sandbox")


def main() -> None:
    """Run the command line."""
    app()
