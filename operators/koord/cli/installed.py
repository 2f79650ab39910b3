"""Commands of other packages, which name them by entry points of the group ``koord.commands``.

Knows which packages are installed, and nothing of what is in them: one is imported only when its
command runs. The name of an entry point is that of the command; what it leads to is a function or a
typer app, as for the commands of this package.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from koord.cli.common import ExitCode, fail

_GROUP: Final = "koord.commands"


@cache
def find_installed() -> Mapping[str, EntryPoint]:
    """Return the entry points of all installed commands; reads a file of every package."""
    return {entry_point.name: entry_point for entry_point in entry_points(group=_GROUP)}


def read_summary(entry_point: EntryPoint) -> str:
    """Return what the package that has a command says of itself."""
    package = entry_point.dist
    return "" if package is None else str(package.metadata["Summary"] or "")


def import_command(name: str, folder: str) -> Any:
    """Import a command; if it is not installed, say where this project has its package."""
    entry_point = find_installed().get(name)
    if entry_point is None:
        fail(
            f"koord {name} is in a package of its own, which is not installed. "
            f"To install it, in a checkout of koord-operators: pip install ./{folder}",
            ExitCode.USAGE,
        )
    try:
        return entry_point.load()
    except (ImportError, AttributeError) as error:
        package = "another package" if entry_point.dist is None else entry_point.dist.name
        fail(f"koord {name} of {package} cannot be imported: {error}", ExitCode.USAGE)
