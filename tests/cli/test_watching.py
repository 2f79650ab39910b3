"""``--watch``: what it prints, when, and how it ends."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING

import pytest
import typer

from koord.cli.common import ExitCode
from koord.cli.watching import INTERVAL, show_again, watchable

if TYPE_CHECKING:
    from collections.abc import Callable


class Looks:
    """A command that prints one text after the other, or ends with an exit code; then Ctrl-C."""

    def __init__(self, *looks: str | ExitCode) -> None:
        self._looks = list(looks)
        self.pauses: list[float] = []

    def show(self) -> None:
        look = self._looks.pop(0)
        if isinstance(look, ExitCode):
            raise typer.Exit(look)
        print(look)  # noqa: T201 - as a command does

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self._looks:
            raise KeyboardInterrupt


def watch(looks: Looks, clock: Callable[[], float] = lambda: 0.0) -> None:
    show_again(looks.show, looks.pause, clock)


def test_what_has_not_changed_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks("a", "a", "b", "a")
    watch(looks)
    assert capsys.readouterr().out == "a\nb\na\n"
    assert looks.pauses == [INTERVAL] * 4


def test_a_long_look_is_followed_by_a_longer_pause() -> None:
    looks = Looks("a")
    times = chain((0.0, 3.0), repeat(3.0))
    watch(looks, lambda: next(times))
    assert looks.pauses == [12.0]


def test_a_cluster_that_cannot_be_read_for_a_while_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch(Looks("a", ExitCode.UNREADABLE, "b"))
    assert capsys.readouterr().out == "a\nb\n"


@pytest.mark.parametrize(
    "looks", [Looks(ExitCode.UNREADABLE), Looks("a", ExitCode.USAGE)], ids=["at first", "gone"]
)
def test_other_errors_end_it(looks: Looks) -> None:
    with pytest.raises(typer.Exit):
        watch(looks)


def test_a_command_keeps_its_options() -> None:
    seen = []

    @watchable
    def command(name: str, wide: bool = False) -> None:  # noqa: FBT001, FBT002 - typer's way
        seen.append((name, wide))

    command(name="a", wide=True, watch=False)
    assert seen == [("a", True)]
