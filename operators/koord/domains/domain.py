"""What a domain is: the modules that it consists of, by name, so that none of them is loaded.

The command line lists commands without the planner, and plans without the operators. Nothing is
known here of any domain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``koord``."""

    name: str
    module: str
    """Has a function or an app for typer, named as the command with underscores."""
    summary: str


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain. ``module:name`` is what stands under a name in a module."""

    name: str
    resources: tuple[str, ...] = ()
    """Models of its custom resources: CRDs and checks of files are made from them."""
    planning: str = ""
    """Its ``Planning``: kinds, plugins, what it reads of pods. The command line loads it, too."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Field of the configuration file -> its ``Section``."""
    operators: tuple[str, ...] = ()
    """Modules, each with an ``OPERATOR``."""
    start: str = ""
    """A function that adds to a process what is needed whichever operators run: its series."""
    describe: str = ""
    """A function that returns the domain's part of the debug page."""
    commands: tuple[Command, ...] = ()


def load(reference: str) -> Any:
    """Return what ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
