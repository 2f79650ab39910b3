"""``koord crds``: writes the CRDs, and checks that they are current.

Only reads and writes files, never the cluster. The rules are in ``koord.api``.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Final

import typer

from koord.api.crdgen import RESOURCES, file_name, render_crd
from koord.cli.common import say

_FOUND: Final = 1


def crds(
    directory: Annotated[Path, typer.Option(help="Directory of the CRDs.")] = Path("crds"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file is stale.")
    ] = False,
) -> None:
    """Write and check the CRDs.

    For example:

      koord crds --directory crds

      koord crds --check
    """
    if check:
        stale = "".join(_find_stale(directory))
        say(stale, nl=False)
        raise typer.Exit(_FOUND if stale else 0)
    directory.mkdir(parents=True, exist_ok=True)
    for resource in RESOURCES:
        path = directory / file_name(resource)
        path.write_text(render_crd(resource), encoding="utf-8")
        say(str(path))


def _find_stale(directory: Path) -> Iterator[str]:
    for resource in RESOURCES:
        path = directory / file_name(resource)
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        yield from unified_diff(
            written.splitlines(keepends=True),
            render_crd(resource).splitlines(keepends=True),
            fromfile=str(path),
            tofile=f"{path} (from the models)",
        )
