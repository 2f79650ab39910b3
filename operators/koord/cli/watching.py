"""``--watch``: runs a command that shows something again and again.

The command prints as always, into memory; it knows nothing of being watched. On a terminal the
screen is drawn anew; elsewhere the output is written whenever more than ages in it has changed, so
that ``-o json`` gives a stream of documents.
"""

import gc
import inspect
import io
import re
import sys
import time
from collections.abc import Callable, Collection
from contextlib import redirect_stderr, redirect_stdout
from functools import partial, wraps
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from koord.cli.common import ExitCode

Watch: TypeAlias = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again when it changes, until Ctrl-C.")
]
INTERVAL: Final = 2.0
"""Seconds between two outputs, at least."""
_REST: Final = 4
"""Each is followed by a pause of this many times its own length: it costs the API server."""
_AGE_FIELDS: Final = ("renewedSecondsAgo", "secondsLeft")
"""Numbers in documents that change by themselves."""
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
    last = None
    try:
        while True:
            began = clock()
            output = _take(show, last)
            _write(output, last)
            last = output
            pause(max(INTERVAL, _REST * (clock() - began)))
    except KeyboardInterrupt:
        return


class _StreamOutput(NamedTuple):
    """What went to one stream, also without the ages in it."""

    text: str = ""
    ageless: str = ""


class _CommandOutput(NamedTuple):
    """What a command printed."""

    page: _StreamOutput
    remarks: _StreamOutput
    """Warnings and errors."""


def _write(output: _CommandOutput, last: _CommandOutput | None) -> None:
    """Draw the screen; elsewhere write what has changed, and more than in its ages."""
    if sys.stdout.isatty():
        if output != last:
            sys.stdout.write(f"{_CLEAR}{output.remarks.text}{output.page.text}")
    else:
        before = last or (None, None)
        for stream, new, old in zip((sys.stdout, sys.stderr), output, before, strict=True):
            if old is None or new.ageless != old.ageless:
                stream.write(new.text)
    sys.stdout.flush()
    sys.stderr.flush()


class _CapturedStdout(io.StringIO):
    """What a command prints; it looks like the output, so that colours and widths stay."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _take(show: Callable[[], None], last: _CommandOutput | None) -> _CommandOutput:
    """Return what a command prints: of a cluster that cannot be read the last page."""
    from koord.core.model.text import AGES  # noqa: PLC0415 - slow to import, and --help needs none

    page, remarks = _CapturedStdout(), _CapturedStdout()
    AGES.clear()
    try:
        with redirect_stdout(page), redirect_stderr(remarks):
            show()
    except typer.Exit as end:
        if end.exit_code == ExitCode.UNREADABLE and last is not None:
            return last._replace(remarks=_print(remarks, AGES))
        if end.exit_code != ExitCode.NOT_WELL:
            sys.stderr.write(remarks.getvalue())
            raise
    return _CommandOutput(_print(page, AGES), _print(remarks, AGES))


def _print(page: _CapturedStdout, ages: Collection[str]) -> _StreamOutput:
    text = page.getvalue()
    written = "|".join(map(re.escape, ages)) or "(?!)"
    fields = "|".join(_AGE_FIELDS)
    ageless = re.sub(rf"\b(?:{written})\b|\b(?:{fields})\"?: [\d.]+", "", text)
    return _StreamOutput(text, re.sub(" +", " ", ageless))
