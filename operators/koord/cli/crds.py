"""``koord crds``: writes the CRDs, checks that they are current, checks YAML against them.

Only reads and writes files, never the cluster. The rules are in ``koord.api``.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Final

import typer

from koord.api.crdgen import RESOURCES, file_name, render_crd
from koord.api.lint import MAX_FILE_BYTES, UnreadableError, lint
from koord.cli.output import count_of

_FOUND: Final = 1
_UNREADABLE: Final = 2

crds = typer.Typer(help="Write and check the CRDs.", invoke_without_command=True)


@crds.callback()
def write_crds(
    context: typer.Context,
    directory: Annotated[Path, typer.Option(help="Directory of the CRDs.")] = Path("crds"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file is stale.")
    ] = False,
) -> None:
    """Write the CRDs of all custom resources."""
    if context.invoked_subcommand is not None:
        return
    if check:
        stale = "".join(_find_stale(directory))
        typer.echo(stale, nl=False)
        raise typer.Exit(_FOUND if stale else 0)
    directory.mkdir(parents=True, exist_ok=True)
    for resource in RESOURCES:
        path = directory / file_name(resource)
        path.write_text(render_crd(resource), encoding="utf-8")
        typer.echo(path)


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


@crds.command("lint")
def lint_files(
    files: Annotated[list[Path], typer.Argument(help="YAML files to check.")],
) -> None:
    """Check YAML files: our kinds in full, the metadata of all others."""
    counts = [_lint_file(path) for path in files]
    documents = sum(documents for documents, _ in counts)
    problems = sum(problems for _, problems in counts)
    typer.echo(f"{count_of(documents, 'object')} checked, {count_of(problems, 'problem')}")
    raise typer.Exit(_FOUND if problems else 0)


def _lint_file(path: Path) -> tuple[int, int]:
    documents = problems = 0
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1).decode("utf-8")
        for checked in lint(text):
            documents += 1
            problems += len(checked.problems)
            for problem in checked.problems:
                typer.echo(f"{path}: {checked.title}: {problem}")
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        typer.echo(f"{path}: {error}", err=True)
        raise typer.Exit(_UNREADABLE) from error
    return documents, problems
