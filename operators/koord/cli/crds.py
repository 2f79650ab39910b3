"""``koord crds``: write the CRDs, check that they are current, check YAML against them.

Only reads and writes files; the cluster is never asked. What is checked and why is decided in
``koord.api``.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Final

import typer

from koord.api.crdgen import file_name, render_crd
from koord.api.documents import MAX_FILE_BYTES, UnreadableError
from koord.api.kinds import RESOURCES
from koord.api.lint import lint

_FOUND: Final = 1
_UNREADABLE: Final = 2

app = typer.Typer(help="Write and check the CRDs.", invoke_without_command=True)


@app.callback()
def crds(
    context: typer.Context,
    directory: Annotated[Path, typer.Option(help="Where the CRDs are.")] = Path("crds"),
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
    """Yield the lines by which the files differ from what the models say."""
    for resource in RESOURCES:
        path = directory / file_name(resource)
        written = path.read_text(encoding="utf-8") if path.exists() else ""
        yield from unified_diff(
            written.splitlines(keepends=True),
            render_crd(resource).splitlines(keepends=True),
            fromfile=str(path),
            tofile=f"{path} (from the models)",
        )


@app.command("lint")
def lint_files(
    files: Annotated[list[Path], typer.Argument(help="YAML files to check.")],
) -> None:
    """Check YAML files: our own kinds in full, of all others the metadata."""
    counts = [_lint_file(path) for path in files]
    documents = sum(documents for documents, _ in counts)
    problems = sum(problems for _, problems in counts)
    typer.echo(f"{_count(documents, 'object')} checked, {_count(problems, 'problem')}")
    raise typer.Exit(_FOUND if problems else 0)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
