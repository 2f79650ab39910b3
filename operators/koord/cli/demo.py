"""``koord demo``: only the command line and its errors; the demo is ``koord.demo``."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console

from koord.demo import DemoError
from koord.demo.show import show
from koord.sandbox import SandboxError

_FAILED: Final = 1
_BY_SIGNAL: Final = 128
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster and the operators up afterwards.")
    ] = False,
) -> None:
    """See gangs wait and start, on a real API server with fake nodes. Needs no cluster.

    The exit code is 0 only if everything that it claims was observed on the API server.
    """
    console = Console(highlight=False)
    try:
        with _ending_on_signals():
            show(console, keep=keep)
    except KeyboardInterrupt:
        raise typer.Exit(_BY_SIGNAL + signal.SIGINT) from None
    except (DemoError, SandboxError) as error:
        typer.secho(f"error: {error}", err=True, fg=typer.colors.RED)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise typer.Exit(_FAILED) from None


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Unwind on SIGTERM and SIGHUP as on Ctrl-C, so that nothing is left running."""
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(_BY_SIGNAL + number)
