"""``--watch``: what it prints, when, and how it ends."""

from __future__ import annotations

from io import StringIO
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import pytest
import typer

from koord.cli.common import ExitCode, warn
from koord.cli.watching import INTERVAL, show_again, watchable
from koord.core.model.text import format_age

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


def test_ages_alone_are_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [
        lambda: f"a  waits {format_age(9)}",
        lambda: f"a waits {format_age(10)}",  # the column is wider
        lambda: f"b waits {format_age(12)}",
        lambda: '{"renewedSecondsAgo": 1.2}',
        lambda: '{"renewedSecondsAgo": 0.5}',
        lambda: "cpu 100m",
        lambda: "cpu 200m",
    ]
    show_again(lambda: print(pages.pop(0)()), stop_without(pages))  # noqa: T201 - as a command does
    assert capsys.readouterr().out.splitlines() == [
        "a  waits 9s",
        "b waits 12s",
        '{"renewedSecondsAgo": 1.2}',
        "cpu 100m",
        "cpu 200m",
    ]


def test_a_warning_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    ages = [2, 4, 6]

    def show() -> None:
        warn(f"nobody leads for {format_age(ages.pop(0))}")

    show_again(show, stop_without(ages))
    assert capsys.readouterr().err == "warning: nobody leads for 2s\n"


def test_a_screen_has_warnings_above_the_page_and_ages_that_grow(monkeypatch) -> None:
    class Screen(StringIO):
        def isatty(self) -> bool:
            return True

    screen, ages = Screen(), [2, 4, 4]
    monkeypatch.setattr("sys.stdout", screen)

    def show() -> None:
        warn("nobody leads")
        print(f"waits {format_age(ages.pop(0))}")  # noqa: T201 - as a command does

    show_again(show, stop_without(ages))
    assert screen.getvalue().split("\x1b[H\x1b[2J") == [
        "",
        "warning: nobody leads\nwaits 2s\n",
        "warning: nobody leads\nwaits 4s\n",
    ]


def stop_without(left: list[Any]) -> Callable[[float], None]:
    def pause(_: float) -> None:
        if not left:
            raise KeyboardInterrupt

    return pause


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
