"""``koord lint``: checks YAML files before they are applied, alone or against a cluster.

The rules are in ``koord.api``. The cluster is read with ``--server`` only, and never changed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from koord.api.lint import MAX_FILE_BYTES, UnreadableError, lint_documents, read_documents
from koord.api.lint_relations import Known, find_relation_problems
from koord.cli.common import Context, ExitCode, Form, Kubeconfig, Output
from koord.cli.output import count_of, print_in

_STDIN: Final = "-"


class Found(NamedTuple):
    """One problem: in which file, of which object."""

    file: str
    object: str
    problem: str


def lint(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|-...", help="YAML files; - is the standard input.")
    ],
    server: Annotated[
        bool, typer.Option("--server", help="Also look up PodGroups and quotas in the cluster.")
    ] = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Find mistakes in YAML files before they cost a job its start.

    Checks our kinds in full; of all others labels, annotations, gates, and whether PodGroup and
    quota exist and enough pods join. Exit codes for CI: 0 no problem, 1 problems, 2 not readable.

    For example:

      koord lint job.yaml

      kustomize build . | koord lint - --server
    """
    texts = {name: _read(name) for name in files}
    known = _ask(kubeconfig, context) if server else None
    documents = [(name, one) for name, text in texts.items() for one in _parse(name, text)]
    found = list(_check(documents, known))
    print_in(
        output,
        document=lambda: {"objects": len(documents), "problems": [one._asdict() for one in found]},
        names=lambda: dict.fromkeys(one.file for one in found),
        text=lambda: (
            *(f"{one.file}: {one.object}: {one.problem}" for one in found),
            f"{count_of(len(documents), 'object')} checked, {count_of(len(found), 'problem')}",
        ),
    )
    if found:
        raise typer.Exit(ExitCode.NOT_WELL)


def _check(documents: list[tuple[str, object]], known: Known | None) -> Iterator[Found]:
    bare = [document for _, document in documents]
    checked = list(lint_documents(bare))
    related = list(find_relation_problems(bare, known))
    for at, one in enumerate(checked):
        problems = (*one.problems, *(problem for place, problem in related if place == at))
        for problem in problems:
            yield Found(documents[at][0], one.title, str(problem))


def _read(name: str) -> str:
    try:
        if name == _STDIN:
            return sys.stdin.read(MAX_FILE_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _fail(name, error)
        raise typer.Exit(ExitCode.USAGE) from error


def _parse(name: str, text: str) -> list[object]:
    try:
        return list(read_documents(text))
    except UnreadableError as error:
        _fail(name, error)
        raise typer.Exit(ExitCode.USAGE) from error


def _fail(name: str, error: Exception) -> None:
    typer.echo(f"{name}: {error}", err=True)


def _ask(kubeconfig: str, context: str) -> Known:
    """Return what the cluster has; the reader is imported only for that."""
    from koord.cli.cluster import read_without_target, refuse_gaps  # noqa: PLC0415 - slow
    from koord.kube.kinds import POD_GROUPS, QUOTAS  # noqa: PLC0415 - slow

    reading, target = read_without_target(kubeconfig, context)
    refuse_gaps(reading, POD_GROUPS, QUOTAS)
    gangs = reading.state.gangs
    groups = (key.split("/", 1) for key in gangs.keys() if gangs.pod_group(key) is not None)  # noqa: SIM118
    quotas = (spec.name for spec in reading.state.quotas.catalog.written.values())
    return Known(frozenset((one[0], one[1]) for one in groups), frozenset(quotas), target.namespace)
