"""``--watch``: runs a command that shows something again and again.

The command prints as always, into memory; it knows nothing of being watched. On a terminal the
screen is drawn anew; elsewhere the output is written whenever it has changed, so that ``-o json``
gives a stream of documents.
"""

import gc
import inspect
import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial, wraps
from typing import Annotated, Any, Final, TypeAlias

import typer

from koord.cli.common import ExitCode

Watch: TypeAlias = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again when it changes, until Ctrl-C.")
]
INTERVAL: Final = 2.0
"""Seconds between two looks, at least."""
_REST: Final = 4
"""A look is followed by a pause of this many times its own length: it costs the API server."""
_CLEAR: Final = "\x1b[H\x1b[2J"


def watchable(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--watch``."""

    @wraps(command)
    def run(*, watch: bool = False, **given: Any) -> None:
        if watch:
            show_again(partial(command, **given))
        else:
            command(**given)

    signature = inspect.signature(command)
    option = inspect.Parameter(
        "watch", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Watch
    )
    shown = signature.replace(parameters=[*signature.parameters.values(), option])
    run.__signature__ = shown  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "watch": Watch}
    return run


def show_again(
    show: Callable[[], None],
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show until Ctrl-C. Once it was shown, a cluster that cannot be read ends nothing."""
    gc.enable()  # unlike in commands that end soon
    last: str | None = None
    try:
        while True:
            began = clock()
            text = _take(show, is_first=last is None)
            if text is not None and text != last:
                is_screen = sys.stdout.isatty()
                sys.stdout.write(_CLEAR + text if is_screen else text)
                sys.stdout.flush()
                last = text
            pause(max(INTERVAL, _REST * (clock() - began)))
    except KeyboardInterrupt:
        return


class _Page(io.StringIO):
    """What a command prints; it looks like the output, so that colours and widths stay."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _take(show: Callable[[], None], *, is_first: bool) -> str | None:
    """Return what a command prints; None if the cluster cannot be read, which it says itself."""
    page = _Page()
    try:
        with redirect_stdout(page):
            show()
    except typer.Exit as end:
        if end.exit_code == ExitCode.UNREADABLE and not is_first:
            return None
        if end.exit_code != ExitCode.NOT_WELL:
            raise
    return page.getvalue()
