"""Every command, by one table: it has help with an example, and states are shown as JSON too."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from koord.cli.main import COMMANDS, app, load

NO_OUTPUT = {
    "run",
    "page",
    "serve",
    "watch",
    "release",
    "snapshot anonymise",
    "bug-report",
    "demo",
    "sandbox up",
    "sandbox down",
    "sandbox devices",
    "sandbox env",
    "sandbox build",
    "migrate",
    "crds",
    "version",
    "audit record",
    "audit forget",
    *("usage record", "usage import", "usage rebuild"),
}
"""Without ``--output``: they do something, or show no state."""


def list_commands() -> Iterator[tuple[str, Any]]:
    """Yield the words of every command that runs, and the command."""
    for name in COMMANDS:
        command = load(name)
        if getattr(command, "commands", None):
            for word, subcommand in command.commands.items():
                yield f"{name} {word}", subcommand
        else:
            yield name, command


ALL = dict(list_commands())


@pytest.mark.parametrize("words", ALL)
def test_help_has_an_example_and_a_short_name(words: str) -> None:
    long, short = (CliRunner().invoke(app, [*words.split(), option]) for option in ("--help", "-h"))
    assert long.exit_code == short.exit_code == 0
    assert short.stdout == long.stdout
    examples = long.stdout.partition("For example:")[2]
    assert f"koord {words}" in examples


@pytest.mark.parametrize("words", ALL)
def test_help_fits_into_80_columns(words: str) -> None:
    """Paragraphs break at the end of the line, and each example fits into one."""
    lines = (ALL[words].help or "").splitlines()
    assert not [line for line in lines if line.startswith(" ") and len(line) > 78]
    assert not [line for line, after in pairwise(lines) if line and after and line[0] != " "]


@pytest.mark.parametrize("words", sorted(ALL.keys() - NO_OUTPUT))
def test_what_shows_state_shows_it_as_json(words: str) -> None:
    outputs = [param for param in ALL[words].params if "--output" in param.opts]
    assert outputs, "has no --output"
    assert "-o" in outputs[0].opts
    assert "json" in set(type(outputs[0].default))
